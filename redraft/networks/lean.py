"""One row of a causal network, token after token: preallocated keys and values, and few small operations.

The same numbers as the transformer's own pass, up to rounding. A token costs little more than reading all weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.networks.attention import Rotary
from redraft.networks.cache import KeyValue, KeyValues, Shelf
from redraft.networks.config import TransformerConfig
from redraft.networks.layers import Attention, Block, OneRow


def grown(past: KeyValues, config: TransformerConfig, new: int, like: Tensor) -> Shelf:
    """The shelf on which `new` columns can be put after those of a cache."""
    if past.shelf is not None and past.shelf.fits(past, new):
        return past.shelf
    columns = past.columns + new
    return Shelf.of(past, (config.layers, config.groups, max(64, 2 * columns), config.head_width), like)


def read_row(blocks: Iterable[Block], h: Tensor, shelf: Shelf) -> Tensor:
    """(1, n, D) embedded tokens right after those on the shelf → (1, n, D) states before the last norm."""
    first, end, mask = shelf.filled, shelf.filled + h.shape[1], None
    if h.shape[1] > 1:
        place = torch.arange(end, device=h.device)
        mask = torch.zeros(end - first, end, device=h.device).masked_fill_(place > place[first:, None], -torch.inf)
    turn: Rotary | None = None
    for i, block in enumerate(blocks):
        if i == 0:
            turn = _turn(block.attention.config, first, end, h)
        h, _ = block(h, LeanRow(shelf.keys[i], shelf.values[i], first, turn, mask))
    shelf.filled = end
    return h


@dataclass(frozen=True)
class LeanRow(OneRow):
    """The keys and values of one layer, where its new ones go, and whom the new tokens see."""

    keys: Tensor  # (Hkv, space, d)
    values: Tensor
    first: int  # place of the first new token
    turn: Rotary | None  # (n, 1, d)
    mask: Tensor | None  # (n, first + n), 0 or −∞; None: all see all

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
        q = turned[:, : c.heads].reshape(n, groups, own, d).permute(1, 2, 0, 3).reshape(1, groups, own * n, d)
        mask = None if self.mask is None else self.mask.repeat(own, 1)
        k, v = self.keys[None, :, :end], self.values[None, :, :end]
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return attention.out(mixed.view(groups, own, n, d).permute(2, 0, 1, 3).reshape(n, c.heads * d))


def _turn(c: TransformerConfig, first: int, end: int, like: Tensor) -> Rotary | None:
    """Rotary positions, (n, 1, d)"""
    if c.rotary is None:
        return None
    rotary = Rotary.of(torch.arange(first, end, device=like.device), c.head_width, c.rotary, c.slowed)
    return Rotary(rotary.cos[:, None], rotary.sin[:, None])
