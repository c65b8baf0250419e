"""Gaussian noise on vectors: variance preserving, variance exploding, and straight paths.

z = a(t)·x + s(t)·ε with ε ~ N(0, I). All that matters is the log-SNR λ = ln(a²/s²): posterior and bound compare it at
two times (Kingma et al. 2021, "VDM"). t = 0 means exactly clean, as for prompts; generation ends at the limit t → 0,
where the log-SNR is finite and a little noise remains.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.core.batch import NoisySample
from redraft.core.canvas import Canvas
from redraft.core.ops import widest_float
from redraft.core.prediction import Prediction
from redraft.core.processes.base import Process, require_vectors
from redraft.core.randomness import Rng, normal_like
from redraft.core.schedules.base import Schedule
from redraft.core.schedules.tokens import CosineSquared
from redraft.core.schedules.transforms import ClampedLogSnr
from redraft.core.vocab import Vocab

# --- parameterizations: given z and the scales a, s, each prediction determines the others ---


def x_from_eps(eps: Tensor, z: Tensor, a: Tensor, s: Tensor) -> Tensor:
    """x = (z − s·ε)/a"""
    return (z - s * eps) / a


def eps_from_x(x: Tensor, z: Tensor, a: Tensor, s: Tensor) -> Tensor:
    """ε = (z − a·x)/s"""
    return (z - a * x) / s


def x_from_v(v: Tensor, z: Tensor, a: Tensor, s: Tensor) -> Tensor:
    """x = (a·z − s·v)/(a² + s²); the denominator is 1 where variance is preserved (Salimans & Ho 2022)."""
    return (a * z - s * v) / (a**2 + s**2)


def v_from_x(x: Tensor, z: Tensor, a: Tensor, s: Tensor) -> Tensor:
    """v = a·ε − s·x"""
    return a * eps_from_x(x, z, a, s) - s * x


def x_from_score(score: Tensor, z: Tensor, a: Tensor, s: Tensor) -> Tensor:
    """x = (z + s²·S)/a (Tweedie)"""
    return (z + s**2 * score) / a


def score_from_x(x: Tensor, z: Tensor, a: Tensor, s: Tensor) -> Tensor:
    """S = ∇ log q_t(z) = (a·x − z)/s² = −ε/s"""
    return (a * x - z) / s**2


# --- noise paths ---


class NoisePath(ABC):
    """The scales of z = a(t)·x + s(t)·ε, elementwise in t, in the widest float; log-SNR is finite and decreases."""

    @abstractmethod
    def signal(self, t: Tensor) -> Tensor:
        """a(t); at 0 the limit t → 0"""

    @abstractmethod
    def noise(self, t: Tensor) -> Tensor:
        """s(t); at 0 the limit t → 0, above zero"""

    @abstractmethod
    def time(self, logsnr: Tensor) -> Tensor:
        """The inverse of `logsnr`."""

    @property
    @abstractmethod
    def prior_std(self) -> float:
        """Standard deviation of the noise at which sampling starts."""

    def scales(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """(a, s), and (1, 0) at t = 0: clean by definition (prompts), whatever noise remains as t → 0."""
        return torch.where(t == 0, 1.0, self.signal(t)), torch.where(t == 0, 0.0, self.noise(t))

    def logsnr(self, t: Tensor) -> Tensor:
        """λ = ln(a²/s²); at 0 the limit t → 0, which is finite."""
        return 2 * (self.signal(t).log() - self.noise(t).log())

    def slopes(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """(da/dt, ds/dt), by forward-mode differentiation (which works in inference mode too)."""
        t = _wide(t)
        return torch.func.jvp(lambda u: (self.signal(u), self.noise(u)), (t,), (torch.ones_like(t),))[1]

    def logsnr_slope(self, t: Tensor) -> Tensor:
        """dλ/dt, which is never positive."""
        t = _wide(t)
        return torch.func.jvp(self.logsnr, (t,), (torch.ones_like(t),))[1]

    def drift(self, t: Tensor) -> Tensor:
        """f = d ln a/dt of the forward SDE dz = f·z dt + g dw (Song et al. 2021)."""
        return self.slopes(t)[0] / self.signal(t)

    @property
    def noisiest(self) -> float:
        """The log-SNR at t = 1, where generation starts."""
        return float(self.logsnr(torch.ones(1, 1)))

    def ending(self, logsnr: float) -> NoisePath:
        """This path with generation ending at the given log-SNR."""
        raise ValueError(f"{type(self).__name__} cannot end at another log-SNR; use VariancePreserving")

    def diffusion(self, t: Tensor) -> Tensor:
        """g² = −s²·dλ/dt = ds²/dt − 2f·s² of the forward SDE."""
        return -(self.noise(t) ** 2) * self.logsnr_slope(t)


@dataclass(frozen=True)
class VariancePreserving(NoisePath):
    """Variance preserving: a² = keep, s² = 1 − keep (Ho et al. 2020); a schedule with exact ends must be clamped."""

    schedule: Schedule = ClampedLogSnr(CosineSquared())

    def __post_init__(self) -> None:
        start, end = self.schedule.start, self.schedule.end
        if not 0 < end < start < 1:
            raise ValueError(
                f"Gaussian noise needs a finite log-SNR at both ends; {self.schedule} falls from {start} to {end}: "
                "use ClampedLogSnr(schedule)"
            )

    def ending(self, logsnr: float) -> VariancePreserving:
        if logsnr <= self.noisiest:
            raise ValueError(
                f"noise cannot end at a log-SNR of {logsnr:g}: it starts at {self.noisiest:g}; choose a higher one"
            )
        return VariancePreserving(ClampedLogSnr(self.schedule, self.noisiest, logsnr))

    def signal(self, t: Tensor) -> Tensor:
        return self.schedule.keep(_wide(t)).sqrt()

    def noise(self, t: Tensor) -> Tensor:
        return (1 - self.schedule.keep(_wide(t))).sqrt()

    def time(self, logsnr: Tensor) -> Tensor:
        return self.schedule.inverse(_wide(logsnr).sigmoid())

    @property
    def prior_std(self) -> float:
        return 1.0


@dataclass(frozen=True)
class VarianceExploding(NoisePath):
    """Variance exploding: a = 1, s = low^(1−t)·high^t (Song et al. 2021); `high` must be much larger than the data."""

    low: float = 0.01
    high: float = 50.0

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high:
            raise ValueError(f"low={self.low}, high={self.high}; noise rises: use 0 < low < high")

    def signal(self, t: Tensor) -> Tensor:
        return torch.ones_like(_wide(t))

    def noise(self, t: Tensor) -> Tensor:
        return self.low * (self.high / self.low) ** _wide(t)

    def time(self, logsnr: Tensor) -> Tensor:
        return (-_wide(logsnr) / 2 - math.log(self.low)) / math.log(self.high / self.low)

    @property
    def prior_std(self) -> float:
        return self.high


@dataclass(frozen=True)
class StraightPath(NoisePath):
    """The straight line from x to ε, a = 1 − s, s = low + t·(high − low): flow matching (Lipman et al. 2023).

    With low = 0 and high = 1 it would be a = 1 − t, s = t, whose log-SNR is infinite at both ends.
    """

    low: float = 1e-3
    high: float = 1 - 1e-3

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high < 1:
            raise ValueError(f"low={self.low}, high={self.high}; noise rises along the path: use 0 < low < high < 1")

    def signal(self, t: Tensor) -> Tensor:
        return 1 - self.noise(t)

    def noise(self, t: Tensor) -> Tensor:
        return self.low + (self.high - self.low) * _wide(t)

    def time(self, logsnr: Tensor) -> Tensor:
        return ((-_wide(logsnr) / 2).sigmoid() - self.low) / (self.high - self.low)

    @property
    def prior_std(self) -> float:
        return self.high


# --- variance of a reverse step ---


class ReverseVariance(ABC):
    """σ² of p(z_s | z_t), between the posterior's c·s_s² (right for a known x) and c·s_t² (right for x ~ N(0, I))."""

    bound_converges = False  # whether the bound has a limit as the number of steps grows

    @abstractmethod
    def excess(self, pred: Prediction, widest: Tensor) -> Tensor:
        """ln(σ²/(c·s_s²)), from 0 to `widest` = ln(s_t²/s_s²)."""


@dataclass(frozen=True)
class PosteriorVariance(ReverseVariance):
    """The posterior variance c·s_s²: the only one whose bound converges as the number of steps grows."""

    bound_converges = True

    def excess(self, pred: Prediction, widest: Tensor) -> Tensor:
        return torch.zeros_like(widest)


@dataclass(frozen=True)
class ForwardVariance(ReverseVariance):
    """The forward variance c·s_t², β_t in DDPM's notation."""

    def excess(self, pred: Prediction, widest: Tensor) -> Tensor:
        return widest


@dataclass(frozen=True)
class LearnedVariance(ReverseVariance):
    """Learned: the network interpolates between the logarithms of both (Nichol & Dhariwal 2021, eq. 15)."""

    def excess(self, pred: Prediction, widest: Tensor) -> Tensor:
        if pred.vectors is None or pred.vectors.spread is None:
            raise ValueError(
                "a learned variance needs a head that predicts it (WithVariance); or use PosteriorVariance"
            )
        return pred.vectors.spread * widest


# --- the process ---


@dataclass(frozen=True)
class Gaussian(Process):
    """q_t(z | x) = N(a_t·x, s_t²), each coordinate independently.

    Bayes: q(z_s | z_t, x) = N((1 − c)(a_s/a_t)·z_t + c·a_s·x, c·s_s²), c = 1 − SNR_t/SNR_s; a step plugs x̂ in.
    Bound: −log p(w) ≤ KL(q_1 ‖ prior) + E[−log p(w | z_0)] + ½∫ −SNR'(t)·‖x − x̂‖² dt, where z_0 is the limit t → 0;
    over T steps Σ ½(SNR_s − SNR_t)·‖x − x̂‖² (VDM, eqs. 11–15). The middle term, the reconstruction, is the codec's.
    """

    vocab: Vocab
    path: NoisePath = VariancePreserving()
    variance: ReverseVariance = PosteriorVariance()
    title = "Gaussian noise"
    vectors = True

    def logsnr(self, t: Tensor) -> Tensor:
        return self.path.logsnr(t)

    def prior(self, canvas: Canvas, *, rng: Rng) -> Canvas:
        require_vectors(canvas.z)
        return canvas.write((self.path.prior_std * normal_like(canvas.z, rng)).to(canvas.z.dtype))

    def prior_kl(self, x: Tensor) -> Tensor:
        """KL(N(a·x, s²) ‖ N(0, σ²)) = ½Σ((a·x)² + s²)/σ² − 1 − ln(s²/σ²) over the coordinates, at t = 1."""
        require_vectors(x)
        end = torch.ones((), device=x.device)
        a, s = (scale / self.path.prior_std for scale in self.path.scales(end))
        return ((a * x).square() + s**2 - 1 - 2 * s.log()).sum(-1).to(x.dtype) / 2

    def noise(self, x: Tensor, t: Tensor, *, pad: Tensor | None = None, rng: Rng) -> NoisySample:
        require_vectors(x, t)
        level = t if pad is None else t.expand(x.shape[:2]).masked_fill(pad, 0)
        a, s = self.path.scales(level[..., None])
        return NoisySample((a * x + s * normal_like(x, rng)).to(x.dtype), t, x, pad)

    def at_unit_variance(self, z: Tensor, t: Tensor) -> Tensor:
        """z as networks read it: divided by √(a² + s²), its standard deviation if x has unit variance."""
        a, s = self.path.scales(t)
        return z / (a.square() + s.square()).sqrt().float()[..., None]

    def posterior(self, x: Tensor, z: Tensor, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (B, N, D) and variance (B, N, 1) of q(z_s | z_t, x), float64; at s = 0 it is x itself.

        Uses c = −expm1(λ_t − λ_s), which does not cancel.
        """
        s, t = s[..., None], t[..., None]
        (a_s, noise_s), (a_t, _) = self.path.scales(s), self.path.scales(t)
        c = self._x_weight(s, t)
        return (1 - c) * (a_s / a_t) * z + c * a_s * x, c * noise_s**2

    def transition(self, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Factor and variance of q(z_t | z_s) = N((a_t/a_s)·z_s, s_t² − (a_t/a_s)²·s_s²), in the shape of the times."""
        (a_s, _), (a_t, noise_t) = self.path.scales(s), self.path.scales(t)
        return a_t / a_s, self._x_weight(s, t) * noise_t**2

    def reverse(self, pred: Prediction, z: Tensor, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of p(z_s | z_t): the posterior at x̂, with its variance scaled by `variance`."""
        mean, least = self.posterior(pred.x, z, s, t)
        return mean, least * self.variance.excess(pred, self._widest(s, t)).exp()

    def step(self, pred: Prediction, canvas: Canvas, s: Tensor, t: Tensor, *, rng: Rng) -> Canvas:
        require_vectors(canvas.z, s, t)
        mean, variance = self.reverse(pred, canvas.z, s, t)
        z = mean + variance.sqrt() * normal_like(canvas.z, rng)
        return canvas.write(z.to(canvas.z.dtype), previous=pred.x)

    def nelbo(self, pred: Prediction, noised: NoisySample, s: Tensor | None = None) -> Tensor:
        error = (noised.target - pred.x).square()
        nats = self._rate(noised.t) * error if s is None else self._kl(pred, error, s, noised.t)
        return torch.where(self.undetermined(noised), nats.sum(-1).to(error.dtype), 0.0)

    def undetermined(self, noised: NoisySample) -> Tensor:
        where = (noised.t > 0).expand(noised.z.shape[:2])
        return where if noised.pad is None else where & ~noised.pad

    @property
    def continuous(self) -> bool:
        return self.variance.bound_converges

    @property
    def leaves_noise(self) -> bool:
        return True

    def _rate(self, t: Tensor) -> Tensor:
        """½·−dSNR/dt = −½·SNR·dλ/dt"""
        if not self.continuous:
            raise ValueError(
                f"the bound with {self.variance} has no continuous-time limit; use Bound(steps=T) or PosteriorVariance"
            )
        t = t[..., None]
        return -self.path.logsnr(t).exp() * self.path.logsnr_slope(t) / 2

    def _kl(self, pred: Prediction, error: Tensor, s: Tensor, t: Tensor) -> Tensor:
        """KL(q(z_s | z_t, x) ‖ p(z_s | z_t)) = ½((SNR_s − SNR_t)·(x − x̂)²/r + 1/r − 1 + ln r).

        r is the ratio of the variances. Here s = 0 is the limit t → 0, where the log-SNR is finite.
        """
        excess = self.variance.excess(pred, self._widest(s, t))
        s, t = s[..., None], t[..., None]
        gain = self.path.logsnr(s).exp() - self.path.logsnr(t).exp()
        return (gain * (-excess).exp() * error + (-excess).expm1() + excess) / 2

    def _x_weight(self, s: Tensor, t: Tensor) -> Tensor:
        """c = 1 − SNR_t/SNR_s: the weight of x̂ in the step; 1 if s is clean."""
        return torch.where(s == 0, 1.0, -(self.path.logsnr(t) - self.path.logsnr(s)).expm1())

    def _widest(self, s: Tensor, t: Tensor) -> Tensor:
        """(…, 1) ln(s_t²/s_s²), finite even for the step to s = 0."""
        return 2 * (self.path.noise(t[..., None]).log() - self.path.noise(s[..., None]).log())


def _wide(t: Tensor) -> Tensor:
    return t.to(widest_float(t.device))
