"""Time samplers: how the noise times of a batch are drawn."""

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
    """Draws the noise times of a batch."""

    @abstractmethod
    def __call__(self, batch: Batch, *, rng: Rng) -> Tensor:
        """(B, 1) times, or (B, L) if tokens have their own times"""

    def weight(self, t: Tensor) -> Tensor | float:
        """Returns the importance weight of a draw at t, 1/density, which keeps the mean that of uniform times."""
        return 1.0


@dataclass(frozen=True)
class StratifiedTimes(TimeSampler):
    """Uniform times in [low, high], one stratum per row of the *global* batch, however it is split over workers.

    Row i of n: t = (i + u)/n. With `block`, each block of tokens has its own time: block b shifts the strata by b
    golden ratios, so that every block is stratified over the rows and the blocks of a row are spread out.
    Clipping to [low, high] trains on the most useful noise levels (BD3-LM); evaluation uses all of them. With `power`,
    t = u^power: above one, times near zero are drawn more often and their loss is weighted down. A bound whose weight
    is singular there (insertion) keeps its mean and gets much less noise.
    """

    low: float = 0.0
    high: float = 1.0
    block: int | None = None  # tokens that share a time; None if the whole row does
    power: float = 1.0

    def __post_init__(self) -> None:
        require_range(self, 1, FINITE, "power")
        require_range(self, 1, math.inf, "block")
        if not 0 <= self.low < self.high <= 1:
            raise ValueError(f"times must satisfy 0 <= low < high <= 1; got low={self.low}, high={self.high}")

    def __call__(self, batch: Batch, *, rng: Rng) -> Tensor:
        (B, L), device = batch.tokens.shape, batch.tokens.device
        blocks = 1 if self.block is None else -(-L // self.block)
        row = torch.arange(batch.origin.first, batch.origin.first + B, device=device)[:, None]
        shift = torch.arange(blocks, device=device) * _GOLDEN
        t = ((row + rng.uniform(blocks)) / (batch.origin.total or B) + shift) % 1
        t = self.low + (self.high - self.low) * t**self.power
        return t if self.block is None else t.repeat_interleave(self.block, 1)[:, :L]

    def weight(self, t: Tensor) -> Tensor | float:
        """Returns the importance weight of the loss at t: 1/density relative to uniform times."""
        if self.power == 1:
            return 1.0
        u = ((t - self.low) / (self.high - self.low)) ** (1 / self.power)
        return (self.power * u ** (self.power - 1)).float()


@dataclass(frozen=True)
class ImportanceTimes(TimeSampler):
    """Times from a piecewise-constant density on equal parts of [0, 1], weighted so that the mean stays the same.

    The variance is smallest for a density ∝ √E[loss²] (Hoogeboom et al. 2021 keep a running mean of it). Here the
    density is a fixed setting, measured by `fit_importance_times`, so a run that uses it resumes like any other.
    """

    density: tuple[float, ...]  # density of each part; need not be normalized
    block: int | None = None  # tokens that share a time; None if the whole row does

    def __post_init__(self) -> None:
        if not self.density or min(self.density) <= 0:
            raise ValueError(f"density={self.density}; every part of [0, 1] needs a density above 0")

    def __call__(self, batch: Batch, *, rng: Rng) -> Tensor:
        u = StratifiedTimes(block=self.block)(batch, rng=rng)
        probs = self._probabilities(u)
        ends = probs.cumsum(0)
        part = torch.searchsorted(ends, u.contiguous(), right=True).clamp(max=len(probs) - 1)
        return (part + 1 - ((ends[part] - u) / probs[part]).clamp(0, 1)) / len(probs)

    def weight(self, t: Tensor) -> Tensor:
        probs = self._probabilities(t)
        part = (t * len(probs)).floor().long().clamp(max=len(probs) - 1)
        return (1 / (len(probs) * probs[part])).float()

    def _probabilities(self, like: Tensor) -> Tensor:
        density = torch.tensor(self.density, dtype=like.dtype, device=like.device)
        return density / density.sum()
