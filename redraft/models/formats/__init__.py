"""Checkpoint formats of other projects: one file per family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.models.formats.checkpoint import Original
    from redraft.models.formats.dit import Ratios
    from redraft.models.formats.dit_layout import dit
    from redraft.models.formats.exporter import OUTWARD, export_as
    from redraft.models.formats.gpt2 import gpt2
    from redraft.models.formats.importer import convert, in_package
    from redraft.models.formats.layout import Layout, LayoutError, flat, require, setting, some, whole_number
    from redraft.models.formats.llada import llada
    from redraft.models.formats.llama import llama, qwen2, qwen3
    from redraft.models.formats.raw import raw_gaps, raw_outputs
    from redraft.models.formats.registry import FORMATS, Foreign, read_foreign, recognised, understood
    from redraft.models.formats.storage.files import refuse_pickles, settings
    from redraft.models.formats.storage.hub import local_folder
    from redraft.models.formats.storage.tensors import Held, InFile, Settings, Stored, Weights

__getattr__, __dir__, __all__ = attach(__name__)
