"""Picks: which masked positions a step reveals, and as what."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft import ops
from redraft.ops import Rng
from redraft.processes import Choice
from redraft.types import Canvas, Drawn, Prediction


@dataclass(frozen=True)
class AnyOrder:
    """A random `share` of the masked positions (rounded up), each token drawn from x̂.

    Ancestral sampling reveals in random order too, but a random number of tokens per step. An even number separates
    tokens that depend on each other: with at least as many steps as tokens, one is revealed at a time, which is exact
    for any schedule, while the error of `Ancestral` is of order 1/steps.
    """

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> Choice:
        which, what = rng.split(2)
        where = ops.top(which.uniform(hidden.shape[1]), hidden, _count(hidden, share))
        return Choice.of(where, pred.draw(where, rng=what)) if where.any() else Choice.nothing(hidden)


def _count(hidden: Tensor, share: Tensor) -> Tensor:
    """(B,) the share of the hidden positions as a number, rounded up; 1e-6, so that a third of 6 is 2 and not 3."""
    return (hidden.sum(-1) * share.squeeze(-1) - 1e-6).ceil()


@dataclass(frozen=True)
class Ranked(ABC):
    """The `share` of the masked positions (rounded up) that scores highest; the rest stays masked."""

    temperature: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature={self.temperature}; 0 takes the likeliest token, above 0 draws")

    @abstractmethod
    def score(self, drawn: Drawn) -> Tensor:
        """(N,) scores; the highest are revealed first."""

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> Choice:
        if not hidden.any():
            return Choice.nothing(hidden)
        drawn = pred.draw(hidden, rng=rng, temperature=self.temperature)
        # rounded, so that ties stay ties, whatever the batch; the lowest index then wins
        scores = ops.spread((self.score(drawn) * 2**16).round(), hidden)
        where = ops.top(scores, hidden, _count(hidden, share))
        return Choice.of(where, drawn, where[hidden])


@dataclass(frozen=True)
class Confidence(Ranked):
    """Ranks by the probability of the chosen token. Temperature 0 takes the likeliest token, 1 draws from x̂."""

    def score(self, drawn: Drawn) -> Tensor:
        return drawn.log_x.gather(-1, drawn.tokens()[:, None]).squeeze(-1).exp()


@dataclass(frozen=True)
class Margin(Ranked):
    """Ranks by the probability of the likeliest token minus that of the second."""

    def score(self, drawn: Drawn) -> Tensor:
        first, second = drawn.log_x.topk(2, -1).values.exp().unbind(-1)
        return first - second


@dataclass(frozen=True)
class Entropy(Ranked):
    """Ranks by the entropy of x̂, lowest first."""

    def score(self, drawn: Drawn) -> Tensor:
        return -ops.entropy(drawn.log_x)


@dataclass(frozen=True)
class _One:
    """One masked position per row, chosen uniformly."""

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> Choice:
        which, what = rng.split(2)
        chosen = (which.uniform(hidden.shape[1]) * hidden).argmax(-1, keepdim=True)
        where = hidden & torch.zeros_like(hidden).scatter(-1, chosen, True)
        return Choice.of(where, pred.draw(where, rng=what)) if where.any() else Choice.nothing(hidden)
