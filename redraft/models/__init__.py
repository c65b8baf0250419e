"""Models: the network, codecs, heads and `DiffusionLM`; checkpoints, and the formats of other projects."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
