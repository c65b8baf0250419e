"""Remasking: a reverse step that may mask written tokens again (ReMDM, star-shaped diffusion).

All methods of this family are one kernel with a rate σ, the probability that a written token becomes noise again:
σ = 0 is the process itself, σ = 1 − α_s redraws each level from x̂ (the star-shaped process), and rates in between
are ReMDM (Wang et al. 2025). Whatever the rate, z_s given x is distributed as q_s, so any trained model works.
Remasking helps where x̂ is wrong; with the exact x̂ it only adds steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core import ops
from redraft.core.batch import NoisySample
from redraft.core.canvas import Canvas
from redraft.core.prediction import Prediction
from redraft.core.processes.base import TokenProcess, require_times
from redraft.core.processes.interpolating import Interpolating, _MixWeights
from redraft.core.processes.masked import IndependentReveal, Masked, _apply_pick, _reveal_kl
from redraft.core.randomness import Rng
from redraft.core.vocab import Vocab


class _RemaskStep(NamedTuple):
    """A step t → s, the input of a rate; all fields are (B, 1)."""

    s: Tensor
    t: Tensor
    lost: Tensor  # 1 − α_s, the probability that a token is noise at s
    most: Tensor  # σ_max, the largest valid rate


class RemaskRate(ABC):
    """σ, the probability that a written token becomes noise again between t and s."""

    @property
    def blind(self) -> bool:
        """True if the rate ignores the text: only then are the marginals preserved and a bound exists."""
        return True

    @abstractmethod
    def __call__(self, now: _RemaskStep, written: Tensor, confidence: Tensor | None) -> Tensor:
        """(B, 1) or (B, L) σ. written (B, L): tokens that may be remasked; confidence (B, L): of each when drawn."""


def _require_probability(eta: float) -> None:
    if not 0 <= eta <= 1:
        raise ValueError(f"eta={eta}; a probability lies between 0 and 1")


@dataclass(frozen=True)
class CappedRate(RemaskRate):
    """σ = min(η, σ_max)."""

    eta: float = 0.008

    def __post_init__(self) -> None:
        _require_probability(self.eta)

    def __call__(self, now: _RemaskStep, written: Tensor, confidence: Tensor | None) -> Tensor:
        return now.most.clamp(max=self.eta)


@dataclass(frozen=True)
class RescaledRate(RemaskRate):
    """σ = η·σ_max."""

    eta: float = 0.015

    def __post_init__(self) -> None:
        _require_probability(self.eta)

    def __call__(self, now: _RemaskStep, written: Tensor, confidence: Tensor | None) -> Tensor:
        return self.eta * now.most


@dataclass(frozen=True)
class StarRate(RemaskRate):
    """σ = 1 − α_s: the whole text is drawn from x̂ and noised anew (star-shaped; Meshchaninov et al. 2025).

    All levels are independent given x. At early times it destroys structure too often: use it within a `WindowedRate`,
    near the end.
    """

    def __call__(self, now: _RemaskStep, written: Tensor, confidence: Tensor | None) -> Tensor:
        return now.lost


@dataclass(frozen=True)
class ConfidenceRate(RemaskRate):
    """The inner rate, divided among the written tokens of a row by softmax(−ψ), ψ the probability of each when drawn.

    The weights sum to one, so the rate per token shrinks as 1/L. Reveals do not compensate for it: marginals move.
    """

    rate: RemaskRate = RescaledRate(1.0)

    @property
    def blind(self) -> bool:
        return False

    def __call__(self, now: _RemaskStep, written: Tensor, confidence: Tensor | None) -> Tensor:
        psi = torch.zeros_like(written, dtype=now.lost.dtype) if confidence is None else confidence.to(now.lost.dtype)
        weight = (-psi).masked_fill(~written, -torch.inf).softmax(-1).nan_to_num(0.0)  # NaN if nothing is written
        return weight * self.rate(now, written, confidence)


@dataclass(frozen=True)
class WindowedRate(RemaskRate):
    """The inner rate for end_time ≤ t ≤ start_time, and zero before and after."""

    rate: RemaskRate = StarRate()
    start_time: float = 0.55
    end_time: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.end_time <= self.start_time <= 1:
            raise ValueError(
                f"start_time={self.start_time}, end_time={self.end_time}; time falls from 1 to 0: "
                "use 0 <= end_time <= start_time <= 1"
            )

    @property
    def blind(self) -> bool:
        return self.rate.blind

    def __call__(self, now: _RemaskStep, written: Tensor, confidence: Tensor | None) -> Tensor:
        active = (now.t >= self.end_time) & (now.t <= self.start_time)
        return torch.where(active, self.rate(now, written, confidence), 0.0)


@dataclass(frozen=True)
class LoopRate(RemaskRate):
    """σ = min(η, σ_max) while the sampler holds time still (s = t), else 0 (ReMDM's "loop"; see `HoldWarp`)."""

    eta: float = 0.02

    def __post_init__(self) -> None:
        _require_probability(self.eta)

    def __call__(self, now: _RemaskStep, written: Tensor, confidence: Tensor | None) -> Tensor:
        return torch.where(now.s == now.t, now.most.clamp(max=self.eta), 0.0)


@dataclass(frozen=True)
class Remask(TokenProcess):
    """A process with a reverse step that turns written tokens into noise at the rate σ.

    Masks: a visible token becomes the mask with probability σ; a masked one is revealed as x̂ with probability
    (α_s − (1 − σ)·α_t)/(1 − α_t), which compensates for it (ReMDM). σ_max = min(1, (1 − α_s)/α_t).
    Other noise: with probability ρ = σ/(1 − α_s) a token is drawn at s = 0 and noised to s; otherwise the step is
    that of the process. For mask noise and σ ≤ 1 − α_s the two are the same. σ_max = 1 − α_s.

    The bound has a term per step that does not shrink with the step, so there is no continuous-time limit.
    """

    process: Masked | Interpolating
    rate: RemaskRate = CappedRate()

    @property
    def base(self) -> Masked | Interpolating:
        return self.process

    def __post_init__(self) -> None:
        if isinstance(self.process, Interpolating) and self.process.direct:
            raise ValueError("direct=True draws x̂ itself in the last step; remasking needs Bayes' rule: direct=False")
        if isinstance(self.process, Interpolating) and not self.rate.blind:
            raise ValueError(f"{self.rate} needs the confidence of each revealed token; only Masked reveals tokens")

    @property
    def vocab(self) -> Vocab:  # type: ignore[override]
        return self.process.vocab

    def prior(self, canvas: Canvas, *, rng: Rng) -> Canvas:
        return self.process.prior(canvas, rng=rng)

    def prior_kl(self, x: Tensor) -> Tensor:
        return self.process.prior_kl(x)

    def noise(self, x: Tensor, t: Tensor, *, pad: Tensor | None = None, rng: Rng) -> NoisySample:
        return self.process.noise(x, t, pad=pad, rng=rng)

    def step(self, pred: Prediction, canvas: Canvas, s: Tensor, t: Tensor, *, rng: Rng) -> Canvas:
        require_times(canvas.z, s, t)
        if isinstance(self.process, Masked):
            return self._remasked(pred, canvas, s, t, rng)
        return self._renoised(pred, canvas, s, t, rng)

    def nelbo(self, pred: Prediction, noised: NoisySample, s: Tensor | None = None) -> Tensor:
        if s is None:
            raise ValueError(
                "remasking has no continuous-time limit: its bound grows with every step; use Bound(steps=T)"
            )
        if not self.rate.blind:
            raise ValueError(f"{self.rate} depends on the text, so there is no bound; evaluate without remasking")
        where, now = self.undetermined(noised), self._moment(s, noised.t)
        sigma = self.rate(now, where, None)
        if isinstance(self.process, Masked):
            loss = _reveal_kl(pred, where, noised.target, self._reveal_probability(now, sigma))
            return torch.where(where, loss, 0.0)
        return self._kl(self.process, pred, noised, now, sigma)

    def undetermined(self, noised: NoisySample) -> Tensor:
        return self.process.undetermined(noised)

    def evidence(self, z: Tensor, t: Tensor) -> Tensor:
        return self.process.evidence(z, t)

    def marginal(self, t: float) -> Tensor:
        return self.process.marginal(t)

    def transition(self, s: float, t: float) -> Tensor:
        raise ValueError(
            "with remasking z_t depends on x and z_s: there is no transition from z_s alone; use the inner process"
        )

    @property
    def leaves_noise(self) -> bool:
        return self.process.leaves_noise

    @property
    def continuous(self) -> bool:
        return False

    # --- masks ---

    def _remasked(self, pred: Prediction, canvas: Canvas, s: Tensor, t: Tensor, rng: Rng) -> Canvas:
        masked, free, now = canvas.z == self.vocab.masked, ~canvas.fixed, self._moment(s, t)
        sigma = self.rate(now, free & ~masked, canvas.confidence)
        choice = IndependentReveal()(pred, canvas, free & masked, self._reveal_probability(now, sigma), rng=rng)
        *_, for_remasking = rng.split(3)  # the reveal uses the first two: with σ = 0 the text is that of the process
        forgotten = free & ~masked & (for_remasking.uniform(canvas.z.shape[1]) < sigma)
        return _apply_pick(canvas, choice._replace(again=forgotten), self.vocab)

    def _reveal_probability(self, now: _RemaskStep, sigma: Tensor) -> Tensor:
        """(α_s − (1 − σ)·α_t)/(1 − α_t), the probability that a masked token is revealed."""
        keep = self.process.schedule.kept(now.t)
        return self.process.schedule.share(now.s, now.t) + sigma * keep / (1 - keep).clamp(min=1e-300)

    # --- any noise ---

    def _renoised(self, pred: Prediction, canvas: Canvas, s: Tensor, t: Tensor, rng: Rng) -> Canvas:
        *_, for_positions, for_noise = rng.split(5)  # the step uses the first three
        now = self._moment(s, t)
        again = for_positions.uniform(canvas.z.shape[1]) * now.lost < self.rate(now, ~canvas.fixed, canvas.confidence)
        drawn = self.process.step(pred, canvas, torch.where(again, 0.0, s), t, rng=rng)
        return drawn.write(torch.where(again, self.process.noise(drawn.z, s, rng=for_noise).z, drawn.z))

    def _kl(
        self, process: Interpolating, pred: Prediction, noised: NoisySample, now: _RemaskStep, sigma: Tensor
    ) -> Tensor:
        """(B, L) KL of the step given x from the step given x̂, summed over the vocabulary."""
        where = self.undetermined(noised)
        z, again = noised.z[where], (sigma / now.lost.clamp(min=1e-300)).expand_as(where)[where][:, None]
        clean, early, late = (process.mix(u).pick(where) for u in (torch.zeros_like(now.t), now.s, now.t))
        log_x = pred.at(where)
        predicted = log_x.to(late.keep.dtype).exp()
        truth = F.one_hot(noised.target[where], self.vocab.size).to(predicted.dtype)
        q, p = (
            (1 - again) * _posterior(process, x, z, early, late)
            + again * _marginal(process, _posterior(process, x, z, clean, late), early)
            for x in (truth, predicted)
        )
        p = p.clamp(min=torch.finfo(p.dtype).tiny)  # keeps the gradient finite at states that neither reaches
        nats = (torch.xlogy(q, q) - torch.xlogy(q, p)).sum(-1)
        return ops.scatter(nats.to(log_x.dtype), where)

    def _moment(self, s: Tensor, t: Tensor) -> _RemaskStep:
        if isinstance(self.process, Masked):
            lost = 1 - self.process.schedule.kept(s)
            most = (lost / self.process.schedule.kept(t).clamp(min=1e-300)).clamp(max=1)
        else:
            most = lost = 1 - self.process.mix(s).keep
        return _RemaskStep(s, t, lost, most)


def _marginal(process: Interpolating, x: Tensor, mix: _MixWeights) -> Tensor:
    """(N, V) α·x + b"""
    keep, mask, word = (part[:, None] for part in mix)
    if process.vocab.mask is None:
        return keep * x + word
    state = torch.arange(process.vocab.size, device=x.device)
    return keep * x + torch.where(state == process.vocab.mask, mask, word)


def _posterior(process: Interpolating, x: Tensor, z: Tensor, early: _MixWeights, late: _MixWeights) -> Tensor:
    """(N, V) p(z_s | z_t = z, x) by Bayes' rule."""
    here = F.one_hot(z, process.vocab.size).to(x.dtype)
    before, after = (_marginal(process, torch.zeros_like(x), mix).gather(-1, z[:, None]) for mix in (early, late))
    keep = (late.keep / early.keep.clamp(min=1e-300))[:, None]
    p = (keep * here + after - keep * before) * _marginal(process, x, early)
    return p / p.sum(-1, keepdim=True)
