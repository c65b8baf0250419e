"""The size of the transformers in a codec."""

from __future__ import annotations

from dataclasses import dataclass

from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.patterns import AttentionPattern, Full


@dataclass(frozen=True)
class TransformerSize:
    """Width, layers and heads of a transformer with learned positions; the codec determines its inputs and outputs."""

    width: int = 128
    layers: int = 2
    heads: int = 8

    def __post_init__(self) -> None:
        self.network(1)  # raises if the size is impossible

    def network(self, positions: int, pattern: AttentionPattern = Full()) -> TransformerConfig:
        """The config of a transformer of this size, with `positions` learned positions."""
        return TransformerConfig(self.width, self.layers, self.heads, pattern=pattern, rotary=None, positions=positions)
