"""The error layer: one transformer layer on a frozen network, which tells wrong tokens from right ones."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from redraft.models.networks.attention import AttentionMask, Full, RotaryEmbedding
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.kv_cache import KeyValueCache, TokenPositions
from redraft.models.networks.layers import Block, LayerInputs, Norm


class ErrorHead(nn.Module):
    """(B, L, D) states of a finished text → (B, L) logits that its tokens are wrong (G-Star's error predictor).

    It has attention, since most errors are disagreements: the states of a network trained to fill holes hardly reveal
    which of two visible tokens contradicts the rest.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        if not isinstance(config.pattern, Full):
            raise ValueError(
                f"{config.pattern} writes a text in blocks, but the error layer judges whole texts; it needs a network "
                "with full attention, pattern=Full()"
            )
        self.config = plain = replace(config, time=None, classes=None, dropout=0.0)  # a text has no noise level
        self.block, self.norm, self.output = Block(plain), Norm(plain, plain.width), nn.Linear(plain.width, 1)
        self.initialise()

    def forward(self, h: Tensor, pad: Tensor | None = None) -> Tensor:
        c, stand = self.config, TokenPositions.of(None, h, KeyValueCache())
        rotary = None if c.rotary is None else RotaryEmbedding.of(stand.place, c.head_width, c.rotary, c.slowed)
        sight = AttentionMask.of(Full(), stand.place, 0, stand.keys, pad)
        view = LayerInputs(stand, None, rotary, sight, None if sight is None else sight.mask(c.head_width))
        return self.output(self.norm(self.block(h, view, None)[0])).squeeze(-1)

    @torch.no_grad()
    def initialise(self) -> None:
        """At first, every token is as likely wrong as right."""
        for p in self.block.parameters():
            if p.dim() == 2:
                p.normal_(0, p.shape[1] ** -0.5)
        for layer in (self.block.attention.out, self.block.mlp.down, self.output):
            layer.weight.zero_()
        self.output.bias.zero_()
