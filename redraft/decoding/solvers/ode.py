"""Solvers for Gaussian noise: one loop from noise to x, with a rule per solver for the step from t to s.

With y = z/a and ς = s/a the probability flow is dy/dς = ε̂ (Karras et al. 2022). Solvers integrate it; stochastic ones
add noise that leaves the marginals unchanged. The step to s = 0 returns x̂ (`Renoise`: its projection). Scales are
computed in float64; the state keeps the precision of the canvas.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.processes.gaussian import Gaussian, eps_from_x
from redraft.core.randomness import Rng
from redraft.decoding.samplers.base import Sampler, initial_canvas, require_steps, start_time
from redraft.decoding.solvers.grids import NoiseGrid, UniformTimeGrid
from redraft.decoding.solvers.step import (
    SolverStep,
    _extrapolate_midpoint,
    _float64_scalar,
    _StepRule,
    run_steps,
)


@dataclass(frozen=True)
class Solver(Sampler):
    """A sampler that takes `steps` steps on a time grid. Subclasses define `step` and are final."""

    steps: int = 64
    grid: NoiseGrid = UniformTimeGrid()
    writes_once = draws_exactly = False  # vectors are not written one by one

    def __post_init__(self) -> None:
        require_steps(self.steps)

    @abstractmethod
    def step(self, step: SolverStep) -> Tensor:
        """Return z_s."""

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        return self.run(self.step, denoise, process, canvas, rng=rng)

    def run(
        self, rule: _StepRule, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng
    ) -> Iterator[Canvas]:
        """Sample with another step rule at the times of this solver."""
        path = process.narrowed(Gaussian, "a solver", "use Ancestral(steps)").path
        canvas = initial_canvas(denoise, process, canvas, rng=rng.fold(self.steps))
        yield canvas
        times = [start_time(canvas) * t for t in self.grid(path, self.steps)]
        yield from run_steps(rule, times, denoise, path, canvas, rng=rng)


@dataclass(frozen=True)
class Ddim(Solver):
    """DDIM: z_s = a_s·x̂ + √(s_s² − σ²)·ε̂ + σ·n with σ = η·s_s·√(1 − SNR_t/SNR_s) (Song et al. 2021, eq. 12).

    η = 0 takes first-order Euler steps of the probability flow in (y, ς). η = 1 is ancestral sampling with the
    posterior variance (`PosteriorVariance`), whatever reverse variance the process has.
    """

    eta: float = 0.0

    def __post_init__(self) -> None:
        require_steps(self.steps)
        if not 0 <= self.eta <= 1:
            raise ValueError(f"eta={self.eta}; use a number from 0 (no noise) to 1 (as much as ancestral sampling)")

    def step(self, step: SolverStep) -> Tensor:
        mean, std = self.moments(step)
        return mean + std * step.noise(step.rng) if self.eta else mean

    def moments(self, step: SolverStep) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of z_s."""
        signal, noise = step.scales_s
        fresh = -(self.eta**2) * math.expm1(-2 * step.h)  # fraction of the noise variance that is drawn anew
        return signal * step.x + noise * math.sqrt(1 - fresh) * step.eps, noise * math.sqrt(fresh)


@dataclass(frozen=True)
class OdeEuler(Solver):
    """z_s = z + (s − t)·dz/dt with dz/dt = a'·x̂ + s'·ε̂: Euler steps of the probability flow in time (flow matching).

    First order. On a straight path it equals `Ddim`; on others `Ddim` is more accurate, since it uses the exact scales.
    """

    def step(self, step: SolverStep) -> Tensor:
        if step.s == 0:
            return step.x
        signal, noise = step.path.slopes(_float64_scalar(step.t))
        return step.z + (step.s - step.t) * (signal * step.x + noise * step.eps)


@dataclass(frozen=True)
class Heun(Solver):
    """Heun's method for dy/dς = ε̂: second order, two network calls per step (Karras et al. 2022, algorithm 1)."""

    def step(self, step: SolverStep) -> Tensor:
        signal, noise = step.scales_s
        z = signal * step.x + noise * step.eps
        if step.s == 0:
            return z
        change = eps_from_x(step.predict_x(z, step.s), z, *step.scales_s) - step.eps
        return z + signal * (step.scales_s.ratio - step.scales_t.ratio) / 2 * change


@dataclass(frozen=True)
class DpmPP(Solver):
    """DPM-Solver++(2M): z_s = (s_s/s_t)·z − a_s·expm1(−h)·D, where D extrapolates x̂ from two steps (Lu et al. 2022).

    Second order at one network call per step; first order in the first step and in the step to s = 0, where h = ∞.
    """

    def step(self, step: SolverStep) -> Tensor:
        signal, noise = step.scales_s
        return noise / step.scales_t.noise * step.z - signal * math.expm1(-step.h) * _extrapolate_midpoint(step)


@dataclass(frozen=True)
class DpmPPSde(Solver):
    """2M-SDE: z_s = (s_s/s_t)·e^{−h}·z + a_s·(1 − e^{−2h})·D + s_s·√(1 − e^{−2h})·n, D as in `DpmPP` (Lu et al. 2022).

    With D = x̂ it would be ancestral sampling, whose modes come out too narrow; D removes most of that error.
    """

    def step(self, step: SolverStep) -> Tensor:
        signal, noise = step.scales_s
        fresh = -math.expm1(-2 * step.h)  # fraction of the noise variance that is drawn anew
        mean = noise / step.scales_t.noise * math.exp(-step.h) * step.z + signal * fresh * _extrapolate_midpoint(step)
        return mean + noise * math.sqrt(fresh) * step.noise(step.rng)


_NAMED = {
    "ddim": Ddim(),
    "ode-euler": OdeEuler(),
    "heun": Heun(),
    "dpm++": DpmPP(),
    "dpm++-sde": DpmPPSde(),
}
