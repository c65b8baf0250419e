"""Schedules made of schedules, of tables or of steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from redraft.core.schedules.base import Schedule, crossing, logistic, polyline, require_that


@dataclass(frozen=True)
class PiecewiseKeep(Schedule):
    """Straight lines between keeps[0] = 1, …, keeps[n] at the times 0, 1/n, …, 1: for measured schedules."""

    keeps: tuple[float, ...] = (1.0, 0.0)

    def __post_init__(self) -> None:
        falls = all(a > b for a, b in pairwise(self.keeps))
        require_that(
            len(self.keeps) > 1 and self.keeps[0] <= 1 and falls and self.keeps[-1] >= 0,
            f"keeps={self.keeps}; give two values or more, each below the one before, from at most 1 to at least 0",
        )

    def keep(self, t: Tensor) -> Tensor:
        return polyline(self.keeps, t)

    def inverse(self, keep: Tensor) -> Tensor:
        return crossing(self.keeps, keep)


@dataclass(frozen=True)
class TimeReversed(Schedule):
    """α = 1 − β(1 − t) of another schedule β: seen from the other end of time (FlexMDM's "cosine" and "polynomial")."""

    schedule: Schedule

    def keep(self, t: Tensor) -> Tensor:
        return 1 - self.schedule.keep(1 - t)

    def inverse(self, keep: Tensor) -> Tensor:
        return 1 - self.schedule.inverse(1 - keep)


@dataclass(frozen=True)
class ExactEnds(Schedule):
    """Another schedule that is exactly 1 at t = 0 and 0 at t = 1, by jumps (FlexMDM's "geometric")."""

    schedule: Schedule

    def keep(self, t: Tensor) -> Tensor:
        inner = self.schedule.keep(t)
        return torch.where(t <= 0, torch.ones_like(inner), torch.where(t >= 1, torch.zeros_like(inner), inner))

    def inverse(self, keep: Tensor) -> Tensor:
        return self.schedule.inverse(keep.clamp(self.schedule.end, self.schedule.start)).clamp(0, 1)


@dataclass(frozen=True)
class ShiftedLogSnr(Schedule):
    """Another schedule with 2·ln(scale) added to its log-SNR: as if x were `scale` times as large."""

    schedule: Schedule
    scale: float

    def __post_init__(self) -> None:
        require_that(0 < self.scale < math.inf, f"scale={self.scale}; what multiplies the signal must be above 0")

    def keep(self, t: Tensor) -> Tensor:
        kept = self.schedule.keep(t)
        return self.scale**2 * kept / (self.scale**2 * kept + (1 - kept))  # never above 1 by rounding

    def inverse(self, keep: Tensor) -> Tensor:
        return self.schedule.inverse(keep / (keep + self.scale**2 * (1 - keep)))


@dataclass(frozen=True)
class ClampedLogSnr(Schedule):
    """Another schedule with its log-SNR held within [low, high] (PLANNER: ±15), so that both ends are finite.

    Where it is held, nothing happens: the inverse gives the time at which that ends or begins.
    """

    schedule: Schedule
    low: float = -15.0
    high: float = 15.0

    def __post_init__(self) -> None:
        require_that(self.low < self.high, f"low={self.low}, high={self.high}; use low < high, limits of the log-SNR")

    def keep(self, t: Tensor) -> Tensor:
        return self.schedule.keep(t).clamp(logistic(self.low), logistic(self.high))

    def inverse(self, keep: Tensor) -> Tensor:
        return self.schedule.inverse(keep.clamp(logistic(self.low), logistic(self.high))).clamp(0, 1)


@dataclass(frozen=True)
class PiecewiseLogSnr(Schedule):
    """Straight lines between log-SNRs at the times 0, 1/n, …, 1: for noise levels found by measuring."""

    logsnrs: tuple[float, ...]

    def __post_init__(self) -> None:
        falls = all(a > b for a, b in pairwise(self.logsnrs))
        finite = all(map(math.isfinite, self.logsnrs))
        require_that(
            len(self.logsnrs) > 1 and falls and finite,
            f"logsnrs={self.logsnrs}; give two finite values or more, each below the one before",
        )

    def keep(self, t: Tensor) -> Tensor:
        return polyline(self.logsnrs, t).sigmoid()

    def inverse(self, keep: Tensor) -> Tensor:
        return crossing(self.logsnrs, keep.logit())


@dataclass(frozen=True)
class DiscreteChain(Schedule):
    """Another schedule as a chain of T steps, as DDPM and its successors build it; their checkpoints need it.

    β_i = min(1 − ᾱ(i/T)/ᾱ((i − 1)/T), cap) and keep = Π(1 − β) after steps 1, …, T, which stand at the times 0, …, 1,
    straight lines between them: the generative end is the first step, whose index is 0 there. Ratios divide ᾱ by its
    value at zero; `normalized=False` takes that back. The cap leaves a little signal at the end.
    """

    schedule: Schedule
    steps: int = 2000
    cap: float = 0.999
    normalized: bool = True

    def __post_init__(self) -> None:
        require_that(self.steps > 1, f"steps={self.steps}; a chain needs two steps or more")
        require_that(0 < self.cap < 1, f"cap={self.cap}; the largest β must be between 0 and 1")

    def keep(self, t: Tensor) -> Tensor:
        return polyline(self._keeps, t)

    def inverse(self, keep: Tensor) -> Tensor:
        return crossing(self._keeps, keep)

    @cached_property
    def _keeps(self) -> tuple[float, ...]:
        kept = self.schedule.keep(torch.linspace(0, 1, self.steps + 1, dtype=torch.float64))
        ratio = (kept[1:] / kept[:-1]).clamp(min=1 - self.cap)
        return tuple((ratio.cumprod(0) * (1.0 if self.normalized else kept[0])).tolist())
