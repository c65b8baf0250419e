"""Ancestral sampling: the reverse process itself, on a time grid or from hit to hit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch

from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.processes.masked import Masked
from redraft.core.randomness import Rng
from redraft.decoding.picks.order import _One
from redraft.decoding.samplers.base import (
    EvenWarp,
    TimeWarp,
    initial_canvas,
    require_steps,
    start_time,
    time_column,
    time_grid,
)


@dataclass(frozen=True)
class Ancestral:
    """z_s ~ p(z_s | z_t) in `steps` steps from t = 1 to 0, equal unless there is a `warp`; for any process.

    The error falls as 1/steps. A row in which a step changes nothing costs no network call, so mask noise needs at
    most as many calls per row as it has tokens to write.
    """

    steps: int = 64
    warp: TimeWarp = EvenWarp()

    def __post_init__(self) -> None:
        require_steps(self.steps)

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        canvas = initial_canvas(denoise, process, canvas, rng=rng.fold(self.steps))
        yield canvas
        for i, (t, s) in enumerate(pairwise(time_grid(canvas, self.steps, self.warp))):
            with torch.no_grad():
                pred = denoise(canvas.z, canvas.time(t), canvas.context)
                canvas = process.step(pred, canvas, s, t, rng=rng.fold(i))
            yield canvas


@dataclass(frozen=True)
class FirstHitting:
    """Mask noise without a time grid: jump to the time of the next reveal, write one token (Zheng et al. 2024).

    Exactly the continuous-time process, with one network call per token. A free sum of x̂ (`Score`) is taken to be one,
    so every mask is equally likely to be next.
    """

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        if not isinstance(process, Masked):
            raise ValueError(f"first hitting is for mask noise, not {type(process).__name__}; use Ancestral(steps)")
        canvas, t = initial_canvas(denoise, process, canvas, rng=rng), time_column(canvas, start_time(canvas))
        yield canvas
        for i in range(int(process.hidden(canvas).sum(-1).max())):
            when, what = rng.fold(i).split(2)
            with torch.no_grad():
                s = process.hit(canvas, t, rng=when)
                pred = denoise(canvas.z, canvas.time(s), canvas.context)
                canvas, t = process.reveal(pred, canvas, s, t, _One(), rng=what).canvas, s
            yield canvas
