"""Noise schedules: one decreasing function keep(t), the fraction of signal left at time t.

For tokens keep(t) is α_t, the probability that a token is unchanged. Papers call four different functions "cosine";
each has its own name here. Formulas are computed in the dtype of t: pass float64 if 1 − keep must be exact.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property

import torch
from torch import Tensor

from redraft.core.ops import widest_float


class Schedule(ABC):
    """keep: [0, 1] → [0, 1], decreasing.

    keep(0) < 1 leaves noise at the clean end, which adds a reconstruction term to the bound. keep(1) > 0 leaves signal
    in z_1, which adds the KL to the prior.
    """

    @cached_property
    def start(self) -> float:
        """keep(0)"""
        return float(self.keep(torch.zeros((), dtype=torch.float64)))

    @cached_property
    def end(self) -> float:
        """keep(1)"""
        return float(self.keep(torch.ones((), dtype=torch.float64)))

    @abstractmethod
    def keep(self, t: Tensor) -> Tensor:
        """The fraction of signal left at time t, elementwise."""

    @abstractmethod
    def inverse(self, keep: Tensor) -> Tensor:
        """The time at which this fraction of the signal is left."""

    def slope(self, t: Tensor) -> Tensor:
        """d keep / dt, by forward-mode differentiation (which works in inference mode too)."""
        return torch.func.jvp(self.keep, (t,), (torch.ones_like(t),))[1]

    def kept(self, t: Tensor) -> Tensor:
        """keep in the widest float, but 1 at t = 0 even if keep(0) < 1: prompts are clean by definition."""
        t = t.to(widest_float(t.device))
        return torch.where(t == 0, 1.0, self.keep(t))

    def share(self, s: Tensor, t: Tensor) -> Tensor:
        """(keep_s − keep_t)/(1 − keep_t): the probability that a token lost at t comes back between t and s."""
        keep_t = self.kept(t)
        return (self.kept(s) - keep_t) / (1 - keep_t).clamp(min=1e-300)  # at t = 0 (prompts) 1 − keep is 0

    def rate(self, t: Tensor) -> Tensor:
        """−keep'/(1 − keep), the rate at which lost tokens come back; 0 where keep = 1, and 1/t for `Linear()`."""
        t = t.to(widest_float(t.device))
        lost = 1 - self.keep(t)
        return torch.where(lost > 0, -self.slope(t) / lost, 0.0)


def _require_that(valid: bool, problem: str) -> None:
    """Raises ValueError with this message unless `valid`."""
    if not valid:
        raise ValueError(problem)


def _quarter_cosine(t: Tensor) -> Tensor:
    """cos(πt/2), computed as sin(π(1−t)/2) to be exactly zero at t = 1."""
    return (torch.pi / 2 * (1 - t)).sin()


def _logistic(logsnr: float) -> float:
    """keep at this log-SNR."""
    return 1 / (1 + math.exp(-logsnr))


def _polyline(values: tuple[float, ...], t: Tensor) -> Tensor:
    """Linear interpolation between values at the times 0, 1/n, …, 1."""
    value, n = torch.tensor(values, dtype=t.dtype, device=t.device), len(values) - 1
    index = (t * n).floor().clamp(0, n - 1).long()
    return value[index] + (t * n - index) * (value[index + 1] - value[index])


def _crossing(values: tuple[float, ...], level: Tensor) -> Tensor:
    """The time at which a decreasing `_polyline` crosses `level`."""
    value, n = torch.tensor(values, dtype=level.dtype, device=level.device), len(values) - 1
    index = torch.searchsorted(-value, -level.contiguous(), right=True).clamp(1, n) - 1
    return (index + (value[index] - level) / (value[index] - value[index + 1])) / n
