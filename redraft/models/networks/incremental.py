"""One row of a causal network, token after token: preallocated keys and values, and few small operations.

The same numbers as the transformer's own pass, up to rounding. A token costs little more than reading all weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.models.networks.attention import RotaryEmbedding
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.kv_cache import KeyValue, KeyValueBuffer, KeyValueCache
from redraft.models.networks.layers import Attention, Block, _RowExecutor

_STEP = 64  # keys are read in steps of so many, if evenly


def _grow_buffer(past: KeyValueCache, config: TransformerConfig, new: int, like: Tensor) -> KeyValueBuffer:
    """The shelf on which `new` columns can be put after those of a cache."""
    if past.shelf is not None and past.shelf.fits(past, new):
        return past.shelf
    columns = past.columns + new
    space = -(-2 * columns // _STEP) * _STEP
    return KeyValueBuffer.of(past, (config.layers, config.groups, space, config.head_width), like)


def _run_row(blocks: Iterable[Block], h: Tensor, shelf: KeyValueBuffer, *, even: bool = False) -> Tensor:
    """(1, n, D) embedded tokens right after those on the shelf → (1, n, D) states before the last norm.

    even: a token gets the same bits whether it is read alone or with others.
    """
    first, end = shelf.filled, shelf.filled + h.shape[1]
    sight = _even_sight(first, end, h.device) if even else (_sight(first, end, h.device),)
    turn: RotaryEmbedding | None = None
    for i, block in enumerate(blocks):
        if i == 0:
            turn = _turn(block.attention.config, torch.arange(first, end, device=h.device), h)
        h, _ = block(h, _IncrementalRow(shelf.keys[i], shelf.values[i], first, turn, sight, even))
    shelf.filled = end
    return h


class _RowMask(NamedTuple):
    """Whom some of the new tokens see."""

    rows: slice  # of the new tokens
    keys: int  # they look at the first so many
    mask: Tensor | None  # (rows, keys), 0 or −∞; None: all see all


def _sight(first: int, end: int, device: torch.device) -> _RowMask:
    if end - first == 1:
        return _RowMask(slice(0, 1), end, None)
    return _RowMask(slice(0, end - first), end, _causal(first, end, end, device))


def _causal(first: int, end: int, keys: int, device: torch.device) -> Tensor:
    """(end − first, keys): 0 where a token looks, at itself and what stands before it, else −∞."""
    return torch.full((end - first, keys), -torch.inf, device=device).triu(first + 1)


def _even_sight(first: int, end: int, device: torch.device) -> tuple[_RowMask, ...]:
    """By whole steps of keys: a token looks at as many as if it were the last one."""
    mask = _causal(first, end, -(-end // _STEP) * _STEP, device)
    found, begin = [], first
    while begin < end:
        keys = (begin // _STEP + 1) * _STEP
        rows = slice(begin - first, min(end, keys) - first)
        found.append(_RowMask(rows, keys, mask[rows, :keys]))
        begin = keys
    return tuple(found)


@dataclass(frozen=True)
class _IncrementalRow(_RowExecutor):
    """The keys and values of one layer, where its new ones go, and whom the new tokens see."""

    keys: Tensor  # (Hkv, space, d)
    values: Tensor
    first: int  # place of the first new token
    turn: RotaryEmbedding | None  # (n, 1, d)
    sight: tuple[_RowMask, ...]
    even: bool

    def through(self, block: Block, h: Tensor) -> tuple[Tensor, KeyValue]:
        h = h + self._attended(block.attention, block.norm1(h[0]))
        h = h + block.mlp(block.norm2(h))
        end = self.first + h.shape[1]
        return h, (self.keys[None, :, :end], self.values[None, :, :end])

    def _attended(self, attention: Attention, h: Tensor) -> Tensor:
        """(n, D) → (n, D). Queries that share keys are laid side by side, so nothing is repeated."""
        c, n, end = attention.config, len(h), self.first + len(h)
        d, groups, own = c.head_width, c.groups, c.heads // c.groups
        both = attention.qkv(h).view(n, c.heads + 2 * groups, d)
        turned = both[:, : c.heads + groups]
        if self.turn is not None:
            turned = torch.addcmul(turned * self.turn.cos, turned.roll(d // 2, -1), self.turn.sin)
        self.keys[:, self.first : end] = turned[:, c.heads :].transpose(0, 1)
        self.values[:, self.first : end] = both[:, c.heads + groups :].transpose(0, 1)
        q = turned[:, : c.heads].reshape(n, groups, own, d)
        mixed = self._each(q) if self.even else self._all(q)
        return attention.out(mixed.reshape(n, c.heads * d))

    def _all(self, q: Tensor) -> Tensor:
        """(n, Hkv, own, d) queries → what they read."""
        n, groups, own, d = q.shape
        _, keys, mask = self.sight[0]
        k, v = self.keys[None, :, :keys], self.values[None, :, :keys]
        mask = None if mask is None else mask.repeat(own, 1)
        mixed = F.scaled_dot_product_attention(q.permute(1, 2, 0, 3).reshape(1, groups, own * n, d), k, v, mask)
        return mixed.view(groups, own, n, d).permute(2, 0, 1, 3)

    def _each(self, q: Tensor) -> Tensor:
        """The same, every token by itself: a batch of passes of one shape."""
        parts = []
        for rows, keys, mask in self.sight:
            assert mask is not None
            k, v = (a[None, :, :keys].expand(len(mask), -1, -1, -1) for a in (self.keys, self.values))
            parts.append(F.scaled_dot_product_attention(q[rows].contiguous(), k, v, mask[:, None, None]))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def _turn(c: TransformerConfig, place: Tensor, like: Tensor) -> RotaryEmbedding | None:
    """Rotary positions (n,) → (n, 1, d)"""
    if c.rotary is None:
        return None
    rotary = RotaryEmbedding.of(place, c.head_width, c.rotary, c.slowed)
    return RotaryEmbedding(rotary.cos[:, None], rotary.sin[:, None])
