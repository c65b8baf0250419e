"""Gradient control (Diffusion-LM): what a solver draws moves down an energy before the next step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.randomness import Rng
from redraft.decoding.samplers.base import time_column
from redraft.decoding.solvers.ode import Ddim
from redraft.decoding.solvers.step import SolverStep

_EnergyGradient = Callable[[Tensor], Tensor]  # the gradient of a cost, by z


class Energy(Protocol):
    """What control lowers, differentiable in z: for example −log p(y | z, t) of a classifier trained on noisy z."""

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Tensor:
        """(B, N, D) at the times t, (B, 1) or (B, N) → (B,)"""
        ...


@dataclass(frozen=True)
class SumOfEnergies:
    """The sum of several energies: all their wishes at once."""

    energies: tuple[Energy, ...]

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Tensor:
        return torch.stack([energy(z, t, context) for energy in self.energies]).sum(0)


@dataclass(frozen=True)
class PositionEnergy:
    """½‖x̂(z) − vector‖² at a place: with the vector of the end token it sets the length of the text."""

    denoise: Denoiser
    place: int
    vector: Tensor  # (D,)

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Tensor:
        return (self.denoise(z, t, context).x[:, self.place] - self.vector).square().sum(-1) / 2


class DescentRule(Protocol):
    """How z moves down a slope."""

    def __call__(self, z: Tensor, slope: _EnergyGradient, steps: int) -> Tensor: ...


@dataclass(frozen=True)
class SignDescent:
    """z − rate·sign(slope): what Adagrad does if it is reset at every step, as in the released Diffusion-LM."""

    rate: float = 0.1

    def __call__(self, z: Tensor, slope: _EnergyGradient, steps: int) -> Tensor:
        for _ in range(steps):
            z = z - self.rate * slope(z).sign()
        return z


@dataclass(frozen=True)
class AdagradDescent:
    """z − rate·slope/√(sum of its squares so far), summed over the steps at one time (Duchi et al. 2011)."""

    rate: float = 0.1

    def __call__(self, z: Tensor, slope: _EnergyGradient, steps: int) -> Tensor:
        total = torch.zeros_like(z)
        for _ in range(steps):
            gradient = slope(z)
            total = total + gradient.square()
            z = z - self.rate * gradient / (total.sqrt() + 1e-10)
        return z


@dataclass(frozen=True)
class GradientControl:
    """z_s ~ N(μ, σ²) by DDIM, then `inner` steps down coef·‖z − μ‖²/σ^power + energy(z, s) (Li et al. 2022, §5.1).

    The first term is fluency, −log p(z_s | z_t) up to factors; the released code has power 1. Control works at the
    times until ≤ s ≤ since, never at s = 0: by default not in the last 10 of 200 steps. Given places never move.
    """

    energy: Energy
    solver: Ddim = Ddim(200, eta=1.0)
    inner: int = 3
    coef: float = 0.01
    power: float = 1.0
    descent: DescentRule = SignDescent()
    since: float = 1.0
    until: float = 0.05

    def __post_init__(self) -> None:
        if self.solver.eta == 0:
            raise ValueError("fluency is measured in units of the step's noise: steer a Ddim with eta above 0")
        if self.inner < 0 or self.coef < 0 or not 0 < self.until <= self.since <= 1:
            raise ValueError(
                f"inner={self.inner}, coef={self.coef}, until={self.until}, since={self.since}; "
                "use inner and coef of 0 or more, and 0 < until <= since <= 1"
            )

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        return self.solver.run(self.step, denoise, process, canvas, rng=rng)

    def step(self, move: SolverStep) -> Tensor:
        """z_s"""
        z = self.solver.step(move)
        return self.descent(z, self._slope(move), self.inner) if self.until <= move.s <= self.since else z

    def _slope(self, move: SolverStep) -> _EnergyGradient:
        (mean, spread), canvas = self.solver.law(move), move.canvas
        t = canvas.time(time_column(canvas, move.s))

        def slope(z: Tensor) -> Tensor:
            with torch.enable_grad():
                z = canvas.write(z).z.detach().requires_grad_()
                strange = (z - mean).square().sum() / spread**self.power
                cost = self.coef * strange + self.energy(z, t, canvas.context).sum()
                return torch.autograd.grad(cost, z)[0].masked_fill(canvas.fixed[..., None], 0)

        return slope
