"""The harness: any model of ours under lm-eval, log-likelihoods as bounds with their error or exact."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
