"""Unmasking by a pick: an even number of tokens at each step, or as many as the pick dares (MaskGIT, LLaDA, Dream).

The number does not depend on the noise schedule. Picking by confidence is not ancestral sampling: it sharpens the
distribution and carries no bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, pairwise

import torch
from torch import Tensor

from redraft import ops
from redraft.ops import Rng
from redraft.processes import Insertion, Masked, Pick, Process
from redraft.samplers.adaptive import Adaptive
from redraft.samplers.base import grid, instant, require_steps, start
from redraft.samplers.paces import EvenPace, Pace
from redraft.samplers.picks import Confidence
from redraft.samplers.stops import refuse_ids, stopped
from redraft.types import Canvas, Denoiser


@dataclass(frozen=True)
class Unmask:
    """Reveals tokens by a pick in `steps` steps: ⌈masked/steps left⌉ at each, as LLaDA does.

    It ends as soon as no row has anything left, so `steps` is a maximum for adaptive picks, which may reveal more than
    they are asked for; without a maximum (None) they decide alone, and other picks reveal one token at a time.
    With `stop`, a row also ends once everything up to its first end token is written: the rest becomes end tokens.

    The schedule does not change these numbers. It only gives the time that the network sees, at which this share of the
    tokens is expected to be masked. Insertion reveals the share that its schedule expects, since tokens still arrive.
    """

    steps: int | None = 32
    pick: Pick = Confidence()
    pace: Pace = EvenPace()
    stop: bool = False

    def __post_init__(self) -> None:
        refuse_ids(self.stop)
        if self.steps is not None:
            require_steps(self.steps)

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        if not isinstance(process, Masked | Insertion):
            raise ValueError(f"unmasking is for mask noise, not {type(process).__name__}; use Ancestral(steps)")
        canvas = start(denoise, process, canvas, rng=rng)
        yield canvas
        if isinstance(process, Masked):
            yield from self._masked(denoise, process, canvas, rng)
        else:
            yield from self._inserted(denoise, process, canvas, rng)

    def _masked(self, denoise: Denoiser, process: Masked, canvas: Canvas, rng: Rng) -> Iterator[Canvas]:
        pick, total = self.pick, process.hidden(canvas).sum(-1, keepdim=True)
        counted = self.steps is None or isinstance(pick, Adaptive)  # else how many are left is known beforehand
        for i in count() if self.steps is None else range(self.steps):
            hidden = process.hidden(canvas).sum(-1, keepdim=True)
            if not hidden.any():
                return
            left = (
                hidden.to(ops.wide(hidden.device)) / total.clamp(min=1)
                if counted
                else instant(canvas, 1 - i / (self.steps or 1))
            )
            t = process.moment(left)
            with torch.no_grad():
                pred = denoise(canvas.z, canvas.time(t), canvas.context)
                share = self._share(hidden, i)
                canvas, pick = process.reveal(pred, canvas, torch.zeros_like(t), t, pick, share=share, rng=rng.fold(i))
            if self.stop:
                canvas = stopped(canvas, process.vocab.eos, process.hidden(canvas).cumsum(-1) == 0, denoise)
            yield canvas

    def _share(self, hidden: Tensor, step: int) -> Tensor:
        """(B, 1) what a step is to reveal at least; without a maximum half a token, which is one, rounded up."""
        if self.steps is None:
            return 0.5 / hidden.clamp(min=1).to(ops.wide(hidden.device))
        return self.pace(hidden, step, self.steps)

    def _inserted(self, denoise: Denoiser, process: Insertion, canvas: Canvas, rng: Rng) -> Iterator[Canvas]:
        if self.steps is None or self.stop:
            raise ValueError("insertion takes a number of steps, and no stop: Unmask(steps, pick)")
        pick = self.pick
        for i, (t, s) in enumerate(pairwise(map(process.moment, grid(canvas, self.steps)))):
            with torch.no_grad():
                pred = denoise(canvas.z, canvas.time(t), canvas.context)
                canvas, pick = process.reveal(pred, canvas, s, t, pick, rng=rng.fold(i))
            yield canvas
