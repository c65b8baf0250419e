"""Is a loss a bound? Its mean over languages of known entropy, for the exact denoiser and for wrong ones.

A loss ℓ(x), averaged over its own noise, bounds −log p(x) of some model if and only if Σ_x exp(−ℓ(x)) ≤ 1 (Kraft).
Then its mean over any language is at least the language's entropy. Both are measured: the mean over the language at
hand, and the sum, which gives the mean over the worst language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from redraft.evaluation.referee.calls import (
    _SCHEDULES,
    _CallSample,
    _copies_per_call,
    _name_of,
    _parameters_of,
    _require_parameters,
    _seen_masks,
    _sequence_calls,
)
from redraft.evaluation.referee.denoisers import _audit_denoisers, _AuditDenoiser, _Marginal
from redraft.evaluation.referee.insertions import _insertion_denoisers, _InsertionDenoiser, _Missing
from redraft.evaluation.referee.languages import _audit_languages, _growing_language, _opening_language
from redraft.evaluation.referee.reference import _reference_loss
from redraft.evaluation.referee.verdict import AuditEffort, Verdict, _Gap

_FEW_COPIES = 2  # of each sequence in a call whose rows share random numbers
_ROWS_OF_A_CALL = 256  # a call costs at least as much as this many rows


@dataclass(frozen=True)
class AuditLoss:
    """A loss or likelihood estimate `(x, denoise, rng) → nats per row`, to be audited; also a decorator.

    `noise` is q_t(z | x) as a function `(t, words)` that returns a table, for any noise but masks. For processes that
    insert tokens `missing` is the probability that a token is missing at time t; `denoise` then also returns the
    number of tokens that it expects in each gap.
    """

    function: Callable[..., Any] | None = None
    noise: _Marginal | None = None
    missing: _Missing | None = None

    def __post_init__(self) -> None:
        if self.noise is not None and self.missing is not None:
            raise ValueError("noise and missing are for different processes; give one of them")
        if self.function is not None:
            _require_parameters(self.function, "a loss", ("x", "denoise", "rng"), ("schedule",))

    def __call__(self, function: Callable[..., Any]) -> AuditLoss:
        return AuditLoss(function, self.noise, self.missing)

    @property
    def name(self) -> str:
        """The name of the function."""
        return _name_of(self.function)

    def verdicts(self, effort: AuditEffort) -> Iterator[Verdict]:
        """Yield whether the loss is a bound and how tight it is, its variance, and whether the schedule matters."""
        assert self.function is not None
        settings = {"schedule": _SCHEDULES["linear"]} if "schedule" in _parameters_of(self.function) else {}
        trials: list[_Trial] = []
        for denoise in self._denoisers():
            trials.append(_measure(self.function, denoise, effort, settings))
            if trials[-1].broken:
                yield _not_a_bound(self.name, trials)
                return
        yield _bound(self.name, trials)
        yield _tightness(self.name, trials)
        if self.noise is None and self.missing is None:
            yield self._variance(trials, effort)
        if settings and self.missing is None:
            yield self._schedules(effort)

    def _denoisers(self) -> Iterator[_AuditDenoiser | _InsertionDenoiser]:
        """Yield the denoisers to try, language by language; of opening sentences, only two under masks, for time."""
        if self.missing is not None:
            yield from _insertion_denoisers(_growing_language(), self.missing)
            return
        for language in _audit_languages():
            yield from _audit_denoisers(language, self.noise)
        if self.noise is None:
            yield from (d for d in _audit_denoisers(_opening_language(), None) if d.name in ("exact", "overconfident"))

    def _variance(self, trials: list[_Trial], effort: AuditEffort) -> Verdict:
        """Compare the variance with that of our estimate at the same number of calls of the denoiser."""
        theirs = next(t for t in trials if t.language == "three words" and t.denoise == "exact")
        calls = max(1, round(theirs.queries))
        denoise = next(d for g in _audit_languages() for d in _audit_denoisers(g, None) if g.name == theirs.language)
        ours = _measure(_reference_loss(calls, effort.seed), denoise, effort, {}).variance
        ratio = f"{theirs.variance / ours:.3g} times ours" if ours > 1e-6 else "ours is zero"
        many = f"{calls} call{'s' * (calls > 1)} of the denoiser per row"
        text = f"{theirs.variance:.3g} nats² per row with {many}, {ratio} ({ours:.3g})"
        return Verdict(self.name, "variance", None, text, theirs.variance, ours)

    def _schedules(self, effort: AuditEffort) -> Verdict:
        """Run with other schedules, on a blurred denoiser, whose bound must not change."""
        assert self.function is not None
        language = _audit_languages()[1]
        denoise = next(d for d in _audit_denoisers(language, self.noise) if d.name == "blurred")
        means = {n: _measure(self.function, denoise, effort, {"schedule": s}).mean for n, s in _SCHEDULES.items()}
        base = means["linear"]
        moved = {n: _Gap(g.nats - base.nats, (g.error**2 + base.error**2) ** 0.5) for n, g in means.items()}
        worst = max((n for n in moved if n != "linear"), key=lambda n: abs(moved[n].nats))
        same = not (moved[worst].negative or moved[worst].positive)
        answer = "the same under every schedule" if same else "depends on the schedule"
        return Verdict(self.name, answer, None, f"{worst} minus linear: {moved[worst]} nats", moved[worst].nats)


@dataclass(frozen=True)
class _Trial:
    """A loss on one language with one denoiser."""

    language: str
    denoise: str
    mean: _Gap  # mean loss minus the entropy
    kraft: _Gap  # −log Σ exp(−ℓ): the mean over the worst language minus its entropy
    variance: float  # variance of one row, averaged over the language
    queries: float  # rows that the denoiser was given, per row of x
    masks: str
    worst: list[int]  # the sequence that falls furthest below −log p

    @property
    def broken(self) -> bool:
        return self.mean.negative or self.kraft.negative

    @property
    def proven(self) -> bool:
        return self.mean.nonnegative and self.kraft.nonnegative

    def __str__(self) -> str:
        return f"{self.language}, {self.denoise} denoiser"


def _measure(
    function: Callable[..., Any],
    denoise: _AuditDenoiser | _InsertionDenoiser,
    effort: AuditEffort,
    settings: dict[str, Any],
) -> _Trial:
    """Call the function until the verdict is clear or the maximum number of rows is reached."""
    toy, before, copies = denoise.language.toy, denoise.queried, _copies_per_call(denoise, effort)
    calls = _sequence_calls(function, denoise, effort, copies, **settings)
    samples = list(islice(calls, effort.calls))
    if _rows_share_numbers(samples, toy.p, copies):
        before, copies = denoise.queried, _FEW_COPIES
        calls = _sequence_calls(function, denoise, effort, copies, **settings)
        samples = list(islice(calls, 8 * effort.calls))
    while True:
        means = torch.stack([sample.mean for sample in samples])  # (K, N)
        mean, kraft = _mean_gap(means, toy.p, toy.entropy, effort), _kraft_gap(means, effort)
        rows = len(samples) * copies * len(toy.p)
        clear = mean.negative or kraft.negative or (mean.precise and mean.nonnegative and kraft.nonnegative)
        if clear or 2 * max(rows, _ROWS_OF_A_CALL * len(samples)) > effort.rows:
            break
        samples += islice(calls, len(samples))
    variance = float((torch.stack([sample.variance for sample in samples]).mean(0) * toy.p).sum())
    off = torch.where(toy.p > 0, means.mean(0) + toy.p.log(), torch.inf)
    return _Trial(
        denoise.language.name,
        denoise.name,
        mean,
        kraft,
        variance,
        (denoise.queried - before) / rows,
        _seen_masks(denoise),
        toy.sequences[int(off.argmin())].tolist(),
    )


def _rows_share_numbers(samples: list[_CallSample], p: Tensor, copies: int) -> bool:
    """Whether calls differ more than they would with independent rows, as with one time for a whole batch."""
    between = torch.stack([sample.mean for sample in samples]) @ p
    within = torch.stack([sample.variance for sample in samples]).mean(0)
    return float(between.var()) > 20 * float((within * p**2).sum()) / copies + 1e-12


def _mean_gap(means: Tensor, p: Tensor, entropy: float, effort: AuditEffort) -> _Gap:
    each = means @ p
    return _Gap(float(each.mean()) - entropy, float(each.std()) / len(each) ** 0.5, effort.resolution)


def _kraft_gap(means: Tensor, effort: AuditEffort) -> _Gap:
    """−log Σ_x exp(−ℓ(x)), with the bias of its estimate removed to second order."""
    loss = means.mean(0)
    weight = (-loss).softmax(0)
    each = means @ weight
    bias = ((means.var(0) * weight).sum() - each.var()) / len(means) / 2
    return _Gap(float(-(-loss).logsumexp(0) + bias), float(each.std()) / len(each) ** 0.5, effort.resolution)


def _not_a_bound(name: str, trials: list[_Trial]) -> Verdict:
    """Return the verdict on a loss that is no bound, with the case that shows it."""
    case = trials[-1]
    if case.mean.negative:
        gap, what = case.mean, "nats between its mean and the entropy"
    else:
        gap, what = case.kraft, "= −log Σ exp(−loss), which is negative for no model's likelihood"
    where = f"({case}; furthest below −log p at x = {case.worst}{case.masks})"
    return Verdict(name, "not a bound", False, f"{gap} {what} {where}", gap.nats, 0.0, gap.error)


def _bound(name: str, trials: list[_Trial]) -> Verdict:
    """Return the verdict on a loss that may be a bound: it is one if every case is clear."""
    case = min(trials, key=lambda t: min(t.mean.nats - t.mean.error, t.kraft.nats - t.kraft.error))
    gap = min(case.mean, case.kraft, key=lambda g: g.nats)
    unclear = [t for t in trials if not t.proven]
    if unclear:
        error = max(max(t.mean.error, t.kraft.error) for t in unclear)
        text = f"{gap} nats ({case}); an error of {error:.3f} is too large: raise the number of rows, or draw more "
        text += "times where the weight is large, since an infinite variance never settles"
        return Verdict(name, "undecided at this error", False, text, gap.nats, 0.0, error)
    languages = len({trial.language for trial in trials})
    many = f"{len({t.denoise for t in trials})} denoisers on {languages} language{'s' * (languages > 1)}"
    return Verdict(name, "a bound", True, f"{many}; smallest margin {gap} nats ({case})", gap.nats, 0.0, gap.error)


def _tightness(name: str, trials: list[_Trial]) -> Verdict:
    """Return whether the best denoiser attains the entropy on every language."""
    best: dict[str, _Trial] = {}
    for trial in trials:
        if trial.denoise in ("exact", "ordinary posterior"):
            best[trial.language] = min(trial, best.get(trial.language, trial), key=lambda t: t.mean.nats)
    case = max(best.values(), key=lambda t: t.mean.nats)
    if case.mean.zero:
        answer = "unbiased and tight for the best denoiser"
    else:
        answer = f"loose by {case.mean.nats:.3g} nats for the best denoiser"
    return Verdict(
        name, answer, None, f"{case.mean} nats above the entropy ({case})", case.mean.nats, 0.0, case.mean.error
    )
