"""Noise grids: the times that a solver visits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from redraft.core.processes.gaussian import NoisePath
from redraft.decoding.samplers.base import EvenWarp, TimeWarp

GENERATIVE_END = 1e-12  # time of the clean end of the path, where a little noise is left; 0 itself means clean


class NoiseGrid(Protocol):
    """A grid of the times that a solver visits."""

    def __call__(self, path: NoisePath, steps: int) -> list[float]:
        """Return steps + 1 times, falling from 1 to 0."""
        ...


@dataclass(frozen=True)
class UniformTimeGrid:
    """Equal steps of time, or those of a `warp`."""

    warp: TimeWarp = EvenWarp()

    def __call__(self, path: NoisePath, steps: int) -> list[float]:
        return [self.warp(1 - i / steps) for i in range(steps + 1)]


@dataclass(frozen=True)
class UniformLogSnrGrid:
    """Equal steps of log-SNR from the noisy to the clean end, then t = 0: the limit ρ → ∞ of `KarrasGrid`."""

    def __call__(self, path: NoisePath, steps: int) -> list[float]:
        low, high = _log_ratios(path)
        return _to_times(path, high + _fractions(steps) * (low - high))


@dataclass(frozen=True)
class KarrasGrid:
    """ς_i = (ς_1^{1/ρ} + i/(n−1)·(ς_0^{1/ρ} − ς_1^{1/ρ}))^ρ for ς = s/a, then t = 0 (Karras et al. 2022, eq. 5)."""

    rho: float = 7.0

    def __post_init__(self) -> None:
        if self.rho <= 0:
            raise ValueError(f"rho={self.rho}; use a power above 0, usually 7")

    def __call__(self, path: NoisePath, steps: int) -> list[float]:
        low, high = (math.exp(ratio / self.rho) for ratio in _log_ratios(path))
        return _to_times(path, self.rho * (high + _fractions(steps) * (low - high)).log())


@dataclass(frozen=True)
class TruncatedGrid:
    """Another grid, compressed to end at `stop` instead of 0, where a little noise is left."""

    stop: float = 0.01
    grid: NoiseGrid = UniformTimeGrid()

    def __post_init__(self) -> None:
        if not 0 < self.stop < 1:
            raise ValueError(
                f"stop={self.stop}; it must be between 0 and 1; to end at 0, use the inner grid without TruncatedGrid"
            )

    def __call__(self, path: NoisePath, steps: int) -> list[float]:
        return [self.stop + (1 - self.stop) * t for t in self.grid(path, steps)]


def _log_ratios(path: NoisePath) -> tuple[float, float]:
    """Return ln ς = ln(s/a) at the clean and at the noisy end."""
    low, high = (-path.logsnr(torch.tensor([0.0, 1.0], dtype=torch.float64)) / 2).tolist()
    return low, high


def _fractions(steps: int) -> Tensor:
    return torch.linspace(0, 1, steps, dtype=torch.float64)


def _to_times(path: NoisePath, log_ratio: Tensor) -> list[float]:
    """Return the times of these ln ς, the first of which is at t = 1, followed by 0."""
    times: list[float] = path.time(-2 * log_ratio).clamp(GENERATIVE_END, 1).tolist()
    return [1.0, *times[1:], 0.0]
