"""The server: OpenAI's routes and our own in front of a model process in which many requests share every pass.

The HTTP side imports no torch, the model process (`worker`, `verbs`, `switchboard`) nothing of the HTTP side: so each
part is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
