"""Terms of a loss: the bound, plain cross-entropy, squared error, and their weights."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core.batch import NoiseTimes, NoisySample
from redraft.core.prediction import Prediction
from redraft.core.processes.base import Process
from redraft.core.processes.gaussian import Gaussian
from redraft.core.processes.interpolating import Interpolating
from redraft.core.vocab import ABOVE_ZERO, FINITE, require_range


class LossTerm(ABC):
    """What is minimised at the drawn times."""

    def grid(self, t: Tensor) -> NoiseTimes:
        """Drawn times → those that the term needs; by default the same."""
        return NoiseTimes(t)

    @abstractmethod
    def __call__(self, process: Process, pred: Prediction, noised: NoisySample, times: NoiseTimes) -> Tensor:
        """(B, L) nats; with gaps (B, L + 1), the last one at the end"""


class BoundWeight(ABC):
    """A weight to train with instead of the bound's own, which grows without limit at both ends of time."""

    @abstractmethod
    def __call__(self, process: Process, noised: NoisySample) -> Tensor:
        """(B, L) the factor on the bound; zero where the bound is zero."""


@dataclass(frozen=True)
class ClippedWeight(BoundWeight):
    """w = r_t[z]/q_t(z | x) of interpolating noise, held within [low, high] (GIDD's "clip")."""

    low: float = 0.0
    high: float = 2.0

    def __post_init__(self) -> None:
        require_range(self, 0, math.inf, "low", "high")

    def __call__(self, process: Process, noised: NoisySample) -> Tensor:
        w = _interpolating(process).weight(noised)
        return torch.where(w > 0, w.clamp(self.low, self.high) / w, 0.0)


@dataclass(frozen=True)
class DynamicWeight(BoundWeight):
    """w relative to that of a token of uniform noise, at most `high` (GIDD's "dynamic", its default).

    For γ = 1: 2 for the mask, 1 for uniform noise, (c/K)/(1 − t + c/K) for a token that is still itself. The released
    code has another factor for the last, which hardly depends on t; this is the ratio of the bound's own weights.
    """

    high: float = 2.0

    def __post_init__(self) -> None:
        require_range(self, 0, math.inf, "high")

    def __call__(self, process: Process, noised: NoisySample) -> Tensor:
        process = _interpolating(process)
        w, rate, mix = process.weight(noised), process.rate(noised.t), process.mix(noised.t)
        if float(process.mixing.mix(torch.tensor(0.5), process.words).word) == 0:
            raise ValueError("Dynamic() needs uniform noise, a Hybrid with p_u > 0; for mask noise use Recover()")
        even = rate.word / (rate.keep * mix.word)
        return torch.where(w > 0, (w / even).clamp(max=self.high) / w, 0.0)


def _interpolating(process: Process) -> Interpolating:
    if not isinstance(process, Interpolating):
        raise ValueError(f"this weight is that of Interpolating noise; for {type(process).__name__} leave it out")
    return process


@dataclass(frozen=True)
class Bound(LossTerm):
    """The negative evidence lower bound: in continuous time, or of a chain of `steps` steps (one of them drawn, ×T).

    `steps=1` takes the whole way at once: with a causal network exactly the autoregressive likelihood. With a `weight`
    it is no longer a bound, but may learn faster; evaluate without.
    """

    steps: int | None = None
    weight: BoundWeight | None = None

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps={self.steps}; a chain has at least one step (None: continuous time)")
        if self.steps is not None and self.weight is not None:
            raise ValueError("a weight changes the bound in continuous time; leave out steps, or weight")

    def grid(self, t: Tensor) -> NoiseTimes:
        if self.steps is None:
            return NoiseTimes(t)
        index = (t * self.steps).ceil().clamp(min=1)
        return NoiseTimes(index / self.steps, (index - 1) / self.steps, float(self.steps))

    def __call__(self, process: Process, pred: Prediction, noised: NoisySample, times: NoiseTimes) -> Tensor:
        nats = times.weight * process.nelbo(pred, noised, times.s)
        return nats if self.weight is None else nats * self.weight(process, noised).float()


@dataclass(frozen=True)
class TokenCrossEntropy(LossTerm):
    """−log x̂[x] wherever z does not determine x, weighted by t^(−power).

    power 0 is plain masked cross-entropy, which learns faster at small scale; power 1 is LLaDA's loss, for mask noise
    with the linear schedule the same as `Bound`. For insertion it adds −log p(g), g the tokens missing in each gap.
    With uniform noise it has another optimum than the bound: it teaches x̂ to trust a visible token, which Bayes' rule
    then counts twice; train such noise with `Bound`. However you train, evaluate with `Bound`.
    """

    power: float = 0.0

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "power")

    def __call__(self, process: Process, pred: Prediction, noised: NoisySample, times: NoiseTimes) -> Tensor:
        where = process.undetermined(noised)
        weight = noised.t.float() ** -self.power if self.power else 1.0
        loss = torch.where(where, weight * pred.nll(where, noised.target), 0.0)
        if noised.gaps is None or noised.open is None:
            return loss
        return F.pad(loss, (0, 1)) + torch.where(noised.open, weight * pred.gaps.nll(noised.gaps), 0.0)


class SnrWeight(ABC):
    """The weight of the squared error at a noise level, by its log signal-to-noise ratio λ."""

    @abstractmethod
    def __call__(self, logsnr: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class ConstantWeight(SnrWeight):
    """1: the plain error of x (Diffusion-LM, DiffuSeq, GENIE, TEncDM)."""

    def __call__(self, logsnr: Tensor) -> Tensor:
        return torch.ones_like(logsnr)


@dataclass(frozen=True)
class OffsetSnrWeight(SnrWeight):
    """SNR + `offset`: offset 0 is the plain error of ε (DDPM; score matching with λ(t) = s²), 1 that of v (LD4TG)."""

    offset: float = 0.0

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "offset")

    def __call__(self, logsnr: Tensor) -> Tensor:
        return logsnr.exp() + self.offset


@dataclass(frozen=True)
class MinSnrWeight(SnrWeight):
    """min(SNR, most) (Hang et al. 2023)."""

    most: float = 5.0

    def __post_init__(self) -> None:
        require_range(self, ABOVE_ZERO, math.inf, "most")

    def __call__(self, logsnr: Tensor) -> Tensor:
        return logsnr.exp().clamp(max=self.most)


@dataclass(frozen=True)
class P2Weight(SnrWeight):
    """SNR/(k + SNR)^p (Choi et al. 2022); k = p = 1 is a_t² of variance-preserving noise (PLANNER)."""

    k: float = 1.0
    power: float = 1.0

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "k", "power")

    def __call__(self, logsnr: Tensor) -> Tensor:
        snr = logsnr.exp()
        return snr / (self.k + snr) ** self.power


@dataclass(frozen=True)
class SquaredError(LossTerm):
    """w(λ_t)·mean_D (x − x̂)²: every loss of Gaussian diffusion is this, with some weight.

    ‖ε − ε̂‖² = SNR·‖x − x̂‖², ‖v − v̂‖² = (SNR + 1)·‖x − x̂‖²; score matching with λ(t) = g² is twice `Bound`.
    """

    weight: SnrWeight = ConstantWeight()

    def __call__(self, process: Process, pred: Prediction, noised: NoisySample, times: NoiseTimes) -> Tensor:
        if not isinstance(process, Gaussian):
            raise ValueError(f"Match is the squared error of vectors; {type(process).__name__} needs Recover or Bound")
        weight = self.weight(process.path.logsnr(noised.t)).float()
        error = (noised.target - pred.x).square().mean(-1)
        return torch.where(process.undetermined(noised), weight * error, 0.0)


@dataclass(frozen=True)
class SumOfTerms(LossTerm):
    """loss + factor·extra at the same times: D3PM's hybrid L_vb + λ·E[−log x̂[x]] as Sum(Bound(T), Recover(), λT).

    The factor is λT since D3PM's code adds λ to the KL of one drawn step, and the bound here is T times that KL.
    """

    loss: LossTerm
    extra: LossTerm
    factor: float = 1.0

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "factor")

    def grid(self, t: Tensor) -> NoiseTimes:
        return self.loss.grid(t)

    def __call__(self, process: Process, pred: Prediction, noised: NoisySample, times: NoiseTimes) -> Tensor:
        return self.loss(process, pred, noised, times) + self.factor * self.extra(process, pred, noised, times)
