"""What a transformer is made of: norms, attention, gated layers, time embedding, the layer for gaps."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from redraft.core import ops
from redraft.core.ops import dropout
from redraft.models.networks.attention import AttentionMask, MaskTensor, RotaryEmbedding, attend
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.kv_cache import KeyValue, TokenPositions
from redraft.models.networks.linear import FusedLinear, _init_residual, _make_projection, init_weights


class _RMSNorm(torch.autograd.Function):
    """y = w · h/rms(h) for CPUs, where torch has no kernel of its own and differentiates its formula piece by piece."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, eps: float) -> Tensor:
        scale = _RMSNorm.scale(h, eps)
        normed = h * scale
        ctx.save_for_backward(normed, scale, weight)
        return normed * weight

    @staticmethod
    def scale(h: Tensor, eps: float) -> Tensor:
        """1/rms(h)"""
        return torch.linalg.vector_norm(h, dim=-1, keepdim=True).square_().div_(h.shape[-1]).add_(eps).rsqrt_()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        """dh = (g·w − n·⟨g·w, n⟩/D)/rms, with n = h/rms."""
        normed, scale, weight = ctx.saved_tensors
        product = grad * normed
        along = (product @ weight).div_(-weight.numel()).unsqueeze(-1)
        to_weight = product.reshape(-1, weight.numel()).sum(0)
        return torch.mul(grad, weight, out=product).addcmul_(normed, along).mul_(scale), to_weight, None


class _SwiGLU(torch.autograd.Function):
    """silu(gate) · up for CPUs, (…, 2H) → (…, H): both gradients are written into one tensor, not joined afterwards."""

    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        gate, up = both.chunk(2, -1)
        swish = F.silu(gate)
        ctx.save_for_backward(both, swish)
        return swish * up

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        both, swish = ctx.saved_tensors
        (gate, up), out = both.chunk(2, -1), torch.empty_like(both)
        to_gate, to_up = out.chunk(2, -1)
        torch.mul(grad, swish, out=to_up)
        torch.ops.aten.silu_backward.grad_input(grad * up, gate, grad_input=to_gate)
        return out


class Norm(nn.Module):
    """RMSNorm or LayerNorm in fp32, then scaled and shifted by the time."""

    def __init__(self, config: TransformerConfig, width: int) -> None:
        super().__init__()
        self.center, self.eps = config.norm == "layer", config.norm_eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if config.norm_bias else None

    def forward(self, h: Tensor, shift: Tensor | None = None, scale: Tensor | None = None) -> Tensor:
        h = h.float()
        if self.center:
            h = F.layer_norm(h, self.weight.shape, self.weight, self.bias, self.eps)
        elif h.device.type == "cpu":
            # a Function of one's own takes as long as its products when rows are short and nothing is differentiated
            graph = torch.is_grad_enabled()
            h = (
                _RMSNorm.apply(h, self.weight, self.eps)
                if graph
                else (h * _RMSNorm.scale(h, self.eps)).mul_(self.weight)
            )
        else:
            h = F.rms_norm(h, self.weight.shape, self.weight, self.eps)
        return h if shift is None or scale is None else h * (1 + scale) + shift

    def initialise(self) -> None:
        self.weight.fill_(1)
        if self.bias is not None:
            self.bias.zero_()


class Attention(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config, d = config, config.head_width
        sizes = [config.heads * d, config.groups * d, config.groups * d]
        self.qkv = _make_projection(config, config.width, sizes, config.qkv_bias)
        self.out = _make_projection(config, config.heads * d, [config.width], config.out_bias)
        self.q_norm = Norm(config, d) if config.qk_norm else None
        self.k_norm = Norm(config, d) if config.qk_norm else None

    def forward(
        self, h: Tensor, view: LayerInputs, past: KeyValue | None, at: QueryPositions | None
    ) -> tuple[Tensor, KeyValue]:
        """(B, L, D) → the same, or (N, D) where asked; and the keys and values of all tokens, past ones included."""
        c, queries = self.config, view if at is None else view.at(at)
        q, k, v = (a.unflatten(-1, (-1, c.head_width)).transpose(1, 2) for a in self._projected(h, at))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        if view.rotary is not None and queries.rotary is not None:
            q, k = queries.rotary(q), view.rotary(k)
        read, kept = view.attend(q, (k, v), past, queries)
        mixed = read.transpose(1, 2).flatten(-2)
        return self.out(mixed if at is None else at.collect(mixed)), kept

    def _projected(self, h: Tensor, at: QueryPositions | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of all tokens or of those asked for, and keys and values of all."""
        own, shared = self.config.heads * self.config.head_width, self.config.groups * self.config.head_width
        if at is not None and isinstance(self.qkv, FusedLinear):
            k, v = self.qkv(h, 1).split(shared, -1)
            return at.spread(self.qkv(at.take(h), 0, 1)), k, v
        q, k, v = self.qkv(h).split([own, shared, shared], -1)  # a wrapped layer (LoRA, int8) only knows the whole
        return q if at is None else at.spread(at.take(q)), k, v

    def initialise(self) -> None:
        init_weights(self.qkv)
        _init_residual(self.out, self.config.layers)
        for norm in (self.q_norm, self.k_norm):
            if norm is not None:
                norm.initialise()


class CrossAttention(nn.Module):
    """Every place reads the states of an encoded source, or a learned state if there is none (classifier-free)."""

    def __init__(self, config: TransformerConfig, source: int) -> None:
        super().__init__()
        self.config, d = config, config.head_width
        self.norm = Norm(config, config.width)
        self.q = nn.Linear(config.width, config.heads * d, bias=config.qkv_bias)
        self.kv = nn.Linear(source, 2 * config.heads * d, bias=config.qkv_bias)
        self.out = nn.Linear(config.heads * d, config.width, bias=config.out_bias)

    def forward(self, h: Tensor, source: EncodedSource, at: QueryPositions | None) -> Tensor:
        """(B, L, D), or (N, D) where asked → what was read, in the same shape."""
        q = self.q(self.norm(h))
        q = q if at is None else at.spread(q)
        k, v = self.kv(source.states).chunk(2, -1)
        q, k, v = (a.unflatten(-1, (-1, self.config.head_width)).transpose(1, 2) for a in (q, k, v))
        mixed = attend(q, k, v, source.mask).transpose(1, 2).flatten(-2)
        return self.out(mixed if at is None else at.collect(mixed))

    def initialise(self) -> None:
        self.norm.initialise()
        init_weights(self.q)
        init_weights(self.kv)
        _init_residual(self.out, self.config.layers)


class MLP(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.gated, self.layers, hidden = config.gated, config.layers, config.hidden_width
        self.up = _make_projection(config, config.width, [hidden * (2 if config.gated else 1)], config.mlp_bias)
        self.down = _make_projection(config, hidden, [config.width], config.mlp_bias)

    def forward(self, h: Tensor) -> Tensor:
        h = self.up(h)
        if not self.gated:
            return self.down(F.gelu(h, approximate="tanh"))
        if h.is_cpu and h.requires_grad:
            return self.down(_SwiGLU.apply(h))
        gate, up = h.chunk(2, -1)
        gate = F.silu(gate)
        return self.down(gate * up if torch.is_grad_enabled() else gate.mul_(up))  # in place: new memory is slow

    def initialise(self) -> None:
        init_weights(self.up)
        _init_residual(self.down, self.layers)


class _RowExecutor(ABC):
    """A pass of one row that goes through the layers in a way of its own (`lean`)."""

    @abstractmethod
    def through(self, block: Block, h: Tensor) -> tuple[Tensor, KeyValue]:
        """(1, n, D) → the same after a block, and all its keys and values."""


class Block(nn.Module):
    """h += gate·attention(norm(h)), then h += gate·mlp(norm(h)); shift, scale and gate come from the time, if seen.

    Between the two, cross attention to an encoded source, if there is one.
    """

    def __init__(self, config: TransformerConfig, cross: int | None = None) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.norm1, self.norm2 = Norm(config, config.width), Norm(config, config.width)
        self.attention, self.mlp = Attention(config), MLP(config)
        self.cross = None if cross is None else CrossAttention(config, cross)
        self.modulation = nn.Linear(config.time, 6 * config.width) if config.time else None

    def forward(
        self,
        h: Tensor,
        view: LayerInputs | _RowExecutor,
        past: KeyValue | None = None,
        at: QueryPositions | None = None,
    ) -> tuple[Tensor, KeyValue]:
        """(B, L, D) → the same, or (N, D) where asked; and the keys and values of all tokens, past ones included."""
        if isinstance(view, _RowExecutor):
            return view.through(self, h)
        shift1, scale1, *rest = _modulation(self.modulation, view.time, 6)
        mixed, new = self.attention(self.norm1(h, shift1, scale1), view, past, at)
        if at is not None:
            h, rest = at.take(h), [None if part is None else at.take(part) for part in rest]
        gate1, shift2, scale2, gate2 = rest
        h = self._add(h, mixed, gate1)
        if self.cross is not None and view.source is not None:
            h = self._add(h, self.cross(h, view.source, at), None)
        return self._add(h, self.mlp(self.norm2(h, shift2, scale2)), gate2), new

    def _add(self, h: Tensor, change: Tensor, gate: Tensor | None) -> Tensor:
        change = dropout(change, self.dropout, self.training)
        return h + (change if gate is None else gate * change)

    def initialise(self) -> None:
        for part in (self.norm1, self.norm2, self.attention, self.mlp, self.cross):
            if part is not None:
                part.initialise()
        if self.modulation is not None:
            init_weights(self.modulation, 0)

    def matrices(self) -> list[nn.Parameter]:
        """The matrices between hidden states, which Muon may train; not those that read the time."""
        parts = [part for part in (self.attention, self.mlp, self.cross) if part is not None]
        return [p for part in parts for p in part.parameters() if p.dim() == 2]


@dataclass(frozen=True)
class TimeEmbeddings:
    """The embedded times of a batch: few distinct ones (K, C), and which of them each token has.

    adaLN on a time per token would cost a matrix product per token; distinct times are few (blocks, prompts).
    """

    embedded: Tensor  # (K, C)
    which: Tensor  # (B, 1) or (B, L), or (N,) where asked: index into K

    def __call__(self, layer: nn.Linear) -> Tensor:
        """(B, 1 or L, features of the layer)"""
        return layer(self.embedded)[self.which]

    def at(self, asked: QueryPositions) -> TimeEmbeddings:
        return replace(self, which=asked.take(self.which))


def _modulation(layer: nn.Linear | None, time: TimeEmbeddings | None, parts: int) -> list[Tensor | None]:
    """Shifts, scales and gates from the time, each (B, 1 or L, D); None for a network that does not see it."""
    return [None] * parts if layer is None or time is None else list(time(layer).chunk(parts, -1))


@dataclass(frozen=True)
class EncodedSource:
    """What cross attention reads."""

    states: Tensor  # (B, C, width)
    mask: Tensor | None  # (B, 1, 1, C) bool: True where there is a state; None: everywhere


@dataclass(frozen=True)
class LayerInputs:
    """What a pass knows about its tokens besides their states: where they stand, time, position, and whom they see."""

    stand: TokenPositions
    time: TimeEmbeddings | None
    rotary: RotaryEmbedding | None
    sight: AttentionMask | None  # None: all see all
    mask: MaskTensor  # the same as attention wants it, made once for all layers
    source: EncodedSource | None = None

    def attend(self, q: Tensor, new: KeyValue, past: KeyValue | None, queries: LayerInputs) -> tuple[Tensor, KeyValue]:
        """(B, H, Lq, d) what the queries read, and the keys and values of all tokens."""
        k, v = self.stand.joined(past, new)
        return attend(q, k, v, queries.mask), (k, v)

    def at(self, asked: QueryPositions) -> LayerInputs:
        """The same for some positions; their mask is dense: only one layer does this, and M changes at every call."""
        rotary = None if self.rotary is None else self.rotary.at(asked.rectangle)
        time = None if self.time is None else self.time.at(asked)
        sight = None if self.sight is None else self.sight.at(asked.rectangle)
        return LayerInputs(self.stand, time, rotary, sight, None if sight is None else sight.dense(), self.source)


@dataclass(frozen=True)
class QueryPositions:
    """The N positions whose states are wanted, row by row.

    Token-wise layers compute only these. Attention needs a rectangle, (B, M), as wide as the row with the most
    positions; the results of its padding are dropped.
    """

    place: Tensor  # (N,) row · length + column, in the order of the rows
    length: int
    shape: tuple[int, int]  # (B, M)
    slot: Tensor | None  # (N,) place in the rectangle; None: it is full, and they fill it in their order

    @classmethod
    def of(cls, place: Tensor, rows: int, length: int) -> QueryPositions:
        """(N,) places row · length + column, in the order of the rows."""
        if rows == 1 and len(place):
            return cls(place, length, (1, len(place)), None)
        row = place // length
        count = row.bincount(minlength=rows)
        most = max(1, int(count.max()))
        if len(place) == rows * most:
            return cls(place, length, (rows, most), None)
        rank = torch.arange(len(place), device=place.device) - (count.cumsum(0) - count)[row]
        return cls(place, length, (rows, most), row * most + rank)

    def take(self, a: Tensor) -> Tensor:
        """(B, L, …), or (B, 1, …) of whole rows → (N, …)"""
        place, columns = self.place, a.shape[1]
        if columns != self.length:
            row = place // self.length
            place = row if columns == 1 else row * columns + place % self.length
        return a.flatten(0, 1).index_select(0, place)

    def spread(self, a: Tensor) -> Tensor:
        """(N, …) → (B, M, …), zero where nothing is asked"""
        if self.slot is not None:
            a = a.new_zeros(self.shape[0] * self.shape[1], *a.shape[1:]).index_copy(0, self.slot, a)
        return a.unflatten(0, self.shape)

    def collect(self, a: Tensor) -> Tensor:
        """(B, M, …) → (N, …)"""
        return a.flatten(0, 1) if self.slot is None else a.flatten(0, 1).index_select(0, self.slot)

    @property
    def rectangle(self) -> Tensor:
        """(B, M) columns"""
        return self.spread(self.place % self.length)


class TimeEmbedding(nn.Module):
    """Sinusoids of the noise level (cosines first, no scaling), then a small MLP, then SiLU, as in the DiT.

    A label is added after the SiLU, through a SiLU of its own (UDLM); without a label nothing is added. The last row of
    the table stands for "no label": it is zero and never learns, so dropping a label equals having none. Only UDLM's
    weights bring a row of their own for this.
    """

    def __init__(self, width: int, classes: int | None = None, waves: int = 256) -> None:
        super().__init__()
        self.waves = waves
        self.mlp = nn.Sequential(nn.Linear(waves, width), nn.SiLU(), nn.Linear(width, width))
        self.label = None if classes is None else nn.Embedding(classes + 1, width, padding_idx=classes)

    def forward(self, level: Tensor, label: Tensor | None = None) -> TimeEmbeddings:
        """(B, 1) or (B, L) levels, (B,) labels."""
        if label is None:
            distinct, which = level.float().unique(return_inverse=True)
            return TimeEmbeddings(self._embedded(distinct), which)
        assert self.label is not None
        told = torch.stack([level.float(), label[:, None].expand_as(level).float()], -1)
        pairs, which = told.flatten(0, 1).unique(dim=0, return_inverse=True)
        known = F.silu(self.label(pairs[:, 1].long()))
        return TimeEmbeddings(self._embedded(pairs[:, 0]) + known, which.view(level.shape))

    def _embedded(self, level: Tensor) -> Tensor:
        """(K,) → (K, C)"""
        half = self.waves // 2
        frequency = torch.exp(-math.log(10_000) * torch.arange(half, device=level.device, dtype=torch.float32) / half)
        angle = level[:, None] * frequency
        return F.silu(self.mlp(torch.cat([angle.cos(), angle.sin()], -1)))

    def initialise(self) -> None:
        for layer in self.mlp:
            if isinstance(layer, nn.Linear):
                init_weights(layer)
        if self.label is not None:
            init_weights(self.label)
            self.label.weight[-1].zero_()


class GapHead(nn.Module):
    """The output layer for gaps: from the state of a token, how many are missing right before it; in fp32.

    FlexMDM's two heads: softplus of one number (times the longest gap) for the expected count, here its logarithm, or
    logits of counts. With `gap_share` the number itself is the logarithm, and the share of missing tokens is added by
    the process.
    """

    def __init__(self, config: TransformerConfig, most: int) -> None:
        super().__init__()
        self.most, self.plain, width = most, config.gap_share, config.width
        self.norm = Norm(config, width)
        self.modulation = nn.Linear(config.time, 2 * width) if config.time else None
        self.hidden = None if config.gap_counts else nn.Linear(width, width)
        self.output = nn.Linear(width, most + 1 if config.gap_counts else 1)

    def forward(self, h: Tensor, time: TimeEmbeddings | None) -> Tensor:
        """(B, L, D) → (B, L) logs of expected counts, or (B, L, most + 1) logits of counts."""
        time = None if time is None else replace(time, embedded=time.embedded.float())  # embedded under autocast
        with torch.autocast(h.device.type, enabled=False):
            h = self.norm(h.float(), *_modulation(self.modulation, time, 2))
            if self.hidden is None:
                return self.output(h)
            raw = self.output(F.gelu(self.hidden(h))).squeeze(-1)
            return raw if self.plain else math.log(self.most) + ops.log_softplus(raw)

    def initialise(self) -> None:
        self.norm.initialise()
        if self.modulation is not None:
            init_weights(self.modulation, 0)
        if self.hidden is not None:
            init_weights(self.hidden)
        init_weights(self.output, 0)
        if self.hidden is not None and not self.plain:  # at first, one missing token in every gap
            self.output.bias.fill_(math.log(math.expm1(1 / self.most)))
