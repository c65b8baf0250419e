"""Who sees whom: attention patterns, the attention itself, rotary positions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from redraft.core.vocab import FINITE, require_range


class AttentionPattern(ABC):
    """Which keys a query may see, as a function of their places in the row."""

    @abstractmethod
    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        """Places of queries and of keys, in shapes that broadcast → whether the one sees the other, bool."""

    @abstractmethod
    def sees_all(self, first: int, end: int) -> bool:
        """Whether all queries at places first..end − 1 see all keys at 0..end − 1: no mask is needed."""


@dataclass(frozen=True)
class Full(AttentionPattern):
    """Every token sees every token."""

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        return (query >= 0) & (key >= 0)

    def sees_all(self, first: int, end: int) -> bool:
        return True


@dataclass(frozen=True)
class BlockCausal(AttentionPattern):
    """A token sees its own block and all earlier ones (block diffusion, Arriola et al. 2025).

    In training two streams share the positions: noisy tokens see their own noisy block and the *clean* earlier blocks.
    A block of one token is an autoregressive model that queries the next token with a mask.
    """

    block: int = 16

    def __post_init__(self) -> None:
        if self.block < 1:
            raise ValueError(f"block={self.block}; a block has at least one token")

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        return query // self.block >= key // self.block

    def sees_all(self, first: int, end: int) -> bool:
        return first // self.block == (end - 1) // self.block

    def streams(self, pos: Tensor) -> TwoStreams:
        """The pattern of the 2L places [noisy; clean], both at positions `pos` (L,)."""
        return TwoStreams((pos // self.block).repeat(2), torch.arange(2 * len(pos), device=pos.device) >= len(pos))


@dataclass(frozen=True)
class TwoStreams(AttentionPattern):
    """Noisy tokens see their own noisy block and the clean earlier ones; clean tokens never see noisy ones.

    Tensors rather than the block's size and the row's length, so that compiled code holds for any values.
    """

    block: Tensor  # (2L,) the block of each place
    clean: Tensor  # (2L,) bool

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        same, earlier = self.block[query] == self.block[key], self.block[query] > self.block[key]
        return torch.where(self.clean[key], earlier | same & self.clean[query], same & ~self.clean[query])

    def sees_all(self, first: int, end: int) -> bool:
        return False


@dataclass(frozen=True)
class Causal(AttentionPattern):
    """The autoregressive baseline: slot i reads token i − 1 (slot 0 a start token, say the mask) and predicts token i.

    It reads the clean stream in training and the canvas, which is filled from the left, in sampling. With the head
    `Shift` it reads the row as it stands, without a start token (GPT-2, Llama): the state of token i predicts i + 1.
    """

    start: int | None = None  # id of the start token; None: that of the vocabulary

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        return query >= key

    def sees_all(self, first: int, end: int) -> bool:
        return first == end - 1  # the newest token sees all


@dataclass(frozen=True)
class AnnealedCausal(AttentionPattern):
    """Causal, and some later tokens besides: between causal and full attention (Gong et al. 2024, Algorithm 1)."""

    open: Tensor  # (L, L) bool: which later places each place sees too

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) | self.open[query, key]

    def sees_all(self, first: int, end: int) -> bool:
        return False


MaskTensor: TypeAlias = Tensor | BlockMask | None  # (Lq, Lk) or (B, 1, Lq, Lk) bool; tiles of it; None: all see all


@dataclass(frozen=True)
class AttentionMask:
    """Who sees whom in one pass: what the pattern allows, without padding; but each token sees itself, so that no
    softmax is empty.

    The one definition of it, in two forms: `dense`, and `tiles` for flex_attention.
    """

    pattern: AttentionPattern
    query: Tensor  # (Lq,) places of the queries, or (B, Lq) where each row has its own
    keys: int  # at places 0, 1, …
    pad: Tensor | None = None  # (B, keys)

    def __call__(self, row: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Rows and places, in shapes that broadcast → bool."""
        seen = self.pattern.sees(query, key)
        return seen if self.pad is None else seen & ~self.pad[row, key] | (query == key)

    @classmethod
    def of(
        cls, pattern: AttentionPattern, query: Tensor, first: int, keys: int, pad: Tensor | None
    ) -> AttentionMask | None:
        """The sight of queries at these places, the first of which is `first` or later; None if all see all."""
        if pad is None and pattern.sees_all(first, keys):
            return None
        return cls(pattern, query, keys, pad)

    def at(self, index: Tensor) -> AttentionMask:
        """The same for (B, M) of the queries."""
        return replace(self, query=self.query[index] if self.query.dim() == 1 else self.query.gather(1, index))

    def mask(self, head_width: int) -> Tensor | BlockMask:
        """The mask in the form that is faster here."""
        tiles = use_flex_attention(self.query.device, torch.is_grad_enabled(), self.query.shape[-1], head_width)
        return self.tiles() if tiles else self.dense()

    def dense(self) -> Tensor:
        """(Lq, keys), or (B, 1, Lq, keys) where rows differ."""
        row = torch.arange(1 if self.pad is None else len(self.pad), device=self.query.device)
        mask = self(row[:, None, None], self.query[..., None], torch.arange(self.keys, device=self.query.device))
        return mask if mask.dim() == 2 else mask[:, None]

    def tiles(self) -> BlockMask:
        """For each tile of 128 × 128 pairs: all, none, or to be evaluated pair by pair."""

        def sees(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return self(b, self.query[q] if alike else self.query[b, q], k)

        alike = self.query.dim() == 1
        rows = len(self.query) if not alike else None if self.pad is None else len(self.pad)
        return create_block_mask(sees, rows, None, self.query.shape[-1], self.keys, device=self.query.device)


def use_flex_attention(device: torch.device, grad: bool, queries: int, head_width: int) -> bool:
    """Whether flex_attention is the faster form: in training on GPUs, where it skips empty tiles.

    On CPUs it has no backward pass and gains nothing forward. Without gradients shapes change from call to call, and
    each would be compiled anew. Up to 128 queries are one row of tiles; its kernels want heads of 16 numbers or more.
    """
    return device.type == "cuda" and grad and queries > 128 and head_width >= 16


@cache
def _flex(device: str) -> Callable[..., Any]:
    """flex_attention, compiled at its first use on a GPU; elsewhere interpreted: correct, but slow."""
    if device == "cuda":
        return torch.compile(flex_attention, dynamic=False)  # training has few shapes
    return flex_attention


def attend(q: Tensor, k: Tensor, v: Tensor, mask: MaskTensor) -> Tensor:
    """(B, H, Lq, d), (B, Hkv, Lk, d) ×2 → (B, H, Lq, d).

    On CPUs in bf16 plain matrix products beat the fused kernel by a fifth; elsewhere the fused kernel wins.
    """
    if isinstance(mask, BlockMask):
        out: Tensor = _flex(q.device.type)(q, k, v, block_mask=mask, enable_gqa=k.shape[1] != q.shape[1])
        return out
    if k.shape[1] != q.shape[1]:
        k, v = (a.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for a in (k, v))
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:
        score = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        if mask is not None:
            score = score.masked_fill(~mask, -torch.inf)
        return score.softmax(-1, dtype=q.dtype) @ v
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@dataclass(frozen=True)
class RopeScaling:
    """Rotary positions that turn more slowly, for longer rows than a network first knew.

    All by `factor` ("linear"), or, as Llama 3 does, those that turn less than `low` times in `known` positions; those
    that turn more than `high` times stay, and between the two they are mixed.
    """

    factor: float
    known: int | None = None  # length of the rows it first knew; None: all turn more slowly
    low: float = 1.0
    high: float = 4.0

    def __post_init__(self) -> None:
        require_range(self, 1, FINITE, "factor", "known", "low", "high")
        if self.high <= self.low:
            raise ValueError(f"low={self.low}, high={self.high}; high must be above low")

    def __call__(self, frequency: Tensor) -> Tensor:
        """(d/2,) radians per position → the same, slowed."""
        if self.known is None:
            return frequency / self.factor
        turns = self.known * frequency / (2 * math.pi)
        kept = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return frequency * (kept + (1 - kept) / self.factor)


@dataclass(frozen=True)
class RotaryEmbedding:
    """Rotary positions, half-split ("rotate half"): numbers i and i + d/2 of a head are rotated as a pair.

    Both are of shape (L, d), or (B, 1, L, d) if rows differ; the sine is negative in the first half.
    """

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, pos: Tensor, head_dim: int, base: float, slowed: RopeScaling | None = None) -> RotaryEmbedding:
        """pos: (L,), or (B, L) if rows differ."""
        frequency = base ** (-torch.arange(0, head_dim, 2, device=pos.device, dtype=torch.float32) / head_dim)
        frequency = frequency if slowed is None else slowed(frequency)
        angle = pos[..., None].float() * frequency
        angle = angle if pos.dim() == 1 else angle[:, None]
        cos, sin = angle.cos(), angle.sin()
        return cls(torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1))

    def at(self, index: Tensor) -> RotaryEmbedding:
        """The same for (B, M) of the positions."""
        if self.cos.dim() == 2:
            return RotaryEmbedding(self.cos[index][:, None], self.sin[index][:, None])
        return RotaryEmbedding(*(a.take_along_dim(index[:, None, :, None], 2) for a in (self.cos, self.sin)))

    def __call__(self, a: Tensor) -> Tensor:
        """(B, H, L, d) rotated, in its own dtype."""
        turned = (
            _RotateHalf.apply if torch.is_grad_enabled() else _turned
        )  # a Function of one's own costs as much as its work
        return turned(a.float(), self.cos, self.sin).to(a.dtype)


class _RotateHalf(torch.autograd.Function):
    """a·cos + (a with its halves exchanged)·sin; the gradient rotates back by the same angle."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(a, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turned(grad, cos, -sin), None, None


def _turned(a: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    out = a * cos
    for half, other, by in zip(out.chunk(2, -1), reversed(a.chunk(2, -1)), sin.chunk(2, -1), strict=True):
        half.addcmul_(other, by)
    return out
