"""The attribute classifier: a small separate network that classifies noisy texts, for guidance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from redraft.core.canvas import Context
from redraft.core.vocab import require_range
from redraft.models.networks.attention import AttentionMask, RotaryEmbedding
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.kv_cache import KeyValueCache, TokenPositions
from redraft.models.networks.layers import Block, LayerInputs, Norm
from redraft.models.networks.patterns import Full
from redraft.models.parts.base import Part
from redraft.models.parts.config import PartConfig, WholeConfig


class AttributeClassifier(Part):
    """(B, L, V) one-hot noisy tokens → (B, classes) logits, from one block of the network's size and mean pooling.

    It reads one-hot tokens, so that their gradient approximates the effect of every substitution
    (`FirstOrderClassifier`). It does not see the time, because the masks already show how noisy a text is.
    """

    name = "attributes"
    missing = "this model has no attribute classifier; train one with AttributeObjective"

    def __init__(self, config: TransformerConfig, vocab: int, classes: int) -> None:
        super().__init__()
        self.config = plain = replace(config, pattern=Full(), time=None, classes=None, dropout=0.0)
        self.embedding = nn.Linear(vocab, plain.width, bias=False)
        self.block, self.norm, self.output = Block(plain), Norm(plain, plain.width), nn.Linear(plain.width, classes)
        self.initialize()

    def forward(self, x: Tensor, pad: Tensor | None = None) -> Tensor:
        h = self.embedding(x)
        c, positions = self.config, TokenPositions.of(None, h, KeyValueCache())
        rotary = (
            None if c.rotary is None else RotaryEmbedding.of(positions.values, c.head_width, c.rotary, c.rope_scaling)
        )
        attention = AttentionMask.of(Full(), positions.values, 0, positions.keys, pad)
        mask = None if attention is None else attention.mask(c.head_width)
        states = self.norm(self.block(h, LayerInputs(positions, None, rotary, attention, mask), None)[0])
        real = torch.ones_like(states[..., 0]) if pad is None else (~pad).to(states.dtype)
        return self.output((states * real[..., None]).sum(1) / real.sum(1, keepdim=True).clamp(min=1))

    def logits(self, x: Tensor, context: Context = Context()) -> Tensor:
        """(B, L, V) one-hot noisy tokens → (B, classes) fp32 logits of the class of the text."""
        return self(x, context.pad).float()

    def log_prob(self, label: int) -> Callable[[Tensor, Tensor, Context], Tensor]:
        """Return log p(class | noisy text) as a function, for `FirstOrderClassifier` and `TokenClassifier`."""
        return lambda x, t, context: self.logits(x, context).log_softmax(-1)[:, label]

    @torch.no_grad()
    def initialize(self) -> None:
        """Initialize the weights so that all classes are equally likely."""
        self.embedding.weight.normal_()
        for p in self.block.parameters():
            if p.dim() == 2:
                p.normal_(0, p.shape[1] ** -0.5)
        for layer in (self.block.attention.out, self.block.mlp.down, self.output):
            layer.weight.zero_()
        self.output.bias.zero_()


@dataclass(frozen=True)
class AttributeClassifierConfig(PartConfig):
    """A classifier of noisy texts, of one transformer block of the network's size."""

    classes: int  # number of classes it tells apart
    name = AttributeClassifier.name

    def __post_init__(self) -> None:
        require_range(self, 1, 2**31, "classes")

    @property
    def label_count(self) -> int:
        return self.classes

    def build(self, config: WholeConfig) -> AttributeClassifier:
        return AttributeClassifier(config.network, config.vocab.size, self.classes)
