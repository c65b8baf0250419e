"""Attention patterns: which tokens see which, what a network reads for a query, and what its cache keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.models.networks.attention import AttentionMask, Visibility
from redraft.models.networks.forward_pass import ForwardPass, PassOutput, Query, Stream, _QueryPositions
from redraft.models.networks.kv_cache import KeyValueCache, TokenPositions, _CachedStates


def read_plainly(query: Query, pattern: Visibility) -> Stream:
    """One pass over the tokens of the query."""
    tokens, level, context, past, at, *_ = query
    return Stream(ForwardPass.of(pattern, tokens, level, context, past, at))


class AttentionPattern(ABC):
    """Which keys a query attends to, as a function of their positions in the row."""

    block: int | None = None  # number of tokens that are written at a time; None for all
    start: int | None = None  # id of the start token; None for that of the vocabulary
    causal: ClassVar[bool] = False  # no token attends to a later one, and the network reads finished tokens only
    columns_before: ClassVar[int] = 0  # columns read before a row under any attention: 1 for a start token

    @abstractmethod
    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        """Positions of queries and keys, in shapes that broadcast → bool: whether the query attends to the key."""

    @abstractmethod
    def sees_all(self, first: int, end: int) -> bool:
        """Whether queries at positions first..end − 1 attend to all keys at 0..end − 1, so that no mask is needed."""

    def stream(self, query: Query) -> Stream:
        """How to answer the query: by the cached states while nothing has changed, else by a pass over its tokens."""
        cached, positions = query.past.outputs, query.context.positions
        if cached is not None and positions is not None:
            h = cached.reuse(query.tokens, query.level, positions)
            if h is not None:
                return Stream(known=h, at=query.at)
        return read_plainly(query, self)

    def stream_with(self, query: Query, pattern: Visibility) -> Stream:
        """How to answer the query under another attention pattern; no clean stream is read."""
        query.require_whole()
        return read_plainly(query, pattern)

    def state_index(self, at: Tensor, length: int, clean_first: bool) -> Tensor:
        """(N,) indices row · length + column → indices of their states in a training pass of the network."""
        return at

    def cache_query(self, query: Query) -> Query:
        """The query whose pass adds these tokens to the cache."""
        return query

    def next_cache(self, read: ForwardPass, output: PassOutput, *, unfinished: bool) -> KeyValueCache:
        """The cache after a pass that extends it; the states of its output are normed.

        unfinished: whether the tokens will still change.
        """
        past, last_state = read.past, _last_state(output.h, read.context.pad, read.past.last_state)
        return KeyValueCache(output.layers(), read.missing, last_state, past.start_columns, past.exact)


@dataclass(frozen=True)
class Full(AttentionPattern):
    """Full attention: every token attends to every token."""

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        return (query >= 0) & (key >= 0)

    def sees_all(self, first: int, end: int) -> bool:
        return True

    def next_cache(self, read: ForwardPass, output: PassOutput, *, unfinished: bool) -> KeyValueCache:
        """The cache is approximate: its tokens do not attend to tokens that are read later."""
        whole = read.context.positions is None and read.tokens.dim() == 2
        level = None if output.time is None else read.level
        outputs = _CachedStates(read.tokens, level, output.h) if whole else None
        return replace(
            super().next_cache(read, output, unfinished=unfinished), start_columns=0, exact=False, outputs=outputs
        )


@dataclass(frozen=True)
class FullAfterStart(Full):
    """Full attention, also to a start token before the row: slot i reads token i − 1 and predicts token i.

    This is `Causal` with its attention opened, for networks adapted from causal ones with a start token. Rows are read
    whole, without a cache.
    """

    columns_before = 1

    def stream(self, query: Query) -> Stream:
        return self.stream_with(query, self)

    def stream_with(self, query: Query, pattern: Visibility) -> Stream:
        query.require_whole()
        (B, L), pad = query.tokens.shape[:2], query.context.pad
        slots = F.pad(query.tokens, (1, 0), value=query.start)
        context = replace(query.context, pad=None if pad is None else F.pad(pad, (1, 0)), cache=None)
        at = torch.arange(B * L, device=slots.device) if query.at is None else query.at
        read = ForwardPass.of(pattern, slots, None, context, KeyValueCache(), at + at // L)
        return Stream(read, shape=(B, L) if query.at is None else None)

    def cache_query(self, query: Query) -> Query:
        raise ValueError("a network with full attention after a start token reads whole rows; decode without blocks")


@dataclass(frozen=True)
class BlockCausal(AttentionPattern):
    """A token attends to its own block and to all earlier ones (block diffusion, Arriola et al. 2025).

    Training uses two streams at the same positions: noisy tokens attend to their own noisy block and to the *clean*
    earlier blocks. With block=1 this is an autoregressive model that reads a mask where the next token will be.
    """

    block: int = 16

    def __post_init__(self) -> None:
        if self.block < 1:
            raise ValueError(f"block={self.block}; a block must have at least one token")

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        return query // self.block >= key // self.block

    def sees_all(self, first: int, end: int) -> bool:
        return first // self.block == (end - 1) // self.block

    def stream(self, query: Query) -> Stream:
        return super().stream(query) if query.context.clean is None else self._two_streams(query)

    def _two_streams(self, query: Query) -> Stream:
        """The noisy half of [noisy; clean], both at positions 0..L−1: block diffusion in one pass."""
        query.require_whole()
        (B, L), context, level = query.tokens.shape[:2], query.context, query.level
        pos = torch.arange(L, device=query.tokens.device)
        if level is not None:
            level = F.pad(level.expand(B, L), (0, L))
        columns = torch.arange(2 * L, device=pos.device)
        both_pad = None if context.pad is None else torch.cat([context.pad, context.pad], 1)
        attention = AttentionMask.of(self.streams(pos), columns, 0, 2 * L, both_pad)
        assert context.clean is not None
        both = torch.cat([query.tokens, context.clean], 1)
        at = torch.arange(B * L, device=pos.device) if query.at is None else query.at
        queried = _QueryPositions.of(self.state_index(at, L, query.clean_first), B, 2 * L)
        positions = TokenPositions(B, pos.repeat(2), 2 * L, 0, L - 1)
        read = ForwardPass(both, level, positions, attention, context, at=queried)
        return Stream(read, shape=(B, L) if query.at is None else None)

    def state_index(self, at: Tensor, length: int, clean_first: bool) -> Tensor:
        """(N,) indices row · L + column → indices row · 2L + column in [noisy; clean].

        With `clean_first`, the state that predicts the first token of a block is taken from the clean half.
        """
        row, column = at // length, at % length
        clean = (column % self.block == self.block - 1) if clean_first else torch.zeros_like(at)
        return row * 2 * length + column + clean * length

    def next_cache(self, read: ForwardPass, output: PassOutput, *, unfinished: bool) -> KeyValueCache:
        """The cache of an unfinished block is approximate; `last_state` is still that of the last finished token."""
        if not unfinished:
            return super().next_cache(read, output, unfinished=False)
        outputs = _cached_states(read, output.h, 0)
        outputs = outputs and replace(outputs, level=read.level)
        return KeyValueCache(output.layers(), read.missing, read.past.last_state, exact=False, outputs=outputs)

    def streams(self, pos: Tensor) -> _TwoStreams:
        """The pattern of the 2L columns [noisy; clean], where both halves have the positions `pos` (L,)."""
        return _TwoStreams((pos // self.block).repeat(2), torch.arange(2 * len(pos), device=pos.device) >= len(pos))


@dataclass(frozen=True)
class _TwoStreams(AttentionPattern):
    """Noisy tokens attend to their own noisy block and to clean earlier blocks; clean tokens only to clean ones.

    The fields are tensors rather than a block size and a row length, so that compiled code works for any values.
    """

    index: Tensor  # (2L,) index of the block that each column belongs to
    clean: Tensor  # (2L,) bool: True in the clean half

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        same, earlier = self.index[query] == self.index[key], self.index[query] > self.index[key]
        return torch.where(self.clean[key], earlier | same & self.clean[query], same & ~self.clean[query])

    def sees_all(self, first: int, end: int) -> bool:
        return False


@dataclass(frozen=True)
class Causal(AttentionPattern):
    """Causal attention, for autoregressive models: slot i reads token i − 1 and predicts token i.

    Slot 0 reads a start token, such as the mask. The network reads the clean tokens in training; in sampling it reads
    the canvas, which is filled from the left. With the head `Shift` there is no start token (GPT-2, Llama): the network
    reads the row itself, and the state of token i predicts token i + 1.
    """

    start: int | None = None  # id of the start token; None for that of the vocabulary
    causal, block = True, 1

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        return query >= key

    def sees_all(self, first: int, end: int) -> bool:
        return first == end - 1  # a single query at the end attends to everything

    def stream(self, query: Query) -> Stream:
        return self._unshifted(query) if query.start is None else self._shifted(query)

    def _unshifted(self, query: Query) -> Stream:
        """Without a start token: slot i holds token i and predicts token i + 1."""
        clean = query.context.clean
        query = query if clean is None else query._replace(tokens=clean)
        return read_plainly(query._replace(level=None), self)

    def _shifted(self, query: Query) -> Stream:
        """With a start token: slot i holds token i − 1 and predicts token i."""
        tokens, _, context, past, at, start, *_ = query
        pad, positions = context.pad, context.positions
        if past.last_state is not None and positions is not None:
            if tokens.shape[1] == 1:
                return Stream(known=past.last_state, at=at)
            shorter = replace(context, pad=None if pad is None else pad[:, :-1], positions=positions[:, :-1] + 1)
            return Stream(ForwardPass.of(self, tokens[:, :-1], None, shorter, past), past.last_state, at)
        query.require_whole()
        slots = F.pad((tokens if context.clean is None else context.clean)[:, :-1], (1, 0), value=start)
        shifted = replace(context, pad=None if pad is None else F.pad(pad[:, :-1], (1, 0)), cache=None)
        return Stream(ForwardPass.of(self, slots, None, shifted, KeyValueCache(), at))

    def cache_query(self, query: Query) -> Query:
        """Prepends the start token, if there is one and it is not cached: it takes slot 0, and token i slot i + 1."""
        if query.start is None:
            return query
        tokens, context, past = query.tokens, query.context, replace(query.past, start_columns=1)
        pad, positions = context.pad, context.positions
        slot = 1 + (torch.arange(tokens.shape[1], device=tokens.device)[None] if positions is None else positions)
        if not past.columns:
            tokens, slot = F.pad(tokens, (1, 0), value=query.start), F.pad(slot, (1, 0))
            pad = None if pad is None else F.pad(pad, (1, 0))
        return query._replace(tokens=tokens, context=replace(context, pad=pad, positions=slot), past=past)

    def next_cache(self, read: ForwardPass, output: PassOutput, *, unfinished: bool) -> KeyValueCache:
        cache, buffer = super().next_cache(read, output, unfinished=unfinished), output.buffer
        outputs = _cached_states(read, output.h, cache.start_columns)
        return replace(cache, outputs=outputs, buffer=buffer, crops=0 if buffer is None else buffer.crops)


@dataclass(frozen=True)
class AnnealedCausal(AttentionPattern):
    """Causal attention plus some later tokens, a step between causal and full (Gong et al. 2024, Algorithm 1)."""

    open: Tensor  # (L, L) bool: later keys that each query attends to as well

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) | self.open[query, key]

    def sees_all(self, first: int, end: int) -> bool:
        return False


def _cached_states(read: ForwardPass, h: Tensor, start_columns: int) -> _CachedStates | None:
    """The states of tokens read in one pass; None if the rows have different positions."""
    slot = read.context.positions
    if slot is not None and len(slot) > 1:
        return None
    return _CachedStates(read.tokens, None, h, -start_columns if slot is None else int(slot[0, 0]) - start_columns)


def _last_state(h: Tensor, pad: Tensor | None, old: Tensor | None) -> Tensor:
    """(B, 1, D) the state of the last token of each row; the old one for a row that is all padding."""
    if pad is None:
        return h[:, -1:]
    last = ((~pad).cumsum(1) * ~pad).argmax(1)
    new = h.take_along_dim(last[:, None, None], 1)
    return new if old is None else torch.where(pad.all(1)[:, None, None], old.to(new.dtype), new)
