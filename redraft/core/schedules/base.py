"""Noise schedules: one decreasing function keep(t), the share of signal left at time t.

For tokens keep(t) is α_t, the probability that a token is still itself. Four different functions are called "cosine"
in the field; each has its own name here. Formulas run in the dtype of t: pass float64 where 1 − keep must be exact.
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

    Ends that are not exactly 1 and 0 leave a jump at the clean end (it enters the bound as reconstruction) or noise
    that has not forgotten x (it enters as the prior's KL).
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
    def keep(self, t: Tensor) -> Tensor: ...

    @abstractmethod
    def inverse(self, keep: Tensor) -> Tensor:
        """The time at which `keep` of the signal is left."""

    def slope(self, t: Tensor) -> Tensor:
        """d keep / dt, by forward-mode differentiation (which works in inference mode too)."""
        return torch.func.jvp(self.keep, (t,), (torch.ones_like(t),))[1]

    def kept(self, t: Tensor) -> Tensor:
        """keep in the widest float, and 1 at t = 0: clean by definition (prompts), whatever the schedule's start."""
        t = t.to(widest_float(t.device))
        return torch.where(t == 0, 1.0, self.keep(t))

    def share(self, s: Tensor, t: Tensor) -> Tensor:
        """(keep_s − keep_t)/(1 − keep_t): the probability that a token lost at t comes back between t and s."""
        kept = self.kept(t)
        return (self.kept(s) - kept) / (1 - kept).clamp(min=1e-300)  # t = 0: a prompt, nothing is lost

    def rate(self, t: Tensor) -> Tensor:
        """−keep'/(1 − keep), the same per unit of time, zero while nothing is lost; 1/t for the linear schedule."""
        t = t.to(widest_float(t.device))
        lost = 1 - self.keep(t)
        return torch.where(lost > 0, -self.slope(t) / lost, 0.0)


def require_that(fine: bool, problem: str) -> None:
    if not fine:
        raise ValueError(problem)


def quarter_cosine(t: Tensor) -> Tensor:
    """cos(πt/2) as sin(π(1−t)/2): exactly zero at t = 1."""
    return (torch.pi / 2 * (1 - t)).sin()


def logistic(logsnr: float) -> float:
    return 1 / (1 + math.exp(-logsnr))


def polyline(values: tuple[float, ...], t: Tensor) -> Tensor:
    """Straight lines between the values at the times 0, 1/n, …, 1."""
    value, n = torch.tensor(values, dtype=t.dtype, device=t.device), len(values) - 1
    index = (t * n).floor().clamp(0, n - 1).long()
    return value[index] + (t * n - index) * (value[index + 1] - value[index])


def crossing(values: tuple[float, ...], level: Tensor) -> Tensor:
    """The time at which a falling `polyline` passes the level."""
    value, n = torch.tensor(values, dtype=level.dtype, device=level.device), len(values) - 1
    index = torch.searchsorted(-value, -level.contiguous(), right=True).clamp(1, n) - 1
    return (index + (value[index] - level) / (value[index] - value[index + 1])) / n
