"""Solvers for Gaussian noise: ODE and SDE steps on a grid of noise levels."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
