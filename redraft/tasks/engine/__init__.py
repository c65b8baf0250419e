"""The engine of all tasks: from a request to a plan, to rows being written, to a result."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
