"""Path planning: the network itself decides which tokens to write first and which to mask again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser, Prediction
from redraft.core.processes.base import Process
from redraft.core.processes.masked import Masked, Pick, PickResult
from redraft.core.randomness import Rng
from redraft.decoding.picks.order import drawn_confidence, require_temperature, round_scores, scatter_scores
from redraft.decoding.samplers.base import Sampler, initial_canvas, require_steps, time_column


@dataclass(frozen=True)
class PathPlanning(Sampler):
    """P2 with the network as its own planner: after step k of n, the most confident k/n of the free tokens are visible.

    Every token that is not given takes part, written or masked, with the probability of the token drawn for its
    position, so written tokens may be masked again (Peng et al. 2025; Open-dCoder's "p2"). The network must therefore
    predict written positions too: heads that copy visible tokens, such as `Subs()`, never mask any again; use
    `Subs(carry_over=False)`. Mask noise only. `CriticPick` uses a separate critic instead.
    """

    steps: int = 32
    temperature: float = 0.0
    writes_once = draws_exactly = False

    def __post_init__(self) -> None:
        require_steps(self.steps)
        require_temperature(self.temperature)

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        process = process.narrowed(Masked, "PathPlanning", "use SelfCorrection()")
        canvas = initial_canvas(denoise, process, canvas, rng=rng)
        yield canvas
        for i in range(self.steps):
            if not bool(process.hidden(canvas).any()):
                return
            t = process.time_when_masked(time_column(canvas, 1 - i / self.steps))
            with torch.no_grad():
                pred = denoise.predict(canvas.z, canvas.time(t), canvas.context)
                pick = _MostConfident(i + 1, self.steps, self.temperature)
                canvas = process.reveal(pred, canvas, t, t, pick, rng=rng.fold(i)).canvas
            yield canvas


@dataclass(frozen=True)
class _MostConfident(Pick):
    """The most confident made/total (rounded up) of the tokens that are not given; all others are masked again."""

    made: int  # number of steps made, including this one
    total: int  # number of steps
    temperature: float
    writes_once = draws_exactly = False

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        free = ~canvas.fixed
        drawn, size = pred.draw(free, rng=rng, temperature=self.temperature), free.sum(-1)
        count = size - size * (self.total - self.made) // self.total
        scores = scatter_scores(round_scores(drawn_confidence(drawn)), free)
        visible = ops.Ranking.of(scores, free).first(ops.to_numpy(count))
        where = hidden & visible
        return PickResult.of(where, drawn, where[free])._replace(again=free & ~visible)
