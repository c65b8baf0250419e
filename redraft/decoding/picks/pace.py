"""Paces: how many of its tokens a step of `Unmask` reveals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.vocab import require_range


class Pace(Protocol):
    """How many tokens each of `steps` steps reveals."""

    def __call__(self, hidden: Tensor, step: int, steps: int) -> Tensor:
        """(B, 1) how many are masked before this step (0 is the first) → (B, 1) the share of them it reveals."""
        ...


@dataclass(frozen=True)
class EvenPace:
    """The same number at each step, rounded up: 1/steps left (LLaDA)."""

    def __call__(self, hidden: Tensor, step: int, steps: int) -> Tensor:
        return torch.full_like(hidden, 1 / (steps - step), dtype=ops.widest_float(hidden.device))


@dataclass(frozen=True)
class TimePace:
    """What mask noise expects between t and s, 1 − s/t, on `steps` equal steps from 1 to `end`; rounded down.

    The last step reveals the rest. This is Dream's number of tokens; with end = 0 and `nearest` that of dllm.
    """

    end: float = 1e-3
    nearest: bool = False  # round to the nearest number instead of down

    def __post_init__(self) -> None:
        require_range(self, 0, 1, "end")

    def __call__(self, hidden: Tensor, step: int, steps: int) -> Tensor:
        if step == steps - 1:
            return torch.ones_like(hidden, dtype=ops.widest_float(hidden.device))
        t, s = (1 - (1 - self.end) * k / steps for k in (step, step + 1))
        expected = hidden.to(ops.widest_float(hidden.device)) * (1 - s / t)
        expected = (expected * 2**20).round() / 2**20  # what is a whole number or a half in mathematics is so here
        count = expected.round() if self.nearest else expected.floor()
        return count / hidden.clamp(min=1)
