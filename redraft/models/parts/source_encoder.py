"""The encoder of sources, for models that answer a text by cross attention (GENIE)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from redraft.core.canvas import Context
from redraft.models.networks.config import NetworkIO, TransformerConfig
from redraft.models.networks.transformer import Transformer
from redraft.models.parts.base import Part
from redraft.models.parts.config import PartConfig, WholeConfig


class SourceEncoder(Part):
    """(B, C) ids of a source → (B, C, width) states that the network sees by cross attention."""

    name, joint = "encoder", True
    missing = "this model has no encoder to read a source; use the framing Pairs"

    def __init__(self, config: TransformerConfig, vocab_size: int) -> None:
        super().__init__()
        self.network = Transformer(config, NetworkIO(vocab_size))

    def forward(self, source: Tensor, pad: Tensor | None = None) -> Tensor:
        return self.network(source, context=Context(pad=pad))


@dataclass(frozen=True)
class SourceEncoderConfig(PartConfig):
    """An encoder of sources; cross attention adapts to its width."""

    network: TransformerConfig
    name = SourceEncoder.name

    @property
    def source_width(self) -> int:
        return self.network.width

    def require(self, config: WholeConfig) -> None:
        if self.network.pattern.block is not None or self.network.time:
            raise ValueError("an encoder reads clean ids, all at once; it needs full attention and time=None")

    def build(self, config: WholeConfig) -> SourceEncoder:
        return SourceEncoder(self.network, config.vocab.size)
