"""One step between two noise levels, and the loop that takes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from redraft.core import randomness
from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser, Prediction
from redraft.core.processes.base import Process
from redraft.core.processes.gaussian import Gaussian, NoisePath, eps_from_x
from redraft.core.randomness import Rng
from redraft.decoding.samplers.base import time_column


class NoiseScales(NamedTuple):
    """a and s of z = a·x + s·ε at some time, numbers in float64."""

    signal: Tensor
    noise: Tensor

    @property
    def level(self) -> float:
        """ℓ = ln(a/s), half the log-SNR; infinite where there is no noise."""
        return math.log(self.signal / self.noise) if self.noise > 0 else math.inf

    @property
    def ratio(self) -> float:
        """ς = s/a"""
        return float(self.noise / self.signal)


def noise_scales(path: NoisePath, t: float) -> NoiseScales:
    """The scales of a path at t; clean at t = 0."""
    return NoiseScales(*path.scales(_float64_scalar(t)))


def _float64_scalar(t: float) -> Tensor:
    """() float64: torch treats it as a scalar, so scales in full precision do not change the dtype of the state."""
    return torch.tensor(t, dtype=torch.float64)


class PreviousStep(NamedTuple):
    """What multistep rules remember about the previous step."""

    x: Tensor
    h: float


@dataclass(frozen=True)
class SolverStep:
    """A step from t to s: the canvas at t, the prediction of x there, and all else that a rule may need."""

    denoise: Denoiser
    path: NoisePath
    canvas: Canvas
    t: float
    s: float
    rng: Rng
    before: PreviousStep | None = None
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
    def at(self) -> NoiseScales:
        """The scales at t."""
        return noise_scales(self.path, self.t)

    @cached_property
    def to(self) -> NoiseScales:
        """The scales at s."""
        return noise_scales(self.path, self.s)

    @property
    def h(self) -> float:
        """ℓ_s − ℓ_t; infinite for the step to s = 0"""
        return self.to.level - self.at.level

    @property
    def eps(self) -> Tensor:
        """ε̂ at (z, t)"""
        return eps_from_x(self.x, self.z, *self.at)

    def ask(self, z: Tensor, t: float) -> Tensor:
        """x̂ at another point; the hint (self-conditioning) stays the same within a step."""
        return self._said(self.canvas.write(z), t).x.to(z.dtype)

    def noise(self, rng: Rng) -> Tensor:
        return randomness.normal_like(self.z, rng)

    def _said(self, canvas: Canvas, t: float) -> Prediction:
        return self.denoise(canvas.z, canvas.time(time_column(canvas, t)), canvas.context)


_StepRule = Callable[[SolverStep], Tensor]  # what stands at s


def run_steps(
    rule: _StepRule, times: list[float], denoise: Denoiser, path: NoisePath, canvas: Canvas, *, rng: Rng
) -> Iterator[Canvas]:
    """The loop of all solvers, from the first time to the last; each canvas keeps x̂ as the hint of the next step."""
    before: PreviousStep | None = None
    for i, (t, s) in enumerate(pairwise(times)):
        with torch.no_grad():
            move = SolverStep(denoise, path, canvas, t, s, rng.fold(i), before, last=i == len(times) - 2)
            canvas = canvas.write(rule(move), hint=move.x)
            before = PreviousStep(move.x, move.h)
        yield canvas


def _require_gaussian(process: Process) -> Gaussian:
    """The process, which must be Gaussian: solvers need vectors."""
    if not isinstance(process, Gaussian):
        raise ValueError(f"solvers are for Gaussian noise, not {type(process).__name__}; use Ancestral(steps)")
    return process


def _extrapolate_midpoint(move: SolverStep) -> Tensor:
    """D = x̂ + (x̂ − x̂ of the step before)·h/(2·h of the step before): x̂ extrapolated to the midpoint."""
    if move.before is None or move.s == 0 or move.before.h == 0:  # h = 0: the schedule is flat at its end
        return move.x
    return move.x + move.h / (2 * move.before.h) * (move.x - move.before.x)
