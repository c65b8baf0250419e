"""Hardware: what this machine grants, which instructions work, and the precision that is faster."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
