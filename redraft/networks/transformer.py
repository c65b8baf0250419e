"""One transformer for every method: GPT-2, Llama, Qwen and the DiT of the diffusion papers are settings of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from redraft.networks.attention import (
    BlockCausal,
    Causal,
    Full,
    KeyValue,
    KeyValues,
    Mask,
    Pattern,
    Rotary,
    Sight,
    attend,
    join_pads,
)
from redraft.ops import dropout
from redraft.types import ABOVE_0, BELOW_1, FINITE, WIDEST, Context, require_range


@dataclass(frozen=True)
class TransformerConfig:
    """All a network is. The defaults are a modern small model; comments name what other layouts need."""

    vocab: int
    width: int = 384
    layers: int = 6
    heads: int = 6
    kv_heads: int | None = None  # fewer than heads: grouped queries (Llama, Qwen)
    head_dim: int | None = None  # None: width / heads
    hidden: int | None = None  # None: 4 × width, or 8/3 × width when gated
    pattern: Pattern = field(default_factory=Full)
    norm: Literal["rms", "layer"] = "rms"  # DiT, GPT-2: layer
    norm_eps: float = 1e-5
    norm_bias: bool = False  # GPT-2: True
    gated: bool = True  # SwiGLU; False: GELU (tanh), as DiT and GPT-2
    qkv_bias: bool = False  # Qwen2, GPT-2: True
    out_bias: bool = False  # GPT-2: True
    mlp_bias: bool = False  # DiT, GPT-2: True
    qk_norm: bool = False  # Qwen3: True
    rotary: float | None = 10_000.0  # base; None: no rotary positions (GPT-2)
    positions: int | None = None  # number of learned positions (GPT-2), alone or beside rotary ones
    time: int | None = None  # width of the time embedding that drives adaLN; None: the network does not see time
    classes: int | None = None  # labels that a row may have (UDLM, LD4TG); one more stands for none; None: no labels
    vectors: int | None = None  # reads vectors of this width instead of ids; `vocab` is then the width of its outputs
    cross: int | None = None  # width of the states that cross attention reads, an encoded source; None: none
    tied: bool = False  # the output layer is the embedding
    head_bias: bool = False  # DiT: True
    gaps: int | None = None  # most tokens that may be missing in a gap (insertion): a second output layer; None: none
    gap_counts: bool = False  # it gives a distribution over the counts 0..gaps; False: the expected count
    dropout: float = 0.0

    def __post_init__(self) -> None:
        self._require_sizes()
        if self.head_dim is None and self.width % self.heads:
            raise ValueError(f"width={self.width} does not split into {self.heads} heads; set head_dim, or change one")
        if self.heads % self.groups:
            raise ValueError(f"heads={self.heads} is no multiple of kv_heads={self.groups}")
        if self.rotary is None and self.positions is None:
            raise ValueError("a network without positions cannot tell order: give rotary=base or positions=how many")
        if isinstance(self.pattern, Causal) and (self.time is not None or not 0 <= self.pattern.start < self.vocab):
            raise ValueError(
                f"a causal network reads clean tokens and sees no time, and begins with one of its {self.vocab} ids; "
                f"got time={self.time}, start={self.pattern.start}"
            )
        if self.classes is not None and (self.time is None or not isinstance(self.pattern, Full)):
            raise ValueError("a label is told with the time, to all tokens: classes need time and full attention")
        if (self.norm_bias and self.norm == "rms") or (self.head_bias and self.tied):
            raise ValueError("RMS norms and tied output layers have no bias; drop norm_bias or head_bias")
        if self.vectors is not None and (self.tied or isinstance(self.pattern, Causal)):
            raise ValueError(
                "a network that reads vectors has no ids to tie its outputs to or to begin with: tied=False"
            )
        if self.gaps is not None and (self.gaps < 1 or not isinstance(self.pattern, Full)):
            raise ValueError(f"gaps={self.gaps} with {self.pattern}; gaps hold one token or more, under full attention")

    def _require_sizes(self) -> None:
        """Before anything is built: a network of a billion layers would not even be counted."""
        require_range(self, 1, WIDEST, "width", "heads", "kv_heads", "head_dim", "hidden", "time", "classes", "vectors")
        require_range(self, 1, 2**31, "vocab", "positions", "cross")
        require_range(self, 1, 4096, "layers")
        require_range(self, ABOVE_0, FINITE, "norm_eps", "rotary")
        require_range(self, 0, BELOW_1, "dropout")

    @property
    def groups(self) -> int:
        return self.kv_heads or self.heads

    @property
    def head_width(self) -> int:
        return self.head_dim or self.width // self.heads

    @property
    def hidden_width(self) -> int:
        return self.hidden or (-(-self.width * 8 // 96) * 32 if self.gated else 4 * self.width)


class RMS(torch.autograd.Function):
    """y = w · h/rms(h) for CPUs, where torch has no kernel of its own and differentiates its formula piece by piece."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, eps: float) -> Tensor:
        scale = torch.linalg.vector_norm(h, dim=-1, keepdim=True).square_().div_(h.shape[-1]).add_(eps).rsqrt_()
        normed = h * scale
        ctx.save_for_backward(normed, scale, weight)
        return normed * weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        """dh = (g·w − n·⟨g·w, n⟩/D)/rms, with n = h/rms."""
        normed, scale, weight = ctx.saved_tensors
        product = grad * normed
        along = (product @ weight).div_(-weight.numel()).unsqueeze(-1)
        to_weight = product.reshape(-1, weight.numel()).sum(0)
        return torch.mul(grad, weight, out=product).addcmul_(normed, along).mul_(scale), to_weight, None


class SwiGLU(torch.autograd.Function):
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
            h = RMS.apply(h, self.weight, self.eps)
        else:
            h = F.rms_norm(h, self.weight.shape, self.weight, self.eps)
        return h if shift is None or scale is None else h * (1 + scale) + shift


class Attention(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config, d = config, config.head_width
        self.qkv = nn.Linear(config.width, (config.heads + 2 * config.groups) * d, bias=config.qkv_bias)
        self.out = nn.Linear(config.heads * d, config.width, bias=config.out_bias)
        self.q_norm = Norm(config, d) if config.qk_norm else None
        self.k_norm = Norm(config, d) if config.qk_norm else None

    def forward(self, h: Tensor, view: View, past: KeyValue | None, at: Asked | None) -> tuple[Tensor, KeyValue]:
        """(B, L, D) → the same, or what is asked of it (N, D); and the keys and values of all tokens."""
        c, queries = self.config, view if at is None else view.at(at)
        own, shared = c.heads * c.head_width, c.groups * c.head_width
        if at is None:
            q, k, v = self.qkv(h).split([own, shared, shared], -1)
        else:
            bias = [None, None] if self.qkv.bias is None else self.qkv.bias.split([own, 2 * shared])
            q = at.spread(F.linear(at.take(h), self.qkv.weight[:own], bias[0]))
            k, v = F.linear(h, self.qkv.weight[own:], bias[1]).split(shared, -1)
        q, k, v = (a.unflatten(-1, (-1, c.head_width)).transpose(1, 2) for a in (q, k, v))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        if view.rotary is not None and queries.rotary is not None:
            q, k = queries.rotary(q), view.rotary(k)
        new = (k, v)
        if past is not None:
            k, v = (torch.cat(pair, dim=-2) for pair in zip(past, new, strict=True))
        mixed = attend(q, k, v, queries.mask).transpose(1, 2).flatten(-2)
        return self.out(mixed if at is None else at.collect(mixed)), new


class CrossAttention(nn.Module):
    """Every place reads the states of an encoded source; a learned one where there is none (classifier-free)."""

    def __init__(self, config: TransformerConfig, source: int) -> None:
        super().__init__()
        self.config, d = config, config.head_width
        self.norm = Norm(config, config.width)
        self.q = nn.Linear(config.width, config.heads * d, bias=config.qkv_bias)
        self.kv = nn.Linear(source, 2 * config.heads * d, bias=config.qkv_bias)
        self.out = nn.Linear(config.heads * d, config.width, bias=config.out_bias)

    def forward(self, h: Tensor, source: Source, at: Asked | None) -> Tensor:
        """(B, L, D), or (N, D) where asked → what is read, alike."""
        q = self.q(self.norm(h))
        q = q if at is None else at.spread(q)
        k, v = self.kv(source.states).chunk(2, -1)
        q, k, v = (a.unflatten(-1, (-1, self.config.head_width)).transpose(1, 2) for a in (q, k, v))
        mixed = attend(q, k, v, source.mask).transpose(1, 2).flatten(-2)
        return self.out(mixed if at is None else at.collect(mixed))


class MLP(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.gated, hidden = config.gated, config.hidden_width
        self.up = nn.Linear(config.width, hidden * (2 if config.gated else 1), bias=config.mlp_bias)
        self.down = nn.Linear(hidden, config.width, bias=config.mlp_bias)

    def forward(self, h: Tensor) -> Tensor:
        h = self.up(h)
        if not self.gated:
            return self.down(F.gelu(h, approximate="tanh"))
        if h.is_cpu and h.requires_grad:
            return self.down(SwiGLU.apply(h))
        gate, up = h.chunk(2, -1)
        gate = F.silu(gate)
        return self.down(gate * up if torch.is_grad_enabled() else gate.mul_(up))  # in place: new memory is slow


class Block(nn.Module):
    """h += gate·attention(norm(h)), then h += gate·mlp(norm(h)); shift, scale and gate come from the time, if seen.

    Between the two, cross attention to an encoded source, if there is one.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.norm1, self.norm2 = Norm(config, config.width), Norm(config, config.width)
        self.attention, self.mlp = Attention(config), MLP(config)
        self.cross = None if config.cross is None else CrossAttention(config, config.cross)
        self.modulation = nn.Linear(config.time, 6 * config.width) if config.time else None

    def forward(self, h: Tensor, view: View, past: KeyValue | None, at: Asked | None = None) -> tuple[Tensor, KeyValue]:
        """(B, L, D) → the same, or what is asked of it (N, D); and the keys and values of all tokens."""
        shift1, scale1, *rest = modulated(self.modulation, view.time, 6)
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


@dataclass(frozen=True)
class TimeOf:
    """The embedded times of a batch: few distinct ones (K, C), and which of them each token has.

    adaLN on a time per token would cost a matrix product per token; distinct times are few (blocks, prompts).
    """

    embedded: Tensor  # (K, C)
    which: Tensor  # (B, 1) or (B, L), or (N,) where asked: index into K

    def __call__(self, layer: nn.Linear) -> Tensor:
        """(B, 1 or L, features of the layer)"""
        return layer(self.embedded)[self.which]

    def at(self, asked: Asked) -> TimeOf:
        return replace(self, which=asked.take(self.which))


def modulated(layer: nn.Linear | None, time: TimeOf | None, parts: int) -> list[Tensor | None]:
    """Shifts, scales and gates from the time, each (B, 1 or L, D); None for a network that does not see it."""
    return [None] * parts if layer is None or time is None else list(time(layer).chunk(parts, -1))


@dataclass(frozen=True)
class Source:
    """What cross attention reads."""

    states: Tensor  # (B, C, width)
    mask: Tensor | None  # (B, 1, 1, C) bool: True where there is a state; None: everywhere


@dataclass(frozen=True)
class View:
    """What a pass knows of its tokens besides their states: time, position, and whom they see."""

    time: TimeOf | None
    rotary: Rotary | None
    sight: Sight | None  # None: all see all
    mask: Mask  # the same as attention wants it, made once for all layers
    source: Source | None = None

    def at(self, asked: Asked) -> View:
        """The same for some of the positions; their mask is dense: one layer asks so, and M changes at every call."""
        rotary = None if self.rotary is None else self.rotary.at(asked.rectangle)
        time = None if self.time is None else self.time.at(asked)
        sight = None if self.sight is None else self.sight.at(asked.rectangle)
        return View(time, rotary, sight, None if sight is None else sight.dense(), self.source)


@dataclass(frozen=True)
class Asked:
    """The N positions whose states are wanted, row by row.

    What treats each token by itself is computed for these alone. Attention wants a rectangle of them, (B, M), as wide
    as the row that asks most; what fills it up is computed in vain.
    """

    row: Tensor  # (N,)
    column: Tensor  # (N,)
    slot: Tensor  # (N,) place in the rectangle
    shape: tuple[int, int]  # (B, M)

    @classmethod
    def of(cls, place: Tensor, rows: int, length: int) -> Asked:
        """(N,) places row · length + column, in the order of the rows."""
        row = place // length
        count = row.bincount(minlength=rows)
        most = max(1, int(count.max()))
        rank = torch.arange(len(place), device=place.device) - (count.cumsum(0) - count)[row]
        return cls(row, place % length, row * most + rank, (rows, most))

    def take(self, a: Tensor) -> Tensor:
        """(B, L, …), or (B, 1, …) of whole rows → (N, …)"""
        place = self.row if a.shape[1] == 1 else self.row * a.shape[1] + self.column
        return a.flatten(0, 1).index_select(0, place)

    def spread(self, a: Tensor) -> Tensor:
        """(N, …) → (B, M, …), zero where nothing is asked"""
        if len(a) < self.shape[0] * self.shape[1]:
            a = a.new_zeros(self.shape[0] * self.shape[1], *a.shape[1:]).index_copy(0, self.slot, a)
        return a.unflatten(0, self.shape)

    def collect(self, a: Tensor) -> Tensor:
        """(B, M, …) → (N, …)"""
        return a.flatten(0, 1).index_select(0, self.slot)

    @property
    def rectangle(self) -> Tensor:
        """(B, M) columns"""
        return self.spread(self.column)


class TimeEmbedding(nn.Module):
    """Sinusoids of the noise level (cosines first, no scaling), then a small MLP, then SiLU, as in the DiT.

    A label is added after the SiLU, through one of its own (UDLM); without one nothing is added. The last row of the
    table, which stands for none, is zero and never learns, so that it adds nothing either: to lose a label and to have
    none is the same. Only weights of UDLM bring a row of their own.
    """

    def __init__(self, width: int, classes: int | None = None, waves: int = 256) -> None:
        super().__init__()
        self.waves = waves
        self.mlp = nn.Sequential(nn.Linear(waves, width), nn.SiLU(), nn.Linear(width, width))
        self.label = None if classes is None else nn.Embedding(classes + 1, width, padding_idx=classes)

    def forward(self, level: Tensor, label: Tensor | None = None) -> TimeOf:
        """(B, 1) or (B, L) levels, (B,) labels."""
        if label is None:
            distinct, which = level.float().unique(return_inverse=True)
            return TimeOf(self._embedded(distinct), which)
        assert self.label is not None
        told = torch.stack([level.float(), label[:, None].expand_as(level).float()], -1)
        pairs, which = told.flatten(0, 1).unique(dim=0, return_inverse=True)
        known = F.silu(self.label(pairs[:, 1].long()))
        return TimeOf(self._embedded(pairs[:, 0]) + known, which.view(level.shape))

    def _embedded(self, level: Tensor) -> Tensor:
        """(K,) → (K, C)"""
        half = self.waves // 2
        frequency = torch.exp(-math.log(10_000) * torch.arange(half, device=level.device, dtype=torch.float32) / half)
        angle = level[:, None] * frequency
        return F.silu(self.mlp(torch.cat([angle.cos(), angle.sin()], -1)))


class Gaps(nn.Module):
    """The output layer for gaps: what the state of a token says of those missing right before it, in fp32.

    FlexMDM's two heads: softplus of one number (times the longest gap) for the expected count, or logits of counts.
    """

    def __init__(self, config: TransformerConfig, most: int) -> None:
        super().__init__()
        self.most, width = most, config.width
        self.norm = Norm(config, width)
        self.modulation = nn.Linear(config.time, 2 * width) if config.time else None
        self.hidden = None if config.gap_counts else nn.Linear(width, width)
        self.output = nn.Linear(width, most + 1 if config.gap_counts else 1)

    def forward(self, h: Tensor, time: TimeOf | None) -> Tensor:
        """(B, L, D) → (B, L) expected counts, or (B, L, most + 1) logits of counts."""
        time = None if time is None else replace(time, embedded=time.embedded.float())  # embedded under autocast
        with torch.autocast(h.device.type, enabled=False):
            h = self.norm(h.float(), *modulated(self.modulation, time, 2))
            if self.hidden is None:
                return self.output(h)
            return self.most * F.softplus(self.output(F.gelu(self.hidden(h))).squeeze(-1))


class Transformer(nn.Module):
    """(B, L) ids, the noise level and a context → (B, L, D) hidden states; `logits` is the output layer.

    Instead of ids it may read (B, L, `vectors`) vectors.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.recompute = False  # gradient checkpointing: set by the training loop
        self.embedding = (
            nn.Embedding(config.vocab, config.width)
            if config.vectors is None
            else nn.Linear(config.vectors, config.width)
        )
        self.nothing = None if config.cross is None else nn.Parameter(torch.zeros(config.cross))  # no source
        self.position = nn.Embedding(config.positions, config.width) if config.positions else None
        self.time = TimeEmbedding(config.time, config.classes) if config.time else None
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = Norm(config, config.width)
        self.modulation = nn.Linear(config.time, 2 * config.width) if config.time else None
        self.output = None if config.tied else nn.Linear(config.width, config.vocab, bias=config.head_bias)
        self.gaps = None if config.gaps is None else Gaps(config, config.gaps)
        self.initialise()

    def forward(
        self,
        tokens: Tensor,
        level: Tensor | None = None,
        context: Context = Context(),
        at: Tensor | None = None,
    ) -> Tensor:
        """level: (B, 1) or (B, L) noise level in the network's own units; ignored by a network that does not see time.

        With a cache the tokens stand right after those it holds. With `at`, N places row · L + column in the order of
        rows, only their states are computed and given, (N, D): the last block then asks only their questions.
        """
        pattern = self.config.pattern
        if context.label is not None and self.config.classes is None:
            raise ValueError("this network knows no labels; give it none, or set classes=how many")
        if context.cond is not None and self.config.cross is None:
            raise ValueError("this network reads no source; give it none, or set cross=width of its states")
        if isinstance(pattern, Causal):
            return self._causal(tokens, context, pattern, at)
        if isinstance(pattern, BlockCausal) and context.clean is not None:
            return self._two_streams(tokens, level, context, pattern, at)
        return self._run(tokens, level, context, at)[0]

    def with_gaps(self, tokens: Tensor, level: Tensor | None, context: Context = Context()) -> tuple[Tensor, Tensor]:
        """(B, L) ids → (B, L, D) hidden states, and what they say of the gaps before each token (see `Gaps`).

        The gap at the end of a text stands before a token too: give the ids one token, say padding, more than the text.
        """
        if self.gaps is None:
            raise ValueError("this network has no layer for gaps; insertion needs TransformerConfig(gaps=longest gap)")
        pos = torch.arange(tokens.shape[1], device=tokens.device)
        h, time, _ = self._trunk(tokens, level, pos, Sight.of(Full(), pos, 0, context.pad), context, None, None)
        return self.norm(h, *modulated(self.modulation, time, 2)), self.gaps(h, time)

    @torch.no_grad()
    def absorb(self, tokens: Tensor, context: Context = Context()) -> KeyValues:
        """Finished tokens enter the cache; of a causal network also what it says about the next one."""
        past, pad = _past(context) or KeyValues.empty(self.config.layers), context.pad
        causal = self.config.pattern if isinstance(self.config.pattern, Causal) else None
        if causal is not None and past.length == 0:
            tokens = F.pad(tokens, (1, 0), value=causal.start)
            pad = None if pad is None else F.pad(pad, (1, 0))
        if tokens.shape[1] == 0:
            return past
        level = torch.zeros(tokens.shape[0], 1, device=tokens.device)
        h, new = self._run(tokens, level, replace(context, pad=pad, cache=past))
        return past.append(new, pad, None if causal is None else h[:, -1:])

    def logits(self, h: Tensor) -> Tensor:
        """(…, D) → (…, V)"""
        return F.linear(h, self.embedding.weight) if self.output is None else self.output(h)

    def _source(self, context: Context, like: Tensor) -> Source | None:
        """What cross attention reads: the encoded source, or the learned sign that there is none."""
        if self.nothing is None:
            return None
        if context.cond is None:
            return Source(self.nothing.expand(len(like), 1, -1), None)
        pad = context.cond_pad
        return Source(context.cond, None if pad is None else ~pad[:, None, None])

    def _causal(self, tokens: Tensor, context: Context, pattern: Causal, at: Tensor | None) -> Tensor:
        """Hidden states that predict each token from those before it: slot i holds token i − 1."""
        past, pad = _past(context), context.pad
        if past is not None and past.ahead is not None:
            h = past.ahead
            if tokens.shape[1] > 1:
                short = replace(context, pad=None if pad is None else pad[:, :-1])
                later = self._run(tokens[:, :-1], None, short)[0]
                h = torch.cat([h.to(later.dtype), later], 1)
            return h if at is None else h.flatten(0, 1)[at]
        stream = tokens if context.clean is None else context.clean
        slots = F.pad(stream[:, :-1], (1, 0), value=pattern.start)
        shifted = replace(context, pad=None if pad is None else F.pad(pad[:, :-1], (1, 0)), cache=None)
        return self._run(slots, None, shifted, at)[0]

    def _two_streams(
        self, tokens: Tensor, level: Tensor | None, context: Context, pattern: BlockCausal, at: Tensor | None
    ) -> Tensor:
        """Block diffusion trained in one pass: [noisy; clean], both at positions 0..L−1; the noisy half is read."""
        assert context.clean is not None
        (B, L), pad = tokens.shape[:2], context.pad
        pos = torch.arange(L, device=tokens.device)
        if level is not None:
            level = F.pad(level.expand(B, L), (0, L))
        places = torch.arange(2 * L, device=tokens.device)
        sight = Sight.of(pattern.streams(pos), places, 0, None if pad is None else torch.cat([pad, pad], 1))
        both = torch.cat([tokens, context.clean], 1)
        asked = Asked.of(torch.arange(B * L, device=tokens.device) if at is None else at, B, L)
        h = self._layers(both, level, pos.repeat(2), sight, replace(context, cache=None), None, asked)[0]
        return h.unflatten(0, (B, L)) if at is None else h

    def _run(
        self, tokens: Tensor, level: Tensor | None, context: Context, at: Tensor | None = None
    ) -> tuple[Tensor, list[KeyValue]]:
        """One stream, right after what the cache holds."""
        past = _past(context)
        L, before = tokens.shape[1], past.length if past else 0
        key = torch.arange(before + L, device=tokens.device)
        pad = join_pads(past.pad if past else None, before, context.pad, L, tokens)
        sight = Sight.of(self.config.pattern, key, before, pad)
        asked = None if at is None else Asked.of(at, *tokens.shape[:2])
        return self._layers(tokens, level, key[before:], sight, context, past, asked)

    def _layers(
        self,
        tokens: Tensor,
        level: Tensor | None,
        pos: Tensor,
        sight: Sight | None,
        context: Context,
        past: KeyValues | None,
        at: Asked | None,
    ) -> tuple[Tensor, list[KeyValue]]:
        """Normed hidden states (B, L, D), or (N, D) where asked, and each layer's keys and values."""
        h, time, kept = self._trunk(tokens, level, pos, sight, context, past, at)
        return self.norm(h, *modulated(self.modulation, time, 2)), kept

    def _trunk(
        self,
        tokens: Tensor,
        level: Tensor | None,
        pos: Tensor,
        sight: Sight | None,
        context: Context,
        past: KeyValues | None,
        at: Asked | None,
    ) -> tuple[Tensor, TimeOf | None, list[KeyValue]]:
        """All layers but the last norm: the states, their time, and each layer's keys and values."""
        c, h = self.config, self.embedding(tokens)
        if self.position is not None:
            _require_positions(int(pos[-1]) + 1 if len(pos) else 0, self.position.num_embeddings)
            h = h + self.position(pos)
        h = dropout(h, c.dropout, self.training)
        rotary = None if c.rotary is None else Rotary.of(pos, c.head_width, c.rotary)
        time = None if self.time is None else self.time(_level(level), context.label)
        mask = None if sight is None else sight.mask(c.head_width)
        view = View(time, rotary, sight, mask, self._source(context, tokens))
        kept = []
        for i, block in enumerate(self.blocks):
            args = (h, view, past.layer(i) if past else None, at if i == c.layers - 1 else None)
            h, new = checkpoint(block, *args, use_reentrant=False) if self.recompute else block(*args)
            kept.append(new)
        return h, time if at is None or time is None else time.at(at), kept

    @torch.no_grad()
    def initialise(self) -> None:
        """Fan-in scaled matrices; what writes into the residual starts smaller, modulation and output at zero."""
        for name, p in self.named_parameters():
            if "norm" in name and name.endswith("weight"):
                p.fill_(1)
            elif name.endswith("bias") or "modulation" in name or name.startswith(("output", "gaps.output")):
                p.zero_()
            elif name == "nothing" or (name.startswith(("embedding", "position")) and self.config.vectors is None):
                p.normal_(0, 0.02)
            elif name.startswith("position"):
                p.normal_(0, 0.5)
            elif name == "embedding.weight":  # vectors are noisy: at first what stands where counts more
                p.normal_(0, 0.1 * p.shape[1] ** -0.5)
            else:
                residual = name.endswith(("attention.out.weight", "cross.out.weight", "mlp.down.weight"))
                p.normal_(0, (p.shape[1] * (2 * self.config.layers if residual else 1)) ** -0.5)
        if self.time is not None and self.time.label is not None:
            self.time.label.weight[-1].zero_()
        if self.gaps is not None and self.gaps.hidden is not None:  # one missing token in every gap, to begin with
            self.gaps.output.bias.fill_(math.log(math.expm1(1 / self.gaps.most)))


def _require_positions(length: int, known: int) -> None:
    if length > known:
        raise ValueError(f"{length} tokens are too many: this network knows {known} positions; write fewer tokens")


def _past(context: Context) -> KeyValues | None:
    return context.cache if isinstance(context.cache, KeyValues) else None


def _level(level: Tensor | None) -> Tensor:
    if level is None:
        raise ValueError("this network sees time (adaLN): give it a noise level of shape (B, 1) or (B, L)")
    return level
