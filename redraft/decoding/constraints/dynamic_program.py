"""The dynamic program: all texts of an automaton over a row of positions, summed or maximised in one pass each way.

Weights are those of token classes at each position, so the passes know nothing of the vocabulary. Sums run on plain
numbers, rescaled every few positions; where the numbers get too small they run again on logarithms, with the same
code (`_SUM_PRODUCT`, `_LOG_SUM_PRODUCT`). The likeliest text comes from the same passes with maxima (`_MAX_PRODUCT`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from redraft.decoding.constraints.automaton import _Ints, _TokenAutomaton

_Floats = NDArray[np.float64]
_Bools = NDArray[np.bool_]
_SAFE_LOG_PROB = 1e-200  # plain sums are right to the last digits as long as scaled totals stay above


@dataclass(frozen=True)
class _Semiring:
    """How weights combine along a text and over texts."""

    times: np.ufunc
    plus: np.ufunc
    zero: float
    one: float
    scaled: bool = False  # totals are divided by their largest value, every few positions


_SUM_PRODUCT = _Semiring(np.multiply, np.add, 0.0, 1.0, scaled=True)
_LOG_SUM_PRODUCT = _Semiring(np.add, np.logaddexp, -np.inf, 0.0)
_MAX_PRODUCT = _Semiring(np.add, np.maximum, -np.inf, 0.0)


@dataclass(frozen=True, eq=False)
class _EdgeList:
    """Steps of an automaton in the order of what they are summed by, each of which has one edge at least.

    The rows of a batch stand one after the other, as if they were one automaton of B·S states: one-dimensional arrays
    are what numpy is fast at. An edge of class C, one more than there are, weighs nothing.
    """

    source: _Ints  # (B·E,)
    kind: _Ints  # (E,) the class of the token
    target: _Ints  # (B·E,)
    begin: _Ints  # (B·S,) or (C,): where the edges of each begin

    def collected(self, values: _Floats, algebra: _Semiring) -> _Floats:
        """(…, edges) values → (…, what they are summed by) their totals."""
        return algebra.plus.reduceat(values, self.begin, axis=-1)


@dataclass(frozen=True, eq=False)
class _AutomatonProgram:
    """An automaton, ready to be run over rows of positions."""

    automaton: _TokenAutomaton

    @cached_property
    def _edges(self) -> _Ints:
        """(3, E) sources, classes and targets."""
        source, kind = (self.automaton.after < self.automaton.states).nonzero()
        return np.stack([source, kind, self.automaton.after[source, kind]])

    @cached_property
    def by_class(self) -> _EdgeList:
        """In the order of classes, for one row."""
        edges = self._edges[:, np.argsort(self._edges[1], kind="stable")]
        begin = np.searchsorted(edges[1], np.arange(self.automaton.classes))
        return _EdgeList(edges[0], edges[1], edges[2], begin)

    def outwards(self, rows: int) -> _EdgeList:
        """In the order of sources."""
        return self._along(0, rows)

    def inwards(self, rows: int) -> _EdgeList:
        """In the order of targets."""
        return self._along(2, rows)

    def _along(self, column: int, rows: int) -> _EdgeList:
        held = self._held
        if (column, rows) not in held:
            held[column, rows] = self._made(column, rows)
        return held[column, rows]

    @cached_property
    def _held(self) -> dict[tuple[int, int], _EdgeList]:
        """Edges that were made before, by what they are summed by and the number of rows."""
        return {}

    def _made(self, column: int, rows: int) -> _EdgeList:
        S, nothing = self.automaton.states, self.automaton.classes
        lonely = np.setdiff1d(np.arange(S), self._edges[column])
        edges = np.concatenate([self._edges, np.stack([lonely, np.full_like(lonely, nothing), lonely])], 1)
        edges = edges[:, np.argsort(edges[column], kind="stable")]
        first = (np.arange(rows) * S)[:, None]
        source, target = ((edges[side] + first).ravel() for side in (0, 2))
        begin = np.searchsorted(edges[column], np.arange(S))
        return _EdgeList(source, edges[1], target, (begin + np.arange(rows)[:, None] * edges.shape[1]).ravel())

    @cached_property
    def grouped(self) -> tuple[_Ints, _Ints]:
        """The tokens that lead anywhere, class by class, and where each class begins."""
        order = np.argsort(self.automaton.class_of, kind="stable")
        order = order[self.automaton.class_of[order] >= 0]
        return order, np.searchsorted(self.automaton.class_of[order], np.arange(self.automaton.classes))

    # --- passes ---

    def backward(self, weights: _Floats, span: _Bools, goals: _Bools, algebra: _Semiring) -> tuple[_Floats, _Floats]:
        """(L + 1, B, S) for each position the total weight of all ways from a state to a goal, and (B,) log-scales.

        weights (B, L, C): what a token of each class weighs; span (B, L): positions outside it leave the state alone;
        goals (B, S): where a row may be when it is over.
        """
        edges = self.outwards(len(span))
        steps = (edges, edges.target, _by_edge(weights, edges, algebra))
        values, scale = self._passed(np.where(goals, algebra.one, algebra.zero), steps, span[:, ::-1], algebra, True)
        return values[::-1], scale

    def forward(self, weights: _Floats, span: _Bools, state: _Ints, algebra: _Semiring) -> _Floats:
        """(L + 1, B, S) the total weight of all ways from the first state to each state, up to a factor per row."""
        edges = self.inwards(len(span))
        first = np.where(np.arange(self.automaton.states) == state[:, None], algebra.one, algebra.zero)
        return self._passed(first, (edges, edges.source, _by_edge(weights, edges, algebra)), span, algebra, False)[0]

    def _passed(
        self, first: _Floats, steps: tuple[_EdgeList, _Ints, _Floats], span: _Bools, algebra: _Semiring, back: bool
    ) -> tuple[_Floats, _Floats]:
        """The totals before the first position and after each, in the order in which they are passed."""
        (edges, other, weights), (rows, length) = steps, span.shape
        values, value, scale = np.empty((length + 1, *first.shape)), first.ravel(), np.zeros(rows)
        values[0] = first
        inside: _Bools = np.logical_and.reduce(span, axis=0)
        for i in range(length):
            step = algebra.times(value.take(other), weights[length - 1 - i if back else i])
            new = edges.collected(step, algebra)
            if not inside[i]:
                new = np.where(np.repeat(span[:, i], first.shape[1]), new, value)
            value = _rescaled(new, rows, scale) if algebra.scaled and i % 4 == 3 else new
            values[i + 1] = value.reshape(first.shape)
        return values, scale

    def around(self, ahead: _Floats, behind: _Floats, algebra: _Semiring) -> _Floats:
        """(n, S) totals before and after n positions → (n, C) the weight of all texts with a token of each class there.

        The weight of the token itself is left out.
        """
        edges = self.by_class
        return edges.collected(algebra.times(ahead[:, edges.source], behind[:, edges.target]), algebra)

    def path(
        self, weights: _Floats, span: _Bools, state: _Ints, values: _Floats, u: _Floats | None, algebra: _Semiring
    ) -> _Ints:
        """(B, L) the class of the token at each position of a text drawn by u (B, L), or of the best one; −1 outside.

        Position by position from the left: the next class is drawn in proportion to its weight times that of all ways
        to go on, which is exact.
        """
        (B, L), rows = span.shape, np.arange(len(state))
        chosen = np.full((B, L), -1)
        after = np.vstack([self.automaton.after, np.full((1, self.automaton.classes), self.automaton.states)])
        values = np.concatenate([values, np.full((L + 1, B, 1), algebra.zero)], -1)  # nothing goes on from nowhere
        values, first = values.reshape(L + 1, -1), (rows * (self.automaton.states + 1))[:, None]
        for i in np.flatnonzero(span.any(axis=0)).tolist():
            targets = after.take(state, axis=0)
            goes_on = values[i + 1].take(targets + first)
            kind = _picked(algebra.times(weights[:, i], goes_on), None if u is None else u[:, i], algebra)
            inside = span[:, i]
            if inside.all():
                chosen[:, i], state = kind, targets[rows, kind]
            else:
                chosen[inside, i], state = kind[inside], np.where(inside, targets[rows, kind], state)
        return chosen

    # --- weights of classes ---

    def live(self, log_p: Tensor) -> Tensor:
        """(n, V) → (n, those that lead anywhere), class by class."""
        return log_p.index_select(1, torch.from_numpy(self.grouped[0]).to(log_p.device))

    def summed(self, live: Tensor, top: Tensor, temperature: float, algebra: _Semiring) -> _Floats:
        """(n, …) log-weights of `live` tokens → (n, C) those of classes; plain sums are relative to `top` (n, 1)."""
        begin = self.grouped[1]
        if algebra is _MAX_PRODUCT:
            return np.maximum.reduceat(live.cpu().numpy(), begin, axis=-1).astype(np.float64)
        if algebra is _SUM_PRODUCT:
            sums = np.add.reduceat((live - top).div_(temperature).exp_().cpu().numpy(), begin, axis=-1)
            if not len(sums) or sums.min() > 1e-30:
                return sums.astype(np.float64)
            return np.add.reduceat((live.double() - top).div_(temperature).exp_().cpu().numpy(), begin, axis=-1)
        held = live.double().clamp(min=-_LOG_PROB_FLOOR).div_(temperature).cpu().numpy()
        high = np.maximum.reduceat(held, begin, axis=-1)
        sizes = np.diff(np.append(begin, held.shape[1]))
        return high + np.log(np.add.reduceat(np.exp(held - np.repeat(high, sizes, axis=-1)), begin, axis=-1))


_LOG_PROB_FLOOR = (
    1e5  # nats: what something else than the pattern has excluded, taken only where the pattern leaves no choice
)


def _by_edge(weights: _Floats, edges: _EdgeList, algebra: _Semiring) -> _Floats:
    """(B, L, C) → (L, B·E) the weight of each step at each position."""
    B, L, _ = weights.shape
    padded = np.concatenate([weights, np.full((B, L, 1), algebra.zero)], -1)
    return np.ascontiguousarray(padded.transpose(1, 0, 2)).take(edges.kind, axis=2).reshape(L, B * len(edges.kind))


def _rescaled(value: _Floats, rows: int, scale: _Floats) -> _Floats:
    """(B·S,) divided by the largest value of each row, whose logarithms are added to the scale."""
    if rows == 1:
        top = value.max()
        if top > 0:
            scale += np.log(top)
            value /= top
        return value
    table = value.reshape(rows, -1)
    tops = table.max(-1)
    tops[tops <= 0] = 1.0
    scale += np.log(tops)
    return (table / tops[:, None]).ravel()


def _picked(weights: _Floats, u: _Floats | None, algebra: _Semiring) -> _Ints:
    """(B, C) weights → (B,) the drawn class, or the best one; a class of no weight is never drawn."""
    if u is None:
        return weights.argmax(-1)
    if algebra is not _SUM_PRODUCT:
        top = weights.max(-1, keepdims=True)
        weights = np.exp(weights - np.where(np.isfinite(top), top, 0.0))
    total = weights.cumsum(-1)
    return (total > u[:, None] * total[:, -1:]).argmax(-1)
