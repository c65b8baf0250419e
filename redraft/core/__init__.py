"""Core: values, random numbers, noise schedules, noising processes, text, hardware. Knows no network and no sampler."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
