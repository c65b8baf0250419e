"""Block-wise decoding: left to right in blocks, windows, strides and approximate caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.decoding.blocks.blocks import Blocks
    from redraft.decoding.blocks.multi_block import MultiBlock, Once
    from redraft.decoding.blocks.strides import Strides
    from redraft.decoding.blocks.sub_blocks import Parts
    from redraft.decoding.blocks.windows import Approximate, Dual, Prefix, Stale, Window

__getattr__, __dir__, __all__ = attach(__name__)
