"""Stochastic solvers: Euler–Maruyama, Langevin, predictor–corrector."""

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
from redraft.decoding.samplers.base import Sampler, require_steps
from redraft.decoding.solvers.grids import NoiseGrid, TruncatedGrid, UniformLogSnrGrid
from redraft.decoding.solvers.ode import Ddim, Solver
from redraft.decoding.solvers.step import SolverStep, _float64_scalar, _NoiseScales


@dataclass(frozen=True)
class EulerMaruyama(Solver):
    """The reverse SDE dz = (f·z − g²·∇log q)dt + g dw in Euler steps, the last without noise (Song et al. 2021).

    The coefficients at t may be singular at 0, so the default grid ends at 0.01, as in TEncDM.
    """

    grid: NoiseGrid = TruncatedGrid(0.01)

    def step(self, step: SolverStep) -> Tensor:
        t, dt = _float64_scalar(step.t), step.t - step.s
        drift, diffusion = step.path.drift(t), step.path.diffusion(t)
        mean = step.z + dt * (diffusion * score_from_x(step.x, step.z, *step.scales_t) - drift * step.z)
        return mean if step.last else mean + (diffusion * dt).sqrt() * step.noise(step.rng)


@dataclass(frozen=True)
class Langevin(Solver):
    """Annealed Langevin dynamics (Song & Ermon 2019), ending with x̂.

    Takes `inner` steps z + δ/2·∇log q + √δ·n with δ = rate·s² at each noise level. It is biased, because steps are
    finite and mixing is incomplete, so it is for comparison only.
    """

    grid: NoiseGrid = UniformLogSnrGrid()
    inner: int = 10
    rate: float = 0.1

    def __post_init__(self) -> None:
        require_steps(self.steps)
        if self.inner < 1 or self.rate <= 0:
            raise ValueError(f"inner={self.inner}, rate={self.rate}; use at least one inner step and a rate above 0")

    def step(self, step: SolverStep) -> Tensor:
        z, x = step.z, step.x
        for k in range(self.inner):
            z = _langevin_step(z, x, step.scales_t, self.rate * step.scales_t.noise**2, step.noise(step.rng.fold(k)))
            if step.s == 0 or k < self.inner - 1:
                x = step.predict_x(z, step.t)
        return x if step.s == 0 else z


@dataclass(frozen=True)
class PredictorCorrector(Sampler):
    """A step of another solver, then `corrections` Langevin steps at the new time (Song et al. 2021, algorithm 4).

    A correction is z + e·∇log q + √(2e)·n with e = 2(r·‖n‖/‖∇log q‖)², where r = `ratio` and norms are taken over the
    positions of a row that are being written.
    """

    predictor: Solver = Ddim(eta=1.0)
    corrections: int = 1
    ratio: float = 0.16
    writes_once = draws_exactly = False

    def __post_init__(self) -> None:
        if self.corrections < 0 or self.ratio <= 0:
            raise ValueError(
                f"corrections={self.corrections}, ratio={self.ratio}; use 0 or more corrections and a ratio above 0"
            )

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        return self.predictor.run(self.step, denoise, process, canvas, rng=rng)

    def step(self, step: SolverStep) -> Tensor:
        z = self.predictor.step(step)
        for k in range(self.corrections if step.s else 0):
            x, noise = step.predict_x(z, step.s), step.noise(step.rng.fold(k))
            score_norm = _norm(score_from_x(x, z, *step.scales_s), step.canvas)
            delta = (2 * self.ratio * _norm(noise, step.canvas) / score_norm) ** 2
            z = _langevin_step(z, x, step.scales_s, delta, noise)
        return z


def _langevin_step(z: Tensor, x: Tensor, scales: _NoiseScales, delta: float | Tensor, noise: Tensor) -> Tensor:
    """Take a Langevin step: z + δ/2·∇log q + √δ·n."""
    return z + delta / 2 * score_from_x(x, z, *scales) + delta**0.5 * noise


def _norm(vectors: Tensor, canvas: Canvas) -> Tensor:
    """(B, 1, 1) norm over the positions being written; 1 if it would be 0."""
    square = vectors.square().masked_fill(canvas.fixed[..., None], 0).sum((1, 2), keepdim=True)
    return torch.where(square > 0, square, 1.0).sqrt()


_NAMED = {
    "euler-maruyama": EulerMaruyama(),
}
