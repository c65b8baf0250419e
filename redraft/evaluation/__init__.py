"""Evaluation: laws, likelihood, text metrics, judges, probes, comparisons and lm-eval."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
