"""Picks: which masked positions a step reveals. The prediction draws the tokens."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Canvas
from redraft.core.prediction import Draw, Prediction
from redraft.core.processes.masked import Pick, PickResult
from redraft.core.randomness import Rng
from redraft.core.vocab import FINITE, require_range

_PickScore = Callable[[Draw], Tensor]  # (N,) score of each position; the highest are revealed first


def drawn_confidence(drawn: Draw) -> Tensor:
    """(N,) probability of each drawn token."""
    return drawn.log_p().exp()


def require_temperature(temperature: float) -> None:
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature={temperature}; use 0 for the most likely token, or a number above 0 to sample")


def _share_count(hidden: Tensor, share: Tensor) -> np.ndarray:
    """(B,) the fraction `share` of the hidden positions as a count, rounded up.

    Subtracting 1e-6 keeps rounding errors from adding one: a third of 6 is 2, not 3.
    """
    return np.ceil(ops.to_numpy(hidden).sum(-1) * ops.to_numpy(share)[:, 0] - 1e-6)


def round_scores(scores: Tensor) -> np.ndarray:
    """Round scores to multiples of 2⁻¹⁶, so that ties are ties in any batch; the lowest index then wins."""
    return np.rint(ops.to_numpy(scores) * _GRID) / _GRID


_GRID = np.float32(2**16)


def scatter_scores(values: np.ndarray, where: Tensor) -> np.ndarray:
    """(B, L) the N values at the true positions of `where`, zero elsewhere."""
    scores = np.zeros(where.shape, values.dtype)
    scores.reshape(-1)[ops.to_numpy(ops.flat_positions(where))] = values
    return scores


def _take_best(
    pred: Prediction,
    hidden: Tensor,
    score: _PickScore,
    count: Callable[[np.ndarray], np.ndarray],
    *,
    temperature: float,
    rng: Rng,
) -> PickResult:
    """Reveal the hidden positions with the highest scores in each row.

    `count` maps the scores, (B, L) float64 in descending order and −∞ after those of hidden positions, to the number of
    positions to reveal in each row, (B,).
    """
    index = ops.flat_positions(hidden)
    if not index.numel():
        return PickResult.nothing(hidden)
    drawn = pred.draw(hidden, rng=rng, temperature=temperature)
    ranking = ops.Ranking.of(scatter_scores(round_scores(score(drawn)), hidden), hidden)
    where = ranking.first(count(ranking.values))
    return PickResult.of(where, drawn, where.take(index))


@dataclass(frozen=True)
class AnyOrder(Pick):
    """A random fraction `share` of the masked positions (rounded up), with tokens drawn from x̂^{1/temperature}.

    Ancestral sampling reveals in random order too, but a random number of tokens per step. With equal numbers,
    dependent tokens are less often revealed together. If there are at least as many steps as tokens, one is revealed at
    a time, which is exact for any schedule; the error of `Ancestral` is of order 1/steps.
    """

    temperature: float = 1.0

    writes_once = True

    def __post_init__(self) -> None:
        require_temperature(self.temperature)

    @property
    def draws_exactly(self) -> bool:
        return self.temperature == 1

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        for_order, for_tokens = rng.split(2)
        count = _share_count(hidden, share)
        if not count.any():
            return PickResult.nothing(hidden)
        where = ops.Ranking.of(ops.to_numpy(for_order.uniform(hidden.shape[1])), hidden).first(count)
        return PickResult.of(where, pred.draw(where, rng=for_tokens, temperature=self.temperature))


@dataclass(frozen=True)
class LeftToRight(Pick):
    """The leftmost fraction `share` of the masked positions (rounded up): reading order, several tokens at once."""

    temperature: float = 0.0

    writes_once = True

    def __post_init__(self) -> None:
        require_temperature(self.temperature)

    @property
    def draws_exactly(self) -> bool:
        return self.temperature == 1

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        where = hidden & (
            hidden.cumsum(-1) <= hidden.new_tensor(_share_count(hidden, share), dtype=torch.int64)[:, None]
        )
        if not where.any():
            return PickResult.nothing(hidden)
        return PickResult.of(where, pred.draw(where, rng=rng, temperature=self.temperature))


@dataclass(frozen=True)
class RankedPick(Pick):
    """The fraction `share` of the masked positions (rounded up) with the highest scores."""

    temperature: float = 0.0
    writes_once = True

    def __post_init__(self) -> None:
        require_temperature(self.temperature)

    @property
    def draws_exactly(self) -> bool:
        return False  # scores may depend on the drawn tokens

    def with_end_tokens_last(self, tokens: tuple[int, ...]) -> Pick:
        return EndTokensLast(self.temperature, self, tokens)

    @abstractmethod
    def score(self, drawn: Draw) -> Tensor:
        """(N,) scores; the highest are revealed first."""

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        count = _share_count(hidden, share)
        if not count.all():  # rows that reveal nothing need no network call
            hidden = hidden & hidden.new_tensor(count > 0)[:, None]
        return _take_best(pred, hidden, self.score, lambda _: count, temperature=self.temperature, rng=rng)


@dataclass(frozen=True)
class Confidence(RankedPick):
    """Ranking by the probability of the drawn token. Temperature 0 takes the most likely token, 1 draws from x̂."""

    def score(self, drawn: Draw) -> Tensor:
        return drawn_confidence(drawn)


@dataclass(frozen=True)
class Margin(RankedPick):
    """Ranking by the probability of the most likely token minus that of the second."""

    @property
    def draws_exactly(self) -> bool:
        return self.temperature == 1

    def score(self, drawn: Draw) -> Tensor:
        first, second = drawn.log_x.topk(2, -1).values.exp().unbind(-1)
        return first - second


@dataclass(frozen=True)
class Entropy(RankedPick):
    """Ranking by the entropy of x̂, lowest first."""

    @property
    def draws_exactly(self) -> bool:
        return self.temperature == 1

    def score(self, drawn: Draw) -> Tensor:
        return -ops.entropy(drawn.log_x)


@dataclass(frozen=True)
class EndTokensLast(RankedPick):
    """The ranking of `pick`, but with some tokens after all others, however confident the model is.

    Meant for end tokens of models trained on rows filled with them (LLaDA: `confidence_eos_eot_inf`).
    """

    pick: RankedPick = Confidence()
    tokens: tuple[int, ...] = ()

    def score(self, drawn: Draw) -> Tensor:
        scores, end_tokens = self.pick.score(drawn), drawn.tokens().new_tensor(self.tokens)
        is_end = torch.isin(drawn.tokens(), end_tokens)
        return torch.where(is_end, scores - 1000.0, scores)  # entropies are far below 1000


@dataclass(frozen=True)
class RequiredFirst(Pick):
    """A pick that writes tokens required by a rule first, at positions drawn jointly; `pick` chooses the rest.

    Suppose a rule requires the name "Anna" in a text. In any other order, the positions for a name soon hold another
    name, and "Anna", still required, ends up where it makes no sense ("wandered to the Anna"). Here it is written
    first, at a position drawn in proportion to the odds that the network gives it, and the rest is written around it.
    Such tokens are written one at a time. A token counts as required if the rule makes it at least `least` times as
    likely as the network does. Without a rule only `pick` is used.
    """

    pick: AnyOrder | LeftToRight | RankedPick = AnyOrder()
    least: float = 2.0
    settings_part = "pick"
    writes_once = True
    draws_exactly = False  # the tokens drawn jointly decide which are written first

    def __post_init__(self) -> None:
        require_range(self, 1, FINITE, "least")

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        if not pred.joint:
            return self.pick(pred, canvas, hidden, share, rng=rng)
        for_required, for_rest = rng.split(2)
        required = self._required(pred, hidden, np.minimum(_share_count(hidden, share), 1), for_required)
        rest = hidden & ~required.where.any(-1, keepdim=True)
        return _merge_rows(required, self.pick(pred, canvas, rest, share, rng=for_rest))

    def _required(self, pred: Prediction, hidden: Tensor, count: np.ndarray, rng: Rng) -> PickResult:
        """Pick at most `count` (B,) required tokens in each row."""
        if not ops.to_numpy(hidden).any():
            return PickResult.nothing(hidden)
        drawn = pred.draw(hidden, rng=rng, temperature=self.pick.temperature)
        demand = scatter_scores(round_scores(drawn.demand()), hidden)
        candidates = hidden & torch.from_numpy(demand >= math.log(self.least)).to(hidden.device)
        where = ops.Ranking.of(demand, candidates).first(count)
        return PickResult.of(where, drawn, where.take(ops.flat_positions(hidden)))


def _merge_rows(a: PickResult, b: PickResult) -> PickResult:
    """Combine the results of two picks that reveal positions in different rows."""
    where = a.where | b.where
    from_a = a.where[where]
    tokens = a.tokens.new_empty(len(from_a)).masked_scatter(from_a, a.tokens).masked_scatter(~from_a, b.tokens)
    assert a.log_p is not None
    assert b.log_p is not None
    log_p = a.log_p.new_empty(len(from_a)).masked_scatter(from_a, a.log_p).masked_scatter(~from_a, b.log_p)
    return PickResult(where, tokens, log_p)


_NAMED = {
    "any-order": AnyOrder(),
    "required-first": RequiredFirst(),
    "left-to-right": LeftToRight(),
    "confidence": Confidence(),
    "margin": Margin(),
    "entropy": Entropy(),
}
