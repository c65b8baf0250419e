"""Arguments of the tasks, shared by Python, the command line and the server. Needs no torch."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
