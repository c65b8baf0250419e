"""Picks: which masked positions a step reveals. What it reveals there is drawn by the prediction."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Canvas
from redraft.core.prediction import Draw, Prediction
from redraft.core.processes.masked import PickResult
from redraft.core.randomness import Rng
from redraft.core.vocab import FINITE, require_range

_PickScore = Callable[[Draw], Tensor]  # (N,) of each position; the highest are revealed first


def drawn_confidence(drawn: Draw) -> Tensor:
    """(N,) the probability of the drawn token."""
    return drawn.log_x.gather(-1, drawn.tokens()[:, None]).squeeze(-1).exp()


def require_temperature(temperature: float) -> None:
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature={temperature}; 0 takes the likeliest token, above 0 draws")


def _even_count(hidden: Tensor, share: Tensor) -> np.ndarray:
    """(B,) the share of the hidden positions as a number, rounded up; 1e-6, so that a third of 6 is 2 and not 3."""
    return np.ceil(ops.to_numpy(hidden).sum(-1) * ops.to_numpy(share)[:, 0] - 1e-6)


def round_scores(scores: Tensor) -> np.ndarray:
    """To multiples of 2⁻¹⁶, so that ties stay ties, whatever the batch; the lowest index then wins."""
    return np.round(ops.to_numpy(scores) * np.float32(2**16)) / np.float32(2**16)


def scatter_scores(values: np.ndarray, where: Tensor) -> np.ndarray:
    """(N,) values to the marked positions of (B, L), zero elsewhere."""
    found = np.zeros(where.shape, values.dtype)
    found[ops.to_numpy(where)] = values
    return found


def _take_best(
    pred: Prediction,
    hidden: Tensor,
    score: _PickScore,
    count: Callable[[np.ndarray], np.ndarray],
    *,
    temperature: float,
    rng: Rng,
) -> PickResult:
    """Per row the positions of the highest scores; `count` says how many (B,).

    It sees the scores of each row, (B, L) float64, highest first and −∞ behind those of the hidden positions.
    """
    if not ops.to_numpy(hidden).any():
        return PickResult.nothing(hidden)
    drawn = pred.draw(hidden, rng=rng, temperature=temperature)
    ranking = ops.Ranking.of(scatter_scores(round_scores(score(drawn)), hidden), hidden)
    where = ranking.first(count(ranking.values))
    return PickResult.of(where, drawn, where.take(ops.flat_positions(hidden)))


@dataclass(frozen=True)
class AnyOrder:
    """A random `share` of the masked positions (rounded up), each token drawn from x̂^{1/temperature}.

    Ancestral sampling reveals in random order too, but a random number of tokens per step. An even number separates
    tokens that depend on each other: with at least as many steps as tokens, one is revealed at a time, which is exact
    for any schedule, while the error of `Ancestral` is of order 1/steps.
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        require_temperature(self.temperature)

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        which, what = rng.split(2)
        where = ops.Ranking.of(ops.to_numpy(which.uniform(hidden.shape[1])), hidden).first(_even_count(hidden, share))
        if not ops.to_numpy(where).any():
            return PickResult.nothing(hidden)
        return PickResult.of(where, pred.draw(where, rng=what, temperature=self.temperature))


@dataclass(frozen=True)
class LeftToRight:
    """The leftmost `share` of the masked positions (rounded up): reading order, several tokens at once."""

    temperature: float = 0.0

    def __post_init__(self) -> None:
        require_temperature(self.temperature)

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        where = hidden & (
            hidden.cumsum(-1) <= hidden.new_tensor(_even_count(hidden, share), dtype=torch.int64)[:, None]
        )
        if not where.any():
            return PickResult.nothing(hidden)
        return PickResult.of(where, pred.draw(where, rng=rng, temperature=self.temperature))


@dataclass(frozen=True)
class RankedPick(ABC):
    """The `share` of the masked positions (rounded up) that scores highest; the rest stays masked."""

    temperature: float = 0.0

    def __post_init__(self) -> None:
        require_temperature(self.temperature)

    @abstractmethod
    def score(self, drawn: Draw) -> Tensor:
        """(N,) scores; the highest are revealed first."""

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        count = _even_count(hidden, share)
        wanted = hidden & hidden.new_tensor(count > 0)[:, None]  # a row that reveals nothing costs nothing
        return _take_best(pred, wanted, self.score, lambda _: count, temperature=self.temperature, rng=rng)


@dataclass(frozen=True)
class Confidence(RankedPick):
    """Ranks by the probability of the chosen token. Temperature 0 takes the likeliest token, 1 draws from x̂."""

    def score(self, drawn: Draw) -> Tensor:
        return drawn_confidence(drawn)


@dataclass(frozen=True)
class Margin(RankedPick):
    """Ranks by the probability of the likeliest token minus that of the second."""

    def score(self, drawn: Draw) -> Tensor:
        first, second = drawn.log_x.topk(2, -1).values.exp().unbind(-1)
        return first - second


@dataclass(frozen=True)
class Entropy(RankedPick):
    """Ranks by the entropy of x̂, lowest first."""

    def score(self, drawn: Draw) -> Tensor:
        return -ops.entropy(drawn.log_x)


@dataclass(frozen=True)
class EndTokensLast(RankedPick):
    """Ranks as another pick does, but some tokens come after all others, however sure: end tokens, for models that were
    trained on rows filled up with them (LLaDA: `confidence_eos_eot_inf`).
    """

    pick: RankedPick = Confidence()
    tokens: tuple[int, ...] = ()

    def score(self, drawn: Draw) -> Tensor:
        scores, last = self.pick.score(drawn), drawn.tokens().new_tensor(self.tokens)
        return torch.where(torch.isin(drawn.tokens(), last), scores - 1000.0, scores)  # entropies are far below 1000


@dataclass(frozen=True)
class RequiredFirst:
    """What a rule demands is written first, where a joint draw puts it; the inner pick decides about the rest.

    `Constrained` knows how likely "Anna" is at each place, but not that one hero has all places of a name. In any other
    order some name is soon written there, and Anna, still demanded, must go where nobody expects her ("wandered to the
    Anna"). Written first, at a place drawn in proportion to the odds that the network gives it, she is known when the
    rest is written: one such token at a time. A token counts as demanded if the rule makes it at least `least` times as
    likely as the network does. Without a rule this is the inner pick.
    """

    pick: AnyOrder | LeftToRight | RankedPick = AnyOrder()
    least: float = 2.0

    def __post_init__(self) -> None:
        require_range(self, 1, FINITE, "least")

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        if not pred.joint:
            return self.pick(pred, canvas, hidden, share, rng=rng)
        first, later = rng.split(2)
        demanded = self._demanded(pred, hidden, np.minimum(_even_count(hidden, share), 1), first)
        rest = hidden & ~demanded.where.any(-1, keepdim=True)
        return _both(demanded, self.pick(pred, canvas, rest, share, rng=later))

    def _demanded(self, pred: Prediction, hidden: Tensor, count: np.ndarray, rng: Rng) -> PickResult:
        if not ops.to_numpy(hidden).any():
            return PickResult.nothing(hidden)
        drawn = pred.draw(hidden, rng=rng, temperature=self.pick.temperature)
        demand = scatter_scores(round_scores(drawn.demand()), hidden)
        wanted = hidden & torch.from_numpy(demand >= math.log(self.least)).to(hidden.device)
        where = ops.Ranking.of(demand, wanted).first(count)
        return PickResult.of(where, drawn, where.take(ops.flat_positions(hidden)))


def _both(one: PickResult, other: PickResult) -> PickResult:
    """What two picks decide about different rows."""
    where = one.where | other.where
    mine = one.where[where]
    tokens = one.tokens.new_empty(len(mine)).masked_scatter(mine, one.tokens).masked_scatter(~mine, other.tokens)
    assert one.log_p is not None
    assert other.log_p is not None
    log_p = one.log_p.new_empty(len(mine)).masked_scatter(mine, one.log_p).masked_scatter(~mine, other.log_p)
    return PickResult(where, tokens, log_p)


@dataclass(frozen=True)
class _One:
    """One masked position per row, chosen uniformly."""

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        which, what = rng.split(2)
        chosen = (which.uniform(hidden.shape[1]) * hidden).argmax(-1, keepdim=True)
        where = hidden & torch.zeros_like(hidden).scatter(-1, chosen, True)
        return PickResult.of(where, pred.draw(where, rng=what)) if where.any() else PickResult.nothing(hidden)
