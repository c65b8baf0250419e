"""Networks: one transformer for every method, and the weights of other projects in it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
