"""Tasks: generate, infill, choose, correct, rewrite, control and score in one call each."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
