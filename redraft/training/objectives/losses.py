"""Loss terms: the bound, plain cross-entropy, squared error, and their weights."""

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
    """A loss, evaluated at drawn noise times."""

    def grid(self, t: Tensor) -> NoiseTimes:
        """Maps drawn times to the noise times this term needs; unchanged by default."""
        return NoiseTimes(t)

    @abstractmethod
    def __call__(self, process: Process, pred: Prediction, noised: NoisySample, times: NoiseTimes) -> Tensor:
        """(B, L) nats; (B, L + 1) for processes with gaps, where the last entry is the gap at the end"""


class BoundWeight(ABC):
    """A training weight that replaces the bound's own weight, which is unbounded at both ends of time."""

    @abstractmethod
    def __call__(self, process: Process, noised: NoisySample) -> Tensor:
        """(B, L) factor on the bound; zero where the bound's own weight is zero"""


@dataclass(frozen=True)
class ClippedWeight(BoundWeight):
    """Clips the bound's weight for interpolating noise, (rate into z)/q_t(z | x), to [low, high] (GIDD's "clip")."""

    low: float = 0.0
    high: float = 2.0

    def __post_init__(self) -> None:
        require_range(self, 0, math.inf, "low", "high")

    def __call__(self, process: Process, noised: NoisySample) -> Tensor:
        w = _interpolating(process).weight(noised)
        return torch.where(w > 0, w.clamp(self.low, self.high) / w, 0.0)


@dataclass(frozen=True)
class DynamicWeight(BoundWeight):
    """w relative to the weight of a uniform-noise token, at most `high` (GIDD's "dynamic", its default).

    For γ = 1: 2 for the mask, 1 for uniform noise, (c/K)/(1 − t + c/K) for an unchanged token. The released code uses
    another factor for unchanged tokens, which hardly depends on t; this is the ratio of the bound's own weights.
    """

    high: float = 2.0

    def __post_init__(self) -> None:
        require_range(self, 0, math.inf, "high")

    def __call__(self, process: Process, noised: NoisySample) -> Tensor:
        process = _interpolating(process)
        w, rate, mix = process.weight(noised), process.rate(noised.t), process.mix(noised.t)
        if float(process.mixing.mix(torch.tensor(0.5), process.words).word) == 0:
            raise ValueError(
                "DynamicWeight() needs HybridNoise with p_u > 0; for pure mask noise use TokenCrossEntropy()"
            )
        uniform = rate.word / (rate.keep * mix.word)
        return torch.where(w > 0, (w / uniform).clamp(max=self.high) / w, 0.0)


def _interpolating(process: Process) -> Interpolating:
    return process.narrowed(Interpolating, "this weight", "leave it out")


@dataclass(frozen=True)
class Bound(LossTerm):
    """The negative evidence lower bound: in continuous time, or for T = `steps` steps (one is drawn, weighted by T).

    `steps=1` goes from noise to text in one step: with a causal network this is exactly the autoregressive likelihood.
    With a `weight` it is no longer a bound, but may learn faster; evaluate without it.
    """

    steps: int | None = None  # T, the number of steps; None for continuous time
    weight: BoundWeight | None = None  # a weight that replaces the bound's own; None to keep that

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps={self.steps}; a chain has at least one step (None for continuous time)")
        if self.steps is not None and self.weight is not None:
            raise ValueError(
                "weight replaces the weight of the continuous-time bound; leave out either steps or weight"
            )

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

    power 0 is plain masked cross-entropy, which learns faster at small scale. power 1 is LLaDA's loss; for mask noise
    with the linear schedule it equals `Bound`. For insertion it adds −log p(g), where g is the number of tokens missing
    in each gap. With uniform noise its optimum differs from that of the bound: x̂ learns to trust a visible token, which
    Bayes' rule then counts twice, so train uniform noise with `Bound`. Always evaluate with `Bound`.
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
    """The weight of the squared error as a function of the log signal-to-noise ratio λ."""

    @abstractmethod
    def __call__(self, logsnr: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class ConstantWeight(SnrWeight):
    """Weight 1: the plain squared error of x (Diffusion-LM, DiffuSeq, GENIE, TEncDM)."""

    def __call__(self, logsnr: Tensor) -> Tensor:
        return torch.ones_like(logsnr)


@dataclass(frozen=True)
class OffsetSnrWeight(SnrWeight):
    """SNR + `offset`. Offset 0 is the squared error of ε (DDPM; score matching with λ(t) = s²), 1 that of v (LD4TG)."""

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
    """w(λ_t)·mean_D (x − x̂)²: every squared-error loss of Gaussian diffusion has this form, with some weight.

    ‖ε − ε̂‖² = SNR·‖x − x̂‖², ‖v − v̂‖² = (SNR + 1)·‖x − x̂‖²; score matching with λ(t) = g² is twice `Bound`.
    """

    weight: SnrWeight = ConstantWeight()

    def __call__(self, process: Process, pred: Prediction, noised: NoisySample, times: NoiseTimes) -> Tensor:
        process = process.narrowed(Gaussian, "SquaredError", "use TokenCrossEntropy or Bound")
        weight = self.weight(process.path.logsnr(noised.t)).float()
        error = (noised.target - pred.x).square().mean(-1)
        return torch.where(process.undetermined(noised), weight * error, 0.0)


@dataclass(frozen=True)
class SumOfTerms(LossTerm):
    """loss + factor·extra at the same times.

    D3PM's hybrid L_vb + λ·E[−log x̂[x]] is SumOfTerms(Bound(T), TokenCrossEntropy(), λT). The factor is λT because
    D3PM's code adds λ·CE to the KL of one drawn step, and the bound here is T times that KL.
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
