"""What a text depends on besides its prompt: a class, a source, or a prompt to steer away from."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from redraft.core.ops import _map_tensors


@dataclass(frozen=True)
class Condition:
    """The condition of each row. In a batch the source is ids; in a context it may be the encoder's states for them."""

    label: Tensor | None = None  # (B,) int64: class of each row; None without classes
    source: Tensor | None = None  # (B, C) int64 ids, or (B, C, width) states for cross attention; None without a source
    source_pad: Tensor | None = None  # (B, C) bool: padding of the source
    negative: Tensor | None = None  # (B, positions) ids of a `NegativePrompt`, −1 where it does not differ; else None
    given: Tensor | None = None  # (B, positions) bool: tokens of the prompt, which penalties do not count; else None

    def rows(self, index: Tensor) -> Condition:
        """The condition of the rows at `index`."""
        return _map_tensors(self, lambda tensor: tensor[index])
