"""Presets: functions that return a Run, one per recipe, in one dict."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
