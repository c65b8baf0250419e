"""A network call and its forward pass as values: a pattern chooses the pass, and an executor runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from redraft.core.canvas import Context
from redraft.models.networks.attention import AttentionMask, Visibility
from redraft.models.networks.kv_cache import KeyValue, KeyValueCache, TokenPositions, _KeyValueBuffer


@dataclass(frozen=True)
class _QueryPositions:
    """The N positions of a batch whose states are computed in the last block.

    Token-wise layers compute only these. Attention needs a rectangle (B, M), where M is the largest number of queries
    in a row; the outputs of its padding are dropped.
    """

    index: Tensor  # (N,) row · length + column, ordered by row
    length: int  # L, the number of columns of a row
    shape: tuple[int, int]  # (B, M), the shape of the rectangle
    slot: Tensor | None  # (N,) index into the flattened rectangle; None if the queries fill it in order

    @classmethod
    def of(cls, index: Tensor, rows: int, length: int) -> _QueryPositions:
        """The positions at `index` (N,), each row · length + column, ordered by row."""
        if rows == 1 and len(index):
            return cls(index, length, (1, len(index)), None)
        row = index // length
        most = _most_in_a_row(row, rows, length)
        if len(index) == rows * most:
            return cls(index, length, (rows, most), None)
        count = torch.zeros(rows, dtype=torch.int64, device=index.device).index_add(0, row, torch.ones_like(row))
        rank = torch.arange(len(index), device=index.device) - (count.cumsum(0) - count)[row]
        return cls(index, length, (rows, most), row * most + rank)

    def take(self, a: Tensor) -> Tensor:
        """(B, L, …) values per token, or (B, 1, …) per row → (N, …)"""
        index, columns = self.index, a.shape[1]
        if columns != self.length:
            row = index // self.length
            index = row if columns == 1 else row * columns + index % self.length
        return a.flatten(0, 1).index_select(0, index)

    def spread(self, a: Tensor) -> Tensor:
        """(N, …) → (B, M, …), zero in the padding"""
        if self.slot is not None:
            a = a.new_zeros(self.shape[0] * self.shape[1], *a.shape[1:]).index_copy(0, self.slot, a)
        return a.unflatten(0, self.shape)

    def collect(self, a: Tensor) -> Tensor:
        """(B, M, …) → (N, …), without the padding"""
        return a.flatten(0, 1) if self.slot is None else a.flatten(0, 1).index_select(0, self.slot)

    @property
    def rectangle(self) -> Tensor:
        """(B, M) column of each query."""
        return self.spread(self.index % self.length)


def _most_in_a_row(row: Tensor, rows: int, length: int) -> int:
    """The largest number of queries in a row; an upper bound on other devices, where reading it would take longer."""
    if row.is_cpu and not torch.compiler.is_compiling():
        return max(1, int(np.bincount(row.numpy(), minlength=1).max()))
    return max(1, min(length, len(row)))


@dataclass(frozen=True)
class _TimeEmbeddings:
    """The embedded times of a batch: its K distinct times, and an index into them for each token.

    adaLN with a time per token would cost a matrix product per token, but distinct times are few (blocks, prompts).
    """

    embedded: Tensor  # (K, C) embedding of each distinct time
    index: Tensor  # (B, 1) or (B, L), or (N,) at query positions: index of the token's time among the K

    def __call__(self, layer: nn.Linear) -> Tensor:
        """(B, 1 or L, features): the layer's output for each token."""
        return layer(self.embedded)[self.index]

    def at(self, query: _QueryPositions) -> _TimeEmbeddings:
        """The times of only the query positions."""
        return replace(self, index=query.take(self.index))


@dataclass(frozen=True)
class _EncodedSource:
    """The encoder states that cross attention reads."""

    states: Tensor  # (B, C, width) encoder states of C source tokens
    mask: Tensor | None  # (B, 1, 1, C) bool: False on padding; None if there is no padding


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
    extends_cache: bool = False  # the keys and values are kept in a cache, so an executor may choose where they lie

    @classmethod
    def of(
        cls,
        pattern: Visibility,
        tokens: Tensor,
        level: Tensor | None,
        context: Context,
        past: KeyValueCache,
        at: Tensor | None = None,
    ) -> ForwardPass:
        """The pass over these tokens at the positions of the context, after those of a cache."""
        positions = TokenPositions.of(context.positions, tokens, past)
        missing = positions.missing(past, context.pad)
        attention = AttentionMask.of(pattern, positions.values, positions.first or 0, positions.keys, missing)
        query = None if at is None else _QueryPositions.of(at, *tokens.shape[:2])
        return cls(tokens, level, positions, attention, context, past, query)

    @property
    def missing(self) -> Tensor | None:
        """(B, keys) bool: the empty columns; None if no column is empty."""
        return None if self.attention is None else self.attention.pad


class PassOutput(NamedTuple):
    """The result of a pass. An executor returns it before the last norm, `Transformer.run` after it."""

    h: Tensor  # (B, L, D) hidden states, or (N, D) at the query positions
    time: _TimeEmbeddings | None  # times of these states; None if the network does not see the time
    key_values: list[KeyValue]  # keys and values of each layer, cached ones included
    buffer: _KeyValueBuffer | None = None  # storage that the keys and values are views of; None if they own theirs

    def layers(self) -> Sequence[KeyValue]:
        """Keys and values for a cache: as they are in a buffer, else copied, since a view would keep all of qkv."""
        if self.buffer is not None:
            return self.buffer.layers()
        return tuple((k.contiguous(), v.contiguous()) for k, v in self.key_values)


class Query(NamedTuple):
    """The arguments of a network call, and the facts about the network that its pattern needs."""

    tokens: Tensor  # (B, L) ids, or (B, L, reads) vectors
    level: Tensor | None  # (B, 1) or (B, L) noise levels
    context: Context
    past: KeyValueCache
    at: Tensor | None = None  # (N,) indices row · L + column of the queried states; None for all
    start: int | None = None  # id of the start token of a causal network; None if it has none
    clean_first: bool = False  # with two streams, the first token of a block is predicted from the clean stream

    def require_whole(self) -> None:
        if self.context.positions is not None:
            raise ValueError("this call reads whole rows from position 0; leave out Context(positions=…)")


@dataclass(frozen=True)
class Stream:
    """The states that answer a query: states known already, states of a pass, or the former followed by the latter."""

    forward_pass: ForwardPass | None = None
    known: Tensor | None = None  # (B, n, D) the first states
    at: Tensor | None = None  # (N,) indices into all states; None for all, and if the pass computes only these
    shape: tuple[int, int] | None = None  # (B, L) of the states, if the pass returns them in one column

    def states(self, h: Tensor | None) -> Tensor:
        """The answer, given the states of the pass (None without a pass)."""
        if self.known is not None:
            h = self.known if h is None else torch.cat([self.known.to(h.dtype), h], 1)
        assert h is not None
        if self.shape is not None:
            return h.unflatten(0, self.shape)
        return h if self.at is None else h.flatten(0, 1)[self.at]
