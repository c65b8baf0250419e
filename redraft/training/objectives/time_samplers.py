"""Clocks: which times a batch is noised to."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.core.batch import Batch
from redraft.core.randomness import Rng
from redraft.core.vocab import FINITE, require_range

_GOLDEN = 0.6180339887498949


class TimeSampler(ABC):
    """Which times a batch is noised to."""

    @abstractmethod
    def __call__(self, batch: Batch, *, rng: Rng) -> Tensor:
        """(B, 1), or (B, L) where tokens have times of their own."""

    def weight(self, t: Tensor) -> Tensor | float:
        """The weight of a draw at t, one over its density, which makes the mean that over all times."""
        return 1.0


@dataclass(frozen=True)
class StratifiedTimes(TimeSampler):
    """Uniform times in [low, high], one stratum per row of the *global* batch, whatever its split over workers.

    Row i of n: t = (i + u)/n. With `block`, each block of tokens has its own time: block b rotates the strata by b
    golden sections, so that every block is stratified over the rows and the blocks of a row are spread.
    Clipping to [low, high] trains on the levels that teach most (BD3-LM); evaluation uses all. With `power` t is a
    power of the uniform number: above one, times near zero are drawn more often, and their loss counts less. Bounds
    whose weight is singular there (insertion) then have the same mean and much less noise.
    """

    low: float = 0.0
    high: float = 1.0
    block: int | None = None
    power: float = 1.0

    def __post_init__(self) -> None:
        require_range(self, 1, FINITE, "power")
        require_range(self, 1, math.inf, "block")
        if not 0 <= self.low < self.high <= 1:
            raise ValueError(f"times must satisfy 0 <= low < high <= 1; got low={self.low}, high={self.high}")

    def __call__(self, batch: Batch, *, rng: Rng) -> Tensor:
        (B, L), device = batch.tokens.shape, batch.tokens.device
        blocks = 1 if self.block is None else -(-L // self.block)
        row = torch.arange(batch.first, batch.first + B, device=device)[:, None]
        turn = torch.arange(blocks, device=device) * _GOLDEN
        t = ((row + rng.uniform(blocks)) / (batch.total or B) + turn) % 1
        t = self.low + (self.high - self.low) * t**self.power
        return t if self.block is None else t.repeat_interleave(self.block, 1)[:, :L]

    def weight(self, t: Tensor) -> Tensor | float:
        """The weight of the loss at a drawn time: one over its density, relative to even draws."""
        if self.power == 1:
            return 1.0
        u = ((t - self.low) / (self.high - self.low)) ** (1 / self.power)
        return (self.power * u ** (self.power - 1)).float()


@dataclass(frozen=True)
class ImportanceTimes(TimeSampler):
    """Times drawn by densities over equal parts of [0, 1], and weighted so that the mean stays the same.

    The variance is smallest for a density ∝ √E[loss²] (Hoogeboom et al. 2021 keep a running mean of it). Here the table
    is a value, like all settings: `fit_importance_times` measures it with a model, and a run with it resumes like any other.
    """

    density: tuple[float, ...]  # only its proportions matter
    block: int | None = None  # as in `StratifiedTimes`

    def __post_init__(self) -> None:
        if not self.density or min(self.density) <= 0:
            raise ValueError(f"density={self.density}; every part of the time needs a density above 0")

    def __call__(self, batch: Batch, *, rng: Rng) -> Tensor:
        u = StratifiedTimes(block=self.block)(batch, rng=rng)
        share = self._shares(u)
        ends = share.cumsum(0)
        part = torch.searchsorted(ends, u.contiguous(), right=True).clamp(max=len(share) - 1)
        return (part + 1 - ((ends[part] - u) / share[part]).clamp(0, 1)) / len(share)

    def weight(self, t: Tensor) -> Tensor:
        share = self._shares(t)
        part = (t * len(share)).floor().long().clamp(max=len(share) - 1)
        return (1 / (len(share) * share[part])).float()

    def _shares(self, like: Tensor) -> Tensor:
        density = torch.tensor(self.density, dtype=like.dtype, device=like.device)
        return density / density.sum()
