"""Ancestral sampling: the reverse process itself, on a time grid or from one reveal to the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser, Prediction
from redraft.core.processes.base import Process
from redraft.core.processes.masked import Masked, Pick, PickResult
from redraft.core.randomness import Rng
from redraft.decoding.samplers.base import (
    EvenWarp,
    Sampler,
    TimeWarp,
    _time_grid,
    initial_canvas,
    require_steps,
    start_time,
    time_column,
)


@dataclass(frozen=True)
class Ancestral(Sampler):
    """Ancestral sampling for any process: z_s ~ p(z_s | z_t) in `steps` steps from t = 1 to 0, equal by default.

    The error falls as 1/steps. A row that a step leaves unchanged costs no network call, so with mask noise a row costs
    at most one call per token to write.
    """

    steps: int = 64
    warp: TimeWarp = EvenWarp()
    writes_once = draws_exactly = is_ancestral = True

    def __post_init__(self) -> None:
        require_steps(self.steps)

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        canvas = initial_canvas(denoise, process, canvas, rng=rng.fold(self.steps))
        yield canvas
        for (t, s), key in zip(pairwise(_time_grid(canvas, self.steps, self.warp)), rng.steps(), strict=False):
            with ops.no_grad():
                pred = denoise.predict(canvas.z, canvas.time(t), canvas.context)
                canvas = process.step(pred, canvas, s, t, rng=key)
            yield canvas


@dataclass(frozen=True)
class FirstHitting(Sampler):
    """Sampling under mask noise without a time grid: each step jumps to the next reveal (Zheng et al. 2024).

    This is exactly the continuous-time process, at one network call per token. If the sum of x̂ is free (`Score`), it
    is taken to be 1, so every mask is equally likely to be revealed next.
    """

    writes_once = draws_exactly = True

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        process = process.narrowed(Masked, "FirstHitting", "use Ancestral(steps)")
        canvas, t = initial_canvas(denoise, process, canvas, rng=rng), time_column(canvas, start_time(canvas))
        yield canvas
        for i in range(int(process.hidden(canvas).sum(-1).max())):
            for_time, for_token = rng.fold(i).split(2)
            with torch.no_grad():
                s = process.hit(canvas, t, rng=for_time)
                pred = denoise.predict(canvas.z, canvas.time(s), canvas.context)
                canvas, t = process.reveal(pred, canvas, s, t, _SinglePick(), rng=for_token).canvas, s
            yield canvas


@dataclass(frozen=True)
class _SinglePick(Pick):
    """One masked position per row, chosen uniformly."""

    writes_once = draws_exactly = True

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        for_position, for_token = rng.split(2)
        chosen = (for_position.uniform(hidden.shape[1]) * hidden).argmax(-1, keepdim=True)
        where = hidden & torch.zeros_like(hidden).scatter(-1, chosen, True)
        return PickResult.of(where, pred.draw(where, rng=for_token)) if where.any() else PickResult.nothing(hidden)


_NAMED = {
    "ancestral": Ancestral(),
    "first-hitting": FirstHitting(),
}
