"""Unmasking paces: the fraction of the masked tokens that each step of `Unmask` reveals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.vocab import require_range


class Pace(Protocol):
    """The fraction of the masked tokens that each of `steps` steps reveals."""

    def __call__(self, hidden: Tensor, step: int, steps: int) -> Tensor:
        """(B, 1) number of masked tokens before step 0, 1, … → (B, 1) fraction of them to reveal."""
        ...


@dataclass(frozen=True)
class EvenPace:
    """Equal numbers of tokens: each step reveals the fraction 1 / steps left (LLaDA)."""

    def __call__(self, hidden: Tensor, step: int, steps: int) -> Tensor:
        return torch.full_like(hidden, 1 / (steps - step), dtype=ops.widest_float(hidden.device))


@dataclass(frozen=True)
class TimePace:
    """The expected number of tokens, masked · (1 − s/t) from t to s, rounded down, in equal steps of time to `end`.

    The last step reveals the rest. This is the pace of Dream; with end=0 and `nearest`, that of dllm.
    """

    end: float = 1e-3
    nearest: bool = False  # round to the nearest integer instead of down

    def __post_init__(self) -> None:
        require_range(self, 0, 1, "end")

    def __call__(self, hidden: Tensor, step: int, steps: int) -> Tensor:
        if step == steps - 1:
            return torch.ones_like(hidden, dtype=ops.widest_float(hidden.device))
        t, s = (1 - (1 - self.end) * k / steps for k in (step, step + 1))
        expected = hidden.to(ops.widest_float(hidden.device)) * (1 - s / t)
        expected = (expected * 2**20).round() / 2**20  # so that exact integers and halves are not lost to rounding
        count = expected.round() if self.nearest else expected.floor()
        return count / hidden.clamp(min=1)
