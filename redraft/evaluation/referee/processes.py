"""Is a noising process consistent? Tables are distributions that compose, start clean and forget; draws fit them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from redraft.evaluation.laws.law import P_MIN, chi_square
from redraft.evaluation.referee.arrays import _generator_for, _to_tensor
from redraft.evaluation.referee.calls import _name_of, _require_parameters
from redraft.evaluation.referee.denoisers import _Marginal
from redraft.evaluation.referee.verdict import AuditEffort, Verdict

_WORDS, _TIMES, _EXACT = 3, (0.1, 0.4, 0.7, 0.95), 1e-5


@dataclass(frozen=True)
class AuditProcess:
    """A noising process to be audited, as functions that return tables of 3 words and V ids, or V = 4 with a mask.

    A table has a row per clean token (the transition: per token at time s) and a column per noisy token.
    """

    marginal: _Marginal  # (t, words) → (words or V, V) q_t(z | x)
    transition: Callable[..., Any] | None = None  # (s, t, words) → (V, V) q(z_t | z_s)
    posterior: Callable[..., Any] | None = None  # (s, t, words) → (words, V, V) q(z_s | z_t, x), by x, z_t and z_s
    draw: Callable[..., Any] | None = None  # (x, t, rng) → z, both (B,); t is a number
    name: str = "process"

    def __post_init__(self) -> None:
        _require_parameters(self.marginal, "a marginal", ("t", "words"), ())
        for function in filter(None, (self.transition, self.posterior)):
            _require_parameters(function, "a transition or posterior", ("s", "t", "words"), ())
        if self.draw is not None:
            _require_parameters(self.draw, "a draw of noise", ("x", "t", "rng"), ())

    def verdicts(self, effort: AuditEffort) -> Iterator[Verdict]:
        """Yield one verdict per property of the given functions."""
        tables = {t: self._marginal(t) for t in _TIMES}
        yield self._near("rows are distributions", max(_distance(q) for q in tables.values()))
        yield self._near(
            "clean at t = 0", float((self._marginal(0.0) - torch.eye(_WORDS, tables[0.1].shape[1])).abs().max())
        )
        end = self._marginal(1.0)
        spread = float((end - end.mean(0)).abs().max())
        text = f"rows of its table differ by {spread:.2g}; above 0 a bound needs a prior term"
        answer = "forgets x at t = 1" if spread < _EXACT else "does not forget x at t = 1"
        yield Verdict(self.name, answer, None, text, spread)
        if self.transition is not None:
            yield from self._transitions(tables)
        if self.posterior is not None:
            yield self._posteriors(tables)
        if self.draw is not None:
            yield self._draws(tables, effort)

    def _marginal(self, t: float) -> Tensor:
        return _table(self.marginal(t, _WORDS), self.marginal)[:_WORDS]

    def _transition(self, s: float, t: float) -> Tensor:
        assert self.transition is not None
        return _table(self.transition(s, t, _WORDS), self.transition)

    def _transitions(self, tables: dict[float, Tensor]) -> Iterator[Verdict]:
        steps = {(s, t): self._transition(s, t) for s, t in pairwise(_TIMES)}
        yield self._near("rows of the transition are distributions", max(_distance(q) for q in steps.values()))
        gap = max(float((tables[s] @ q - tables[t]).abs().max()) for (s, t), q in steps.items())
        yield self._near("marginal = marginal · transition", gap)

    def _posteriors(self, tables: dict[float, Tensor]) -> Verdict:
        assert self.posterior is not None
        worst = 0.0
        for s, t in pairwise(_TIMES):
            posterior = _to_tensor(self.posterior(s, t, _WORDS), _name_of(self.posterior)).double()
            joint = tables[s][:, None] * self._transition(s, t).T[None]  # (x, z_t, z_s)
            likely = joint.sum(-1) > 0
            if posterior.shape != joint.shape:
                raise ValueError(f"posterior returned shape {tuple(posterior.shape)}; it must be {tuple(joint.shape)}")
            bayes = joint / joint.sum(-1, keepdim=True)
            worst = max(worst, float((posterior - bayes)[likely].abs().max()))
        return self._near("posterior = Bayes' rule", worst)

    def _draws(self, tables: dict[float, Tensor], effort: AuditEffort) -> Verdict:
        assert self.draw is not None
        generator, given = _generator_for(self.draw, effort.seed)
        p_value = 1.0
        for t, q in tables.items():
            for word in range(_WORDS):
                z = _to_tensor(self.draw(given(torch.full((effort.draws,), word)), t, generator), "z").long().flatten()
                known = bool(((z >= 0) & (z < q.shape[1])).all())
                p_value = min(p_value, chi_square(z, q[word]) if known else 0.0)
        text = f"smallest χ² p = {p_value:.2g} at {len(tables)} times"
        answer = "draws match the marginal" if p_value >= P_MIN else "draws do not match the marginal"
        return Verdict(self.name, answer, p_value >= P_MIN, text, p_value=p_value)

    def _near(self, claim: str, gap: float) -> Verdict:
        answer = claim if gap <= _EXACT else f"not so: {claim}"
        return Verdict(self.name, answer, gap <= _EXACT, f"largest difference {gap:.2g}", gap, 0.0)


def _table(result: Any, function: Callable[..., Any]) -> Tensor:
    table = _to_tensor(result, _name_of(function)).double()
    if table.dim() != 2 or table.shape[0] < _WORDS or table.shape[1] not in (_WORDS, _WORDS + 1):
        raise ValueError(
            f"{_name_of(function)} returned shape {tuple(table.shape)}; for {_WORDS} words it must be a table with "
            f"{_WORDS} or {_WORDS + 1} columns"
        )
    return table


def _distance(q: Tensor) -> float:
    """Return how far rows are from being distributions."""
    return max(float((q.sum(-1) - 1).abs().max()), float((-q).clamp(min=0).max()))
