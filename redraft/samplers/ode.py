"""Solvers for Gaussian noise: one loop from noise to x, with another rule for the step from t to s in each.

With y = z/a and ς = s/a the probability flow is dy/dς = ε̂ (Karras et al. 2022): a solver is a way to integrate it, and
a stochastic one adds noise that leaves the marginals as they are. The step to s = 0 gives x̂, as every sampler does.
Scales are computed in float64; the state keeps the precision of the canvas.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft import ops
from redraft.ops import Rng
from redraft.processes.base import Process
from redraft.processes.gaussian import Gaussian, Path, eps_from_x, score_from_x
from redraft.samplers.ancestral import Even, Warp, require_steps
from redraft.samplers.base import instant, start
from redraft.types import Canvas, Denoiser, Mean, Prediction

TINY = 1e-12  # the generative end: the limit t → 0, where zero itself means clean

# --- time grids ---


class Grid(Protocol):
    """Which times a solver stops at."""

    def __call__(self, path: Path, steps: int) -> list[float]:
        """steps + 1 times, which fall from 1 to 0."""
        ...


@dataclass(frozen=True)
class EvenTime:
    """Equal steps of time, unless a `warp` says otherwise."""

    warp: Warp = Even()

    def __call__(self, path: Path, steps: int) -> list[float]:
        return [self.warp(1 - i / steps) for i in range(steps + 1)]


@dataclass(frozen=True)
class EvenLogSnr:
    """Equal steps of log-SNR from end to end, then clean: the limit ρ → ∞ of `Karras`."""

    def __call__(self, path: Path, steps: int) -> list[float]:
        low, high = _log_ratios(path)
        return _down(path, high + _shares(steps) * (low - high))


@dataclass(frozen=True)
class Karras:
    """ς_i = (ς_1^{1/ρ} + i/(n−1)·(ς_0^{1/ρ} − ς_1^{1/ρ}))^ρ from end to end, then clean (Karras et al. 2022, eq. 5)."""

    rho: float = 7.0

    def __post_init__(self) -> None:
        if self.rho <= 0:
            raise ValueError(f"rho={self.rho}; use a power above 0, 7 is usual")

    def __call__(self, path: Path, steps: int) -> list[float]:
        low, high = (math.exp(ratio / self.rho) for ratio in _log_ratios(path))
        return _down(path, self.rho * (high + _shares(steps) * (low - high)).log())


@dataclass(frozen=True)
class Until:
    """Another grid, pressed together so that it ends at `stop` instead of 0: a little noise is left."""

    stop: float = 0.01
    grid: Grid = EvenTime()

    def __post_init__(self) -> None:
        if not 0 < self.stop < 1:
            raise ValueError(f"stop={self.stop}; stop between 0 and 1, or leave Until out to reach 0")

    def __call__(self, path: Path, steps: int) -> list[float]:
        return [self.stop + (1 - self.stop) * t for t in self.grid(path, steps)]


def _log_ratios(path: Path) -> tuple[float, float]:
    """ln ς = ln(s/a) at the clean end and at the noisy one."""
    low, high = (-path.logsnr(torch.tensor([0.0, 1.0], dtype=torch.float64)) / 2).tolist()
    return low, high


def _shares(steps: int) -> Tensor:
    return torch.linspace(0, 1, steps, dtype=torch.float64)


def _down(path: Path, log_ratio: Tensor) -> list[float]:
    """The times of these ln ς, of which the first is that of t = 1; then clean."""
    times: list[float] = path.time(-2 * log_ratio).clamp(TINY, 1).tolist()
    return [1.0, *times[1:], 0.0]


# --- one step ---


class Scales(NamedTuple):
    """a and s of z = a·x + s·ε at some time, numbers in float64."""

    signal: Tensor
    noise: Tensor

    @property
    def level(self) -> float:
        """ℓ = ln(a/s), half the log-SNR; infinite where nothing is noise."""
        return math.log(self.signal / self.noise) if self.noise > 0 else math.inf

    @property
    def ratio(self) -> float:
        """ς = s/a"""
        return float(self.noise / self.signal)


def scales(path: Path, t: float) -> Scales:
    """Those of a path; clean at t = 0."""
    return Scales(*path.scales(number(t)))


def number(t: float) -> Tensor:
    """() float64: scales in full precision leave the state in its own, since torch takes them for scalars."""
    return torch.tensor(t, dtype=torch.float64)


class Said(NamedTuple):
    """What multistep rules remember of the step before."""

    x: Tensor
    h: float


@dataclass(frozen=True)
class Move:
    """A step from t to s: the canvas at t, what is said of x there, and all else that a rule may ask."""

    denoise: Denoiser
    path: Path
    canvas: Canvas
    t: float
    s: float
    rng: Rng
    before: Said | None = None
    last: bool = False

    @cached_property
    def pred(self) -> Prediction:
        return self._said(self.canvas, self.t)

    @cached_property
    def x(self) -> Tensor:
        """x̂ at (z, t)"""
        return self.pred.x.to(self.z.dtype)

    @property
    def z(self) -> Tensor:
        return self.canvas.z

    @cached_property
    def at(self) -> Scales:
        """Those of t."""
        return scales(self.path, self.t)

    @cached_property
    def to(self) -> Scales:
        """Those of s."""
        return scales(self.path, self.s)

    @property
    def h(self) -> float:
        """ℓ_s − ℓ_t; infinite for the step to s = 0"""
        return self.to.level - self.at.level

    @property
    def eps(self) -> Tensor:
        """ε̂ at (z, t)"""
        return eps_from_x(self.x, self.z, *self.at)

    def ask(self, z: Tensor, t: float) -> Tensor:
        """x̂ at another point; what was said before (self-conditioning) stays as it is within a step."""
        return self._said(self.canvas.write(z), t).x.to(z.dtype)

    def noise(self, rng: Rng) -> Tensor:
        return ops.normal_like(self.z, rng)

    def _said(self, canvas: Canvas, t: float) -> Prediction:
        return self.denoise(canvas.z, canvas.time(instant(canvas, t)), canvas.context)


Rule = Callable[[Move], Tensor]  # what stands at s


def walk(
    rule: Rule, times: list[float], denoise: Denoiser, path: Path, canvas: Canvas, *, rng: Rng
) -> Iterator[Canvas]:
    """The loop of all solvers, from the first time to the last; each canvas keeps x̂ as the hint of the next step."""
    before: Said | None = None
    for i, (t, s) in enumerate(pairwise(times)):
        with torch.no_grad():
            move = Move(denoise, path, canvas, t, s, rng.fold(i), before, last=i == len(times) - 2)
            canvas = canvas.write(rule(move), hint=move.x)
            before = Said(move.x, move.h)
        yield canvas


def gaussian(process: Process) -> Gaussian:
    """The door: solvers know vectors alone."""
    if not isinstance(process, Gaussian):
        raise ValueError(f"solvers know Gaussian noise only, not {type(process).__name__}; use Ancestral(steps)")
    return process


# --- solvers ---


@dataclass(frozen=True)
class Solver(ABC):
    """`steps` steps on a time grid, by the rule `step`; every subclass is final."""

    steps: int = 64
    grid: Grid = EvenTime()

    def __post_init__(self) -> None:
        require_steps(self.steps)

    @abstractmethod
    def step(self, move: Move) -> Tensor:
        """z_s"""

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        return self.run(self.step, denoise, process, canvas, rng=rng)

    def run(self, rule: Rule, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        """From noise to x by another rule, on the times of this solver."""
        path = gaussian(process).path
        canvas = start(denoise, process, canvas, rng=rng.fold(self.steps))
        yield canvas
        yield from walk(rule, self.grid(path, self.steps), denoise, path, canvas, rng=rng)


@dataclass(frozen=True)
class Ddim(Solver):
    """z_s = a_s·x̂ + √(s_s² − σ²)·ε̂ + σ·n with σ = η·s_s·√(1 − SNR_t/SNR_s) (Song et al. 2021, eq. 12).

    η = 0 is the probability flow by Euler steps in (y, ς), first order; η = 1 is ancestral sampling with the variance
    of the posterior, `Small`, whatever that of the process.
    """

    eta: float = 0.0

    def __post_init__(self) -> None:
        require_steps(self.steps)
        if not 0 <= self.eta <= 1:
            raise ValueError(f"eta={self.eta}; use 0 (no noise) to 1 (that of ancestral sampling)")

    def step(self, move: Move) -> Tensor:
        mean, spread = self.law(move)
        return mean + spread * move.noise(move.rng) if self.eta else mean

    def law(self, move: Move) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of z_s."""
        signal, noise = move.to
        share = -(self.eta**2) * math.expm1(-2 * move.h)
        return signal * move.x + noise * math.sqrt(1 - share) * move.eps, noise * math.sqrt(share)


@dataclass(frozen=True)
class OdeEuler(Solver):
    """z_s = z + (s − t)·dz/dt with dz/dt = a'·x̂ + s'·ε̂: the probability flow in time, as flow matching solves it.

    First order. On a straight path it is the same as `Ddim`; on others `Ddim` is better, since it follows the scales.
    """

    def step(self, move: Move) -> Tensor:
        if move.s == 0:
            return move.x
        signal, noise = move.path.slopes(number(move.t))
        return move.z + (move.s - move.t) * (signal * move.x + noise * move.eps)


@dataclass(frozen=True)
class Heun(Solver):
    """The trapezoid rule for dy/dς = ε̂: second order, two network calls a step (Karras et al. 2022, algorithm 1)."""

    def step(self, move: Move) -> Tensor:
        signal, noise = move.to
        z = signal * move.x + noise * move.eps
        if move.s == 0:
            return z
        bend = eps_from_x(move.ask(z, move.s), z, *move.to) - move.eps
        return z + signal * (move.to.ratio - move.at.ratio) / 2 * bend


@dataclass(frozen=True)
class DpmPP(Solver):
    """DPM-Solver++(2M): z_s = (s_s/s_t)·z − a_s·expm1(−h)·D, D being x̂ extrapolated from two steps (Lu et al. 2022).

    Second order for one network call a step; first order at the first step, and at the one to s = 0, where h = ∞.
    """

    def step(self, move: Move) -> Tensor:
        signal, noise = move.to
        return noise / move.at.noise * move.z - signal * math.expm1(-move.h) * extrapolated(move)


@dataclass(frozen=True)
class DpmPPSde(Solver):
    """2M-SDE: z_s = (s_s/s_t)·e^{−h}·z + a_s·(1 − e^{−2h})·D + s_s·√(1 − e^{−2h})·n, D as of `DpmPP` (Lu et al. 2022).

    With D = x̂ it would be ancestral sampling; D removes most of its error, too little spread within modes.
    """

    def step(self, move: Move) -> Tensor:
        signal, noise = move.to
        share = -math.expm1(-2 * move.h)
        mean = noise / move.at.noise * math.exp(-move.h) * move.z + signal * share * extrapolated(move)
        return mean + noise * math.sqrt(share) * move.noise(move.rng)


def extrapolated(move: Move) -> Tensor:
    """D = x̂ + (x̂ − x̂ of the step before)·h/(2·h of the step before): x̂ in the middle of the step, if it goes on so."""
    if move.before is None or move.s == 0 or move.before.h == 0:  # h = 0: a schedule that stands still at its end
        return move.x
    return move.x + move.h / (2 * move.before.h) * (move.x - move.before.x)


@dataclass(frozen=True)
class EulerMaruyama(Solver):
    """The reverse SDE dz = (f·z − g²·∇log q)dt + g dw by Euler steps; the last one without noise (Song et al. 2021).

    Coefficients are those of t, and may be singular at 0: it stops before (TEncDM at 0.01).
    """

    grid: Grid = Until(0.01)

    def step(self, move: Move) -> Tensor:
        t, dt = number(move.t), move.t - move.s
        drift, diffusion = move.path.drift(t), move.path.diffusion(t)
        mean = move.z + dt * (diffusion * score_from_x(move.x, move.z, *move.at) - drift * move.z)
        return mean if move.last else mean + (diffusion * dt).sqrt() * move.noise(move.rng)


# --- Langevin dynamics ---


@dataclass(frozen=True)
class Langevin(Solver):
    """Annealed: `inner` steps z + δ/2·∇log q + √δ·n at each noise level, δ = rate·s² (Song & Ermon 2019); then x̂.

    Biased by the size of its steps and by incomplete mixing: for comparison, never as the reference.
    """

    grid: Grid = EvenLogSnr()
    inner: int = 10
    rate: float = 0.1

    def __post_init__(self) -> None:
        require_steps(self.steps)
        if self.inner < 1 or self.rate <= 0:
            raise ValueError(f"inner={self.inner}, rate={self.rate}; use one inner step or more, and a rate above 0")

    def step(self, move: Move) -> Tensor:
        z, x = move.z, move.x
        for k in range(self.inner):
            z = diffused(z, x, move.at, self.rate * move.at.noise**2, move.noise(move.rng.fold(k)))
            if move.s == 0 or k < self.inner - 1:
                x = move.ask(z, move.t)
        return x if move.s == 0 else z


@dataclass(frozen=True)
class PredictorCorrector:
    """A step of another solver, then `corrections` Langevin steps at the new time (Song et al. 2021, algorithm 4).

    e = 2(r·‖n‖/‖∇log q‖)² for z + e·∇log q + √(2e)·n, norms over the places of a row that are being written.
    """

    predictor: Solver = Ddim(eta=1.0)
    corrections: int = 1
    ratio: float = 0.16

    def __post_init__(self) -> None:
        if self.corrections < 0 or self.ratio <= 0:
            raise ValueError(f"corrections={self.corrections}, ratio={self.ratio}; use 0 or more, and a ratio above 0")

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        return self.predictor.run(self.step, denoise, process, canvas, rng=rng)

    def step(self, move: Move) -> Tensor:
        z = self.predictor.step(move)
        for k in range(self.corrections if move.s else 0):
            x, noise = move.ask(z, move.s), move.noise(move.rng.fold(k))
            length = _norm(score_from_x(x, z, *move.to), move.canvas)
            z = diffused(z, x, move.to, (2 * self.ratio * _norm(noise, move.canvas) / length) ** 2, noise)
        return z


def diffused(z: Tensor, x: Tensor, at: Scales, delta: float | Tensor, noise: Tensor) -> Tensor:
    """A Langevin step z + δ/2·∇log q + √δ·n."""
    return z + delta / 2 * score_from_x(x, z, *at) + delta**0.5 * noise


def _norm(vectors: Tensor, canvas: Canvas) -> Tensor:
    """(B, 1, 1) over what is being written; 1 where nothing is."""
    square = vectors.square().masked_fill(canvas.fixed[..., None], 0).sum((1, 2), keepdim=True)
    return torch.where(square > 0, square, 1.0).sqrt()


# --- renoising ---


class Projection(Protocol):
    """What is taken for x, given what the network says."""

    def __call__(self, pred: Prediction, *, rng: Rng) -> Tensor:
        """(B, N, D)"""
        ...


@dataclass(frozen=True)
class Average:
    """x̂ itself."""

    def __call__(self, pred: Prediction, *, rng: Rng) -> Tensor:
        return pred.x


@dataclass(frozen=True)
class Greedy:
    """The corner of the likeliest token."""

    def __call__(self, pred: Prediction, *, rng: Rng) -> Tensor:
        return _corners(pred, token_weights(pred).argmax(-1))


@dataclass(frozen=True)
class Sampled:
    """The corner of a token that is drawn from the nucleus; from all of them with top_p = 1."""

    top_p: float = 1.0

    def __post_init__(self) -> None:
        require_share(self.top_p)

    def __call__(self, pred: Prediction, *, rng: Rng) -> Tensor:
        log_p = token_weights(pred)
        allowed = log_p.masked_fill(~ops.nucleus(log_p, self.top_p), -torch.inf)
        tokens = ops.draw(allowed.flatten(0, 1), rng.uniform(log_p.shape[1]).flatten())
        return _corners(pred, tokens.view(log_p.shape[:2]))


@dataclass(frozen=True)
class MultiHot:
    """1 for every token of the nucleus, −1 for the others."""

    top_p: float = 0.9

    def __post_init__(self) -> None:
        require_share(self.top_p)

    def __call__(self, pred: Prediction, *, rng: Rng) -> Tensor:
        log_p = token_weights(pred)
        if isinstance(pred, Mean) and pred.table is not None:
            raise ValueError("MultiHot is a point of the simplex; tokens with vectors of their own need Sampled")
        return 2 * ops.nucleus(log_p, self.top_p).to(log_p.dtype) - 1


def token_weights(pred: Prediction) -> Tensor:
    """(B, N, V) log-weights of tokens, of a network that names them."""
    if not isinstance(pred, Mean) or pred.log_weights is None:
        raise ValueError("this network names no tokens to project to; use Renoise(project=Average()), or Ddim")
    return pred.log_weights


def _corners(pred: Prediction, tokens: Tensor) -> Tensor:
    """(B, N) → (B, N, D) the vectors of tokens: ±1 on the simplex"""
    log_p = token_weights(pred)
    table = pred.table if isinstance(pred, Mean) else None
    return 2 * F.one_hot(tokens, log_p.shape[-1]).to(log_p.dtype) - 1 if table is None else F.embedding(tokens, table)


def require_share(top_p: float) -> None:
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p={top_p}; the nucleus is a share of the probability, above 0 and at most 1")


@dataclass(frozen=True)
class Renoise(Solver):
    """z_s = a_s·project(x̂) + s_s·n: each step guesses x and noises it anew (SSD-LM; Han et al. 2023).

    It keeps the marginals only if the projection is a draw of x given z: `Sampled`. With the mean or the likeliest
    token frequent tokens become ever more frequent.
    """

    project: Projection = Sampled()

    def step(self, move: Move) -> Tensor:
        (signal, noise), (what, new) = move.to, move.rng.split(2)
        return signal * self.project(move.pred, rng=what).to(move.z.dtype) + noise * move.noise(new)


# --- the way back, and the likelihood ---


def climb(
    denoise: Denoiser, process: Process, canvas: Canvas, *, steps: int, rng: Rng
) -> Iterator[tuple[float, Canvas]]:
    """The probability flow from x to noise: times and canvases from the clean end to t = 1, by Heun's rule.

    Equal steps of log-SNR. There is no hint on the way: the flow is a function of z and t alone.
    """
    path = gaussian(process).path
    times = EvenLogSnr()(path, steps + 1)[-2::-1]
    canvas = canvas.write(scales(path, times[0]).signal * canvas.z)
    yield times[0], canvas
    for t, s in pairwise(times):
        with torch.no_grad():
            canvas = canvas.write(Heun().step(Move(denoise, path, canvas, t, s, rng)))
        yield s, canvas


def log_likelihood(
    denoise: Denoiser, process: Process, canvas: Canvas, *, steps: int, rng: Rng, exact: bool = False
) -> Tensor:
    """(B,) nats log p(x) of the vectors on a canvas, given its fixed places, under the probability flow; float64.

    log p(y_0) = log p(y_1) + ∫ div(dy/dς) dς, where the divergence is (n − tr ∂x̂/∂y)/ς for n coordinates (Song et al.
    2021, eq. 39). The trace is exact (n passes backwards: for tiny n), or vᵀJv with one v ∈ {±1}ⁿ for the whole way
    (Hutchinson). It is the density of z/a at the clean end, with the noise that is left there; and a density of vectors
    is no likelihood of tokens.
    """
    path, free = gaussian(process).path, ~canvas.fixed[..., None]
    probes = free * (_coordinates(canvas.z) if exact else ops.sign_like(canvas.z, rng)[None])
    count = free.expand_as(canvas.z).sum((1, 2)).to(ops.wide(canvas.z.device))
    rates, log_ratios = [], []
    for t, there in climb(denoise, process, canvas, steps=steps, rng=rng):
        at = scales(path, t)
        rates.append(count - at.signal * _trace(denoise, there, t, probes))
        log_ratios.append(-at.level)
    flow = torch.trapezoid(torch.stack(rates), count.new_tensor(log_ratios), dim=0)
    end = (there.z.to(count.dtype) / path.prior_std).square() / 2 + math.log(path.prior_std * math.sqrt(2 * math.pi))
    return flow - (free * end).sum((1, 2)) + count * math.log(at.signal)


def _trace(denoise: Denoiser, canvas: Canvas, t: float, probes: Tensor) -> Tensor:
    """(B,) Σ_v vᵀ(∂x̂/∂z)v over the probes (P, B, N, D)."""
    with torch.enable_grad():
        z = canvas.z.detach().requires_grad_()
        x = denoise(z, canvas.time(instant(canvas, t)), canvas.context).x
        pulled = (torch.autograd.grad(x, z, v, retain_graph=True)[0] for v in probes.to(x.dtype))
        return torch.stack([(g * v).sum((1, 2)) for g, v in zip(pulled, probes, strict=True)]).sum(0)


def _coordinates(z: Tensor) -> Tensor:
    """(N·D, B, N, D) the unit vectors."""
    _, N, D = z.shape
    return torch.eye(N * D, dtype=z.dtype, device=z.device).view(N * D, 1, N, D).expand(-1, *z.shape)
