"""Corpora whose truth is known: the embedded stories, tasks made of them, the E2E challenge."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
