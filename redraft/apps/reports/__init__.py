"""Showing: texts as they are written, a run as a page, pictures, the demo."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
