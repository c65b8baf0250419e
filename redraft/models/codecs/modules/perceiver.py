"""A Perceiver resampler: maps a varying number of states to a fixed number of vectors, with learned queries."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.models.codecs.modules.size import TransformerSize
from redraft.models.networks.attention import attend
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.layers import MLP, Norm


class _ResamplerBlock(nn.Module):
    """h += attention(h → [inputs; h]), then h += mlp(h); the queries attend to the inputs and to each other."""

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
        """(B, N, D) queries, (B, L, D) inputs and (B, 1, 1, L + N) bool, False on padding → (B, N, D)"""
        queries = self.norm1(h)
        k, v = self.kv(torch.cat([self.norm_inputs(inputs), queries], 1)).chunk(2, -1)
        q, k, v = (a.unflatten(-1, (-1, self.head_width)).transpose(1, 2) for a in (self.q(queries), k, v))
        q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        h = h + self.out(attend(q, k, v, mask).transpose(1, 2).flatten(-2))
        return h + self.mlp(self.norm2(h))


class Resampler(nn.Module):
    """(B, L, reads) states with L ≤ length → (B, count, writes) vectors (Jaegle et al. 2021).

    Keys and values come from the inputs and the queries, as in Flamingo and LD4LG. Unlike there, a query starts from a
    learned vector plus a projection of its window of states; from learned vectors alone, attention takes long to learn
    which state is at which position.
    """

    def __init__(self, size: TransformerSize, *, reads: int, length: int, writes: int, count: int) -> None:
        super().__init__()
        config = size.network(length)
        self.window, self.parts = -(-length // count), -(-count // length)  # states per query, queries per state
        self.start = nn.Linear(self.window * reads, self.parts * config.width, bias=False)
        self.inputs = nn.Linear(reads, config.width)
        self.position = nn.Parameter(torch.empty(length, config.width).normal_(0, 0.5))
        self.queries = nn.Parameter(torch.empty(count, config.width).normal_())
        self.blocks = nn.ModuleList(_ResamplerBlock(config) for _ in range(config.layers))
        self.norm = Norm(config, config.width)
        self.output = nn.Linear(config.width, writes)

    def forward(self, states: Tensor, pad: Tensor | None = None) -> Tensor:
        B, L = states.shape[:2]
        if len(self.position) < L:
            raise ValueError(
                f"{L} states are too many: this resampler has {len(self.position)} positions; raise length"
            )
        inputs = self.inputs(states) + self.position[:L]
        h = self.queries + self._project_windows(states if pad is None else states.masked_fill(pad[..., None], 0.0))
        mask = None if pad is None else ~torch.cat([pad, pad.new_zeros(B, h.shape[1])], 1)[:, None, None]
        for block in self.blocks:
            h = block(h, inputs, mask)
        return self.output(self.norm(h))

    def hidden_matrices(self) -> list[nn.Parameter]:
        """The matrices of the blocks, which Muon may train."""
        return [p for p in self.blocks.parameters() if p.dim() == 2]

    def _project_windows(self, states: Tensor) -> Tensor:
        """(B, L, reads) → (B, count, D): each query's window of states, projected; queries may share a state."""
        count = len(self.queries)
        parts = self.start(_window_states(states, -(-count // self.parts), self.window))
        return parts.unflatten(-1, (self.parts, -1)).flatten(1, 2)[:, :count]


def _window_states(states: Tensor, count: int, width: int) -> Tensor:
    """(B, L, D) → (B, count, width · D): `count` windows of `width` states, zero after the end of the text."""
    full = F.pad(states, (0, 0, 0, max(0, count * width - states.shape[1])))[:, : count * width]
    return full.unflatten(1, (count, width)).flatten(2)
