"""Attention: masks, scaled dot-product attention, rotary position embeddings. Only `attend` calls a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from redraft.core.vocab import FINITE, require_range


class Visibility(Protocol):
    """Which keys a query attends to, as a function of their positions in the row."""

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        """Positions of queries and keys, in shapes that broadcast → bool: whether the query attends to the key."""

    def sees_all(self, first: int, end: int) -> bool:
        """Whether queries at positions first..end − 1 attend to all keys at 0..end − 1, so that no mask is needed."""


# (Lq, Lk) or (B, 1, Lq, Lk) bool, or the same as tiles for flex_attention; None if no pair is masked
_MaskTensor: TypeAlias = Tensor | BlockMask | None


@dataclass(frozen=True)
class AttentionMask:
    """The attention mask of one pass: the pattern, with padding excluded.

    A token always attends to itself, so that no softmax is empty. `dense` makes a tensor of the mask, `tiles` makes the
    block mask of flex_attention.
    """

    pattern: Visibility
    query: Tensor  # (Lq,) positions of the queries, or (B, Lq) if rows differ
    keys: int  # number of keys; they are at positions 0, 1, …
    pad: Tensor | None = None  # (B, keys) bool: True on padding; None if there is no padding

    def __call__(self, row: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Rows and positions, in shapes that broadcast → bool: whether the query attends to the key."""
        allowed = self.pattern.sees(query, key)
        return allowed if self.pad is None else allowed & ~self.pad[row, key] | (query == key)

    @classmethod
    def of(cls, pattern: Visibility, query: Tensor, first: int, keys: int, pad: Tensor | None) -> AttentionMask | None:
        """The mask of queries at these positions, none of which is before `first`; None if no pair is masked."""
        if pad is None and pattern.sees_all(first, keys):
            return None
        return cls(pattern, query, keys, pad)

    def at(self, index: Tensor) -> AttentionMask:
        """The mask of only the queries at `index`, (B, M)."""
        return replace(self, query=self.query[index] if self.query.dim() == 1 else self.query.gather(1, index))

    def mask(self, head_width: int) -> Tensor | BlockMask:
        """The mask in the faster form for this device and size."""
        tiles = _use_flex_attention(self.query.device, torch.is_grad_enabled(), self.query.shape[-1], head_width)
        return self.tiles() if tiles else self.dense()

    def dense(self) -> Tensor:
        """(Lq, keys) bool, or (B, 1, Lq, keys) if rows differ."""
        row = torch.arange(1 if self.pad is None else len(self.pad), device=self.query.device)
        mask = self(row[:, None, None], self.query[..., None], torch.arange(self.keys, device=self.query.device))
        return mask if mask.dim() == 2 else mask[:, None]

    def tiles(self) -> BlockMask:
        """The block mask: each tile of 128 × 128 pairs is full, empty, or evaluated pair by pair."""

        def sees(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return self(b, self.query[q] if shared else self.query[b, q], k)

        shared = self.query.dim() == 1
        rows = len(self.query) if not shared else None if self.pad is None else len(self.pad)
        return create_block_mask(sees, rows, None, self.query.shape[-1], self.keys, device=self.query.device)


def _use_flex_attention(device: torch.device, grad: bool, queries: int, head_width: int) -> bool:
    """Whether flex_attention is faster than a dense mask: in training on GPUs, where it skips empty tiles.

    On CPUs it has no backward pass, and its forward pass is no faster. Without gradients, shapes change from call to
    call, and each would be compiled anew. Up to 128 queries fit into one row of tiles, so nothing could be skipped. Its
    kernels need heads of width 16 or more.
    """
    return device.type == "cuda" and grad and queries > 128 and head_width >= 16


@cache
def _flex(device: str) -> Callable[..., Any]:
    """flex_attention, compiled on first use on a GPU; on other devices it is interpreted, which is correct but slow."""
    if device == "cuda":
        return torch.compile(flex_attention, dynamic=False)  # training has few shapes
    return flex_attention


def attend(q: Tensor, k: Tensor, v: Tensor, mask: _MaskTensor) -> Tensor:
    """Attention: (B, H, Lq, d) queries, (B, Hkv, Lk, d) keys and values → (B, H, Lq, d).

    The mask is bool, or added to the scores if it is a float. In bf16 on CPUs, plain matrix products are 20 % faster
    than the fused kernel; in all other cases the kernel wins.
    """
    if isinstance(mask, BlockMask):
        out: Tensor = _flex(q.device.type)(q, k, v, block_mask=mask, enable_gqa=k.shape[1] != q.shape[1])
        return out
    if k.shape[1] != q.shape[1]:
        k, v = (a.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for a in (k, v))
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:
        score = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        if mask is not None:
            score = score.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else score + mask
        return score.softmax(-1, dtype=q.dtype) @ v
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@dataclass(frozen=True)
class RopeScaling:
    """Lower rotary frequencies, for rows longer than those in pretraining.

    Without `known`, all frequencies are divided by `factor` ("linear"). With it, as in Llama 3, only low frequencies
    are: those with fewer than `low` turns within `known` positions. Those with more than `high` turns stay unchanged,
    and the ones in between are interpolated.
    """

    factor: float
    known: int | None = None  # length of the rows in pretraining; None to scale all frequencies
    low: float = 1.0
    high: float = 4.0

    def __post_init__(self) -> None:
        require_range(self, 1, FINITE, "factor", "known", "low", "high")
        if self.high <= self.low:
            raise ValueError(f"low={self.low}, high={self.high}; high must be above low")

    def __call__(self, frequency: Tensor) -> Tensor:
        """(d/2,) radians per position → (d/2,) scaled."""
        if self.known is None:
            return frequency / self.factor
        turns = self.known * frequency / (2 * math.pi)
        unscaled = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return frequency * (unscaled + (1 - unscaled) / self.factor)


@dataclass(frozen=True)
class RotaryEmbedding:
    """Rotary position embedding in the half-split layout ("rotate half"): features i and i + d/2 rotate as a pair."""

    cos: Tensor  # (L, d), or (B, 1, L, d) if rows differ
    sin: Tensor  # the shape of cos; negated in the first half

    @classmethod
    def of(cls, pos: Tensor, head_dim: int, base: float, scaling: RopeScaling | None = None) -> RotaryEmbedding:
        """The embedding of positions (L,), or (B, L) if rows differ."""
        frequency = base ** (-torch.arange(0, head_dim, 2, device=pos.device, dtype=torch.float32) / head_dim)
        frequency = frequency if scaling is None else scaling(frequency)
        angle = pos[..., None].float() * frequency
        angle = angle if pos.dim() == 1 else angle[:, None]
        cos, sin = angle.cos(), angle.sin()
        return cls(torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1))

    def at(self, index: Tensor) -> RotaryEmbedding:
        """The embedding of only the positions at `index`, (B, M)."""
        if self.cos.dim() == 2:
            return RotaryEmbedding(self.cos[index][:, None], self.sin[index][:, None])
        return RotaryEmbedding(*(a.take_along_dim(index[:, None, :, None], 2) for a in (self.cos, self.sin)))

    def __call__(self, a: Tensor) -> Tensor:
        """Rotate (B, H, L, d) queries or keys in fp32; the result has the input's dtype."""
        # without gradients, the overhead of an autograd.Function would cost as much as the rotation
        rotate = _RotateHalf.apply if torch.is_grad_enabled() else _rotate
        return rotate(a.float(), self.cos, self.sin).to(a.dtype)


class _RotateHalf(torch.autograd.Function):
    """a·cos + (a with its halves swapped)·sin; the backward pass rotates the gradient by the opposite angle."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotate(a, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _rotate(grad, cos, -sin), None, None


def _rotate(a: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    out = a * cos
    for half, other, by in zip(out.chunk(2, -1), reversed(a.chunk(2, -1)), sin.chunk(2, -1), strict=True):
        half.addcmul_(other, by)
    return out
