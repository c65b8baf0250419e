"""Data: texts from files and hubs, rows made from them, batches in a fixed order."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
