"""The error head: one transformer block on top of a frozen network, which detects wrong tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from redraft.core.canvas import Context
from redraft.models.networks.attention import AttentionMask, RotaryEmbedding
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.kv_cache import KeyValueCache, TokenPositions
from redraft.models.networks.layers import Block, LayerInputs, Norm
from redraft.models.networks.patterns import Full
from redraft.models.parts.base import Part, WholeModel
from redraft.models.parts.config import PartConfig, WholeConfig


class ErrorHead(Part):
    """(B, L, D) states of a finished text → (B, L) logits that each token is wrong (G-Star's error predictor).

    It has attention because most errors are contradictions between tokens, and the states of a network trained to fill
    in masks hardly show which of two visible tokens contradicts the rest.
    """

    name = "errors"
    missing = "this model has no error head; train one: redraft train gstar_tiny --base DIRECTORY"

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
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

    def logits(self, model: WholeModel, x: Tensor, context: Context = Context()) -> Tensor:
        """(B, L) fp32 logits that each token of finished texts is wrong; no gradient reaches the model's network."""
        t = torch.zeros(len(x), 1, device=x.device)
        with torch.no_grad():
            states = model.network(x, model.config.noise_level(t), context)
        return self(states, context.pad).float()

    @torch.no_grad()
    def initialize(self) -> None:
        """Initialize the weights so that every token is wrong with probability ½."""
        for p in self.block.parameters():
            if p.dim() == 2:
                p.normal_(0, p.shape[1] ** -0.5)
        for layer in (self.block.attention.out, self.block.mlp.down, self.output):
            layer.weight.zero_()
        self.output.bias.zero_()


@dataclass(frozen=True)
class ErrorHeadConfig(PartConfig):
    """An error head of one transformer block, of the network's size."""

    name = ErrorHead.name

    def require(self, config: WholeConfig) -> None:
        if config.network.pattern.block is not None:
            raise ValueError(
                f"pattern={config.network.pattern}; the error head judges whole texts and needs a network with full "
                "attention, pattern=Full()"
            )

    def build(self, config: WholeConfig) -> ErrorHead:
        return ErrorHead(config.network)


@dataclass(frozen=True, eq=False)
class ErrorCritic:
    """The error head of a model as the critic of `CriticPick`."""

    model: WholeModel

    def error_logits(self, x: Tensor, context: Context) -> Tensor:
        """(B, L) logits that each token is wrong."""
        return self.model.part(ErrorHead).logits(self.model, x, context)
