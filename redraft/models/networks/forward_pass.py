"""A forward pass as a value, so that the passes of concurrent requests can be queued and run as one batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from redraft.core.canvas import Context
from redraft.models.networks.attention import AttentionMask
from redraft.models.networks.kv_cache import KeyValue, KeyValueCache, TokenPositions
from redraft.models.networks.layers import _QueryPositions, _TimeEmbeddings


@dataclass(frozen=True)
class ForwardPass:
    """The inputs of one pass through all layers."""

    tokens: Tensor  # (B, L) ids, or (B, L, reads) vectors
    level: Tensor | None  # (B, 1) or (B, L) noise levels; None if the network does not see the time
    positions: TokenPositions
    attention: AttentionMask | None  # None if no pair is masked
    context: Context = Context()
    past: KeyValueCache = KeyValueCache()
    at: _QueryPositions | None = None  # positions whose states are computed; None for all


class PassOutput(NamedTuple):
    """The result of a pass, before the last norm."""

    h: Tensor  # (B, L, D) hidden states, or (N, D) at the query positions
    time: _TimeEmbeddings | None  # times of these states; None if the network does not see the time
    key_values: list[KeyValue]  # keys and values of each layer, cached ones included


class _PassExecutor(Protocol):
    """Runs the passes of a network, possibly batched with passes of other requests."""

    def trunk(self, forward_pass: ForwardPass) -> PassOutput:
        """All layers but the last norm."""
        ...

    def logits(self, h: Tensor) -> Tensor:
        """(…, D) → (…, V): the output layer."""
        ...

    def counting(self, count: Callable[[int], None]) -> AbstractContextManager[None]:
        """Call `count` with the number of rows of each pass of the current request, while the context is open."""
        ...
