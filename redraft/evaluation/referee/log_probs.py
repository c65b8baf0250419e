"""Is an estimate of log p, as for RL and preference tuning, unbiased? Its bias, spread, weights and gradient.

The exact value is the probability that the tokens are written one by one in a random order. For the exact denoiser
every order gives p(x). For any other denoiser the ELBO lies below it, so an ELBO is unbiased only for the exact one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from redraft.core.randomness import rng
from redraft.evaluation.referee.arrays import _generator_for, _to_tensor
from redraft.evaluation.referee.calls import (
    _CallSample,
    _copies_per_call,
    _name_of,
    _require_parameters,
    _seen_masks,
    _sequence_calls,
)
from redraft.evaluation.referee.denoisers import _audit_denoisers, _AuditDenoiser
from redraft.evaluation.referee.languages import _audit_languages, _AuditLanguage
from redraft.evaluation.referee.reference import _any_order_probability
from redraft.evaluation.referee.verdict import AuditEffort, Verdict, _Gap

_COPIES = 200  # copies of every sequence in a call that measures a gradient


@dataclass(frozen=True)
class AuditLogProb:
    """An estimate of log p `(x, denoise, rng) → nats per row` under mask noise, to be audited; also a decorator."""

    function: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if self.function is not None:
            _require_parameters(self.function, "an estimate of log p", ("x", "denoise", "rng"), ())

    def __call__(self, function: Callable[..., Any]) -> AuditLogProb:
        return AuditLogProb(function)

    @property
    def name(self) -> str:
        """The name of the function."""
        return _name_of(self.function)

    def verdicts(self, effort: AuditEffort) -> Iterator[Verdict]:
        """Unbiased or not, for the exact denoiser and a blurred one; variance; effective sample size; gradient."""
        assert self.function is not None
        trial = _LogProbTrial.of(self.function, _AuditDenoiser(language := _audit_languages()[1]), effort)
        if trial.unbiased:
            trial = _LogProbTrial.of(self.function, _AuditDenoiser(language := _audit_languages()[2]), effort)
        many = f"{trial.calls:.3g} call{'s' * (trial.calls != 1)} of the denoiser per row"
        yield trial.verdict(self.name)
        text = f"{trial.variance:.3g} nats² per row with {many}; weights exp(estimate − log p) have an effective "
        text += f"sample size of {trial.sample_size:.0%}"
        yield Verdict(self.name, "variance", None, text, trial.variance)
        blurred = next(d for d in _audit_denoisers(language, None) if d.name == "blurred")
        other = _LogProbTrial.of(self.function, blurred, effort)
        text = f"{other.bias} nats for a blurred denoiser, whose log p no ELBO attains ({language.name})"
        yield Verdict(self.name, "bias elsewhere", None, text, other.bias.nats, 0.0, other.bias.error)
        yield self._gradient(language, effort)

    def _gradient(self, language: _AuditLanguage, effort: AuditEffort) -> Verdict:
        """The angle between the mean gradient of a policy objective and the exact one."""
        assert self.function is not None
        denoise = _TrainableDenoiser(language)
        x, advantage = language.toy.sequences, rng(9).normal(len(language.toy.p))[0]
        weight = language.toy.p * (advantage - language.toy.p @ advantage)
        exact = denoise.gradient((weight * _any_order_probability(x, denoise.exact, denoise.states).log()).sum())
        generator, given = _generator_for(self.function, effort.seed)
        halves = []
        for _ in range(8):
            estimates = self.function(given(x.repeat(_COPIES, 1)), denoise, generator)
            if not isinstance(estimates, Tensor) or not estimates.requires_grad:
                return Verdict(
                    self.name, "gradient", None, "not measured: the estimate is no torch tensor with a gradient"
                )
            halves.append(denoise.gradient((weight.repeat(_COPIES) * estimates).sum() / _COPIES))
        one, two = torch.stack(halves[::2]).mean(0), torch.stack(halves[1::2]).mean(0)
        size = float((one * two).sum().clamp(min=1e-30)) ** 0.5  # without the noise of each
        cosine = min(1.0, float((exact * (one + two)).sum()) / 2 / size / float(exact.norm()))
        single = torch.stack([half - (one + two) / 2 for half in halves]).pow(2).sum(-1).mean().sqrt() * _COPIES**0.5
        degrees = float(torch.tensor(cosine).arccos() * 180 / torch.pi)
        text = f"{degrees:.0f}° between its mean and the exact gradient of a policy objective; one draw per row has "
        text += f"{float(single) / size:.2g} times its length as noise"
        return Verdict(self.name, "gradient", None, text, degrees, 0.0)


class _Bias(_Gap):
    """A gap that may be of either sign."""

    @property
    def zero_both(self) -> bool:
        """Whether it is neither above nor below zero beyond doubt."""
        return not (self.negative or self.positive)


@dataclass(frozen=True)
class _LogProbTrial:
    """An estimate on one language with one denoiser."""

    language: str
    bias: _Bias  # mean bias over the language
    worst: _Bias  # bias at the sequence where it is clearest
    precise: bool  # whether the error is small enough for a verdict
    variance: float
    sample_size: float  # effective sample size, as a fraction
    calls: float
    masks: str

    @classmethod
    def of(cls, function: Callable[..., Any], denoise: _AuditDenoiser, effort: AuditEffort) -> _LogProbTrial:
        toy = denoise.language.toy
        log_p = _any_order_probability(toy.sequences, denoise, denoise.states).log()
        denoise.queried, denoise.counts = 0, None
        copies = _copies_per_call(denoise, effort)
        calls, samples = _sequence_calls(function, denoise, effort, copies), list[_CallSample]()
        while True:
            samples += islice(calls, len(samples) or 2 * effort.calls)
            bias, worst = _biases(torch.stack([sample.mean for sample in samples]) - log_p, toy.p)
            rows = len(samples) * copies * len(toy.p)
            if not (bias.zero_both and worst.zero_both) or worst.error <= effort.resolution or 2 * rows > effort.rows:
                break
        queried = denoise.queried
        variance = float((torch.stack([sample.variance for sample in samples]).mean(0) * toy.p).sum())
        return cls(
            denoise.language.name,
            bias,
            worst,
            worst.error <= effort.resolution,
            variance,
            _sample_size(function, denoise, log_p, effort),
            queried / rows,
            _seen_masks(denoise),
        )

    @property
    def unbiased(self) -> bool:
        """Whether neither the mean over the language nor any single sequence shows a bias."""
        return self.bias.zero_both and self.worst.zero_both

    def verdict(self, name: str) -> Verdict:
        """Unbiased or biased, with the clearest evidence."""
        case = self.worst if self.bias.zero_both else self.bias
        where = f"{self.language}, exact denoiser{self.masks}"
        what = "its mean minus log p" if case is self.bias else "its mean minus log p at one sequence"
        text = f"{what} is {case} nats ({where})"
        if self.unbiased and not self.precise:
            text += "; raise the number of rows, or draw more times where the weight is large"
            return Verdict(name, "undecided at this error", False, text, case.nats, 0.0, case.error)
        answer = "unbiased" if self.unbiased else "biased"
        return Verdict(name, answer, self.unbiased, text, case.nats, 0.0, case.error)


def _biases(off: Tensor, p: Tensor) -> tuple[_Bias, _Bias]:
    """(K, N) errors of K calls → the mean bias over the language, and the one of the sequence where it is clearest."""
    each, error = off @ p, off.std(0) / len(off) ** 0.5
    case = int((off.mean(0).abs() / (error + 1e-3)).argmax())
    mean = _Bias(float(each.mean()), float(each.std()) / len(each) ** 0.5)
    return mean, _Bias(float(off.mean(0)[case]), 1.4 * float(error[case]))  # the clearest of many


def _sample_size(function: Callable[..., Any], denoise: _AuditDenoiser, log_p: Tensor, effort: AuditEffort) -> float:
    """The effective sample size of weights exp(estimate − log p), as a fraction."""
    generator, given = _generator_for(function, effort.seed + 1)
    toy = denoise.language.toy
    each = torch.arange(len(toy.p)).repeat(effort.batch // len(toy.p) + 1)
    off = (
        _to_tensor(function(given(toy.sequences[each]), denoise, generator), _name_of(function)).double() - log_p[each]
    )
    weight, p = (off - off.max()).exp(), toy.p[each]
    return float((p * weight).sum() ** 2 / (p * weight**2).sum() / p.sum())


class _TrainableDenoiser(_AuditDenoiser):
    """A blurred denoiser whose table of logits has a gradient."""

    def __init__(self, language: _AuditLanguage) -> None:
        super().__init__(language, name="blurred", change=lambda p: 0.7 * p + 0.3 / language.words)
        self.logits = self.table[..., : self.words].clone().requires_grad_()

    def __call__(self, z: Any, t: Any = None) -> Any:
        if not isinstance(z, Tensor):
            return super().__call__(z, t)
        return self.exact(self._checked(z))

    def exact(self, z: Tensor) -> Tensor:
        """(B, L, V) log-probabilities that depend on the logits where z is masked."""
        index = (z * self._place).sum(-1)
        hidden = torch.nn.functional.pad(self.logits[index].log_softmax(-1), (0, 1), value=-1e6)
        return torch.where((z == self.words)[..., None], hidden, self.table[index])

    def gradient(self, objective: Tensor) -> Tensor:
        """The gradient of a number with respect to the logits, as one vector."""
        (gradient,) = torch.autograd.grad(objective, self.logits)
        return gradient.flatten().double()
