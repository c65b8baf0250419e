"""Many passes as one: the tokens of all of them laid end to end, attention for each by itself (Orca, Yu et al. 2022).

Embedding, norms, projections and MLPs know no neighbours, so they run once, on the tokens of all passes, whatever their
lengths: nothing is padded to a rectangle, nothing is masked. Attention runs pass by pass with its own keys and cache;
passes of one shape share a call. A pass gets the same numbers alone and in company, if the products do not depend on
the number of their rows (`redraft.core.batch_invariant_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.models.networks.attention import MaskTensor, RopeScaling, RotaryEmbedding, attend
from redraft.models.networks.forward_pass import ForwardPass, PassOutput
from redraft.models.networks.kv_cache import KeyValue
from redraft.models.networks.layers import QueryPositions, TimeEmbeddings
from redraft.models.networks.transformer import Transformer, _require_known_positions


def run_ragged(
    network: Transformer, passes: Sequence[ForwardPass], least: int = 1, each_layer: Callable[[], None] | None = None
) -> list[PassOutput]:
    """The states of each pass, in their order, from one walk through the layers.

    least: products have at least this many rows, of which some are dropped; a BLAS may round fewer rows differently.
    each_layer: called after each layer, say as a sign of life.
    """
    groups: dict[bool, list[int]] = {}
    for number, one in enumerate(passes):
        groups.setdefault(one.context.label is None, []).append(number)
    found: dict[int, PassOutput] = {}
    for numbers in groups.values():
        if network.ports.cross is not None:  # every pass reads a source of its own
            found |= {number: network.trunk(passes[number]) for number in numbers}
            continue
        order = sorted(numbers, key=lambda number: _shape(passes[number]))
        pack = _RaggedBatch.of(network, [passes[number] for number in order], least)
        found |= zip(order, pack.run(each_layer), strict=True)
    return [found[number] for number in range(len(passes))]


def project_ragged(network: Transformer, states: Sequence[Tensor], least: int = 1) -> list[Tensor]:
    """The output layer for the states of several writers, each (…, D) → (…, V)."""
    flat = torch.cat([h.reshape(-1, h.shape[-1]) for h in states])
    missing = least - len(flat)
    raw = network.read_out(F.pad(flat, (0, 0, 0, missing)) if missing > 0 else flat)
    parts = raw[: len(flat)].split([h.numel() // h.shape[-1] for h in states])
    return [part.view(*h.shape[:-1], raw.shape[-1]) for part, h in zip(parts, states, strict=True)]


@lru_cache(32)
def _turns(
    size: int, head_width: int, base: float, slowed: RopeScaling | None, device: torch.device
) -> RotaryEmbedding:
    return RotaryEmbedding.of(torch.arange(size, device=device), head_width, base, slowed)


def _shape(one: ForwardPass) -> tuple[int, ...]:
    """Passes with the same shape, of which the first number is 0, share their attention."""
    rows, length = one.tokens.shape[:2]
    asked = (-1, -1) if one.at is None else one.at.shape
    even = one.at is None or one.at.slot is None
    alike = one.sight is None and even and one.stand.first is not None and one.past.missing is None
    return int(not alike), rows, length, one.past.columns, one.stand.first or 0, *asked


@dataclass(frozen=True)
class _SharedAttention:
    """Passes whose attention is one call: of one shape and without a mask, or a single one."""

    passes: tuple[ForwardPass, ...]
    first: int  # number of its first token in the pack
    asked: int  # number of its first asked token

    @property
    def one(self) -> ForwardPass:
        return self.passes[0]

    @property
    def rows(self) -> int:
        return self.one.stand.rows * len(self.passes)

    @property
    def tokens(self) -> int:
        rows, length = self.one.tokens.shape[:2]
        return rows * length * len(self.passes)

    @property
    def answers(self) -> int:
        """How many states are wanted."""
        return self.tokens if self.one.at is None else len(self.one.at.place) * len(self.passes)

    def keys(self, layer: int, new: KeyValue) -> KeyValue:
        """(1, Hkv, N, d) of all tokens → (rows, Hkv, K, d) of this group, the caches included."""
        length = self.one.tokens.shape[1]
        k, v = (self._cut(a, self.first, length) for a in new)
        if len(self.passes) == 1:
            return self.one.stand.joined(self.one.past.layer(layer), (k, v))
        if self.one.past.columns == 0:
            return k, v
        held = [past for one in self.passes if (past := one.past.layer(layer)) is not None]  # alike: all join at once
        old = torch.cat([a for a, _ in held]), torch.cat([a for _, a in held])
        return self.one.stand.joined(old, (k, v))

    def queries(self, q: Tensor, some: bool) -> Tensor:
        """(1, H, N, d) of all tokens, or of those asked → (rows, H, Lq, d)"""
        at = self.one.at if some else None
        if at is None:
            return self._cut(q, self.asked if some else self.first, self.one.tokens.shape[1])
        if len(self.passes) > 1:
            return self._cut(q, self.asked, at.shape[1])
        return at.spread(q[0, :, self.asked : self.asked + self.answers].transpose(0, 1)).transpose(1, 2)

    def collected(self, read: Tensor, some: bool) -> Tensor:
        """(rows, H, Lq, d) → (n, H, d), in the order of the pack"""
        read = read.transpose(1, 2)
        at = self.one.at if some else None
        return read.flatten(0, 1) if at is None or len(self.passes) > 1 else at.collect(read)

    def mask(self, head_width: int, some: bool) -> MaskTensor:
        sight, at = self.one.sight, self.one.at
        if sight is None:
            return None
        return sight.at(at.rectangle).dense() if some and at is not None else sight.mask(head_width)

    def _cut(self, a: Tensor, first: int, length: int) -> Tensor:
        """(1, H, N, d) → (rows, H, length, d)"""
        return a[0, :, first : first + self.rows * length].unflatten(1, (self.rows, length)).transpose(0, 1)


@dataclass(frozen=True)
class _RaggedBatch:
    """Passes laid end to end, ordered by shape; some rows at the end may stand for nothing."""

    network: Transformer
    groups: tuple[_SharedAttention, ...]
    tokens: int  # N, without the rows that stand for nothing
    extra: int  # rows that stand for nothing
    least: int

    @classmethod
    def of(cls, network: Transformer, passes: Sequence[ForwardPass], least: int) -> _RaggedBatch:
        """Groups of passes that share their attention; the passes are in the order of their shapes."""
        groups: list[_SharedAttention] = []
        first = asked = 0
        for shape, some in groupby(passes, key=_shape):
            together = tuple(some)
            for alike in [together] if shape[0] == 0 else [(one,) for one in together]:
                groups.append(_SharedAttention(alike, first, asked))
                first, asked = first + groups[-1].tokens, asked + groups[-1].answers
        return cls(network, tuple(groups), first, max(0, least - first), least)

    def run(self, each_layer: Callable[[], None] | None) -> list[PassOutput]:
        """The states of each pass, in the order of the pack."""
        network, at = self.network, self._asked()
        h, time = self._embedded()[None], self._time()
        view = _RaggedInputs(self, time, self._rotary(), self.masks(False))
        kept: list[list[KeyValue]] = [[] for _ in self.groups]
        for i, block in enumerate(network.blocks):
            last = i == network.config.layers - 1
            h, new = block(h, replace(view, layer=i), None, at if last else None)
            for group, layer in zip(kept, new, strict=True):
                group.append(layer)
            if each_layer is not None:
                each_layer()
        return self._parts(h if at is not None else h[0], time if at is None or time is None else time.at(at), kept)

    @cached_property
    def passes(self) -> list[ForwardPass]:
        return [one for group in self.groups for one in group.passes]

    def _flat(self, values: Sequence[Tensor]) -> Tensor:
        """Values of each pass, (B, L, …) or broadcast to it in one column, end to end; the extra rows are zero."""
        flat = [a.expand(*one.tokens.shape[:2]) for a, one in zip(values, self.passes, strict=True)]
        whole = torch.cat([a.flatten() for a in flat])
        return F.pad(whole, (0, self.extra)) if self.extra else whole

    def _embedded(self) -> Tensor:
        """(N, D)"""
        network, tokens = self.network, torch.cat([one.tokens.flatten(0, 1) for one in self.passes])
        if self.extra:
            tokens = torch.cat([tokens, tokens.new_zeros(self.extra, *tokens.shape[1:])])
        h: Tensor = network.embedding(tokens)
        if network.position is None:
            return h
        most = network.position.num_embeddings
        places = [_require_known_positions(one.stand.place, one.context.pad, most) for one in self.passes]
        return h + network.position(self._flat(places))

    def _rotary(self) -> RotaryEmbedding | None:
        """Of all tokens; from a table, since a vectorised cosine may round by its place in the tensor."""
        c = self.network.config
        if c.rotary is None:
            return None
        most = max(one.stand.keys for one in self.passes)
        table = _turns(
            1 << max(6, (most - 1).bit_length()), c.head_width, c.rotary, c.slowed, self.passes[0].tokens.device
        )
        places = self._flat([one.stand.place for one in self.passes])
        return RotaryEmbedding(table.cos[places], table.sin[places])

    def _time(self) -> TimeEmbeddings | None:
        """Of all tokens, (1, N); times that stand for nothing make the distinct ones at least so many."""
        if self.network.time is None:
            return None
        levels = [torch.zeros(1, 1) if one.level is None else one.level for one in self.passes]
        level = self._flat([level.float() for level in levels])
        more = -1.0 - torch.arange(self.least, device=level.device, dtype=level.dtype)
        labels = [one.context.label for one in self.passes]
        level = torch.cat([level, more])
        label = None
        if labels[0] is not None:
            label = F.pad(self._flat([label[:, None] for label in labels if label is not None]), (0, len(more)))
            found = self.network.time(level[:, None], label)
            return replace(found, which=found.which[: -len(more), 0][None])
        found = self.network.time(level[None])
        return replace(found, which=found.which[:, : -len(more)])

    def _asked(self) -> QueryPositions | None:
        """The tokens whose states are wanted; None: all, of all passes."""
        if all(one.at is None for one in self.passes):
            return None
        places, first = [], 0
        for one in self.passes:
            rows, length = one.tokens.shape[:2]
            device = one.tokens.device
            own = torch.arange(rows * length, device=device) if one.at is None else one.at.place
            places.append(own + first)
            first += rows * length
        place = torch.cat(places)
        place = F.pad(place, (0, max(0, self.least - len(place))))
        return QueryPositions.of(place, 1, self.tokens + self.extra)

    def masks(self, some: bool) -> tuple[MaskTensor, ...]:
        return tuple(group.mask(self.network.config.head_width, some) for group in self.groups)

    def _parts(self, h: Tensor, time: TimeEmbeddings | None, kept: Sequence[Sequence[KeyValue]]) -> list[PassOutput]:
        """(N, D) of all → each pass by itself."""
        found, begin = [], 0
        which = None if time is None else time.which.flatten()
        for group, layers in zip(self.groups, kept, strict=True):
            for number, one in enumerate(group.passes):
                rows, length = one.tokens.shape[:2]
                count = rows * length if one.at is None else len(one.at.place)
                own, shape = slice(begin, begin + count), (rows, length) if one.at is None else (count,)
                its = None if time is None or which is None else TimeEmbeddings(time.embedded, which[own].view(shape))
                held = slice(number * one.stand.rows, (number + 1) * one.stand.rows)
                caches = [(k[held], v[held]) for k, v in layers]
                found.append(PassOutput(h[own].view(*shape, h.shape[-1]), its, caches))
                begin += count
        return found


@dataclass(frozen=True)
class _RaggedInputs:
    """What the layers see of a pack, as `LayerInputs` of one pass."""

    pack: _RaggedBatch
    time: TimeEmbeddings | None
    rotary: RotaryEmbedding | None
    masks: tuple[MaskTensor, ...]
    layer: int = 0
    source: None = None

    def at(self, asked: QueryPositions) -> _RaggedInputs:
        rotary = None if self.rotary is None else self.rotary.at(asked.rectangle)
        time = None if self.time is None else self.time.at(asked)
        return replace(self, time=time, rotary=rotary, masks=self.pack.masks(True))

    def attend(
        self, q: Tensor, new: KeyValue, past: KeyValue | None, queries: _RaggedInputs
    ) -> tuple[Tensor, tuple[KeyValue, ...]]:
        """(1, H, N, d) what the queries read, each in its own pass; and the keys and values of each group."""
        some = queries is not self
        read, kept = [], []
        for group, mask in zip(self.pack.groups, queries.masks, strict=True):
            k, v = group.keys(self.layer, new)
            read.append(group.collected(attend(group.queries(q, some), k, v, mask), some))
            kept.append((k, v))
        whole = torch.cat(read)  # (n, H, d)
        missing = q.shape[2] - len(whole)
        whole = F.pad(whole, (0, 0, 0, 0, 0, missing)) if missing else whole
        return whole.transpose(0, 1)[None], tuple(kept)
