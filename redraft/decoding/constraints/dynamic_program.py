"""Forward-backward and Viterbi over all accepted texts of an automaton.

The passes work with weights of token classes at each position, so their cost does not depend on the vocabulary size.
Sums use plain numbers, rescaled every few positions (`_SUM_PRODUCT`). If these get too small, the same code runs on
logarithms (`_LOG_SUM_PRODUCT`). With maxima it finds the most likely text (`_MAX_PRODUCT`).
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
_SAFE_LOG_PROB = 1e-200  # plain sums are accurate while scaled totals stay above this


@dataclass(frozen=True)
class _Semiring:
    """How weights combine: `times` along a text, `plus` over texts."""

    times: np.ufunc
    plus: np.ufunc
    zero: float
    one: float
    scaled: bool = False  # whether totals are divided by their maximum every few positions


_SUM_PRODUCT = _Semiring(np.multiply, np.add, 0.0, 1.0, scaled=True)
_LOG_SUM_PRODUCT = _Semiring(np.add, np.logaddexp, -np.inf, 0.0)
_MAX_PRODUCT = _Semiring(np.add, np.maximum, -np.inf, 0.0)


@dataclass(frozen=True, eq=False)
class _EdgeList:
    """Transitions of an automaton, sorted by the key they are summed by: source, target or class.

    Every key has at least one edge; where it would have none, an edge of the dummy class C is added, which has zero
    weight. The rows of a batch are concatenated, as one automaton of B·S states, because numpy is fastest on
    one-dimensional arrays.
    """

    source: _Ints  # (B·E,) source states
    token_class: _Ints  # (E,) class of the token
    target: _Ints  # (B·E,) target states
    begin: _Ints  # (B·S,) or (C,) index of the first edge of each key

    def sum_by_key(self, values: _Floats, semiring: _Semiring) -> _Floats:
        """(…, edges) values → (…, keys) totals."""
        return semiring.plus.reduceat(values, self.begin, axis=-1)


@dataclass(frozen=True, eq=False)
class _AutomatonProgram:
    """Dynamic programs over an automaton, for rows of positions."""

    automaton: _TokenAutomaton

    @cached_property
    def _edges(self) -> _Ints:
        """(3, E) sources, classes and targets."""
        source, token_class = (self.automaton.after < self.automaton.states).nonzero()
        return np.stack([source, token_class, self.automaton.after[source, token_class]])

    @cached_property
    def by_class(self) -> _EdgeList:
        """The edges sorted by class, for one row."""
        edges = self._edges[:, np.argsort(self._edges[1], kind="stable")]
        begin = np.searchsorted(edges[1], np.arange(self.automaton.classes))
        return _EdgeList(edges[0], edges[1], edges[2], begin)

    def by_source(self, rows: int) -> _EdgeList:
        """Return the edges sorted by source."""
        return self._sorted_edges(0, rows)

    def by_target(self, rows: int) -> _EdgeList:
        """Return the edges sorted by target."""
        return self._sorted_edges(2, rows)

    def _sorted_edges(self, key: int, rows: int) -> _EdgeList:
        cache = self._edge_lists
        if (key, rows) not in cache:
            cache[key, rows] = self._sort_edges(key, rows)
        return cache[key, rows]

    @cached_property
    def _edge_lists(self) -> dict[tuple[int, int], _EdgeList]:
        """A cache of edge lists by key (0: source, 2: target) and number of rows."""
        return {}

    def _sort_edges(self, key: int, rows: int) -> _EdgeList:
        S, no_class = self.automaton.states, self.automaton.classes
        without = np.setdiff1d(np.arange(S), self._edges[key])  # states without an edge
        edges = np.concatenate([self._edges, np.stack([without, np.full_like(without, no_class), without])], 1)
        edges = edges[:, np.argsort(edges[key], kind="stable")]
        first = (np.arange(rows) * S)[:, None]
        source, target = ((edges[side] + first).ravel() for side in (0, 2))
        begin = np.searchsorted(edges[key], np.arange(S))
        return _EdgeList(source, edges[1], target, (begin + np.arange(rows)[:, None] * edges.shape[1]).ravel())

    @cached_property
    def tokens_by_class(self) -> tuple[_Ints, _Ints]:
        """The usable tokens sorted by class, and the index at which each class begins."""
        order = np.argsort(self.automaton.class_of, kind="stable")
        order = order[self.automaton.class_of[order] >= 0]
        return order, np.searchsorted(self.automaton.class_of[order], np.arange(self.automaton.classes))

    # --- passes ---

    def backward(self, weights: _Floats, span: _Bools, goals: _Bools, semiring: _Semiring) -> tuple[_Floats, _Floats]:
        """Run the backward pass.

        Returns (L + 1, B, S) the total weight of all paths from each state to a goal, before each position and at the
        end, and (B,) log-scales.

        Args:
            weights: (B, L, C) weight of a token of each class
            span: (B, L) bool: the constrained positions; others do not change the state
            goals: (B, S) bool: states in which a row may end
            semiring: how weights combine
        """
        edges = self.by_source(len(span))
        steps = (edges, edges.target, _edge_weights(weights, edges, semiring))
        values, scale = self._scan(np.where(goals, semiring.one, semiring.zero), steps, span[:, ::-1], semiring, True)
        return values[::-1], scale

    def forward(self, weights: _Floats, span: _Bools, state: _Ints, semiring: _Semiring) -> _Floats:
        """Run the forward pass: (L + 1, B, S) total weight of all paths from `state` (B,), up to a factor per row."""
        edges = self.by_target(len(span))
        first = np.where(np.arange(self.automaton.states) == state[:, None], semiring.one, semiring.zero)
        return self._scan(first, (edges, edges.source, _edge_weights(weights, edges, semiring)), span, semiring, False)[
            0
        ]

    def _scan(
        self, first: _Floats, steps: tuple[_EdgeList, _Ints, _Floats], span: _Bools, semiring: _Semiring, back: bool
    ) -> tuple[_Floats, _Floats]:
        """Return the totals before the first position and after each one, in the order of the pass, and log-scales."""
        (edges, neighbor, weights), (rows, length) = steps, span.shape
        values, value, scale = np.empty((length + 1, *first.shape)), first.ravel(), np.zeros(rows)
        values[0] = first
        inside: _Bools = np.logical_and.reduce(span, axis=0)
        for i in range(length):
            step = semiring.times(value.take(neighbor), weights[length - 1 - i if back else i])
            new = edges.sum_by_key(step, semiring)
            if not inside[i]:
                new = np.where(np.repeat(span[:, i], first.shape[1]), new, value)
            value = _rescale(new, rows, scale) if semiring.scaled and i % 4 == 3 else new
            values[i + 1] = value.reshape(first.shape)
        return values, scale

    def class_totals(self, forward: _Floats, backward: _Floats, semiring: _Semiring) -> _Floats:
        """(n, S) totals before and after n positions → (n, C) total weight of all texts with each class there.

        The weight of the token itself is not included.
        """
        edges = self.by_class
        return edges.sum_by_key(semiring.times(forward[:, edges.source], backward[:, edges.target]), semiring)

    def path(
        self, weights: _Floats, span: _Bools, state: _Ints, values: _Floats, u: _Floats | None, semiring: _Semiring
    ) -> _Ints:
        """Draw a text with the uniform numbers u (B, L), or take the best one if u is None.

        Returns (B, L) the class at each position, −1 outside the span. `values` are the totals of the backward pass.
        The draw is exact: from left to right, each class has a probability proportional to its weight times the total
        weight of all continuations.
        """
        (B, L), rows = span.shape, np.arange(len(state))
        chosen = np.full((B, L), -1)
        after = np.vstack([self.automaton.after, np.full((1, self.automaton.classes), self.automaton.states)])
        values = np.concatenate(
            [values, np.full((L + 1, B, 1), semiring.zero)], -1
        )  # no continuation where there is no transition
        values, first = values.reshape(L + 1, -1), (rows * (self.automaton.states + 1))[:, None]
        for i in np.flatnonzero(span.any(axis=0)).tolist():
            targets = after.take(state, axis=0)
            rest = values[i + 1].take(targets + first)
            drawn = _pick_class(semiring.times(weights[:, i], rest), None if u is None else u[:, i], semiring)
            inside = span[:, i]
            if inside.all():
                chosen[:, i], state = drawn, targets[rows, drawn]
            else:
                chosen[inside, i], state = drawn[inside], np.where(inside, targets[rows, drawn], state)
        return chosen

    # --- weights of classes ---

    def select_usable(self, log_p: Tensor) -> Tensor:
        """(n, V) → (n, K) log-weights of the K usable tokens, sorted by class."""
        return log_p.index_select(1, torch.from_numpy(self.tokens_by_class[0]).to(log_p.device))

    def class_weights(self, log_p: Tensor, top: Tensor, temperature: float, semiring: _Semiring) -> _Floats:
        """(n, K) log-weights of usable tokens → (n, C) weights of classes; plain sums are relative to `top` (n, 1)."""
        begin = self.tokens_by_class[1]
        if semiring is _MAX_PRODUCT:
            return np.maximum.reduceat(log_p.cpu().numpy(), begin, axis=-1).astype(np.float64)
        if semiring is _SUM_PRODUCT:
            sums = np.add.reduceat((log_p - top).div_(temperature).exp_().cpu().numpy(), begin, axis=-1)
            if not len(sums) or sums.min() > 1e-30:
                return sums.astype(np.float64)
            return np.add.reduceat((log_p.double() - top).div_(temperature).exp_().cpu().numpy(), begin, axis=-1)
        log_weights = log_p.double().clamp(min=-_LOG_PROB_FLOOR).div_(temperature).cpu().numpy()
        high = np.maximum.reduceat(log_weights, begin, axis=-1)
        sizes = np.diff(np.append(begin, log_weights.shape[1]))
        return high + np.log(np.add.reduceat(np.exp(log_weights - np.repeat(high, sizes, axis=-1)), begin, axis=-1))


# Nats. A token that a filter has excluded gets this log-probability at least, so that it is written only where the
# rule leaves no other choice.
_LOG_PROB_FLOOR = 1e5


def _edge_weights(weights: _Floats, edges: _EdgeList, semiring: _Semiring) -> _Floats:
    """(B, L, C) → (L, B·E) weight of each edge at each position."""
    B, L, _ = weights.shape
    padded = np.concatenate([weights, np.full((B, L, 1), semiring.zero)], -1)
    return (
        np.ascontiguousarray(padded.transpose(1, 0, 2))
        .take(edges.token_class, axis=2)
        .reshape(L, B * len(edges.token_class))
    )


def _rescale(value: _Floats, rows: int, scale: _Floats) -> _Floats:
    """Divide (B·S,) by the maximum of each row, and add the logarithms of the maxima to `scale` in place."""
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


def _pick_class(weights: _Floats, u: _Floats | None, semiring: _Semiring) -> _Ints:
    """(B, C) weights → (B,) class drawn with u, or the best one if u is None; never draws a class of zero weight."""
    if u is None:
        return weights.argmax(-1)
    if semiring is not _SUM_PRODUCT:
        top = weights.max(-1, keepdims=True)
        weights = np.exp(weights - np.where(np.isfinite(top), top, 0.0))
    total = weights.cumsum(-1)
    return (total > u[:, None] * total[:, -1:]).argmax(-1)
