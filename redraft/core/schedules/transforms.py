"""Schedules derived from other schedules, from tables, or from discrete chains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from redraft.core.schedules.base import Schedule, _crossing, _logistic, _polyline, _require_that


@dataclass(frozen=True)
class PiecewiseKeep(Schedule):
    """Linear interpolation between keeps[0], …, keeps[n] at the times 0, 1/n, …, 1, for measured schedules."""

    keeps: tuple[float, ...] = (1.0, 0.0)

    def __post_init__(self) -> None:
        falls = all(a > b for a, b in pairwise(self.keeps))
        _require_that(
            len(self.keeps) > 1 and self.keeps[0] <= 1 and falls and self.keeps[-1] >= 0,
            f"keeps={self.keeps}; give two or more decreasing values, from at most 1 to at least 0",
        )

    def keep(self, t: Tensor) -> Tensor:
        return _polyline(self.keeps, t)

    def inverse(self, keep: Tensor) -> Tensor:
        return _crossing(self.keeps, keep)


@dataclass(frozen=True)
class TimeReversed(Schedule):
    """α = 1 − β(1 − t) for another schedule β, that is, time runs backwards (FlexMDM's "cosine" and "polynomial")."""

    schedule: Schedule

    def keep(self, t: Tensor) -> Tensor:
        return 1 - self.schedule.keep(1 - t)

    def inverse(self, keep: Tensor) -> Tensor:
        return 1 - self.schedule.inverse(1 - keep)


@dataclass(frozen=True)
class ExactEnds(Schedule):
    """Another schedule, set to exactly 1 at t = 0 and 0 at t = 1 by jumps (FlexMDM's "geometric")."""

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
        _require_that(0 < self.scale < math.inf, f"scale={self.scale}; the factor of the signal must be above 0")

    def keep(self, t: Tensor) -> Tensor:
        keep = self.schedule.keep(t)
        return self.scale**2 * keep / (self.scale**2 * keep + (1 - keep))  # a form that never rounds above 1

    def inverse(self, keep: Tensor) -> Tensor:
        return self.schedule.inverse(keep / (keep + self.scale**2 * (1 - keep)))


@dataclass(frozen=True)
class ClampedLogSnr(Schedule):
    """Another schedule with its log-SNR clamped to [low, high] (PLANNER: ±15), so that both ends are finite.

    Where it is clamped, keep is constant; `inverse` then returns the edge of that interval.
    """

    schedule: Schedule
    low: float = -15.0
    high: float = 15.0

    def __post_init__(self) -> None:
        _require_that(self.low < self.high, f"low={self.low}, high={self.high}; log-SNR limits need low < high")

    def keep(self, t: Tensor) -> Tensor:
        return self.schedule.keep(t).clamp(_logistic(self.low), _logistic(self.high))

    def inverse(self, keep: Tensor) -> Tensor:
        return self.schedule.inverse(keep.clamp(_logistic(self.low), _logistic(self.high))).clamp(0, 1)


@dataclass(frozen=True)
class PiecewiseLogSnr(Schedule):
    """Linear interpolation between log-SNRs at the times 0, 1/n, …, 1, for measured noise levels."""

    logsnrs: tuple[float, ...]

    def __post_init__(self) -> None:
        falls = all(a > b for a, b in pairwise(self.logsnrs))
        finite = all(map(math.isfinite, self.logsnrs))
        _require_that(
            len(self.logsnrs) > 1 and falls and finite,
            f"logsnrs={self.logsnrs}; give two or more finite, decreasing values",
        )

    def keep(self, t: Tensor) -> Tensor:
        return _polyline(self.logsnrs, t).sigmoid()

    def inverse(self, keep: Tensor) -> Tensor:
        return _crossing(self.logsnrs, keep.logit())


@dataclass(frozen=True)
class DiscreteChain(Schedule):
    """Another schedule as a chain of T steps, as in DDPM and its successors; their checkpoints need it.

    β_i = min(1 − ᾱ(i/T)/ᾱ((i − 1)/T), cap) and keep = Π(1 − β) after steps 1, …, T, placed at the times 0, …, 1 with
    linear interpolation. So t = 0 is the first step, which has index 0 in those papers, and not clean data. Ratios
    divide ᾱ by its value at zero; `normalized=False` undoes that. The cap leaves a little signal at the end.
    """

    schedule: Schedule
    steps: int = 2000
    cap: float = 0.999
    normalized: bool = True

    def __post_init__(self) -> None:
        _require_that(self.steps > 1, f"steps={self.steps}; a chain needs at least two steps")
        _require_that(0 < self.cap < 1, f"cap={self.cap}; the largest β must be between 0 and 1")

    def keep(self, t: Tensor) -> Tensor:
        return _polyline(self._keeps, t)

    def inverse(self, keep: Tensor) -> Tensor:
        return _crossing(self._keeps, keep)

    @cached_property
    def _keeps(self) -> tuple[float, ...]:
        keep = self.schedule.keep(torch.linspace(0, 1, self.steps + 1, dtype=torch.float64))
        ratio = (keep[1:] / keep[:-1]).clamp(min=1 - self.cap)
        return tuple((ratio.cumprod(0) * (1.0 if self.normalized else keep[0])).tolist())
