"""Processes: how a clean sequence becomes noise, and what Bayes' rule says about the way back."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
