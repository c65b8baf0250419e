"""Many particles for each text: p(x | rule) of the model itself, by sequential Monte Carlo."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.processes.masked import Masked
from redraft.core.randomness import Rng
from redraft.decoding.constraints.constrained import ConstrainedPrediction
from redraft.decoding.picks.order import AnyOrder
from redraft.decoding.samplers.base import initial_canvas, require_steps, time_grid


@dataclass(frozen=True)
class ParticleSampler:
    """Unmasking in any order under a rule, corrected by weights: with many particles the law is p(x | rule).

    A step under `Constrained` looks ahead by products of marginals: it draws z_s in proportion to p(z_s | z_t)·g(z_s),
    g the chance that the rest, filled position by position from the same prediction, obeys. The next prediction knows
    that chance better, Z(z_s). So each particle weighs Z(z_s)/g(z_s) more or less than its share; particles are drawn
    anew by these weights (systematic resampling) whenever few of them carry most of the weight. One particle of each
    row, drawn by weight, is the result. Costs `count` network calls for one; the error falls as 1/count.
    """

    steps: int = 32
    count: int = 8

    def __post_init__(self) -> None:
        require_steps(self.steps)
        if self.count < 1:
            raise ValueError(f"count={self.count}; a text needs at least one particle")

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        if not isinstance(process, Masked):
            raise ValueError(f"particles are for mask noise, not {type(process).__name__}; use Ancestral(steps)")
        rows = len(canvas.z)
        crowd = canvas.rows(torch.arange(rows, device=canvas.z.device).repeat_interleave(self.count))
        crowd, keys = initial_canvas(denoise, process, crowd, rng=rng), _keys(rng, self.count)
        yield crowd.rows(self._shown(rows))
        weight, expected = torch.zeros(rows, self.count, dtype=torch.float64), None
        for i, (t, s) in enumerate(pairwise(map(process.moment, time_grid(crowd, self.steps)))):
            with torch.no_grad():
                pred = denoise(crowd.z, crowd.time(t), crowd.context)
                if not isinstance(pred, ConstrainedPrediction):
                    raise ValueError(
                        "particles weigh how well a rule is obeyed; wrap the model in Constrained(process)"
                    )
                if expected is not None:
                    weight = weight + (pred.log_match() - expected).view(rows, self.count)
                    crowd, weight, pred = self._again(crowd, weight, pred, rng.fold(-1 - i))
                share = torch.full_like(t, 1 / (self.steps - i))
                crowd = process.reveal(pred, crowd, s, t, AnyOrder(), share=share, rng=keys.fold(i)).canvas
                expected = pred.log_match(crowd.z)
            yield crowd.rows(self._shown(rows))
        yield crowd.rows(self._shown(rows) + self._drawn(weight, rng.fold(self.steps)))

    def _shown(self, rows: int) -> Tensor:
        """The first particle of each row."""
        return torch.arange(rows) * self.count

    def _drawn(self, weight: Tensor, rng: Rng) -> Tensor:
        """(B,) a particle of each row, by weight."""
        share = weight.softmax(-1).cumsum(-1)
        return torch.searchsorted(share, rng.once() * share[:, -1:]).squeeze(-1).clamp(max=self.count - 1)

    def _again(
        self, crowd: Canvas, weight: Tensor, pred: ConstrainedPrediction, rng: Rng
    ) -> tuple[Canvas, Tensor, ConstrainedPrediction]:
        """Rows in which less than half of the particles count have them drawn anew, by systematic resampling."""
        share = weight.softmax(-1)
        few = 1 / share.square().sum(-1) < self.count / 2
        if not bool(few.any()):
            return crowd, weight, pred
        steps = (torch.arange(self.count) + rng.once()) / self.count  # (B, count)
        chosen = torch.searchsorted(share.cumsum(-1), steps).clamp(max=self.count - 1)
        chosen = torch.where(few[:, None], chosen, torch.arange(self.count))
        index = (chosen + self._shown(len(weight))[:, None]).flatten()
        return crowd.rows(index), torch.where(few[:, None], 0.0, weight), pred.rows(index)


def _keys(rng: Rng, count: int) -> Rng:
    """A key for each particle: those of a row are its own, whatever the other rows."""
    each = torch.stack([rng.fold(number).key for number in range(count)], 1).flatten()
    shared = rng.place is None or len(rng.place) == 1
    return Rng(each, rng.place if shared or rng.place is None else rng.place.repeat_interleave(count, 0))
