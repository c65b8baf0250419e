"""Path planning: a critic, or the network itself, says which tokens come first and which are taken back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser, Prediction
from redraft.core.processes.base import Process
from redraft.core.processes.masked import Masked, PickResult
from redraft.core.randomness import Rng
from redraft.decoding.picks.order import drawn_confidence, require_temperature, round_scores, scatter_scores
from redraft.decoding.samplers.base import initial_canvas, require_steps, time_column


@dataclass(frozen=True)
class PathPlanning:
    """P2 with the network itself as planner: at step k of n the surest k/n of all tokens that are not given stand.

    Written tokens compete with masked ones, each by the probability of the likeliest token at its place, and may be
    masked again (Peng et al. 2025; Open-dCoder's "p2"). For that the network must have a say on written tokens: a head
    that carries them over, as `Subs()` does, keeps them all; use `Subs(carry_over=False)`. Mask noise only.
    """

    steps: int = 32
    temperature: float = 0.0

    def __post_init__(self) -> None:
        require_steps(self.steps)
        require_temperature(self.temperature)

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        if not isinstance(process, Masked):
            raise ValueError(f"planning is for mask noise, not {type(process).__name__}; use Correct()")
        canvas = initial_canvas(denoise, process, canvas, rng=rng)
        yield canvas
        for i in range(self.steps):
            if not bool(process.hidden(canvas).any()):
                return
            t = process.moment(time_column(canvas, 1 - i / self.steps))
            with torch.no_grad():
                pred = denoise(canvas.z, canvas.time(t), canvas.context)
                pick = _Standing(i + 1, self.steps, self.temperature)
                canvas = process.reveal(pred, canvas, t, t, pick, rng=rng.fold(i)).canvas
            yield canvas


@dataclass(frozen=True)
class _Standing:
    """The surest part/whole (rounded up) of all tokens that are not given, masked or not; the others are masked."""

    part: int
    whole: int
    temperature: float

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        free = ~canvas.fixed
        drawn, total = pred.draw(free, rng=rng, temperature=self.temperature), free.sum(-1)
        count = total - total * (self.whole - self.part) // self.whole
        kept = ops.Ranking.of(scatter_scores(round_scores(drawn_confidence(drawn)), free), free).first(
            ops.to_numpy(count)
        )
        where = hidden & kept
        return PickResult.of(where, drawn, where[free])._replace(again=free & ~kept)
