"""Ragged batching: many passes run as one, with their tokens concatenated (selective batching of Orca, Yu et al. 2022).

Embedding, norms, projections and MLPs treat each token independently, so they run once on the tokens of all passes;
different lengths need neither padding nor masks. Attention runs for each pass with its own keys and cache; passes of
the same shape share a call. A pass gets the same numbers alone and in a batch, if the bits of a matrix product do not
depend on its number of rows (`redraft.core.batch_invariant_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.models.networks.attention import RopeScaling, RotaryEmbedding, _MaskTensor, attend
from redraft.models.networks.executors.base import Executor, Network
from redraft.models.networks.executors.dense import Dense
from redraft.models.networks.forward_pass import ForwardPass, PassOutput, _QueryPositions, _TimeEmbeddings
from redraft.models.networks.kv_cache import KeyValue


class Scheduler(Protocol):
    """Collects the network calls of concurrent requests and answers each."""

    def run_pass(self, network: Network, forward_pass: ForwardPass, each: Executor | None) -> PassOutput:
        """Run a pass in one batch with those of other requests, or alone on the executor `each`; return its output."""

    def project(self, network: Network, states: Tensor, each: Executor | None) -> Tensor:
        """Logits of states (…, D), computed in one batch with other requests, or alone on the executor `each`."""

    def counting(self, count: Callable[[int], None]) -> AbstractContextManager[None]:
        """Call `count` with the number of rows of each pass of the current request, while the context is open."""


@dataclass(frozen=True)
class Packed(Executor):
    """Runs the passes of many requests as one; the scheduler decides when.

    each: runs each pass by itself, if they cannot be packed into one.
    """

    scheduler: Scheduler
    each: Executor | None = None

    def trunk(self, network: Network, forward_pass: ForwardPass) -> PassOutput:
        return self.scheduler.run_pass(network, forward_pass, self.each)

    def logits(self, network: Network, h: Tensor) -> Tensor:
        return self.scheduler.project(network, h, self.each)

    def counting(self, network: Network, count: Callable[[int], None]) -> AbstractContextManager[None]:
        return self.scheduler.counting(count)


def run_ragged(
    network: Network, passes: Sequence[ForwardPass], least: int = 1, each_layer: Callable[[], None] | None = None
) -> list[PassOutput]:
    """Run passes of a network together; return their outputs in the same order.

    least: minimum number of rows of a matrix product, reached by padding; a BLAS may round fewer rows differently.
    each_layer: called after each layer, for example to show that the process is alive.
    """
    groups: dict[bool, list[int]] = {}
    for index, forward_pass in enumerate(passes):
        groups.setdefault(forward_pass.context.condition.label is None, []).append(index)
    outputs: dict[int, PassOutput] = {}
    for indices in groups.values():
        if network.io.cross is not None:  # every pass reads its own source
            outputs |= {index: Dense().trunk(network, passes[index]) for index in indices}
            continue
        order = sorted(indices, key=lambda index: _shape(passes[index]))
        batch = _RaggedBatch.of(network, [passes[index] for index in order], least)
        outputs |= zip(order, batch.run(each_layer), strict=True)
    return [outputs[index] for index in range(len(passes))]


def project_ragged(network: Network, states: Sequence[Tensor], least: int = 1) -> list[Tensor]:
    """Apply the output layer to the states of several requests together, each (…, D) → (…, V)."""
    flat = torch.cat([h.reshape(-1, h.shape[-1]) for h in states])
    missing = least - len(flat)
    raw = network.project(F.pad(flat, (0, 0, 0, missing)) if missing > 0 else flat)
    parts = raw[: len(flat)].split([h.numel() // h.shape[-1] for h in states])
    return [part.view(*h.shape[:-1], raw.shape[-1]) for part, h in zip(parts, states, strict=True)]


@lru_cache(32)
def _rotary_table(
    size: int, head_width: int, base: float, scaling: RopeScaling | None, device: torch.device
) -> RotaryEmbedding:
    return RotaryEmbedding.of(torch.arange(size, device=device), head_width, base, scaling)


def _shape(forward_pass: ForwardPass) -> tuple[int, ...]:
    """Key for grouping: passes with the same key can share an attention call if its first number is 0."""
    at, past, positions = forward_pass.at, forward_pass.past, forward_pass.positions
    rows, length = forward_pass.tokens.shape[:2]
    rectangular = at is None or at.slot is None
    consecutive = positions.first is not None and past.missing is None
    can_share = forward_pass.attention is None and rectangular and consecutive
    return int(not can_share), rows, length, past.columns, positions.first or 0, *((-1, -1) if at is None else at.shape)


@dataclass(frozen=True)
class _SharedAttention:
    """Passes that share one attention call: several of the same shape without a mask, or a single one.

    In all methods, `only_queries` means that the tensors hold only the query positions of the passes.
    """

    passes: tuple[ForwardPass, ...]
    first: int  # index of the group's first token in the batch
    first_query: int  # index of the group's first query among all query positions

    @property
    def example(self) -> ForwardPass:
        """A pass whose shape all passes of the group have."""
        return self.passes[0]

    @property
    def rows(self) -> int:
        return self.example.positions.rows * len(self.passes)

    @property
    def token_count(self) -> int:
        rows, length = self.example.tokens.shape[:2]
        return rows * length * len(self.passes)

    @property
    def query_count(self) -> int:
        return self.token_count if self.example.at is None else len(self.example.at.index) * len(self.passes)

    def keys(self, layer: int, new: KeyValue) -> KeyValue:
        """(1, Hkv, N, d) of all tokens → (rows, Hkv, K, d) of this group, cached keys and values included."""
        length = self.example.tokens.shape[1]
        k, v = (self._slice(a, self.first, length) for a in new)
        if len(self.passes) == 1:
            return self.example.positions.join(self.example.past.layer(layer), (k, v))
        if self.example.past.columns == 0:
            return k, v
        pasts = [past for p in self.passes if (past := p.past.layer(layer)) is not None]
        old = torch.cat([a for a, _ in pasts]), torch.cat([a for _, a in pasts])
        return self.example.positions.join(old, (k, v))

    def queries(self, q: Tensor, only_queries: bool) -> Tensor:
        """(1, H, N, d) of all tokens or queries → (rows, H, Lq, d) of this group."""
        at = self.example.at if only_queries else None
        if at is None:
            return self._slice(q, self.first_query if only_queries else self.first, self.example.tokens.shape[1])
        if len(self.passes) > 1:
            return self._slice(q, self.first_query, at.shape[1])
        end = self.first_query + self.query_count
        return at.spread(q[0, :, self.first_query : end].transpose(0, 1)).transpose(1, 2)

    def flatten(self, mixed: Tensor, only_queries: bool) -> Tensor:
        """(rows, H, Lq, d) attention outputs → (n, H, d), in the order of the batch."""
        mixed = mixed.transpose(1, 2)
        at = self.example.at if only_queries else None
        return mixed.flatten(0, 1) if at is None or len(self.passes) > 1 else at.collect(mixed)

    def mask(self, head_width: int, only_queries: bool) -> _MaskTensor:
        attention, at = self.example.attention, self.example.at
        if attention is None:
            return None
        return attention.at(at.rectangle).dense() if only_queries and at is not None else attention.mask(head_width)

    def _slice(self, a: Tensor, first: int, length: int) -> Tensor:
        """(1, H, N, d) → (rows, H, length, d)"""
        return a[0, :, first : first + self.rows * length].unflatten(1, (self.rows, length)).transpose(0, 1)


@dataclass(frozen=True)
class _RaggedBatch:
    """Concatenated passes, grouped by shape, with padding tokens at the end if there are too few."""

    network: Network
    groups: tuple[_SharedAttention, ...]
    token_count: int  # N, without padding tokens
    padding: int  # number of padding tokens
    least: int  # minimum number of rows of a matrix product

    @classmethod
    def of(cls, network: Network, passes: Sequence[ForwardPass], least: int) -> _RaggedBatch:
        """The batch of these passes, which must be sorted by `_shape`."""
        groups: list[_SharedAttention] = []
        first = first_query = 0
        for shape, same_shape in groupby(passes, key=_shape):
            members = tuple(same_shape)
            for group in [members] if shape[0] == 0 else [(member,) for member in members]:
                groups.append(_SharedAttention(group, first, first_query))
                first, first_query = first + groups[-1].token_count, first_query + groups[-1].query_count
        return cls(network, tuple(groups), first, max(0, least - first), least)

    def run(self, each_layer: Callable[[], None] | None) -> list[PassOutput]:
        """Run all layers but the last norm; return the output of each pass, in the order of the batch."""
        network, at = self.network, self._query_positions()
        h, time = self._embed()[None], self._time()
        inputs = _RaggedInputs(self, time, self._rotary(), self.masks(False))
        key_values: list[list[KeyValue]] = [[] for _ in self.groups]
        for i, block in enumerate(cast("Iterable[nn.Module]", network.blocks)):
            last = i == network.config.layers - 1
            h, new = block(h, replace(inputs, layer=i), None, at if last else None)
            for layers, layer in zip(key_values, new, strict=True):
                layers.append(layer)
            if each_layer is not None:
                each_layer()
        h, time = h if at is not None else h[0], time if at is None or time is None else time.at(at)
        return self._split(h, time, key_values)

    @cached_property
    def passes(self) -> list[ForwardPass]:
        return [p for group in self.groups for p in group.passes]

    def _flatten(self, values: Sequence[Tensor]) -> Tensor:
        """(N,) the values of each pass, which broadcast to its (B, L), concatenated; zero for padding tokens."""
        flat = [a.expand(*p.tokens.shape[:2]) for a, p in zip(values, self.passes, strict=True)]
        whole = torch.cat([a.flatten() for a in flat])
        return F.pad(whole, (0, self.padding)) if self.padding else whole

    def _embed(self) -> Tensor:
        """(N, D) the embedded tokens."""
        network, tokens = self.network, torch.cat([p.tokens.flatten(0, 1) for p in self.passes])
        if self.padding:
            tokens = torch.cat([tokens, tokens.new_zeros(self.padding, *tokens.shape[1:])])
        positions = [p.positions.embeddable(p.context.pad, network.config.positions) for p in self.passes]
        return network.embed(tokens, self._flatten(positions))

    def _rotary(self) -> RotaryEmbedding | None:
        """Rotary embeddings of all tokens, from a table: a vectorized cosine may round differently by index."""
        c = self.network.config
        if c.rotary is None:
            return None
        most, device = max(p.positions.keys for p in self.passes), self.passes[0].tokens.device
        table = _rotary_table(1 << max(6, (most - 1).bit_length()), c.head_width, c.rotary, c.rope_scaling, device)
        positions = self._flatten([p.positions.values for p in self.passes])
        return RotaryEmbedding(table.cos[positions], table.sin[positions])

    def _time(self) -> _TimeEmbeddings | None:
        """The times of all tokens, (1, N); unused times are added, so that at least `least` of them are distinct."""
        if self.network.config.time is None:
            return None
        levels = [torch.zeros(1, 1) if p.level is None else p.level for p in self.passes]
        level = self._flatten([level.float() for level in levels])
        unused = -1.0 - torch.arange(self.least, device=level.device, dtype=level.dtype)
        labels = [p.context.condition.label for p in self.passes]
        level = torch.cat([level, unused])
        if labels[0] is not None:
            label = F.pad(self._flatten([label[:, None] for label in labels if label is not None]), (0, len(unused)))
            time = self.network.embed_times(level[:, None], label)
            return time and replace(time, index=time.index[: -len(unused), 0][None])
        time = self.network.embed_times(level[None], None)
        return time and replace(time, index=time.index[:, : -len(unused)])

    def _query_positions(self) -> _QueryPositions | None:
        """The query positions of all passes; None if all passes compute the states of all their tokens."""
        if all(p.at is None for p in self.passes):
            return None
        parts, first = [], 0
        for p in self.passes:
            rows, length = p.tokens.shape[:2]
            own = torch.arange(rows * length, device=p.tokens.device) if p.at is None else p.at.index
            parts.append(own + first)
            first += rows * length
        index = torch.cat(parts)
        index = F.pad(index, (0, max(0, self.least - len(index))))
        return _QueryPositions.of(index, 1, self.token_count + self.padding)

    def masks(self, only_queries: bool) -> tuple[_MaskTensor, ...]:
        """The attention mask of each group."""
        return tuple(group.mask(self.network.config.head_width, only_queries) for group in self.groups)

    def _split(
        self, h: Tensor, time: _TimeEmbeddings | None, key_values: Sequence[Sequence[KeyValue]]
    ) -> list[PassOutput]:
        """Split the (N, D) states, the times and the keys and values of each group into the outputs of each pass."""
        outputs, begin = [], 0
        index = None if time is None else time.index.flatten()
        for group, layers in zip(self.groups, key_values, strict=True):
            for i, p in enumerate(group.passes):
                shape = p.tokens.shape[:2] if p.at is None else p.at.index.shape
                own = slice(begin, begin + shape.numel())
                its_time = None if time is None or index is None else replace(time, index=index[own].view(shape))
                rows = slice(i * p.positions.rows, (i + 1) * p.positions.rows)
                its_layers = [(k[rows], v[rows]) for k, v in layers]
                outputs.append(PassOutput(h[own].view(*shape, h.shape[-1]), its_time, its_layers))
                begin = own.stop
        return outputs


@dataclass(frozen=True)
class _RaggedInputs:
    """The counterpart of `LayerInputs` for a ragged batch."""

    batch: _RaggedBatch
    time: _TimeEmbeddings | None  # None if the network does not see the time
    rotary: RotaryEmbedding | None  # None without rotary positions
    masks: tuple[_MaskTensor, ...]  # one per group
    layer: int = 0  # index of the layer that reads these inputs
    source: None = None

    def at(self, query: _QueryPositions) -> _RaggedInputs:
        """The inputs of only the query positions."""
        rotary = None if self.rotary is None else self.rotary.at(query.rectangle)
        time = None if self.time is None else self.time.at(query)
        return replace(self, time=time, rotary=rotary, masks=self.batch.masks(True))

    def attend(
        self, q: Tensor, new: KeyValue, past: KeyValue | None, queries: _RaggedInputs
    ) -> tuple[Tensor, tuple[KeyValue, ...]]:
        """(1, H, N, d) attention outputs, computed within each pass; and the keys and values of each group."""
        only_queries = queries is not self
        mixed, key_values = [], []
        for group, mask in zip(self.batch.groups, queries.masks, strict=True):
            k, v = group.keys(self.layer, new)
            mixed.append(group.flatten(attend(group.queries(q, only_queries), k, v, mask), only_queries))
            key_values.append((k, v))
        whole = torch.cat(mixed)  # (n, H, d)
        missing = q.shape[2] - len(whole)
        whole = F.pad(whole, (0, 0, 0, 0, 0, missing)) if missing else whole
        return whole.transpose(0, 1)[None], tuple(key_values)
