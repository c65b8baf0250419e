"""Picks that reveal as many tokens as they dare: sure rows need few steps, unsure ones many.

Every step reveals at least one token in each row that has any left, and at least the share it is asked for, so that
`Unmask(steps=…)` stays a maximum; with `steps=None` there is none. c are the confidences of the masked positions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Canvas
from redraft.core.prediction import Draw, Prediction
from redraft.core.processes.masked import PickResult
from redraft.core.randomness import Rng
from redraft.core.vocab import FINITE, require_range
from redraft.decoding.picks.order import (
    _even_count,
    _take_best,
    drawn_confidence,
    require_temperature,
    round_scores,
    scatter_scores,
)


class AdaptivePick(ABC):
    """A pick that decides by itself how many steps it takes."""

    @abstractmethod
    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        """As `Pick`; the share is the least that is revealed, but always one token; below 0 none need be."""


def _minimum_count(hidden: Tensor, share: Tensor) -> np.ndarray:
    """(B,) how many are revealed in any case."""
    return np.where(ops.to_numpy(share)[:, 0] < 0, 0.0, np.maximum(_even_count(hidden, share), 1))


@dataclass(frozen=True)
class ConfidenceThreshold(AdaptivePick):
    """All positions with c ≥ threshold (Wu et al. 2025, "Fast-dLLM"). Above 1 it writes one token at a time.

    If (n + 1)·(1 − threshold) ≤ 1 for the n tokens of a step and each stays as likely when the others are known, they
    are what greedy decoding would have written one by one.
    """

    threshold: float = 0.9
    temperature: float = 0.0

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "threshold")
        require_temperature(self.temperature)

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        def count(c: np.ndarray) -> np.ndarray:
            return np.maximum((c >= self.threshold).sum(-1), _minimum_count(hidden, share))

        return _take_best(pred, hidden, drawn_confidence, count, temperature=self.temperature, rng=rng)


@dataclass(frozen=True)
class FactorThreshold(AdaptivePick):
    """The n surest as long as c_n ≥ 1 − factor/(n + 1) (Wu et al. 2025, "Fast-dLLM": its dynamic rule).

    As in its repository, the last masked token of a row comes along where it alone fails. `FrechetProfile` judges all n
    confidences instead of the n-th alone; where they are equal it is this rule with factor = 1.
    """

    factor: float = 1.0
    temperature: float = 0.0

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "factor")
        require_temperature(self.temperature)

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        def count(c: np.ndarray) -> np.ndarray:
            n, many = np.arange(1, c.shape[1] + 1), np.isfinite(c).sum(-1)
            sure = np.logical_and.accumulate((n == 1) | (c >= 1 - self.factor / (n + 1)), -1)
            found = np.minimum(sure.sum(-1), many)
            return np.maximum(np.where(found == many - 1, many, found), _minimum_count(hidden, share))

        return _take_best(pred, hidden, drawn_confidence, count, temperature=self.temperature, rng=rng)


@dataclass(frozen=True)
class FrechetProfile(AdaptivePick):
    """The n surest as long as Σ_{i≤n} c_i − (n − 1) > 1 − c_n + margin (Fast-dLLM++, 2026).

    The left side is Fréchet's bound: however the n tokens depend on each other, all of them are right with at least
    this probability. The right side bounds the chance of the n-th being wrong.
    """

    margin: float = 0.0
    temperature: float = 0.0

    def __post_init__(self) -> None:
        require_range(self, -1, 1, "margin")
        require_temperature(self.temperature)

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        def count(c: np.ndarray) -> np.ndarray:
            sure = c.cumsum(-1) - np.arange(1, c.shape[1] + 1) + c > self.margin  # the left side falls as n grows
            return np.maximum(sure.sum(-1), _minimum_count(hidden, share))

        return _take_best(pred, hidden, drawn_confidence, count, temperature=self.temperature, rng=rng)


@dataclass(frozen=True)
class EntropyBound(AdaptivePick):
    """The n lowest entropies H as long as those before the n-th sum to `bound` nats at most (Ben-Hamu et al. 2025, EB).

    ΣH − max H bounds the information that the n tokens have on each other, which drawing them at once ignores. Zero is
    one token at a time, but for positions without any entropy.
    """

    bound: float = 0.1
    temperature: float = 0.0

    def __post_init__(self) -> None:
        require_range(self, 0, float("inf"), "bound")
        require_temperature(self.temperature)

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        def count(scores: np.ndarray) -> np.ndarray:
            shown = np.isfinite(scores)
            h = np.where(shown, -scores, 0)
            return np.maximum((shown & (h.cumsum(-1) - h <= self.bound)).sum(-1), _minimum_count(hidden, share))

        return _take_best(pred, hidden, _order, count, temperature=self.temperature, rng=rng)


def _order(drawn: Draw) -> Tensor:
    """Lowest entropy first; it is never negative, also after rounding."""
    return ops.mean_log_prob(drawn.log_x).clamp(max=0)


class _Seen(NamedTuple):
    """The predictions of a step, for the next one to compare with."""

    log_x: Tensor  # (N, V)
    where: Tensor  # (B, L) bool: the N positions
    calm: Tensor  # (B, L) how many steps in a row little has changed


@dataclass(frozen=True)
class Klass(AdaptivePick):
    """All positions with c > threshold whose x̂ has hardly changed: KL(now ‖ before) < divergence, `history` times
    in a row (Kim et al. 2025, "KLASS"). If there are none, the surest.
    """

    threshold: float = 0.9
    divergence: float = 0.01
    history: int = 2
    temperature: float = 0.0

    def __post_init__(self) -> None:
        require_range(self, 0, float("inf"), "threshold", "divergence")
        require_range(self, 1, 1000, "history")
        require_temperature(self.temperature)

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        return self.after(None, pred, hidden, share, rng=rng)

    def after(self, seen: _Seen | None, pred: Prediction, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        """The choice, given the predictions of the step before."""
        if not ops.to_numpy(hidden).any():
            return PickResult.nothing(hidden)
        drawn = pred.draw(hidden, rng=rng, temperature=self.temperature)
        calm = self._calm(seen, drawn.log_x, hidden)
        c = scatter_scores(round_scores(drawn_confidence(drawn)), hidden)
        ready = ops.to_numpy(hidden) & ops.to_numpy(calm >= self.history) & (c > self.threshold)
        count = np.maximum(ready.sum(-1), _minimum_count(hidden, share))
        where = ops.Ranking.of(c + 2 * ready, hidden).first(count)
        then = _KlassAfter(self, _Seen(drawn.log_x, hidden, calm))
        return PickResult.of(where, drawn, where[hidden])._replace(then=then)

    def _calm(self, seen: _Seen | None, log_x: Tensor, hidden: Tensor) -> Tensor:
        """(B, L) for how many steps in a row x̂ has hardly changed; 0 where there is no earlier prediction."""
        if seen is None:
            return torch.zeros_like(hidden, dtype=torch.int64)
        both = hidden & seen.where
        now, before = log_x[both[hidden]], seen.log_x[both[seen.where]]
        change = torch.where(now > -torch.inf, now.exp() * (now - before), 0.0).sum(-1)
        quiet = ops.scatter(change < self.divergence, both)
        return torch.where(quiet, seen.calm + 1, 0)


@dataclass(frozen=True)
class _KlassAfter(AdaptivePick):
    """`Klass` that remembers the step before."""

    rule: Klass
    seen: _Seen

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        return self.rule.after(self.seen, pred, hidden, share, rng=rng)


@dataclass(frozen=True)
class WideInNarrowOut(AdaptivePick):
    """Wide in, narrow out: c ≥ draft is enough to be written, c < keep to be taken back when the row is full.

    What counts is the confidence at the moment when a token was written: later the network sees the token itself and
    agrees with it. Each token taken back takes `neighbours` on either side with it; they are written again with the
    threshold `keep`, now that the rest of the text is known. This happens `rounds` times, never in the last step.
    """

    draft: float = 0.6
    keep: float = 0.9
    neighbours: int = 1
    rounds: int = 1
    temperature: float = 0.0

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "draft", "keep")
        require_range(self, 0, 1000, "neighbours", "rounds")
        require_temperature(self.temperature)

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        fresh = torch.zeros(len(hidden), dtype=torch.int64, device=hidden.device)
        return self.after(fresh, pred, canvas, hidden, share, rng=rng)

    def after(
        self, revoked: Tensor, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng
    ) -> PickResult:
        """The choice in rows that were taken back `revoked` (B,) times."""
        threshold = np.where(ops.to_numpy(revoked) > 0, self.keep, self.draft)[:, None]

        def count(c: np.ndarray) -> np.ndarray:
            return np.maximum((c >= threshold).sum(-1), _minimum_count(hidden, share))

        choice = _take_best(pred, hidden, drawn_confidence, count, temperature=self.temperature, rng=rng)
        full = hidden.any(-1) & ~(hidden & ~choice.where).any(-1)
        doubted = full & (revoked < self.rounds) & (share < 1).squeeze(-1)
        again = self._doubtful(canvas, choice) & doubted[:, None]
        return choice._replace(again=again, then=_RevokeAfter(self, revoked + doubted))

    def _doubtful(self, canvas: Canvas, choice: PickResult) -> Tensor:
        """(B, L) tokens that were not likely enough when they were written, and their neighbours."""
        assert choice.log_p is not None
        c = torch.zeros_like(canvas.z, dtype=torch.float32) if canvas.confidence is None else canvas.confidence
        c = c.masked_scatter(choice.where, choice.log_p.float().exp())
        doubt = (~canvas.fixed & canvas.fixed.new_tensor(round_scores(c) < self.keep)).float()[:, None]
        near = F.max_pool1d(doubt, 2 * self.neighbours + 1, stride=1, padding=self.neighbours)
        return (near[:, 0] > 0) & ~canvas.fixed


@dataclass(frozen=True)
class _RevokeAfter(AdaptivePick):
    """`WideInNarrowOut` that remembers which rows were taken back."""

    rule: WideInNarrowOut
    revoked: Tensor

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        return self.rule.after(self.revoked, pred, canvas, hidden, share, rng=rng)
