"""How large the transformers of a codec are."""

from __future__ import annotations

from dataclasses import dataclass

from redraft.models.networks.attention import AttentionPattern, Full
from redraft.models.networks.config import TransformerConfig


@dataclass(frozen=True)
class TransformerSize:
    """Width, layers and heads; the codec decides what the network reads and gives. Positions are learned."""

    width: int = 128
    layers: int = 2
    heads: int = 8

    def __post_init__(self) -> None:
        self.network(1)  # refuses an impossible size

    def network(self, positions: int, pattern: AttentionPattern = Full()) -> TransformerConfig:
        """A transformer of this size, for at most `positions` positions."""
        return TransformerConfig(self.width, self.layers, self.heads, pattern=pattern, rotary=None, positions=positions)
