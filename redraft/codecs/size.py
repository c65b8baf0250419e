"""How large the transformers of a codec are."""

from __future__ import annotations

from dataclasses import dataclass

from redraft.networks import Full, Pattern, TransformerConfig


@dataclass(frozen=True)
class Size:
    """Width, layers and heads; what it reads and gives is its codec's business. Positions are learned."""

    width: int = 128
    layers: int = 2
    heads: int = 8

    def __post_init__(self) -> None:
        self.network(1, 1)  # which refuses a size that is none

    def network(
        self,
        outputs: int,
        positions: int,
        *,
        vectors: int | None = None,
        cross: int | None = None,
        pattern: Pattern = Full(),
    ) -> TransformerConfig:
        """A transformer of this size that gives so many numbers at each of so many positions at most."""
        return TransformerConfig(
            outputs,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            pattern=pattern,
            rotary=None,
            positions=positions,
            vectors=vectors,
            cross=cross,
        )
