"""Is a sampler exact? Its texts against the joint distribution: a χ² test and the total variation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from redraft.evaluation.laws.law import P_MIN, chi_square
from redraft.evaluation.referee.arrays import _generator_for, _to_tensor
from redraft.evaluation.referee.calls import _SCHEDULES, _name_of, _parameters_of, _require_parameters
from redraft.evaluation.referee.denoisers import _AuditDenoiser, _Marginal
from redraft.evaluation.referee.insertions import _InsertionDenoiser, _Missing
from redraft.evaluation.referee.languages import _audit_languages, _growing_language
from redraft.evaluation.referee.verdict import AuditEffort, Verdict

_MANY = 512  # steps at which a sampler that converges must have converged
_DOUBTFUL = 0.02  # a smaller p-value is tested again, with four times as many texts
_CALLS = 4_000  # maximum number of calls of a sampler, which may write one text per call


@dataclass(frozen=True)
class AuditSampler:
    """A sampler `(denoise, length, rng) → x`, one row or many, to be audited; also a decorator.

    It may also take `rows` (how many texts to write), `steps` (the audit then tries several) and `schedule`. `noise`
    and `missing` are those of `AuditLoss`; a sampler that inserts tokens ends its rows with `denoise.pad`.
    """

    function: Callable[..., Any] | None = None
    noise: _Marginal | None = None
    missing: _Missing | None = None

    def __post_init__(self) -> None:
        if self.function is not None:
            extra = ("rows", "steps", "schedule")
            _require_parameters(self.function, "a sampler", ("denoise", "length", "rng"), extra)

    def __call__(self, function: Callable[..., Any]) -> AuditSampler:
        return AuditSampler(function, self.noise, self.missing)

    @property
    def name(self) -> str:
        """The name of the function."""
        return _name_of(self.function)

    def verdicts(self, effort: AuditEffort) -> Iterator[Verdict]:
        """Yield whether the sampler is exact; if it takes `steps`, also its results at 1, 4, 16, L and many steps."""
        assert self.function is not None
        takes, failed = _parameters_of(self.function), []
        for denoise in self._denoisers():
            trials = list(self._trials(denoise, takes, effort))
            yield from (trial.information(self.name) for trial in trials if trial.setting)
            # a sampler is exact if it converges as steps grow, or if it is exact with one token per step
            if not any(trial.p_value >= P_MIN for trial in trials if trial.decides):
                failed.append(max((trial for trial in trials if trial.decides), key=lambda trial: trial.p_value))
            best = max((trial for trial in trials if trial.decides), key=lambda trial: trial.p_value)
        case = failed[0] if failed else best
        at = f" at {case.setting}" if case.setting else ""
        answer = "not exact" if failed else f"exact{at}"
        text = f"{case.evidence}{at if failed else ''} ({case.language})"
        yield Verdict(self.name, answer, not failed, text, case.variation, case.chance, None, case.p_value)

    def _denoisers(self) -> Iterator[_AuditDenoiser | _InsertionDenoiser]:
        """Yield the exact denoiser of every language to write."""
        if self.missing is not None:
            yield _InsertionDenoiser(_growing_language(), self.missing)
        else:
            yield from (_AuditDenoiser(language, self.noise) for language in _audit_languages()[1:3])

    def _trials(
        self, denoise: _AuditDenoiser | _InsertionDenoiser, takes: tuple[str, ...], effort: AuditEffort
    ) -> Iterator[_SampleTrial]:
        """Try the sampler with each number of steps and each schedule it can take, at least once."""
        length = denoise.length
        schedule = {"schedule": _SCHEDULES["linear"]} if "schedule" in takes else {}
        many = sorted({1, 4, 16, length, _MANY}) if "steps" in takes else [None]
        for steps in many:
            setting = "" if steps is None else f"{steps} step{'s' * (steps > 1)}"
            given = {**schedule, **({} if steps is None else {"steps": steps})}
            try:
                yield self._trial(denoise, given, setting, steps in (None, length, _MANY), effort)
            except (ArithmeticError, AssertionError, RuntimeError, ValueError):
                if steps is None or steps <= length:  # a sampler may refuse to take more steps than there are tokens
                    raise
        for name, other in _SCHEDULES.items() if schedule else ():
            if name != "linear":
                given = {"schedule": other, **({"steps": _MANY} if "steps" in takes else {})}
                yield self._trial(denoise, given, f"schedule {name}", False, effort)

    def _trial(
        self,
        denoise: _AuditDenoiser | _InsertionDenoiser,
        given: dict[str, Any],
        setting: str,
        decides: bool,
        effort: AuditEffort,
    ) -> _SampleTrial:
        draws = effort.draws // 10 if "steps" in given else effort.draws
        trial = self._draw_and_test(denoise, given, setting, decides, replace(effort, draws=draws))
        if decides and P_MIN <= trial.p_value < _DOUBTFUL:
            more = replace(effort, draws=4 * draws, seed=effort.seed + 1)
            trial = self._draw_and_test(denoise, given, setting, decides, more)
        return trial

    def _draw_and_test(
        self,
        denoise: _AuditDenoiser | _InsertionDenoiser,
        given: dict[str, Any],
        setting: str,
        decides: bool,
        effort: AuditEffort,
    ) -> _SampleTrial:
        assert self.function is not None
        language = denoise.language
        x = _drawn(self.function, denoise, given, effort)
        count, p = len(language.toy.p), language.toy.p
        index = language.index(x)
        frequencies = torch.bincount(index, minlength=count + 1).double() / len(index)
        variation = float((frequencies[:count] - p).abs().sum() + frequencies[count]) / 2
        chance = float((p * (1 - p) / len(index) * 2 / torch.pi).sqrt().sum()) / 2
        p_value = chi_square(index, torch.cat([p, torch.zeros(1, dtype=p.dtype)]))
        return _SampleTrial(
            language.name, setting, decides, variation, chance, p_value, float(frequencies[count]), len(index)
        )


def _drawn(
    function: Callable[..., Any],
    denoise: _AuditDenoiser | _InsertionDenoiser,
    given: dict[str, Any],
    effort: AuditEffort,
) -> Tensor:
    """Draw (n, L) texts with as many calls as needed."""
    generator, _ = _generator_for(function, effort.seed)
    rows = {"rows": effort.draws} if "rows" in _parameters_of(function) else {}
    texts: list[Tensor] = []
    length = denoise.length
    while sum(len(text) for text in texts) < effort.draws and len(texts) < _CALLS:
        x = _to_tensor(function(denoise, length, generator, **rows, **given), f"the result of {_name_of(function)}")
        if x.is_floating_point() or x.dim() not in (1, 2) or x.shape[-1] != length or not x.numel():
            raise ValueError(
                f"{_name_of(function)} returned {x.dtype} of shape {tuple(x.shape)}; it must be ids of shape "
                f"({length},), or (B, {length}) for B texts"
            )
        texts.append(x.long().view(-1, length))
    return torch.cat(texts)


@dataclass(frozen=True)
class _SampleTrial:
    """The result of a sampler on one language with one setting."""

    language: str
    setting: str
    decides: bool
    variation: float  # total variation
    chance: float  # total variation that an exact sampler would show
    p_value: float
    outside: float  # fraction of texts that are not in the language
    draws: int

    @property
    def evidence(self) -> str:
        """The measurements, in words."""
        text = f"χ² p = {self.p_value:.2g}, total variation {self.variation:.3f} ({self.chance:.3f} by chance)"
        outside = f", {self.outside:.1%} of texts still have masks or unknown ids" if self.outside else ""
        return f"{text}, {self.draws:,} texts{outside}"

    def information(self, name: str) -> Verdict:
        """Return a verdict that reports this trial and neither passes nor fails."""
        text = f"{self.evidence} ({self.language})"
        return Verdict(name, self.setting, None, text, self.variation, self.chance, None, self.p_value)
