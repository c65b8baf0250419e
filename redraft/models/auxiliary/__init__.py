"""Auxiliary networks beside the denoiser: error head, attribute classifier, tagger, drafter."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
