"""The dynamic program: all texts of an automaton over a row of positions, summed or maximised in one pass each way.

Weights are those of token classes at each position, so the passes know nothing of the vocabulary. Sums run on plain
numbers, rescaled at every position; where the numbers would get too small they run again on logarithms, with the same
code (`Sums`, `LogSums`). The likeliest text comes from the same passes with maxima (`Maxima`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from redraft.constraints.tokens import Automaton, Ints

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
SAFE = 1e-200  # plain sums are right to the last digits as long as scaled totals stay above


@dataclass(frozen=True)
class Algebra:
    """How weights combine along a text and over texts."""

    times: np.ufunc
    plus: np.ufunc
    zero: float
    one: float
    scaled: bool = False  # totals are divided by their largest value at every position


Sums = Algebra(np.multiply, np.add, 0.0, 1.0, scaled=True)
LogSums = Algebra(np.add, np.logaddexp, -np.inf, 0.0)
Maxima = Algebra(np.add, np.maximum, -np.inf, 0.0)


@dataclass(frozen=True, eq=False)
class Edges:
    """Steps of an automaton in the order of what they are summed by."""

    source: Ints
    kind: Ints  # the class of the token
    target: Ints
    keys: Ints  # what is summed by, each once
    begin: Ints  # where each of them begins

    @classmethod
    def by(cls, automaton: Automaton, column: int) -> Edges:
        """In the order of sources (0), classes (1) or targets (2)."""
        source, kind = (automaton.after < automaton.states).nonzero()
        edges = np.stack([source, kind, automaton.after[source, kind]])
        edges = edges[:, np.argsort(edges[column], kind="stable")]
        keys, begin = np.unique(edges[column], return_index=True)
        return cls(edges[0], edges[1], edges[2], keys, begin)

    def collected(self, values: Floats, algebra: Algebra, size: int) -> Floats:
        """(…, edges) values → (…, size) their totals by key."""
        totals = np.full((*values.shape[:-1], size), algebra.zero)
        totals[..., self.keys] = algebra.plus.reduceat(values, self.begin, axis=-1)
        return totals


@dataclass(frozen=True, eq=False)
class Program:
    """An automaton, ready to be run over rows of positions."""

    automaton: Automaton

    @cached_property
    def outwards(self) -> Edges:
        return Edges.by(self.automaton, 0)

    @cached_property
    def by_class(self) -> Edges:
        return Edges.by(self.automaton, 1)

    @cached_property
    def inwards(self) -> Edges:
        return Edges.by(self.automaton, 2)

    @cached_property
    def grouped(self) -> tuple[Ints, Ints]:
        """The tokens that lead anywhere, class by class, and where each class begins."""
        order = np.argsort(self.automaton.class_of, kind="stable")
        order = order[self.automaton.class_of[order] >= 0]
        return order, np.searchsorted(self.automaton.class_of[order], np.arange(self.automaton.classes))

    # --- passes ---

    def backward(self, weights: Floats, span: Bools, goals: Bools, algebra: Algebra) -> tuple[Floats, Floats]:
        """(L + 1, B, S) for each position the total weight of all ways from a state to a goal, and (B,) log-scales.

        weights (B, L, C): what a token of each class weighs; span (B, L): positions outside it leave the state alone;
        goals (B, S): where a row may be when it is over.
        """
        S, edges = self.automaton.states, self.outwards
        value = np.where(goals, algebra.one, algebra.zero)
        values, scale = [value], np.zeros(len(value))
        for i in reversed(range(span.shape[1])):
            step = algebra.times(value[:, edges.target], weights[:, i, edges.kind])
            value = self._moved(edges.collected(step, algebra, S), value, span[:, i])
            value, scale = _rescaled(value, scale, algebra)
            values.append(value)
        return np.stack(values[::-1]), scale

    def forward(self, weights: Floats, span: Bools, state: Ints, algebra: Algebra) -> Floats:
        """(L + 1, B, S) the total weight of all ways from the first state to each state, up to a factor per row."""
        S, edges = self.automaton.states, self.inwards
        value = np.where(np.arange(S) == state[:, None], algebra.one, algebra.zero)
        values, scale = [value], np.zeros(len(value))
        for i in range(span.shape[1]):
            step = algebra.times(value[:, edges.source], weights[:, i, edges.kind])
            value = self._moved(edges.collected(step, algebra, S), value, span[:, i])
            value, scale = _rescaled(value, scale, algebra)
            values.append(value)
        return np.stack(values)

    def _moved(self, new: Floats, old: Floats, span: Bools) -> Floats:
        return new if span.all() else np.where(span[:, None], new, old)

    def around(self, ahead: Floats, behind: Floats, algebra: Algebra) -> Floats:
        """(n, S) totals before and after n positions → (n, C) the weight of all texts with a token of each class there.

        The weight of the token itself is left out.
        """
        edges = self.by_class
        both = algebra.times(ahead[:, edges.source], behind[:, edges.target])
        return edges.collected(both, algebra, self.automaton.classes)

    def path(
        self, weights: Floats, span: Bools, state: Ints, values: Floats, u: Floats | None, algebra: Algebra
    ) -> Ints:
        """(B, L) the class of the token at each position of a text drawn by u (B, L), or of the best one; −1 outside.

        Position by position from the left: the next class is drawn in proportion to its weight times that of all ways
        to go on, which is exact.
        """
        (B, L), rows = span.shape, np.arange(len(state))
        chosen = np.full((B, L), -1)
        after = np.vstack([self.automaton.after, np.full((1, self.automaton.classes), self.automaton.states)])
        nowhere = np.full((B, 1), algebra.zero)
        for i in range(L):
            targets = after[state]
            goes_on = np.concatenate([values[i + 1], nowhere], 1)[rows[:, None], targets]
            kind = _picked(algebra.times(weights[:, i], goes_on), None if u is None else u[:, i], algebra)
            inside = span[:, i]
            chosen[inside, i] = kind[inside]
            state = np.where(inside, targets[rows, kind], state)
        return chosen

    # --- weights of classes ---

    def summed(self, log_p: NDArray[np.float32], temperature: float, algebra: Algebra) -> Floats:
        """(n, V) log-weights of tokens → (n, C) those of classes; plain sums are relative to the likeliest token."""
        order, begin = self.grouped
        live = log_p[:, order]
        if algebra is Maxima:
            return np.maximum.reduceat(live, begin, axis=-1).astype(np.float64)
        top = log_p.max(-1, keepdims=True)
        if algebra is Sums:
            sums = np.add.reduceat(np.exp((live - top) / np.float32(temperature)), begin, axis=-1, dtype=np.float64)
            if not len(sums) or sums.min() > 1e-30:
                return sums
            return np.add.reduceat(np.exp((live.astype(np.float64) - top) / temperature), begin, axis=-1)
        held = np.maximum(live.astype(np.float64), -FLOOR) / temperature
        high = np.maximum.reduceat(held, begin, axis=-1)
        sizes = np.diff(np.append(begin, len(order)))
        return high + np.log(np.add.reduceat(np.exp(held - np.repeat(high, sizes, axis=-1)), begin, axis=-1))


FLOOR = 1e5  # nats: what something else than the pattern has excluded, taken only where the pattern leaves no choice


def _rescaled(value: Floats, scale: Floats, algebra: Algebra) -> tuple[Floats, Floats]:
    if not algebra.scaled:
        return value, scale
    top = value.max(-1)
    safe = np.where(top > 0, top, 1.0)
    return value / safe[:, None], scale + np.log(safe)


def _picked(weights: Floats, u: Floats | None, algebra: Algebra) -> Ints:
    """(B, C) weights → (B,) the drawn class, or the best one; a class of no weight is never drawn."""
    if u is None:
        return weights.argmax(-1)
    if algebra is not Sums:
        top = weights.max(-1, keepdims=True)
        weights = np.exp(weights - np.where(np.isfinite(top), top, 0.0))
    total = weights.cumsum(-1)
    return (total > u[:, None] * total[:, -1:]).argmax(-1)
