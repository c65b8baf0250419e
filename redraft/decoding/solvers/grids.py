"""Grids: the noise levels that a solver visits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from redraft.core.processes.gaussian import NoisePath
from redraft.decoding.samplers.base import EvenWarp, TimeWarp

GENERATIVE_END = 1e-12  # the generative end: the limit t → 0, where zero itself means clean


class NoiseGrid(Protocol):
    """The times that a solver visits."""

    def __call__(self, path: NoisePath, steps: int) -> list[float]:
        """steps + 1 times, which fall from 1 to 0."""
        ...


@dataclass(frozen=True)
class UniformTimeGrid:
    """Equal steps of time, unless there is a `warp`."""

    warp: TimeWarp = EvenWarp()

    def __call__(self, path: NoisePath, steps: int) -> list[float]:
        return [self.warp(1 - i / steps) for i in range(steps + 1)]


@dataclass(frozen=True)
class UniformLogSnrGrid:
    """Equal steps of log-SNR from end to end, then clean: the limit ρ → ∞ of `KarrasGrid`."""

    def __call__(self, path: NoisePath, steps: int) -> list[float]:
        low, high = _log_ratios(path)
        return _down(path, high + _shares(steps) * (low - high))


@dataclass(frozen=True)
class KarrasGrid:
    """ς_i = (ς_1^{1/ρ} + i/(n−1)·(ς_0^{1/ρ} − ς_1^{1/ρ}))^ρ from end to end, then clean (Karras et al. 2022, eq. 5)."""

    rho: float = 7.0

    def __post_init__(self) -> None:
        if self.rho <= 0:
            raise ValueError(f"rho={self.rho}; use a power above 0, 7 is usual")

    def __call__(self, path: NoisePath, steps: int) -> list[float]:
        low, high = (math.exp(ratio / self.rho) for ratio in _log_ratios(path))
        return _down(path, self.rho * (high + _shares(steps) * (low - high)).log())


@dataclass(frozen=True)
class TruncatedGrid:
    """Another grid, compressed so that it ends at `stop` instead of 0: a little noise is left."""

    stop: float = 0.01
    grid: NoiseGrid = UniformTimeGrid()

    def __post_init__(self) -> None:
        if not 0 < self.stop < 1:
            raise ValueError(f"stop={self.stop}; stop between 0 and 1, or leave Until out to reach 0")

    def __call__(self, path: NoisePath, steps: int) -> list[float]:
        return [self.stop + (1 - self.stop) * t for t in self.grid(path, steps)]


def _log_ratios(path: NoisePath) -> tuple[float, float]:
    """ln ς = ln(s/a) at the clean end and at the noisy one."""
    low, high = (-path.logsnr(torch.tensor([0.0, 1.0], dtype=torch.float64)) / 2).tolist()
    return low, high


def _shares(steps: int) -> Tensor:
    return torch.linspace(0, 1, steps, dtype=torch.float64)


def _down(path: NoisePath, log_ratio: Tensor) -> list[float]:
    """The times of these ln ς, the first being that of t = 1; then clean."""
    times: list[float] = path.time(-2 * log_ratio).clamp(GENERATIVE_END, 1).tolist()
    return [1.0, *times[1:], 0.0]
