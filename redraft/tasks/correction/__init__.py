"""Correction: spelling errors as a noisy channel, and a model of the text around them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
