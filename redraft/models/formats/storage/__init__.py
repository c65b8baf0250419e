"""Where foreign tensors lie: safetensors, pickles, GGUF files, the Hugging Face hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.models.formats.storage.files import refuse_pickles, settings
    from redraft.models.formats.storage.hub import local_folder
    from redraft.models.formats.storage.tensors import Held, InFile, Settings, Stored, Weights

__getattr__, __dir__, __all__ = attach(__name__)
