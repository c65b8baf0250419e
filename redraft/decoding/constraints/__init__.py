"""Rules that a text must obey, exactly: patterns, JSON schemas, words, lengths, choices."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
