"""A solver step from one noise level to the next, and the loop over all steps."""

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
from redraft.core.processes.gaussian import NoisePath, eps_from_x
from redraft.core.randomness import Rng
from redraft.decoding.samplers.base import time_column


class _NoiseScales(NamedTuple):
    """The scales a and s of z = a·x + s·ε at one time."""

    signal: Tensor  # () float64: a, the scale of x
    noise: Tensor  # () float64: s, the scale of ε

    @property
    def half_log_snr(self) -> float:
        """ℓ = ln(a/s); infinite if there is no noise."""
        return math.log(self.signal / self.noise) if self.noise > 0 else math.inf

    @property
    def ratio(self) -> float:
        """ς = s/a, the noise-to-signal ratio."""
        return float(self.noise / self.signal)


def noise_scales(path: NoisePath, t: float) -> _NoiseScales:
    """Return the scales of a path at time t; there is no noise at t = 0."""
    return _NoiseScales(*path.scales(_float64_scalar(t)))


def _float64_scalar(t: float) -> Tensor:
    """() float64: torch treats it as a scalar, so it does not change the dtype of the state."""
    return torch.tensor(t, dtype=torch.float64)


class _PreviousStep(NamedTuple):
    """The previous step, as multistep solvers need it."""

    x: Tensor  # x̂
    h: float


@dataclass(frozen=True)
class SolverStep:
    """A step from t to s: the canvas at t, the prediction there, and everything else a solver may need."""

    denoise: Denoiser
    path: NoisePath
    canvas: Canvas
    t: float
    s: float
    rng: Rng
    previous: _PreviousStep | None = None  # None in the first step
    last: bool = False  # whether it is the last step

    @cached_property
    def pred(self) -> Prediction:
        """The prediction at (z, t)."""
        return self._predict(self.canvas, self.t)

    @cached_property
    def x(self) -> Tensor:
        """x̂ at (z, t)."""
        return self.pred.x.to(self.z.dtype)

    @property
    def z(self) -> Tensor:
        return self.canvas.z

    @cached_property
    def scales_t(self) -> _NoiseScales:
        """The scales at t."""
        return noise_scales(self.path, self.t)

    @cached_property
    def scales_s(self) -> _NoiseScales:
        """The scales at s."""
        return noise_scales(self.path, self.s)

    @property
    def h(self) -> float:
        """ℓ_s − ℓ_t; infinite for the step to s = 0."""
        return self.scales_s.half_log_snr - self.scales_t.half_log_snr

    @property
    def eps(self) -> Tensor:
        """ε̂ at (z, t)."""
        return eps_from_x(self.x, self.z, *self.scales_t)

    def predict_x(self, z: Tensor, t: float) -> Tensor:
        """Return x̂ at another point (z, t). The self-conditioning input stays the same within a step."""
        return self._predict(self.canvas.write(z), t).x.to(z.dtype)

    def noise(self, rng: Rng) -> Tensor:
        """Return standard normal noise in the shape of z."""
        return randomness.normal_like(self.z, rng)

    def _predict(self, canvas: Canvas, t: float) -> Prediction:
        return self.denoise.predict(canvas.z, canvas.time(time_column(canvas, t)), canvas.context)


_StepRule = Callable[[SolverStep], Tensor]  # maps a step to z_s


def run_steps(
    rule: _StepRule, times: list[float], denoise: Denoiser, path: NoisePath, canvas: Canvas, *, rng: Rng
) -> Iterator[Canvas]:
    """Step through `times` with a rule and yield each canvas, which keeps x̂ for self-conditioning in the next step."""
    previous: _PreviousStep | None = None
    for i, (t, s) in enumerate(pairwise(times)):
        with torch.no_grad():
            step = SolverStep(denoise, path, canvas, t, s, rng.fold(i), previous, last=i == len(times) - 2)
            canvas = canvas.write(rule(step), previous=step.x)
            previous = _PreviousStep(step.x, step.h)
        yield canvas


def _extrapolate_midpoint(step: SolverStep) -> Tensor:
    """Extrapolate x̂ to the midpoint of the step: D = x̂ + (x̂ − x̂_prev)·h/(2·h_prev)."""
    if step.previous is None or step.s == 0 or step.previous.h == 0:  # h = 0: the schedule is flat at its end
        return step.x
    return step.x + step.h / (2 * step.previous.h) * (step.x - step.previous.x)
