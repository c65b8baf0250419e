"""Noise schedules for tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.core.schedules.base import Schedule, _quarter_cosine, _require_that


@dataclass(frozen=True)
class Linear(Schedule):
    """α = 1 − (1 − ε) t: MDLM's and SEDD's "log-linear" (linear in α = e^{−σ}); the mask loss has weight 1/t."""

    eps: float = 0.0

    def __post_init__(self) -> None:
        _require_that(0 <= self.eps < 1, f"eps={self.eps}; the signal left at t = 1 must be at least 0 and below 1")

    def keep(self, t: Tensor) -> Tensor:
        return 1 - (1 - self.eps) * t

    def inverse(self, keep: Tensor) -> Tensor:
        return (1 - keep) / (1 - self.eps)


@dataclass(frozen=True)
class Cosine(Schedule):
    """α = ε + (1 − ε) cos(πt/2) (MDLM's "cosine")."""

    eps: float = 0.0

    def __post_init__(self) -> None:
        _require_that(0 <= self.eps < 1, f"eps={self.eps}; the signal left at t = 1 must be at least 0 and below 1")

    def keep(self, t: Tensor) -> Tensor:
        return self.eps + (1 - self.eps) * _quarter_cosine(t)

    def inverse(self, keep: Tensor) -> Tensor:
        return 2 / torch.pi * ((keep - self.eps) / (1 - self.eps)).clamp(-1, 1).acos()


@dataclass(frozen=True)
class CosineSquared(Schedule):
    """α = ε + (1 − ε) cos²(πt/2) (MDLM's "cosinesqr"; Nichol & Dhariwal without their offset)."""

    eps: float = 0.0

    def __post_init__(self) -> None:
        _require_that(0 <= self.eps < 1, f"eps={self.eps}; the signal left at t = 1 must be at least 0 and below 1")

    def keep(self, t: Tensor) -> Tensor:
        return self.eps + (1 - self.eps) * _quarter_cosine(t) ** 2

    def inverse(self, keep: Tensor) -> Tensor:
        return 2 / torch.pi * ((keep - self.eps) / (1 - self.eps)).clamp(0, 1).sqrt().acos()


@dataclass(frozen=True)
class CosineRatio(Schedule):
    """α = cos((t + o)/(1 + o)·π/2)/cos(o/(1 + o)·π/2), o = 0.008 (Hoogeboom et al. 2021; D3PM's uniform noise).

    The square root of Nichol & Dhariwal's ᾱ. The released code clamps what each step keeps from below, so that a little
    signal is left at the end of the chain; `floor` does the same (10⁻³ per step in D3PM, its root in multinomial
    diffusion: floor = √10⁻³·α(1 − 1/T)). Without a floor, z_1 is independent of x.
    """

    offset: float = 0.008
    floor: float = 0.0

    def __post_init__(self) -> None:
        _require_that(0 <= self.offset < math.inf, f"offset={self.offset}; the time offset must be at least 0")
        _require_that(
            0 <= self.floor < 1, f"floor={self.floor}; the signal left at t = 1 must be at least 0 and below 1"
        )

    def keep(self, t: Tensor) -> Tensor:
        ratio = _quarter_cosine((t + self.offset) / (1 + self.offset)) / self._start
        return ratio.clamp(min=self.floor)

    def inverse(self, keep: Tensor) -> Tensor:
        angle = 2 / torch.pi * (keep * self._start).clamp(-1, 1).acos()
        return angle * (1 + self.offset) - self.offset

    @property
    def _start(self) -> float:
        """Computed with the same rounding as `keep`, which is then exactly 1 at t = 0."""
        return float(_quarter_cosine(torch.tensor(self.offset, dtype=torch.float64) / (1 + self.offset)))


@dataclass(frozen=True)
class Polynomial(Schedule):
    """α = 1 − t^p: p = 2 and ½ are BD3-LM's "square" and "square root"."""

    power: float = 2.0

    def __post_init__(self) -> None:
        _require_that(
            0 < self.power < math.inf, f"power={self.power} does not decrease from 1 to 0; use a power above 0"
        )

    def keep(self, t: Tensor) -> Tensor:
        return 1 - t**self.power

    def inverse(self, keep: Tensor) -> Tensor:
        return (1 - keep) ** (1 / self.power)


@dataclass(frozen=True)
class Exponential(Schedule):
    """α = e^{−σ}, σ = σ_min + t (σ_max − σ_min): constant rate ("linear" in MDLM)."""

    low: float = 1e-3
    high: float = 10.0

    def __post_init__(self) -> None:
        _require_that(0 < self.low < self.high < math.inf, f"low={self.low}, high={self.high}; use 0 < low < high")

    def keep(self, t: Tensor) -> Tensor:
        return (-(self.low + t * (self.high - self.low))).exp()

    def inverse(self, keep: Tensor) -> Tensor:
        return (-keep.log() - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Geometric(Schedule):
    """α = e^{−σ}, σ = σ_min^{1−t} σ_max^t (SEDD's default for uniform noise, with 10⁻⁴ and 20)."""

    low: float = 1e-3
    high: float = 1.0

    def __post_init__(self) -> None:
        _require_that(0 < self.low < self.high < math.inf, f"low={self.low}, high={self.high}; use 0 < low < high")

    def keep(self, t: Tensor) -> Tensor:
        return (-(self.low * (self.high / self.low) ** t)).exp()

    def inverse(self, keep: Tensor) -> Tensor:
        return (-keep.log() / self.low).log() / math.log(self.high / self.low)
