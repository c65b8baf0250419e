"""A query to a constrained prediction, and the forward and backward passes that answer it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from redraft.decoding.constraints.automaton import _Ints
from redraft.decoding.constraints.dynamic_program import (
    _LOG_PROB_FLOOR,
    _LOG_SUM_PRODUCT,
    _MAX_PRODUCT,
    _SAFE_LOG_PROB,
    _SUM_PRODUCT,
    _AutomatonProgram,
    _Bools,
    _Floats,
    _Semiring,
)
from redraft.decoding.constraints.placement import _PlacedRule, _PlacedRuleSet

_NO_RULE = -2  # in place of a class, at positions that no rule covers


@dataclass(frozen=True, eq=False)
class _ConstraintQuery:
    """The inner prediction at all positions that matter, and the positions that were queried."""

    rules: _PlacedRuleSet
    z: Tensor  # (B, L) ids
    settled: Tensor  # (B, L) bool: positions whose token is final
    needed: Tensor  # (B, L) bool: M undecided positions
    log_p: Tensor  # (M, V) log-probabilities of the inner prediction there
    where: Tensor  # (B, L) bool: N queried positions

    @cached_property
    def passes(self) -> tuple[_ForwardBackward, ...]:
        """The passes of each rule, over the queried rows that it covers."""
        index = torch.full(self.needed.shape, -1, device=self.log_p.device).masked_scatter(
            self.needed, torch.arange(len(self.log_p), device=self.log_p.device)
        )
        queried = self.where.any(-1)
        covered = [(part, queried & part.span.any(-1)) for part in self.rules.parts]
        return tuple(self._make_passes(part, rows, index) for part, rows in covered if bool(rows.any()))

    def _make_passes(self, part: _PlacedRule, covered: Tensor, index: Tensor) -> _ForwardBackward:
        rows = covered.nonzero().squeeze(-1)
        if len(rows) == len(self.z):
            return _ForwardBackward(part, self.z, self.settled, index, self.log_p, rows)
        return _ForwardBackward(part.rows(rows), self.z[rows], self.settled[rows], index[rows], self.log_p, rows)

    @cached_property
    def _queried(self) -> list[tuple[_ForwardBackward, Tensor, _Ints, _Ints]]:
        """The passes that cover a queried position, with those positions: index into the N, row, and column."""
        covered = [(passes, *passes.locate(self.where)) for passes in self.passes]
        return [entry for entry in covered if len(entry[1])]

    def log_x(self) -> Tensor:
        """(N, V) log-probabilities of the exact marginals under the rules."""
        log_x = self.queried_log_p
        for passes, index, row, column in self._queried:
            if len(index) == len(log_x):
                log_x = passes.marginals(row, column).index_select(1, passes.class_of).add_(log_x)
            else:
                log_x = log_x.index_add(0, index, passes.marginals(row, column).index_select(1, passes.class_of))
        return log_x

    @cached_property
    def queried_log_p(self) -> Tensor:
        """(N, V) log-probabilities of the inner prediction at the queried positions; settled ones have one token."""
        queried = self.where[self.needed]
        if bool(queried.all()) and not bool((self.where & ~self.needed).any()):
            return self.log_p
        size = self.log_p.shape[-1]
        log_x = self.log_p.new_full((int(self.where.sum()), size), -torch.inf)
        log_x[self.needed[self.where]] = self.log_p[queried]
        certain = (~self.needed[self.where]).nonzero().squeeze(-1)
        log_x[certain, self.z[self.where][certain]] = 0.0
        return log_x

    def draw_classes(self, u: Tensor, temperature: float) -> _Ints:
        """Draw the classes of a text, (N,), with uniform numbers u (B, L); the most likely text at temperature 0."""
        classes = np.full(int(self.where.sum()), _NO_RULE)
        for passes, index, row, column in self._queried:
            classes[index.numpy()] = passes.draw_classes(u, temperature)[row, column]
        return classes

    def restrict_to_classes(self, classes: _Ints) -> Tensor:
        """Return (N, V) inner log-probabilities of the tokens of these classes (N,); −∞ for other tokens."""
        log_x, drawn = self.queried_log_p, torch.from_numpy(classes)[:, None]
        for passes, index, _, _ in self._queried:
            if len(index) == len(log_x):
                log_x = _restrict(log_x, passes.class_of_token == drawn)
            else:
                part = _restrict(log_x[index], passes.class_of_token == drawn[index])
                log_x = log_x.index_copy(0, index, part)
        return log_x

    def likeliest(self, classes: _Ints) -> Tensor:
        """(N,) most likely token of each class; ties go to the lowest id."""
        if len(self._queried) == 1 and len(self._queried[0][1]) == len(self.queried_log_p):
            passes, index, row, column = self._queried[0]
            return passes.likeliest(classes[index.numpy()], row, column).to(self.log_p.device)
        return self.restrict_to_classes(classes).argmax(-1)

    def log_match(self) -> Tensor:
        """(B,) float64: log-probability that all rules are obeyed."""
        total = torch.zeros(len(self.z), dtype=torch.float64)
        for passes in self.passes:
            total[passes.rows] += torch.from_numpy(passes.log_total())
        return total


def _restrict(log_x: Tensor, allowed: Tensor) -> Tensor:
    """Set all but the allowed tokens to −∞. If a filter has excluded all allowed tokens, they become equally likely."""
    restricted = torch.where(allowed, log_x, -torch.inf)
    lost = restricted.amax(-1) == -torch.inf
    if bool(lost.any()):
        restricted[lost] = log_x[lost].clamp(min=-_LOG_PROB_FLOOR).masked_fill(~allowed[lost], -torch.inf)
    return restricted


@dataclass(frozen=True, eq=False)
class _ForwardBackward:
    """The passes of one rule over some rows, on plain numbers, or on logarithms if these underflow."""

    rule: _PlacedRule
    z: Tensor  # (b, L) ids
    settled: Tensor  # (b, L) bool
    index: Tensor  # (b, L) index of each position into `log_p`; −1 if it has none
    log_p: Tensor  # (M, V) log-probabilities of the inner prediction
    rows: Tensor  # (b,) indices of the rows in the batch

    @property
    def program(self) -> _AutomatonProgram:
        return self.rule.program

    @cached_property
    def span(self) -> _Bools:
        return self.rule.span.cpu().numpy()

    @cached_property
    def free(self) -> _Bools:
        """(b, L) bool: undecided positions that the rule covers."""
        return self.span & ~self.settled.cpu().numpy()

    @cached_property
    def allowed(self) -> _Bools:
        return self.rule.allowed(self.z, self.settled)

    @cached_property
    def class_of_token(self) -> Tensor:
        return torch.from_numpy(self.program.automaton.class_of)

    @cached_property
    def class_of(self) -> Tensor:
        """(V,) class of each token, with one more class for unusable tokens."""
        classes = self.class_of_token
        return torch.where(classes < 0, self.program.automaton.classes, classes)

    @cached_property
    def free_log_p(self) -> tuple[Tensor, Tensor]:
        """Log-probabilities of usable tokens, and (n, 1) of the most likely token, in the order of `free.nonzero()`."""
        index = self.index[torch.from_numpy(self.free).to(self.index.device)]
        log_p = self.log_p.detach().float()
        log_p = log_p if len(index) == len(log_p) and bool((index.diff() == 1).all()) else log_p[index]
        return self.program.select_usable(log_p), log_p.amax(-1, keepdim=True)

    def likeliest(self, classes: _Ints, row: _Ints, column: _Ints) -> Tensor:
        """(n,) most likely token of each class at its position."""
        log_p, (order, begin) = self.free_log_p[0].cpu().numpy(), self.program.tokens_by_class
        end = np.append(begin[1:], log_p.shape[1])
        index = (self.free.cumsum() - 1).reshape(self.free.shape)[row, column]
        ranges = zip(index, begin[classes], end[classes], strict=True)
        return torch.from_numpy(order[np.array([lo + log_p[i, lo:hi].argmax() for i, lo, hi in ranges], np.int64)])

    def weights(self, temperature: float, semiring: _Semiring) -> _Floats:
        """(b, L, C) weight of each class at each position; settled positions have a single class."""
        weights = np.where(self.allowed, semiring.one, semiring.zero)
        if self.free.any():
            sums = self.program.class_weights(*self.free_log_p, temperature, semiring)
            weights[self.free] = np.where(self.allowed[self.free], sums, semiring.zero)
        return weights

    @cached_property
    def totals(self) -> tuple[_Semiring, _Floats, _Floats, _Floats, _Floats]:
        """The semiring used, (b, L, C) weights, (L + 1, b, S) forward totals, the same backward, (b,) log-scales."""
        state, goals = self.rule.state.cpu().numpy(), self.rule.goals.cpu().numpy()
        for semiring in (_SUM_PRODUCT, _LOG_SUM_PRODUCT):
            weights = self.weights(1.0, semiring)
            forward, backward, scale = self.program.both(weights, self.span, state, goals, semiring)
            if semiring is _SUM_PRODUCT and float((forward * backward).sum(-1).min(initial=1.0)) > _SAFE_LOG_PROB:
                return semiring, weights, forward, backward, scale
        if not np.isfinite(backward[0][np.arange(len(state)), state]).all():
            raise ValueError("no text obeys the rule after the tokens written so far; this should never happen")
        return semiring, weights, forward, backward, scale

    def locate(self, where: Tensor) -> tuple[Tensor, Any, Any]:
        """Return the free positions of this rule among the N queried ones: index into the N, row (of the b), column."""
        position = torch.full(where.shape, -1).masked_scatter(where.cpu(), torch.arange(int(where.sum())))[
            self.rows.cpu()
        ]
        row, column = ((position >= 0) & torch.from_numpy(self.free)).nonzero(as_tuple=True)
        return position[row, column], row.numpy(), column.numpy()

    def marginals(self, row: _Ints, column: _Ints) -> Tensor:
        """(n, C + 1) terms to add to the log-probabilities of the tokens of each class; −∞ for unusable tokens."""
        semiring, weights, forward, backward, _ = self.totals
        context = self.program.class_totals(forward[column, row], backward[column + 1, row], semiring)
        context = np.where(self.allowed[row, column], context, semiring.zero)
        total = semiring.plus.reduce(semiring.times(context, weights[row, column]), axis=-1)[:, None]
        with np.errstate(divide="ignore"):
            added = (
                context - total
                if semiring is _LOG_SUM_PRODUCT
                else np.log(context) - np.log(total) - self._top(row, column)
            )
        added = np.concatenate([added, np.full((len(added), 1), -np.inf)], 1)
        return torch.from_numpy(added).to(self.log_p)

    def _top(self, row: _Ints, column: _Ints) -> _Floats:
        """(n, 1) log-probability of the most likely token, to which plain sums are relative."""
        tops = np.zeros(self.free.shape)
        tops[self.free] = self.free_log_p[1].squeeze(-1).double().cpu().numpy()
        return tops[row, column][:, None]

    def draw_classes(self, u: Tensor, temperature: float) -> _Ints:
        """Draw the classes of a text, (b, L), with a uniform number per position; the best ones at temperature 0."""
        state, goals, uniforms = (a.cpu().numpy() for a in (self.rule.state, self.rule.goals, u[self.rows]))
        if temperature == 0:
            weights = self.weights(1.0, _MAX_PRODUCT)
            values, _ = self.program.backward(weights, self.span, goals, _MAX_PRODUCT)
            if not np.isfinite(values[0][np.arange(len(state)), state]).all():
                # a filter has excluded all texts that obey; log sums give excluded tokens a finite weight
                weights = self.weights(1.0, _LOG_SUM_PRODUCT)
                values, _ = self.program.backward(weights, self.span, goals, _MAX_PRODUCT)
            return self.program.path(weights, self.span, state, values, None, _MAX_PRODUCT)
        if temperature == 1:
            semiring, weights, _, values, _ = self.totals
        else:
            semiring, weights = _LOG_SUM_PRODUCT, self.weights(temperature, _LOG_SUM_PRODUCT)
            values, _ = self.program.backward(weights, self.span, goals, semiring)
        return self.program.path(weights, self.span, state, values, uniforms, semiring)

    def log_total(self) -> _Floats:
        """(b,) log-probability that the rule is obeyed."""
        semiring, _, _, backward, scale = self.totals
        first = backward[0][np.arange(len(self.rows)), self.rule.state.cpu().numpy()]
        if semiring is _LOG_SUM_PRODUCT:
            return first
        row, column = self.free.nonzero()
        tops = np.zeros(self.free.shape)
        tops[row, column] = self._top(row, column)[:, 0]
        return np.log(first) + scale + tops.sum(-1)
