"""Solvers for Gaussian noise: one loop from noise to x; each has its own rule for the step from t to s.

With y = z/a and ς = s/a the probability flow is dy/dς = ε̂ (Karras et al. 2022): a solver is a way to integrate it, and
a stochastic one adds noise that leaves the marginals as they are. The step to s = 0 gives x̂, as every sampler does.
Scales are computed in float64; the state keeps the precision of the canvas.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.processes.gaussian import eps_from_x
from redraft.core.randomness import Rng
from redraft.decoding.samplers.base import initial_canvas, require_steps, start_time
from redraft.decoding.solvers.grids import NoiseGrid, UniformTimeGrid
from redraft.decoding.solvers.step import (
    SolverStep,
    _extrapolate_midpoint,
    _float64_scalar,
    _require_gaussian,
    _StepRule,
    run_steps,
)


@dataclass(frozen=True)
class Solver(ABC):
    """`steps` steps on a time grid, by the rule `step`; every subclass is final."""

    steps: int = 64
    grid: NoiseGrid = UniformTimeGrid()

    def __post_init__(self) -> None:
        require_steps(self.steps)

    @abstractmethod
    def step(self, move: SolverStep) -> Tensor:
        """z_s"""

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        return self.run(self.step, denoise, process, canvas, rng=rng)

    def run(
        self, rule: _StepRule, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng
    ) -> Iterator[Canvas]:
        """From noise to x by another rule, at the times of this solver."""
        path = _require_gaussian(process).path
        canvas = initial_canvas(denoise, process, canvas, rng=rng.fold(self.steps))
        yield canvas
        times = [start_time(canvas) * t for t in self.grid(path, self.steps)]
        yield from run_steps(rule, times, denoise, path, canvas, rng=rng)


@dataclass(frozen=True)
class Ddim(Solver):
    """z_s = a_s·x̂ + √(s_s² − σ²)·ε̂ + σ·n with σ = η·s_s·√(1 − SNR_t/SNR_s) (Song et al. 2021, eq. 12).

    η = 0 is the probability flow by Euler steps in (y, ς), first order; η = 1 is ancestral sampling with the variance
    of the posterior, `PosteriorVariance`, whatever that of the process.
    """

    eta: float = 0.0

    def __post_init__(self) -> None:
        require_steps(self.steps)
        if not 0 <= self.eta <= 1:
            raise ValueError(f"eta={self.eta}; use 0 (no noise) to 1 (that of ancestral sampling)")

    def step(self, move: SolverStep) -> Tensor:
        mean, spread = self.law(move)
        return mean + spread * move.noise(move.rng) if self.eta else mean

    def law(self, move: SolverStep) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of z_s."""
        signal, noise = move.to
        share = -(self.eta**2) * math.expm1(-2 * move.h)
        return signal * move.x + noise * math.sqrt(1 - share) * move.eps, noise * math.sqrt(share)


@dataclass(frozen=True)
class OdeEuler(Solver):
    """z_s = z + (s − t)·dz/dt with dz/dt = a'·x̂ + s'·ε̂: the probability flow in time, as flow matching solves it.

    First order. On a straight path it is the same as `Ddim`; on others `Ddim` is better, since it follows the scales.
    """

    def step(self, move: SolverStep) -> Tensor:
        if move.s == 0:
            return move.x
        signal, noise = move.path.slopes(_float64_scalar(move.t))
        return move.z + (move.s - move.t) * (signal * move.x + noise * move.eps)


@dataclass(frozen=True)
class Heun(Solver):
    """The trapezoid rule for dy/dς = ε̂: second order, two network calls a step (Karras et al. 2022, algorithm 1)."""

    def step(self, move: SolverStep) -> Tensor:
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

    def step(self, move: SolverStep) -> Tensor:
        signal, noise = move.to
        return noise / move.at.noise * move.z - signal * math.expm1(-move.h) * _extrapolate_midpoint(move)


@dataclass(frozen=True)
class DpmPPSde(Solver):
    """2M-SDE: z_s = (s_s/s_t)·e^{−h}·z + a_s·(1 − e^{−2h})·D + s_s·√(1 − e^{−2h})·n, D as in `DpmPP` (Lu et al. 2022).

    With D = x̂ it would be ancestral sampling; D removes most of the error of that, too little spread within modes.
    """

    def step(self, move: SolverStep) -> Tensor:
        signal, noise = move.to
        share = -math.expm1(-2 * move.h)
        mean = noise / move.at.noise * math.exp(-move.h) * move.z + signal * share * _extrapolate_midpoint(move)
        return mean + noise * math.sqrt(share) * move.noise(move.rng)
