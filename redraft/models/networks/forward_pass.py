"""A pass of a network as a value, so that passes of many writers can wait for each other and run as one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from redraft.core.canvas import Context
from redraft.models.networks.attention import AttentionMask
from redraft.models.networks.kv_cache import KeyValue, KeyValueCache, TokenPositions
from redraft.models.networks.layers import QueryPositions, TimeEmbeddings


@dataclass(frozen=True)
class ForwardPass:
    """What one pass through all layers needs to know."""

    tokens: Tensor  # (B, L) ids, or (B, L, reads) vectors
    level: Tensor | None  # (B, 1) or (B, L); None: the network sees no time
    stand: TokenPositions
    sight: AttentionMask | None  # None: all see all
    context: Context = Context()
    past: KeyValueCache = KeyValueCache()
    at: QueryPositions | None = None  # None: the states of all tokens are wanted


class PassOutput(NamedTuple):
    """What comes out before the last norm."""

    h: Tensor  # (B, L, D), or (N, D) where asked
    time: TimeEmbeddings | None  # of these states
    kept: list[KeyValue]  # keys and values of each layer, those of the cache included


class PassExecutor(Protocol):
    """Runs the passes of a network, perhaps together with those of other writers."""

    def trunk(self, one: ForwardPass) -> PassOutput: ...

    def logits(self, h: Tensor) -> Tensor: ...

    def counting(self, count: Callable[[int], None]) -> AbstractContextManager[None]:
        """While it lasts, the rows of each pass that the current writer asks for are counted."""
        ...
