"""Where foreign tensors lie: safetensors, pickles, GGUF files, the Hugging Face hub."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
