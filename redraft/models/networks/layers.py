"""Layers of the transformer: norms, attention, MLP, blocks, time embedding, and the head for gaps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from redraft.core import ops
from redraft.core.ops import dropout
from redraft.models.networks.attention import AttentionMask, RotaryEmbedding, _MaskTensor, attend
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.forward_pass import _EncodedSource, _QueryPositions, _TimeEmbeddings
from redraft.models.networks.kv_cache import KeyValue, TokenPositions
from redraft.models.networks.linear import LoraLinear, _Embedding, _FusedLinear, _init_residual, init_weights


class _RMSNorm(torch.autograd.Function):
    """RMSNorm for CPUs, y = w · h/rms(h): torch has no fused kernel there, and its autograd would be slower."""

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


def _rms_norm(h: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm without gradients, in as few operations as possible: on short rows each costs as much as its numbers."""
    size = torch.linalg.vector_norm(h, dim=-1, keepdim=True)
    return (h * torch.addcmul(_scalar(eps, h.device), size, size, value=1 / h.shape[-1]).rsqrt_()).mul_(weight)


@lru_cache(8)
def _scalar(value: float, device: torch.device) -> Tensor:
    return torch.tensor(value, device=device)


class _SwiGLU(torch.autograd.Function):
    """SwiGLU for CPUs, silu(gate) · up: (…, 2H) → (…, H). Both gradients are written into one tensor."""

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
    """RMSNorm or LayerNorm in fp32, then adaLN: scaled and shifted by the time, if the network sees it."""

    def __init__(self, config: TransformerConfig, width: int) -> None:
        super().__init__()
        self.center, self.eps = config.norm == "layer", config.norm_eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if config.norm_bias else None

    def forward(self, h: Tensor, shift: Tensor | None = None, scale: Tensor | None = None) -> Tensor:
        h = h.float()
        if self.center:
            h = F.layer_norm(h, self.weight.shape, self.weight, self.bias, self.eps)
        elif h.is_cpu and not torch.compiler.is_compiling():
            # without gradients, the overhead of an autograd.Function would cost as much as the norm of a short row
            graph = torch.is_grad_enabled()
            h = _RMSNorm.apply(h, self.weight, self.eps) if graph else _rms_norm(h, self.weight, self.eps)
        else:
            h = F.rms_norm(h, self.weight.shape, self.weight, self.eps)
        return h if shift is None or scale is None else h * (1 + scale) + shift

    def initialize(self) -> None:
        self.weight.fill_(1)
        if self.bias is not None:
            self.bias.zero_()


class _Attention(nn.Module):
    """Self-attention with grouped queries, rotary positions and a cache."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config, d = config, config.head_width
        sizes = [config.heads * d, config.groups * d, config.groups * d]
        self.qkv = _make_projection(config, config.width, sizes, config.qkv_bias)
        self.out = _make_projection(config, config.heads * d, [config.width], config.out_bias)
        self.q_norm = Norm(config, d) if config.qk_norm else None
        self.k_norm = Norm(config, d) if config.qk_norm else None

    def forward(
        self, h: Tensor, inputs: LayerInputs, past: KeyValue | None, at: _QueryPositions | None
    ) -> tuple[Tensor, KeyValue]:
        """(B, L, D) → (B, L, D), or (N, D) at query positions; and all keys and values, those in `past` included."""
        c, queries = self.config, inputs if at is None else inputs.at(at)
        width = c.head_width
        q, k, v = (a.view(*a.shape[:2], a.shape[2] // width, width).transpose(1, 2) for a in self._project(h, at))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        if inputs.rotary is not None and queries.rotary is not None:
            q, k = queries.rotary(q), inputs.rotary(k)
        mixed, key_values = inputs.attend(q, (k, v), past, queries)
        mixed = mixed.transpose(1, 2).flatten(-2)
        return self.out(mixed if at is None else at.collect(mixed)), key_values

    def _project(self, h: Tensor, at: _QueryPositions | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries at the query positions, or at all if None; keys and values of all tokens."""
        q_width, kv_width = self.config.heads * self.config.head_width, self.config.groups * self.config.head_width
        if at is not None and isinstance(self.qkv, _FusedLinear):
            k, v = self.qkv(h, 1).split(kv_width, -1)
            return at.spread(self.qkv(at.take(h), 0, 1)), k, v
        # a wrapped layer (LoRA, int8) cannot compute queries alone
        q, k, v = self.qkv(h).split([q_width, kv_width, kv_width], -1)
        return q if at is None else at.spread(at.take(q)), k, v

    def initialize(self) -> None:
        init_weights(self.qkv)
        _init_residual(self.out, self.config.layers)
        for norm in (self.q_norm, self.k_norm):
            if norm is not None:
                norm.initialize()


class _CrossAttention(nn.Module):
    """Cross attention to the states of an encoded source, or to a learned state if there is no source."""

    def __init__(self, config: TransformerConfig, source: int) -> None:
        super().__init__()
        self.config, d = config, config.head_width
        self.norm = Norm(config, config.width)
        self.q = nn.Linear(config.width, config.heads * d, bias=config.qkv_bias)
        self.kv = nn.Linear(source, 2 * config.heads * d, bias=config.qkv_bias)
        self.out = nn.Linear(config.heads * d, config.width, bias=config.out_bias)

    def forward(self, h: Tensor, source: _EncodedSource, at: _QueryPositions | None) -> Tensor:
        """(B, L, D) states, or (N, D) at the query positions → the attention output, in the same shape."""
        q = self.q(self.norm(h))
        q = q if at is None else at.spread(q)
        k, v = self.kv(source.states).chunk(2, -1)
        q, k, v = (a.unflatten(-1, (-1, self.config.head_width)).transpose(1, 2) for a in (q, k, v))
        mixed = attend(q, k, v, source.mask).transpose(1, 2).flatten(-2)
        return self.out(mixed if at is None else at.collect(mixed))

    def initialize(self) -> None:
        self.norm.initialize()
        init_weights(self.q)
        init_weights(self.kv)
        _init_residual(self.out, self.config.layers)


class MLP(nn.Module):
    """The MLP of a block: SwiGLU if gated, else GELU."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.gated, self.layers, hidden = config.gated, config.layers, config.hidden_width
        self.up = _make_projection(config, config.width, [hidden * (2 if config.gated else 1)], config.mlp_bias)
        self.down = _make_projection(config, hidden, [config.width], config.mlp_bias)

    def forward(self, h: Tensor) -> Tensor:
        h = self.up(h)
        if not self.gated:
            return self.down(F.gelu(h, approximate="tanh"))
        if h.is_cpu and h.requires_grad and not torch.compiler.is_compiling():
            return self.down(_SwiGLU.apply(h))
        gate, up = h.chunk(2, -1)
        gate = F.silu(gate)
        return self.down(gate * up if torch.is_grad_enabled() else gate.mul_(up))  # in place: allocating is slow

    def initialize(self) -> None:
        init_weights(self.up)
        _init_residual(self.down, self.layers)


class Block(nn.Module):
    """A transformer block: h += gate·attention(norm(h)), then h += gate·mlp(norm(h)).

    Shift, scale and gate come from the time, if the network sees it (adaLN). In networks that read a source, cross
    attention comes between the two.
    """

    def __init__(self, config: TransformerConfig, cross: int | None = None) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.norm1, self.norm2 = Norm(config, config.width), Norm(config, config.width)
        self.attention, self.mlp = _Attention(config), MLP(config)
        self.cross = None if cross is None else _CrossAttention(config, cross)
        self.modulation = nn.Linear(config.time, 6 * config.width) if config.time else None

    def forward(
        self,
        h: Tensor,
        inputs: LayerInputs,
        past: KeyValue | None = None,
        at: _QueryPositions | None = None,
    ) -> tuple[Tensor, KeyValue]:
        """(B, L, D) → (B, L, D), or (N, D) at query positions; and all keys and values, those in `past` included."""
        shift1, scale1, *rest = _modulation(self.modulation, inputs.time, 6)
        mixed, key_values = self.attention(self.norm1(h, shift1, scale1), inputs, past, at)
        if at is not None:
            h, rest = at.take(h), [None if part is None else at.take(part) for part in rest]
        gate1, shift2, scale2, gate2 = rest
        h = self._add(h, mixed, gate1)
        if self.cross is not None and inputs.source is not None:
            h = self._add(h, self.cross(h, inputs.source, at), None)
        return self._add(h, self.mlp(self.norm2(h, shift2, scale2)), gate2), key_values

    def _add(self, h: Tensor, change: Tensor, gate: Tensor | None) -> Tensor:
        change = dropout(change, self.dropout, self.training)
        return h + (change if gate is None else gate * change)

    def initialize(self) -> None:
        for part in (self.norm1, self.norm2, self.attention, self.mlp, self.cross):
            if part is not None:
                part.initialize()
        if self.modulation is not None:
            init_weights(self.modulation, 0)

    def matrices(self) -> list[nn.Parameter]:
        """The matrices between hidden states, which Muon may train; those that read the time are left out."""
        parts = [part for part in (self.attention, self.mlp, self.cross) if part is not None]
        return [p for part in parts for p in part.parameters() if p.dim() == 2]


def _modulation(layer: nn.Linear | None, time: _TimeEmbeddings | None, parts: int) -> list[Tensor | None]:
    """Shifts, scales and gates from the time, each (B, 1 or L, D), or None if the network does not see the time."""
    return [None] * parts if layer is None or time is None else list(time(layer).chunk(parts, -1))


@dataclass(frozen=True)
class LayerInputs:
    """The inputs that all layers of a pass share, besides the hidden states."""

    positions: TokenPositions
    time: _TimeEmbeddings | None  # None if the network does not see the time
    rotary: RotaryEmbedding | None  # None without rotary positions
    attention: AttentionMask | None  # None if no pair is masked
    mask: _MaskTensor  # `attention` as a tensor, made once for all layers
    source: _EncodedSource | None = None  # None without cross attention

    def attend(self, q: Tensor, new: KeyValue, past: KeyValue | None, queries: LayerInputs) -> tuple[Tensor, KeyValue]:
        """(B, H, Lq, d) queries → (B, H, Lq, d) attention outputs, and the keys and values of all tokens."""
        k, v = self.positions.join(past, new)
        return attend(q, k, v, queries.mask), (k, v)

    def at(self, query: _QueryPositions) -> LayerInputs:
        """The inputs of only the query positions.

        Their mask is dense: only one layer uses it, and block masks would be compiled for each number of queries.
        """
        rotary = None if self.rotary is None else self.rotary.at(query.rectangle)
        time = None if self.time is None else self.time.at(query)
        attention = None if self.attention is None else self.attention.at(query.rectangle)
        mask = None if attention is None else attention.dense()
        return LayerInputs(self.positions, time, rotary, attention, mask, self.source)


class _TimeEmbedding(nn.Module):
    """Time embedding of the DiT: sinusoids of the noise level (cosines first, no scaling), a small MLP, then SiLU.

    The SiLU of a label's embedding is added to the result (UDLM). The last row of the label table means "no label": it
    is zero and never trained, so dropping a label is the same as having none. Only in UDLM's published weights is that
    row not zero.
    """

    def __init__(self, width: int, classes: int | None = None, waves: int = 256) -> None:
        super().__init__()
        self.waves = waves
        self.mlp = nn.Sequential(nn.Linear(waves, width), nn.SiLU(), nn.Linear(width, width))
        self.label = None if classes is None else _Embedding(classes + 1, width, padding_idx=classes)

    def forward(self, level: Tensor, label: Tensor | None = None) -> _TimeEmbeddings:
        """(B, 1) or (B, L) noise levels and (B,) labels → their embeddings."""
        if label is None:
            distinct, index = _distinct(level.float())
            return _TimeEmbeddings(self._embed(distinct), index)
        assert self.label is not None
        pairs = torch.stack([level.float(), label[:, None].expand_as(level).float()], -1)
        distinct, index = pairs.flatten(0, 1).unique(dim=0, return_inverse=True)
        embedded_label = F.silu(self.label(distinct[:, 1].long()))
        return _TimeEmbeddings(self._embed(distinct[:, 0]) + embedded_label, index.view(level.shape))

    def _embed(self, level: Tensor) -> Tensor:
        """(K,) noise levels → (K, C)"""
        half = self.waves // 2
        frequency = torch.exp(-math.log(10_000) * torch.arange(half, device=level.device, dtype=torch.float32) / half)
        angle = level[:, None] * frequency
        return F.silu(self.mlp(torch.cat([angle.cos(), angle.sin()], -1)))

    def initialize(self) -> None:
        for layer in self.mlp:
            if isinstance(layer, nn.Linear):
                init_weights(layer)
        if self.label is not None:
            init_weights(self.label)
            self.label.weight[-1].zero_()


def _distinct(level: Tensor) -> tuple[Tensor, Tensor]:
    """The K different values and, for each element, the index of its own; on other devices than CPUs all values."""
    if level.is_cpu and not torch.compiler.is_compiling():
        distinct, index = np.unique(level.detach().numpy(), return_inverse=True)
        return torch.from_numpy(distinct), torch.from_numpy(index.reshape(level.shape))
    return level.flatten(), torch.arange(level.numel(), device=level.device).view(level.shape)


class _GapHead(nn.Module):
    """The head for gaps: predicts from a token's state how many tokens are missing right before it, in fp32.

    It has the two forms of FlexMDM: logits of the counts, or the expected count, softplus(output) · longest gap, given
    here as its logarithm. With `gap_fraction` the output is itself a logarithm, relative to the fraction of tokens
    missing, which the process adds.
    """

    def __init__(self, config: TransformerConfig, most: int) -> None:
        super().__init__()
        self.most, self.relative, width = most, config.gap_fraction, config.width
        self.norm = Norm(config, width)
        self.modulation = nn.Linear(config.time, 2 * width) if config.time else None
        self.hidden = None if config.gap_counts else nn.Linear(width, width)
        self.output = nn.Linear(width, most + 1 if config.gap_counts else 1)

    def forward(self, h: Tensor, time: _TimeEmbeddings | None) -> Tensor:
        """(B, L, D) → (B, L) logs of expected counts, or (B, L, most + 1) logits of counts."""
        # the embedding was computed under autocast
        time = None if time is None else replace(time, embedded=time.embedded.float())
        with torch.autocast(h.device.type, enabled=False):
            h = self.norm(h.float(), *_modulation(self.modulation, time, 2))
            if self.hidden is None:
                return self.output(h)
            raw = self.output(F.gelu(self.hidden(h))).squeeze(-1)
            return raw if self.relative else math.log(self.most) + ops.log_softplus(raw)

    def initialize(self) -> None:
        self.norm.initialize()
        if self.modulation is not None:
            init_weights(self.modulation, 0)
        if self.hidden is not None:
            init_weights(self.hidden)
        init_weights(self.output, 0)
        if self.hidden is not None and not self.relative:  # initially predict one missing token in every gap
            self.output.bias.fill_(math.log(math.expm1(1 / self.most)))


def _make_projection(config: TransformerConfig, inputs: int, sizes: list[int], bias: bool) -> nn.Linear:
    """A linear layer of a block, fused if there are several sizes, with an adapter if the network uses LoRA."""
    if config.lora is not None:
        return LoraLinear(inputs, sum(sizes), bias, config.lora)
    return nn.Linear(inputs, sizes[0], bias) if len(sizes) == 1 else _FusedLinear(inputs, sizes, bias)
