"""Adaptive picks: confident rows take few steps, uncertain ones many.

Every step reveals at least one token in each row that has masked tokens, and at least the fraction `share` of them. So
`Unmask(steps=…)` is a maximum; with `steps=None` there is none. Below, c are the confidences of the masked positions.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Canvas
from redraft.core.prediction import Draw, Prediction
from redraft.core.processes.masked import Pick, PickResult
from redraft.core.randomness import Rng
from redraft.core.vocab import FINITE, require_range
from redraft.decoding.picks.order import (
    _share_count,
    _take_best,
    drawn_confidence,
    require_temperature,
    round_scores,
    scatter_scores,
)


class AdaptivePick(Pick):
    """A pick that chooses how many tokens to reveal, and so how many steps to take."""

    adaptive = writes_once = True

    @property
    def draws_exactly(self) -> bool:
        return False  # most of these picks look at the confidence of the drawn tokens

    @abstractmethod
    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        """As in `Pick`, but `share` is a minimum, at least one token; a negative `share` sets no minimum."""


def _minimum_count(hidden: Tensor, share: Tensor) -> np.ndarray:
    """(B,) minimum number of tokens to reveal."""
    return np.where(ops.to_numpy(share)[:, 0] < 0, 0.0, np.maximum(_share_count(hidden, share), 1))


@dataclass(frozen=True)
class ConfidenceThreshold(AdaptivePick):
    """All positions with c ≥ threshold (Wu et al. 2025, "Fast-dLLM"); above 1 it writes one token at a time.

    If (n + 1)·(1 − threshold) ≤ 1 for the n tokens of a step, they are also the most likely combination under any joint
    distribution with these marginals.
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
    """The n most confident positions, as long as c_n ≥ 1 − factor/(n + 1) (Wu et al. 2025, Fast-dLLM's dynamic rule).

    As in its repository, if only the last masked token of a row fails the test, it is revealed too. `FrechetProfile`
    tests all n confidences instead of only the n-th; if they are equal, it is this rule with factor = 1.
    """

    factor: float = 1.0
    temperature: float = 0.0

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "factor")
        require_temperature(self.temperature)

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        def count(c: np.ndarray) -> np.ndarray:
            n, masked = np.arange(1, c.shape[1] + 1), np.isfinite(c).sum(-1)
            passes = np.logical_and.accumulate((n == 1) | (c >= 1 - self.factor / (n + 1)), -1)
            passed = np.minimum(passes.sum(-1), masked)
            return np.maximum(np.where(passed == masked - 1, masked, passed), _minimum_count(hidden, share))

        return _take_best(pred, hidden, drawn_confidence, count, temperature=self.temperature, rng=rng)


@dataclass(frozen=True)
class FrechetProfile(AdaptivePick):
    """The n most confident positions, as long as Σ_{i≤n} c_i − (n − 1) > 1 − c_n + margin (Fast-dLLM++, 2026).

    The left side is Fréchet's lower bound on the probability that all n tokens are right, however they depend on each
    other. The right side is the probability that the n-th token is wrong, plus `margin`.
    """

    margin: float = 0.0
    temperature: float = 0.0

    def __post_init__(self) -> None:
        require_range(self, -1, 1, "margin")
        require_temperature(self.temperature)

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        def count(c: np.ndarray) -> np.ndarray:
            passes = c.cumsum(-1) - np.arange(1, c.shape[1] + 1) + c > self.margin  # the left side falls as n grows
            return np.maximum(passes.sum(-1), _minimum_count(hidden, share))

        return _take_best(pred, hidden, drawn_confidence, count, temperature=self.temperature, rng=rng)


@dataclass(frozen=True)
class EntropyBound(AdaptivePick):
    """The n positions of lowest entropy H, if the first n − 1 sum to at most `bound` nats (Ben-Hamu et al. 2025).

    ΣH − max H bounds the information that the n tokens share, which is ignored when they are drawn independently.
    bound=0 reveals one token at a time, along with all positions of zero entropy.
    """

    bound: float = 0.1
    temperature: float = 0.0

    def __post_init__(self) -> None:
        require_range(self, 0, float("inf"), "bound")
        require_temperature(self.temperature)

    @property
    def draws_exactly(self) -> bool:
        return self.temperature == 1

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        def count(scores: np.ndarray) -> np.ndarray:
            before = -scores[:, :-1].cumsum(-1)  # entropy of all positions before the second, third …
            return np.maximum(1 + (before <= self.bound).sum(-1), _minimum_count(hidden, share))

        return _take_best(pred, hidden, _negative_entropy, count, temperature=self.temperature, rng=rng)


def _negative_entropy(drawn: Draw) -> Tensor:
    """(N,) −entropy of each position, clamped so that rounding never makes an entropy negative."""
    return ops.mean_log_prob(drawn.log_x).clamp(max=0)


class _PreviousPrediction(NamedTuple):
    """The prediction of a step, to be compared with the next one."""

    log_x: Tensor  # (N, V) log-probabilities
    where: Tensor  # (B, L) bool: the N positions
    stable_steps: Tensor  # (B, L) number of consecutive steps in which x̂ hardly changed


@dataclass(frozen=True)
class Klass(AdaptivePick):
    """All positions with c > threshold and a stable x̂ (Kim et al. 2025, "KLASS"); if there are none, the best one.

    x̂ is stable if KL(now ‖ before) < divergence in each of the last `history` steps.
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
        return self.choose(None, pred, hidden, share, rng=rng)

    def choose(
        self, previous: _PreviousPrediction | None, pred: Prediction, hidden: Tensor, share: Tensor, *, rng: Rng
    ) -> PickResult:
        """Pick positions, given the prediction of the previous step; None in the first step."""
        if not ops.to_numpy(hidden).any():
            return PickResult.nothing(hidden)
        drawn = pred.draw(hidden, rng=rng, temperature=self.temperature)
        stable_steps = self._stable_steps(previous, drawn.log_x, hidden)
        c = scatter_scores(round_scores(drawn_confidence(drawn)), hidden)
        ready = ops.to_numpy(hidden) & ops.to_numpy(stable_steps >= self.history) & (c > self.threshold)
        count = np.maximum(ready.sum(-1), _minimum_count(hidden, share))
        where = ops.Ranking.of(c + 2 * ready, hidden).first(count)
        then = _KlassWithHistory(self, _PreviousPrediction(drawn.log_x, hidden, stable_steps))
        return PickResult.of(where, drawn, where[hidden])._replace(then=then)

    def _stable_steps(self, previous: _PreviousPrediction | None, log_x: Tensor, hidden: Tensor) -> Tensor:
        """(B, L) number of consecutive steps in which x̂ hardly changed; 0 without an earlier prediction."""
        if previous is None:
            return torch.zeros_like(hidden, dtype=torch.int64)
        both = hidden & previous.where
        now, before = log_x[both[hidden]], previous.log_x[both[previous.where]]
        change = torch.where(now > -torch.inf, now.exp() * (now - before), 0.0).sum(-1)
        stable = ops.scatter(change < self.divergence, both)
        return torch.where(stable, previous.stable_steps + 1, 0)


@dataclass(frozen=True)
class _KlassWithHistory(AdaptivePick):
    """A `Klass` pick that knows the prediction of the previous step."""

    pick: Klass
    previous: _PreviousPrediction

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        return self.pick.choose(self.previous, pred, hidden, share, rng=rng)


@dataclass(frozen=True)
class WideInNarrowOut(AdaptivePick):
    """Drafting with a low threshold, then revising (wide in, narrow out).

    Tokens with c ≥ draft are written. Once a row is full, tokens with c < keep are masked again, with `neighbors`
    tokens on either side, and rewritten with the threshold `keep`, since the rest of the text is now known. Here c is
    the confidence a token had when it was written, because a network tends to agree with tokens it sees. This happens
    `rounds` times per row, but not in the last step.
    """

    draft: float = 0.6
    keep: float = 0.9
    neighbors: int = 1
    rounds: int = 1
    temperature: float = 0.0
    writes_once = False

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "draft", "keep")
        require_range(self, 0, 1000, "neighbors", "rounds")
        require_temperature(self.temperature)

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        revoked = torch.zeros(len(hidden), dtype=torch.int64, device=hidden.device)
        return self.choose(revoked, pred, canvas, hidden, share, rng=rng)

    def choose(
        self, revoked: Tensor, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng
    ) -> PickResult:
        """Pick positions. revoked: (B,) how often tokens of each row were masked again."""
        threshold = np.where(ops.to_numpy(revoked) > 0, self.keep, self.draft)[:, None]

        def count(c: np.ndarray) -> np.ndarray:
            return np.maximum((c >= threshold).sum(-1), _minimum_count(hidden, share))

        choice = _take_best(pred, hidden, drawn_confidence, count, temperature=self.temperature, rng=rng)
        full = hidden.any(-1) & ~(hidden & ~choice.where).any(-1)
        revoke = full & (revoked < self.rounds) & (share < 1).squeeze(-1)
        again = self._unlikely(canvas, choice) & revoke[:, None]
        return choice._replace(again=again, then=_WithRevokeCounts(self, revoked + revoke))

    def _unlikely(self, canvas: Canvas, choice: PickResult) -> Tensor:
        """(B, L) bool: tokens with confidence below `keep` when they were written, and their neighbors."""
        assert choice.log_p is not None
        c = torch.zeros_like(canvas.z, dtype=torch.float32) if canvas.confidence is None else canvas.confidence
        c = c.masked_scatter(choice.where, choice.log_p.float().exp())
        unlikely = (~canvas.fixed & canvas.fixed.new_tensor(round_scores(c) < self.keep)).float()[:, None]
        widened = F.max_pool1d(unlikely, 2 * self.neighbors + 1, stride=1, padding=self.neighbors)
        return (widened[:, 0] > 0) & ~canvas.fixed


@dataclass(frozen=True)
class _WithRevokeCounts(AdaptivePick):
    """A `WideInNarrowOut` pick that knows how often each row was revised."""

    pick: WideInNarrowOut
    revoked: Tensor  # (B,) int64: how often each row was revised
    writes_once = False

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        return self.pick.choose(self.revoked, pred, canvas, hidden, share, rng=rng)


_NAMED = {
    "threshold": ConfidenceThreshold(),
    "frechet": FrechetProfile(),
    "entropy-bound": EntropyBound(),
    "klass": Klass(),
    "revoke": WideInNarrowOut(),
}
