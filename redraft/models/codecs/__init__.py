"""Codecs: tokens to vectors and back, for Gaussian noise."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
