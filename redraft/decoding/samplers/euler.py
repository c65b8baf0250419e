"""Euler steps of the reverse process, as in SEDD; kept for comparison."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from redraft.core import randomness
from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser, Prediction
from redraft.core.processes import sedd
from redraft.core.processes.base import Process
from redraft.core.randomness import Rng
from redraft.core.schedules.base import Schedule
from redraft.decoding.samplers.base import Sampler, _time_grid, initial_canvas, require_steps, require_unconstrained


@dataclass(frozen=True)
class Euler(Sampler):
    """p(z → y) = Δt·σ'_t·π_z·s_y: the reverse rates at t, held constant for the whole step (Lou et al. 2024).

    `Ancestral` integrates the noise exactly (SEDD's "analytic" step) and is more accurate. The two are identical for
    mask noise with the linear schedule. The last step, to t = 0, uses Bayes' rule.
    """

    steps: int = 128
    writes_once = True
    obeys_rules = False
    draws_exactly = False  # the rates at t are held constant for the whole step

    def __post_init__(self) -> None:
        require_steps(self.steps)

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        schedule = process.schedule
        if schedule is None:
            raise ValueError(f"Euler is for mask and uniform noise, not {type(process).__name__}; use Ancestral(steps)")
        require_unconstrained(canvas, self, "its steps draw each token independently")
        limit = process.limiting_distribution.to(canvas.z.device)
        canvas = initial_canvas(denoise, process, canvas, rng=rng.fold(self.steps))
        yield canvas
        for i, (t, s) in enumerate(pairwise(_time_grid(canvas, self.steps))):
            with torch.no_grad():
                pred = denoise.predict(canvas.z, canvas.time(t), canvas.context)
                if float(s[0]) > 0:
                    canvas = _euler_step(schedule, pred, canvas, s, t, limit, rng.fold(i))
                else:
                    canvas = process.step(pred, canvas, s, t, rng=rng.fold(i))
            yield canvas


def _euler_step(
    schedule: Schedule, pred: Prediction, canvas: Canvas, s: Tensor, t: Tensor, limit: Tensor, rng: Rng
) -> Canvas:
    """Draw z_s by an Euler step from t; `limit` is the distribution that the noise tends to."""
    clamped = t.clamp(max=1 - 1e-9)  # the rate is infinite where α = 0
    keep, slope = schedule.keep(clamped), schedule.slope(clamped)
    log_score = sedd.score_ratios(pred.x.to(keep.dtype), canvas.z, keep, limit)
    p = sedd.clip_and_normalize(sedd.euler_probs(log_score, canvas.z, (s - t) * slope / keep, limit))
    tokens = randomness.sample_categorical(p.log().flatten(0, 1), rng.uniform(canvas.z.shape[1]).flatten())
    return canvas.write(tokens.view_as(canvas.z))
