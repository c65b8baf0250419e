"""Who sees whom: attention patterns, the attention itself, rotary positions, the key–value cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor


class Pattern(ABC):
    """Which keys a query may see, from their positions alone."""

    @abstractmethod
    def allowed(self, query: Tensor, key: Tensor) -> Tensor | None:
        """(Lq,), (Lk,) positions → (Lq, Lk) bool; None: all."""


@dataclass(frozen=True)
class Full(Pattern):
    """Every token sees every token."""

    def allowed(self, query: Tensor, key: Tensor) -> Tensor | None:
        return None


@dataclass(frozen=True)
class BlockCausal(Pattern):
    """A token sees its own block and all earlier ones (block diffusion, Arriola et al. 2025).

    In training two streams share the positions: noisy tokens see their own noisy block and the *clean* earlier blocks.
    A block of one token is an autoregressive model that asks by a mask token.
    """

    block: int = 16

    def __post_init__(self) -> None:
        if self.block < 1:
            raise ValueError(f"block={self.block}; a block has at least one token")

    def allowed(self, query: Tensor, key: Tensor) -> Tensor | None:
        return (query // self.block)[:, None] >= (key // self.block)[None, :]

    def streams(self, pos: Tensor) -> Tensor:
        """(2L, 2L) for [noisy; clean], both at positions `pos` (L,): clean tokens never see noisy ones."""
        block = pos // self.block
        same, earlier = block[:, None] == block[None, :], block[:, None] > block[None, :]
        noisy = torch.cat([same, earlier], -1)
        return torch.cat([noisy, torch.cat([torch.zeros_like(same), same | earlier], -1)], 0)


@dataclass(frozen=True)
class Causal(Pattern):
    """The autoregressive baseline: slot i reads token i − 1 (slot 0 a start sign, say the mask) and predicts token i.

    It reads the clean stream in training and the canvas, which is filled from the left, in sampling.
    """

    start: int  # id of the start sign

    def allowed(self, query: Tensor, key: Tensor) -> Tensor | None:
        if len(query) == 1:
            return None  # the newest token sees all
        return query[:, None] >= key[None, :]


def visible(allowed: Tensor | None, key_pad: Tensor | None, queries: int) -> Tensor | None:
    """Pattern and padding as one mask, broadcastable to (B, 1, Lq, Lk).

    The queries are the last keys; each always sees itself, so that no row of the softmax is empty.
    """
    if key_pad is None:
        return allowed
    keys = key_pad.shape[-1]
    itself = torch.eye(queries, keys, dtype=torch.bool, device=key_pad.device).roll(keys - queries, 1)
    real = ~key_pad[:, None, None, :]
    return (real if allowed is None else real & allowed) | itself


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """(B, H, Lq, d), (B, Hkv, Lk, d) ×2 → (B, H, Lq, d).

    On CPUs in bf16 plain matrix products beat the fused kernel by a fifth; elsewhere the fused kernel wins.
    """
    if k.shape[1] != q.shape[1]:
        k, v = (a.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for a in (k, v))
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:
        score = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        if mask is not None:
            score = score.masked_fill(~mask, -torch.inf)
        return score.softmax(-1, dtype=q.dtype) @ v
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@dataclass(frozen=True)
class Rotary:
    """Rotary positions, half-split ("rotate half"), as cos and sin of (L, d/2), or (B, 1, L, d/2) if rows differ."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, pos: Tensor, head_dim: int, base: float) -> Rotary:
        frequency = base ** (-torch.arange(0, head_dim, 2, device=pos.device, dtype=torch.float32) / head_dim)
        angle = pos[:, None].float() * frequency
        return cls(angle.cos(), angle.sin())

    def at(self, index: Tensor) -> Rotary:
        """The same for (B, M) of the positions."""
        return Rotary(self.cos[index][:, None], self.sin[index][:, None])

    def __call__(self, a: Tensor) -> Tensor:
        """(B, H, L, d) rotated, in its own dtype."""
        first, second = a.float().chunk(2, -1)
        turned = torch.cat([first * self.cos - second * self.sin, second * self.cos + first * self.sin], -1)
        return turned.to(a.dtype)


KeyValue = tuple[Tensor, Tensor]  # of one layer, each (B, Hkv, L, d)


@dataclass(frozen=True)
class KeyValues:
    """Keys and values of finished tokens, for each layer, and what the network said after the last of them.

    Functional, yet without copying all at each token: buffers have room at the end, and only the newest holder of a
    buffer may write into it; any other holder copies first.
    """

    length: int
    buffers: tuple[KeyValue, ...]  # per layer, each (B, Hkv, room, d)
    filled: list[int]  # one cell shared by all holders of the buffers: how far they are written
    pad: Tensor | None = None  # (B, length)
    ahead: Tensor | None = None  # (B, 1, D) causal networks: the hidden state that predicts the next token

    @classmethod
    def empty(cls, layers: int) -> KeyValues:
        nothing = torch.empty(0)
        return cls(0, ((nothing, nothing),) * layers, [0])

    def layer(self, i: int) -> KeyValue | None:
        if not self.length:
            return None
        k, v = self.buffers[i]
        return k[:, :, : self.length], v[:, :, : self.length]

    def append(self, new: list[KeyValue], pad: Tensor | None, ahead: Tensor | None) -> KeyValues:
        """The keys and values of n more tokens."""
        start, end = self.length, self.length + new[0][0].shape[2]
        buffers, filled = self.buffers, self.filled
        if not start or filled[0] != start or buffers[0][0].shape[2] < end:
            buffers, filled = tuple(_grow(old, a, start) for old, a in zip(buffers, new, strict=True)), [start]
        for buffer, a in zip(buffers, new, strict=True):
            buffer[0][:, :, start:end], buffer[1][:, :, start:end] = a
        filled[0] = end
        return KeyValues(end, buffers, filled, join_pads(self.pad, start, pad, end - start, new[0][0]), ahead)

    def rows(self, index: Tensor) -> KeyValues:
        buffers = tuple((k[index], v[index]) for k, v in self.buffers) if self.length else self.buffers
        pad, ahead = (None if a is None else a[index] for a in (self.pad, self.ahead))
        return replace(self, buffers=buffers, filled=[self.length], pad=pad, ahead=ahead)


def join_pads(old: Tensor | None, before: int, new: Tensor | None, after: int, like: Tensor) -> Tensor | None:
    """(B, before + after) padding of cached and new tokens, where None stands for no padding; None if both are."""
    if old is None and new is None:
        return None
    nothing = partial(like.new_zeros, dtype=torch.bool)
    rows = like.shape[0]
    return torch.cat([nothing(rows, before) if old is None else old, nothing(rows, after) if new is None else new], 1)


def _grow(old: KeyValue, new: KeyValue, used: int) -> KeyValue:
    """Buffers with twice the room needed, holding the used part of the old ones."""
    B, H, n, d = new[0].shape
    k, v = (a.new_empty(B, H, max(64, 2 * (used + n)), d) for a in new)
    if used:
        k[:, :, :used], v[:, :, :used] = (a[:, :, :used] for a in old)
    return k, v
