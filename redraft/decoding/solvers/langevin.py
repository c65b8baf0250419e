"""Stochastic solvers: Euler and Maruyama, Langevin, predictor and corrector."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.processes.gaussian import score_from_x
from redraft.core.randomness import Rng
from redraft.decoding.samplers.base import require_steps
from redraft.decoding.solvers.grids import NoiseGrid, TruncatedGrid, UniformLogSnrGrid
from redraft.decoding.solvers.ode import Ddim, Solver
from redraft.decoding.solvers.step import NoiseScales, SolverStep, _float64_scalar


@dataclass(frozen=True)
class EulerMaruyama(Solver):
    """The reverse SDE dz = (f·z − g²·∇log q)dt + g dw by Euler steps; the last one without noise (Song et al. 2021).

    Coefficients are those at t and may be singular at 0, so it stops earlier (TEncDM at 0.01).
    """

    grid: NoiseGrid = TruncatedGrid(0.01)

    def step(self, move: SolverStep) -> Tensor:
        t, dt = _float64_scalar(move.t), move.t - move.s
        drift, diffusion = move.path.drift(t), move.path.diffusion(t)
        mean = move.z + dt * (diffusion * score_from_x(move.x, move.z, *move.at) - drift * move.z)
        return mean if move.last else mean + (diffusion * dt).sqrt() * move.noise(move.rng)


@dataclass(frozen=True)
class Langevin(Solver):
    """Annealed: `inner` steps z + δ/2·∇log q + √δ·n at each noise level, δ = rate·s² (Song & Ermon 2019); then x̂.

    Biased by the size of its steps and by incomplete mixing: for comparison, never as the reference.
    """

    grid: NoiseGrid = UniformLogSnrGrid()
    inner: int = 10
    rate: float = 0.1

    def __post_init__(self) -> None:
        require_steps(self.steps)
        if self.inner < 1 or self.rate <= 0:
            raise ValueError(f"inner={self.inner}, rate={self.rate}; use one inner step or more, and a rate above 0")

    def step(self, move: SolverStep) -> Tensor:
        z, x = move.z, move.x
        for k in range(self.inner):
            z = _langevin_step(z, x, move.at, self.rate * move.at.noise**2, move.noise(move.rng.fold(k)))
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

    def step(self, move: SolverStep) -> Tensor:
        z = self.predictor.step(move)
        for k in range(self.corrections if move.s else 0):
            x, noise = move.ask(z, move.s), move.noise(move.rng.fold(k))
            length = _norm(score_from_x(x, z, *move.to), move.canvas)
            z = _langevin_step(z, x, move.to, (2 * self.ratio * _norm(noise, move.canvas) / length) ** 2, noise)
        return z


def _langevin_step(z: Tensor, x: Tensor, at: NoiseScales, delta: float | Tensor, noise: Tensor) -> Tensor:
    """A Langevin step z + δ/2·∇log q + √δ·n."""
    return z + delta / 2 * score_from_x(x, z, *at) + delta**0.5 * noise


def _norm(vectors: Tensor, canvas: Canvas) -> Tensor:
    """(B, 1, 1) norm over the places being written; 1 where there are none."""
    square = vectors.square().masked_fill(canvas.fixed[..., None], 0).sum((1, 2), keepdim=True)
    return torch.where(square > 0, square, 1.0).sqrt()
