"""Gradient control (Diffusion-LM): after each solver step, z moves down the gradient of an energy."""

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
from redraft.decoding.samplers.base import Sampler, time_column
from redraft.decoding.solvers.ode import Ddim
from redraft.decoding.solvers.step import SolverStep

_EnergyGradient = Callable[[Tensor], Tensor]  # maps z to the gradient of a cost at z


class Energy(Protocol):
    """A cost that control lowers, differentiable in z, such as −log p(y | z, t) of a classifier trained on noisy z."""

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Tensor:
        """(B,) energy of each row of z, (B, N, D), at times t, (B, 1) or (B, N)."""
        ...


@dataclass(frozen=True)
class SumOfEnergies:
    """The sum of several energies, to satisfy all of them at once."""

    energies: tuple[Energy, ...]

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Tensor:
        return torch.stack([energy(z, t, context) for energy in self.energies]).sum(0)


@dataclass(frozen=True)
class PositionEnergy:
    """½‖x̂(z) − vector‖² at one position. With the vector of the end token, it sets the length of the text."""

    denoise: Denoiser
    position: int
    vector: Tensor  # (D,) target for x̂ at the position

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Tensor:
        return (self.denoise.predict(z, t, context).x[:, self.position] - self.vector).square().sum(-1) / 2


class DescentRule(Protocol):
    """A rule for gradient descent on z."""

    def __call__(self, z: Tensor, gradient: _EnergyGradient, steps: int) -> Tensor:
        """Return z after `steps` steps down the gradient."""
        ...


@dataclass(frozen=True)
class SignDescent:
    """z − rate·sign(gradient): equal to Adagrad reset at every step, as in the released code of Diffusion-LM."""

    rate: float = 0.1

    def __call__(self, z: Tensor, gradient: _EnergyGradient, steps: int) -> Tensor:
        for _ in range(steps):
            z = z - self.rate * gradient(z).sign()
        return z


@dataclass(frozen=True)
class AdagradDescent:
    """z − rate·g/√(Σ g²) for gradients g, summed over the descent steps at one time (Adagrad, Duchi et al. 2011)."""

    rate: float = 0.1

    def __call__(self, z: Tensor, gradient: _EnergyGradient, steps: int) -> Tensor:
        total = torch.zeros_like(z)
        for _ in range(steps):
            g = gradient(z)
            total = total + g.square()
            z = z - self.rate * g / (total.sqrt() + 1e-10)
        return z


@dataclass(frozen=True)
class GradientControl(Sampler):
    """z_s ~ N(μ, σ²) by DDIM, then `inner` steps down coef·‖z − μ‖²/σ^power + energy(z, s) (Li et al. 2022, §5.1).

    The first term keeps the text fluent: it is −log p(z_s | z_t) up to constants, with power=1 in the released code.
    Control applies at times until ≤ s ≤ since, never at s = 0; by default it skips the last 10 of 200 steps. Given
    positions never change.
    """

    energy: Energy
    solver: Ddim = Ddim(200, eta=1.0)
    inner: int = 3
    coef: float = 0.01
    power: float = 1.0
    descent: DescentRule = SignDescent()
    since: float = 1.0
    until: float = 0.05
    writes_once = draws_exactly = False

    def __post_init__(self) -> None:
        if self.solver.eta == 0:
            raise ValueError("eta=0; the fluency term divides by the noise of a step, so use a Ddim with eta above 0")
        if self.inner < 0 or self.coef < 0 or not 0 < self.until <= self.since <= 1:
            raise ValueError(
                f"inner={self.inner}, coef={self.coef}, until={self.until}, since={self.since}; "
                "use inner and coef of 0 or more, and 0 < until <= since <= 1"
            )

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        return self.solver.run(self.step, denoise, process, canvas, rng=rng)

    def step(self, step: SolverStep) -> Tensor:
        """Return z_s after the descent."""
        z = self.solver.step(step)
        return self.descent(z, self._cost_gradient(step), self.inner) if self.until <= step.s <= self.since else z

    def _cost_gradient(self, step: SolverStep) -> _EnergyGradient:
        """Return the gradient of the cost at the end of this step, zero at fixed positions."""
        (mean, std), canvas = self.solver.moments(step), step.canvas
        t = canvas.time(time_column(canvas, step.s))

        def gradient(z: Tensor) -> Tensor:
            with torch.enable_grad():
                z = canvas.write(z).z.detach().requires_grad_()
                distance = (z - mean).square().sum() / std**self.power
                cost = self.coef * distance + self.energy(z, t, canvas.context).sum()
                return torch.autograd.grad(cost, z)[0].masked_fill(canvas.fixed[..., None], 0)

        return gradient
