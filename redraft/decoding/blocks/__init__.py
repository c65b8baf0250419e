"""Block-wise decoding: left to right in blocks, windows, strides and approximate caches."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
