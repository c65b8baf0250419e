"""Controlled generation: texts of given parts of speech, length, attributes and words."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
