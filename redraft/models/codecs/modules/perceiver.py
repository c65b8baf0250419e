"""A Perceiver resampler: any number of states ↔ a fixed number of vectors, by attention from learned queries."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.models.codecs.modules.size import TransformerSize
from redraft.models.networks.attention import attend
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.layers import MLP, Norm


class ResamplerBlock(nn.Module):
    """h += attention(h → [inputs; h]), then h += mlp(h): queries read the inputs and one another at once."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.head_width, width = config.head_width, config.width
        self.norm1, self.norm2, self.norm_inputs = (Norm(config, width) for _ in range(3))
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * width, bias=False)
        self.q_norm, self.k_norm = (Norm(config, config.head_width) for _ in range(2))
        self.out = nn.Linear(width, width, bias=False)
        self.mlp = MLP(config)

    def forward(self, h: Tensor, inputs: Tensor, mask: Tensor | None) -> Tensor:
        """(B, N, D), (B, L, D), and (B, 1, 1, L + N) bool, True where there is something → (B, N, D)"""
        queries = self.norm1(h)
        k, v = self.kv(torch.cat([self.norm_inputs(inputs), queries], 1)).chunk(2, -1)
        q, k, v = (a.unflatten(-1, (-1, self.head_width)).transpose(1, 2) for a in (self.q(queries), k, v))
        q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        h = h + self.out(attend(q, k, v, mask).transpose(1, 2).flatten(-2))
        return h + self.mlp(self.norm2(h))


class Resampler(nn.Module):
    """(B, L, D) states → (B, N, D'), N fixed (Jaegle et al. 2021; keys and values of both, as Flamingo and LD4LG).

    It reads states of the width `reads` at up to `places` places, and gives `count` vectors of the width `gives`.
    Unlike in the originals, a query starts from the window of states that it stands for, beside its learned vector:
    from learned vectors alone, attention takes long to find out what is where.
    """

    def __init__(self, size: TransformerSize, *, reads: int, places: int, gives: int, count: int) -> None:
        super().__init__()
        config = size.network(places)
        self.window, self.parts = -(-places // count), -(-count // places)  # states of a query, queries of a state
        self.start = nn.Linear(self.window * reads, self.parts * config.width, bias=False)
        self.inputs = nn.Linear(reads, config.width)
        self.position = nn.Parameter(torch.empty(places, config.width).normal_(0, 0.5))
        self.queries = nn.Parameter(torch.empty(count, config.width).normal_())
        self.blocks = nn.ModuleList(ResamplerBlock(config) for _ in range(config.layers))
        self.norm = Norm(config, config.width)
        self.output = nn.Linear(config.width, gives)

    def forward(self, states: Tensor, pad: Tensor | None = None) -> Tensor:
        B, L = states.shape[:2]
        if len(self.position) < L:
            raise ValueError(f"{L} places are too many: this resampler knows {len(self.position)}; raise its length")
        inputs = self.inputs(states) + self.position[:L]
        h = self.queries + self._around(states if pad is None else states.masked_fill(pad[..., None], 0.0))
        mask = None if pad is None else ~torch.cat([pad, pad.new_zeros(B, h.shape[1])], 1)[:, None, None]
        for block in self.blocks:
            h = block(h, inputs, mask)
        return self.output(self.norm(h))

    def hidden_matrices(self) -> list[nn.Parameter]:
        """The matrices of the blocks, which Muon may train."""
        return [p for p in self.blocks.parameters() if p.dim() == 2]

    def _around(self, states: Tensor) -> Tensor:
        """(B, N, D) the states around each query: several if the text is long, a part of one if it is short."""
        count = len(self.queries)
        parts = self.start(window_states(states, -(-count // self.parts), self.window))
        return parts.unflatten(-1, (self.parts, -1)).flatten(1, 2)[:, :count]


def window_states(states: Tensor, count: int, width: int) -> Tensor:
    """(B, L, D) → (B, count, width·D): `count` windows of `width` states, zero after the end of the text."""
    full = F.pad(states, (0, 0, 0, max(0, count * width - states.shape[1])))[:, : count * width]
    return full.unflatten(1, (count, width)).flatten(2)
