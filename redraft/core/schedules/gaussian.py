"""Schedules for Gaussian noise: keep is the squared signal scale a², keep/(1 − keep) the signal-to-noise ratio."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.core.schedules.base import Schedule, _quarter_cosine, _require_that


@dataclass(frozen=True)
class VPLinear(Schedule):
    """a² = exp(−½t²(β₁ − β₀) − tβ₀): β rises linearly from `low` to `high` (Song et al. 2021, eq. 33).

    It is the limit of DDPM's "linear" chain of 1000 steps, β from 10⁻⁴ to 0.02.
    """

    low: float = 0.1
    high: float = 20.0

    def __post_init__(self) -> None:
        _require_that(0 < self.low < self.high < math.inf, f"low={self.low}, high={self.high}; use 0 < low < high")

    def keep(self, t: Tensor) -> Tensor:
        return (-(t**2) * (self.high - self.low) / 2 - t * self.low).exp()

    def inverse(self, keep: Tensor) -> Tensor:
        lost = -keep.log()
        return 2 * lost / (self.low + (self.low**2 + 2 * (self.high - self.low) * lost).sqrt())


@dataclass(frozen=True)
class CosineOffset(Schedule):
    """a² = cos²((t + o)/(1 + o)·π/2), o = 0.008 (Nichol & Dhariwal 2021, eq. 17); SSD-LM uses o = 10⁻⁴.

    As written, keep(0) is a little below 1. Discrete chains are built from ratios, which divides a² by its value at 0;
    `normalized` does the same.
    """

    offset: float = 0.008
    normalized: bool = False

    def __post_init__(self) -> None:
        _require_that(0 <= self.offset < math.inf, f"offset={self.offset}; the time offset must be at least 0")

    def keep(self, t: Tensor) -> Tensor:
        return _quarter_cosine((t + self.offset) / (1 + self.offset)) ** 2 / self._start

    def inverse(self, keep: Tensor) -> Tensor:
        angle = 2 / torch.pi * (keep * self._start).clamp(0, 1).sqrt().acos()
        return angle * (1 + self.offset) - self.offset

    @property
    def _start(self) -> float:
        """Computed with the same rounding as `keep`, which is then exactly 1 at t = 0."""
        begin = torch.tensor(self.offset, dtype=torch.float64) / (1 + self.offset)
        return float(_quarter_cosine(begin) ** 2) if self.normalized else 1.0


@dataclass(frozen=True)
class Sqrt(Schedule):
    """a² = 1 − √(t + o), o = 10⁻⁴, clamped at 0 (Li et al. 2022, "Diffusion-LM", appendix A).

    It starts noisy, with σ = 0.1 at t = 0, since embedded tokens can still be read after a little noise.
    """

    offset: float = 1e-4

    def __post_init__(self) -> None:
        _require_that(
            0 < self.offset < 1, f"offset={self.offset}; its root, the variance at t = 0, must be between 0 and 1"
        )

    def keep(self, t: Tensor) -> Tensor:
        return (1 - (t + self.offset).sqrt()).clamp(min=0)

    def inverse(self, keep: Tensor) -> Tensor:
        return (1 - keep) ** 2 - self.offset


@dataclass(frozen=True)
class TanD(Schedule):
    """a² = 1/(1 + d²·tan²(πt/2)): cos²(πt/2) with its log-SNR lowered by 2·ln d (TEncDM uses d = 9)."""

    d: float = 9.0

    def __post_init__(self) -> None:
        _require_that(0 < self.d < math.inf, f"d={self.d}; the factor of the tangent must be above 0")

    def keep(self, t: Tensor) -> Tensor:
        signal, noise = _quarter_cosine(t) ** 2, _quarter_cosine(1 - t) ** 2
        return signal / (signal + self.d**2 * noise)

    def inverse(self, keep: Tensor) -> Tensor:
        return 2 / torch.pi * torch.atan2((1 - keep).sqrt(), self.d * keep.sqrt())
