"""A query to a constrained prediction, and the passes over the positions that answer it."""

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
from redraft.decoding.constraints.placement import PlacedRule, PlacedRuleSet

_NO_RULE = -2  # instead of a class: any token may stand here


@dataclass(frozen=True, eq=False)
class _ConstraintQuery:
    """The inner prediction at the positions that were needed, and the positions of interest."""

    marks: PlacedRuleSet
    z: Tensor  # (B, L)
    settled: Tensor  # (B, L) bool: z is x here
    needed: Tensor  # (B, L) bool: M undecided positions
    said: Tensor  # (M, V) log-probabilities there
    where: Tensor  # (B, L) bool: N positions of interest

    @cached_property
    def passes(self) -> tuple[_ForwardBackward, ...]:
        """The rules one by one, each for the rows of interest that it is about."""
        at = torch.full(self.needed.shape, -1, device=self.said.device).masked_scatter(
            self.needed, torch.arange(len(self.said), device=self.said.device)
        )
        asked = self.where.any(-1)
        about = [(part, asked & part.span.any(-1)) for part in self.marks.parts]
        return tuple(self._passes(part, rows, at) for part, rows in about if bool(rows.any()))

    def _passes(self, part: PlacedRule, asked: Tensor, at: Tensor) -> _ForwardBackward:
        rows = asked.nonzero().squeeze(-1)
        if len(rows) == len(self.z):
            return _ForwardBackward(part, self.z, self.settled, at, self.said, rows)
        return _ForwardBackward(part.rows(rows), self.z[rows], self.settled[rows], at[rows], self.said, rows)

    @cached_property
    def _among(self) -> list[tuple[_ForwardBackward, Tensor, _Ints, _Ints]]:
        """Each rule that somebody wants to know about, and where."""
        found = [(each, *each.among(self.where)) for each in self.passes]
        return [one for one in found if len(one[1])]

    def log_x(self) -> Tensor:
        """(N, V) exact marginals: what was said, plus what all texts that obey say of each class."""
        log_x = self.said_there
        for each, index, row, column in self._among:
            if len(index) == len(log_x):
                log_x = each.marginals(row, column).index_select(1, each.class_of).add_(log_x)
            else:
                log_x = log_x.index_add(0, index, each.marginals(row, column).index_select(1, each.class_of))
        return log_x

    @cached_property
    def said_there(self) -> Tensor:
        """(N, V) what was said at the positions of interest; settled ones are certain of their token."""
        wanted = self.where[self.needed]
        if bool(wanted.all()) and not bool((self.where & ~self.needed).any()):
            return self.said
        size = self.said.shape[-1]
        log_x = self.said.new_full((int(self.where.sum()), size), -torch.inf)
        log_x[self.needed[self.where]] = self.said[wanted]
        certain = (~self.needed[self.where]).nonzero().squeeze(-1)
        log_x[certain, self.z[self.where][certain]] = 0.0
        return log_x

    def kinds(self, u: Tensor, temperature: float) -> _Ints:
        """(N,) the classes of a text drawn by u (B, L), or of the likeliest one if the temperature is 0."""
        kinds = np.full(int(self.where.sum()), _NO_RULE)
        for each, index, row, column in self._among:
            kinds[index.numpy()] = each.drawn(u, temperature)[row, column]
        return kinds

    def within(self, kinds: _Ints) -> Tensor:
        """(N, V) what was said of the tokens of the drawn classes; nothing is left of others."""
        log_x, drawn = self.said_there, torch.from_numpy(kinds)[:, None]
        for each, index, _, _ in self._among:
            if len(index) == len(log_x):
                log_x = _restricted(log_x, each.class_of_token == drawn)
            else:
                part = _restricted(log_x[index], each.class_of_token == drawn[index])
                log_x = log_x.index_copy(0, index, part)
        return log_x

    def likeliest(self, kinds: _Ints) -> Tensor:
        """(N,) the likeliest token of each drawn class; of equals the lowest id."""
        if len(self._among) == 1 and len(self._among[0][1]) == len(self.said_there):
            each, index, row, column = self._among[0]
            return each.likeliest(kinds[index.numpy()], row, column).to(self.said.device)
        return self.within(kinds).argmax(-1)

    def log_match(self) -> Tensor:
        """(B,) float64 log-probability that all rules are obeyed."""
        total = torch.zeros(len(self.z), dtype=torch.float64)
        for each in self.passes:
            total[each.rows] += torch.from_numpy(each.log_total())
        return total


def _restricted(log_x: Tensor, own: Tensor) -> Tensor:
    """Only the own tokens; if something else has excluded all of them, as far as it goes they are equal."""
    found = torch.where(own, log_x, -torch.inf)
    lost = found.amax(-1) == -torch.inf
    if bool(lost.any()):
        found[lost] = log_x[lost].clamp(min=-_LOG_PROB_FLOOR).masked_fill(~own[lost], -torch.inf)
    return found


@dataclass(frozen=True, eq=False)
class _ForwardBackward:
    """One rule over some rows: forward and backward totals, on plain numbers, or on logarithms if these run out."""

    marked: PlacedRule
    z: Tensor  # (b, L)
    settled: Tensor  # (b, L) bool
    at: Tensor  # (b, L) which row of `said` tells about a position; −1: none
    said: Tensor  # (M, V)
    rows: Tensor  # (b,) numbers of the rows in the batch

    @property
    def program(self) -> _AutomatonProgram:
        return self.marked.program

    @cached_property
    def span(self) -> _Bools:
        return self.marked.span.cpu().numpy()

    @cached_property
    def free(self) -> _Bools:
        """(b, L) undecided positions of the rule."""
        return self.span & ~self.settled.cpu().numpy()

    @cached_property
    def allowed(self) -> _Bools:
        return self.marked.allowed(self.z, self.settled)

    @cached_property
    def class_of_token(self) -> Tensor:
        return torch.from_numpy(self.program.automaton.class_of)

    @cached_property
    def class_of(self) -> Tensor:
        """(V,) with a class more for tokens that lead nowhere."""
        kinds = self.class_of_token
        return torch.where(kinds < 0, self.program.automaton.classes, kinds)

    @cached_property
    def heard(self) -> tuple[Tensor, Tensor]:
        """What was said of tokens that lead anywhere, and (n, 1) of the likeliest, in the order of `free.nonzero()`."""
        index = self.at[torch.from_numpy(self.free).to(self.at.device)]
        said = self.said.detach().float()
        said = said if len(index) == len(said) and bool((index.diff() == 1).all()) else said[index]
        return self.program.live(said), said.amax(-1, keepdim=True)

    def likeliest(self, kinds: _Ints, row: _Ints, column: _Ints) -> Tensor:
        """(n,) the likeliest token of these classes at these positions; only its own tokens are looked at."""
        live, (order, begin) = self.heard[0].cpu().numpy(), self.program.grouped
        end = np.append(begin[1:], live.shape[1])
        number = (self.free.cumsum() - 1).reshape(self.free.shape)[row, column]
        held = zip(number, begin[kinds], end[kinds], strict=True)
        return torch.from_numpy(order[np.array([lo + live[i, lo:hi].argmax() for i, lo, hi in held], np.int64)])

    def weights(self, temperature: float, algebra: _Semiring) -> _Floats:
        """(b, L, C) what each class weighs at each position; settled positions have one class."""
        weights = np.where(self.allowed, algebra.one, algebra.zero)
        if self.free.any():
            sums = self.program.summed(*self.heard, temperature, algebra)
            weights[self.free] = np.where(self.allowed[self.free], sums, algebra.zero)
        return weights

    @cached_property
    def summed(self) -> tuple[_Semiring, _Floats, _Floats, _Floats, _Floats]:
        """The algebra that will do, (b, L, C) weights, (L + 1, b, S) forward and backward totals, (b,) log-scales."""
        state, goals = self.marked.state.cpu().numpy(), self.marked.goals.cpu().numpy()
        for algebra in (_SUM_PRODUCT, _LOG_SUM_PRODUCT):
            weights = self.weights(1.0, algebra)
            behind, scale = self.program.backward(weights, self.span, goals, algebra)
            ahead = self.program.forward(weights, self.span, state, algebra)
            if algebra is _SUM_PRODUCT and float((ahead * behind).sum(-1).min(initial=1.0)) > _SAFE_LOG_PROB:
                return algebra, weights, ahead, behind, scale
        if not np.isfinite(behind[0][np.arange(len(state)), state]).all():
            raise ValueError("no text obeys the rule beside the tokens written so far; this should never happen")
        return algebra, weights, ahead, behind, scale

    def among(self, where: Tensor) -> tuple[Tensor, Any, Any]:
        """Which of the N positions of interest are free ones of this rule, and their rows (of these) and columns."""
        place = torch.full(where.shape, -1).masked_scatter(where.cpu(), torch.arange(int(where.sum())))[self.rows.cpu()]
        row, column = ((place >= 0) & torch.from_numpy(self.free)).nonzero(as_tuple=True)
        return place[row, column], row.numpy(), column.numpy()

    def marginals(self, row: _Ints, column: _Ints) -> Tensor:
        """(n, C + 1) what is added to log-probabilities of tokens of each class; −∞ for tokens that lead nowhere."""
        algebra, weights, ahead, behind, _ = self.summed
        around = self.program.around(ahead[column, row], behind[column + 1, row], algebra)
        around = np.where(self.allowed[row, column], around, algebra.zero)
        total = algebra.plus.reduce(algebra.times(around, weights[row, column]), axis=-1)[:, None]
        with np.errstate(divide="ignore"):
            added = (
                around - total
                if algebra is _LOG_SUM_PRODUCT
                else np.log(around) - np.log(total) - self._top(row, column)
            )
        added = np.concatenate([added, np.full((len(added), 1), -np.inf)], 1)
        return torch.from_numpy(added).to(self.said)

    def _top(self, row: _Ints, column: _Ints) -> _Floats:
        """(n, 1) plain sums are relative to the likeliest token."""
        tops = np.zeros(self.free.shape)
        tops[self.free] = self.heard[1].squeeze(-1).double().cpu().numpy()
        return tops[row, column][:, None]

    def drawn(self, u: Tensor, temperature: float) -> _Ints:
        """(b, L) classes of a text, drawn with one number for each position, or the likeliest ones."""
        state, goals, numbers = (a.cpu().numpy() for a in (self.marked.state, self.marked.goals, u[self.rows]))
        if temperature == 0:
            weights = self.weights(1.0, _MAX_PRODUCT)
            values, _ = self.program.backward(weights, self.span, goals, _MAX_PRODUCT)
            if not np.isfinite(values[0][np.arange(len(state)), state]).all():  # something else has excluded too much
                weights = self.weights(1.0, _LOG_SUM_PRODUCT)
                values, _ = self.program.backward(weights, self.span, goals, _MAX_PRODUCT)
            return self.program.path(weights, self.span, state, values, None, _MAX_PRODUCT)
        if temperature == 1:
            algebra, weights, _, values, _ = self.summed
        else:
            algebra, weights = _LOG_SUM_PRODUCT, self.weights(temperature, _LOG_SUM_PRODUCT)
            values, _ = self.program.backward(weights, self.span, goals, algebra)
        return self.program.path(weights, self.span, state, values, numbers, algebra)

    def log_total(self) -> _Floats:
        """(b,) log-probability that the rule is obeyed."""
        algebra, _, _, behind, scale = self.summed
        first = behind[0][np.arange(len(self.rows)), self.marked.state.cpu().numpy()]
        if algebra is _LOG_SUM_PRODUCT:
            return first
        row, column = self.free.nonzero()
        tops = np.zeros(self.free.shape)
        tops[row, column] = self._top(row, column)[:, 0]
        return np.log(first) + scale + tops.sum(-1)
