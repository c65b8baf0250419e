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
_CACHED_NUMBERS = 2**15  # numbers that are handled at a time
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
class _PairList:
    """Pairs of states with a transition between them, sorted by source or by target, by which they are summed.

    Every state has at least one pair; where it would have none, a dummy pair P is added, which has zero weight. The
    rows of a batch are concatenated, as one automaton of B·S states, because numpy is fastest on one-dimensional
    arrays.
    """

    source: _Ints  # (B·P,) source states
    class_set: _Ints  # (P,) index of the set of classes that lead along the pair
    target: _Ints  # (B·P,) target states
    begin: _Ints  # (B·S,) index of the first pair of each state

    def sum_by_state(self, values: _Floats, semiring: _Semiring) -> _Floats:
        """(B·P,) values → (B·S,) totals."""
        return semiring.plus.reduceat(values, self.begin)

    def weights(self, weights: _Floats, semiring: _Semiring) -> _Floats:
        """(B, L, U) weights of sets of classes → (L, B·P) weights of pairs in the order of this list."""
        B, L, _ = weights.shape
        padded = np.concatenate([weights, np.full((B, L, 1), semiring.zero)], -1)
        by_column = np.ascontiguousarray(padded.transpose(1, 0, 2))
        return by_column.take(self.class_set, axis=2).reshape(L, B * len(self.class_set))


@dataclass(frozen=True, eq=False)
class _Grouping:
    """Groups of indices, whose values are summed."""

    members: _Ints  # (E,) indices, group after group
    begin: _Ints  # (K,) where each group begins

    @classmethod
    def of(cls, members: _Ints, group: _Ints) -> _Grouping:
        """Group members by the index of their group; no group is empty."""
        order = np.argsort(group, kind="stable")
        return cls(members[order], np.searchsorted(group[order], np.arange(int(group.max(initial=-1)) + 1)))

    def sums(self, values: _Floats, semiring: _Semiring) -> _Floats:
        """(N, M) values → (N, K) totals, for a few rows at a time, so that they stay in the processor's cache."""
        rows = max(1, _CACHED_NUMBERS // len(self.members))
        parts = [values[i : i + rows].take(self.members, axis=1) for i in range(0, max(1, len(values)), rows)]
        return np.concatenate([semiring.plus.reduceat(part, self.begin, axis=1) for part in parts])


@dataclass(frozen=True, eq=False)
class _AutomatonProgram:
    """Dynamic programs over an automaton, for rows of positions.

    All classes that lead from one state to another are summed first, so the passes visit pairs of states.
    """

    automaton: _TokenAutomaton

    @cached_property
    def _transitions(self) -> tuple[_Ints, _Ints]:
        """(2, P) sources and targets of all pairs of states, and (2, E) pair and class of all transitions."""
        states, after = self.automaton.states, self.automaton.after
        source, token_class = (after < states).nonzero()
        keys, pair = np.unique(source * states + after[source, token_class], return_inverse=True)
        return np.stack(np.divmod(keys, states)), np.stack([pair.reshape(-1), token_class])

    @property
    def edges(self) -> int:
        """Number of transitions between states by class."""
        return self._transitions[1].shape[1]

    @cached_property
    def _class_sets(self) -> tuple[_Ints, _Ints]:
        """(P,) the set of classes that lead along each pair of states, and (2, E) set and class of their members.

        Most pairs inside a string share a set, so there are far fewer sets than pairs.
        """
        pairs, (pair, token_class) = self._transitions
        order = np.argsort(pair, kind="stable")
        begin = np.searchsorted(pair[order], np.arange(1, pairs.shape[1]))
        numbers: dict[bytes, int] = {}
        members = np.split(token_class[order], begin)
        set_of = np.array([numbers.setdefault(each.tobytes(), len(numbers)) for each in members], np.int64)
        sets = [np.frombuffer(each, token_class.dtype) for each in numbers]
        return set_of, np.stack([np.repeat(np.arange(len(sets)), [len(each) for each in sets]), np.concatenate(sets)])

    @cached_property
    def _classes_by_set(self) -> _Grouping:
        set_index, token_class = self._class_sets[1]
        return _Grouping.of(token_class, set_index)

    @cached_property
    def _sets_by_class(self) -> _Grouping:
        set_index, token_class = self._class_sets[1]
        return _Grouping.of(set_index, token_class)

    @cached_property
    def _pairs_by_set(self) -> _Grouping:
        set_of = self._class_sets[0]
        return _Grouping.of(np.arange(len(set_of)), set_of)

    def _sorted_pairs(self, key: int, rows: int) -> _PairList:
        """The pairs sorted by source (key 0) or target (key 1), for a number of rows; cached."""
        cache = self._pair_lists
        if (key, rows) not in cache:
            cache[key, rows] = self._sort_pairs(key, rows)
        return cache[key, rows]

    @cached_property
    def _pair_lists(self) -> dict[tuple[int, int], _PairList]:
        """A cache of sorted pairs by key and number of rows."""
        return {}

    def _sort_pairs(self, key: int, rows: int) -> _PairList:
        S, pairs = self.automaton.states, self._transitions[0]
        without = np.setdiff1d(np.arange(S), pairs[key])  # states without a pair
        index = np.append(self._class_sets[0], np.full_like(without, self._classes_by_set.begin.size))
        pairs = np.concatenate([pairs, np.stack([without, without])], 1)
        order = np.argsort(pairs[key], kind="stable")
        first = (np.arange(rows) * S)[:, None]
        source, target = ((side[order] + first).ravel() for side in pairs)
        begin = np.searchsorted(pairs[key][order], np.arange(S))
        return _PairList(source, index[order], target, (begin + np.arange(rows)[:, None] * len(order)).ravel())

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
        return self._backward(self._set_weights(weights, semiring), span, goals, semiring)

    def both(
        self, weights: _Floats, span: _Bools, state: _Ints, goals: _Bools, semiring: _Semiring
    ) -> tuple[_Floats, _Floats, _Floats]:
        """Run both passes: totals (L + 1, B, S) of the forward and of the backward pass, and its (B,) log-scales.

        The forward pass begins in `state` (B,). Its totals are right up to a factor per row.
        """
        set_weights, pairs = self._set_weights(weights, semiring), self._sorted_pairs(1, len(span))
        backward, scale = self._backward(set_weights, span, goals, semiring)
        first = np.where(np.arange(self.automaton.states) == state[:, None], semiring.one, semiring.zero)
        steps = pairs, pairs.source, pairs.weights(set_weights, semiring)
        return self._scan(first, steps, span, semiring, False)[0], backward, scale

    def _backward(
        self, set_weights: _Floats, span: _Bools, goals: _Bools, semiring: _Semiring
    ) -> tuple[_Floats, _Floats]:
        pairs = self._sorted_pairs(0, len(span))
        steps = pairs, pairs.target, pairs.weights(set_weights, semiring)
        values, scale = self._scan(np.where(goals, semiring.one, semiring.zero), steps, span[:, ::-1], semiring, True)
        return values[::-1], scale

    def _set_weights(self, weights: _Floats, semiring: _Semiring) -> _Floats:
        """(B, L, C) weights of classes → (B, L, U) weights of sets of classes, from which those of pairs are taken."""
        sums = self._classes_by_set.sums(weights.reshape(-1, weights.shape[-1]), semiring)
        return sums.reshape(*weights.shape[:2], sums.shape[-1])  # no position may be left, so not -1

    def _scan(
        self, first: _Floats, steps: tuple[_PairList, _Ints, _Floats], span: _Bools, semiring: _Semiring, back: bool
    ) -> tuple[_Floats, _Floats]:
        """Return the totals before the first position and after each one, in the order of the pass, and log-scales."""
        (pairs, neighbor, weights), (rows, length) = steps, span.shape
        values, value, scale = np.empty((length + 1, *first.shape)), first.ravel(), np.zeros(rows)
        values[0] = first
        inside: _Bools = np.logical_and.reduce(span, axis=0)
        for i in range(length):
            step = semiring.times(value.take(neighbor), weights[length - 1 - i if back else i])
            new = pairs.sum_by_state(step, semiring)
            if not inside[i]:
                new = np.where(np.repeat(span[:, i], first.shape[1]), new, value)
            value = _rescale(new, rows, scale) if semiring.scaled and i % 4 == 3 else new
            values[i + 1] = value.reshape(first.shape)
        return values, scale

    def class_totals(self, forward: _Floats, backward: _Floats, semiring: _Semiring) -> _Floats:
        """(n, S) totals before and after n positions → (n, C) total weight of all texts with each class there.

        The weight of the token itself is not included.
        """
        source, target = self._transitions[0]
        totals = semiring.times(forward.take(source, axis=1), backward.take(target, axis=1))
        return self._sets_by_class.sums(self._pairs_by_set.sums(totals, semiring), semiring)

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
