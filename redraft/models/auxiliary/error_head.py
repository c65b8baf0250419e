"""The error head: one transformer block on top of a frozen network, which detects wrong tokens."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from redraft.models.networks.attention import AttentionMask, RotaryEmbedding
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.kv_cache import KeyValueCache, TokenPositions
from redraft.models.networks.layers import Block, LayerInputs, Norm
from redraft.models.networks.patterns import Full


class ErrorHead(nn.Module):
    """(B, L, D) states of a finished text → (B, L) logits that each token is wrong (G-Star's error predictor).

    It has attention because most errors are contradictions between tokens, and the states of a network trained to fill
    in masks hardly show which of two visible tokens contradicts the rest.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        if not isinstance(config.pattern, Full):
            raise ValueError(
                f"pattern={config.pattern}; the error head judges whole texts and needs a network with full attention, "
                "pattern=Full()"
            )
        self.config = plain = replace(config, time=None, classes=None, dropout=0.0)  # finished texts have no noise
        self.block, self.norm, self.output = Block(plain), Norm(plain, plain.width), nn.Linear(plain.width, 1)
        self.initialize()

    def forward(self, h: Tensor, pad: Tensor | None = None) -> Tensor:
        c, positions = self.config, TokenPositions.of(None, h, KeyValueCache())
        rotary = (
            None if c.rotary is None else RotaryEmbedding.of(positions.values, c.head_width, c.rotary, c.rope_scaling)
        )
        attention = AttentionMask.of(Full(), positions.values, 0, positions.keys, pad)
        mask = None if attention is None else attention.mask(c.head_width)
        inputs = LayerInputs(positions, None, rotary, attention, mask)
        return self.output(self.norm(self.block(h, inputs, None)[0])).squeeze(-1)

    @torch.no_grad()
    def initialize(self) -> None:
        """Initialize the weights so that every token is wrong with probability ½."""
        for p in self.block.parameters():
            if p.dim() == 2:
                p.normal_(0, p.shape[1] ** -0.5)
        for layer in (self.block.attention.out, self.block.mlp.down, self.output):
            layer.weight.zero_()
        self.output.bias.zero_()
