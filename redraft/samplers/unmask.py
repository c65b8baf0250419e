"""Unmasking an even number of tokens at each step, in any order or the most confident first (MaskGIT, LLaDA, Dream).

The number depends only on the steps left, not on the noise schedule. Picking by confidence is not ancestral sampling:
it sharpens the distribution and carries no bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch

from redraft.ops import Rng
from redraft.processes import Insertion, Masked, Pick, Process
from redraft.samplers.base import grid, require_steps, start
from redraft.samplers.picks import Confidence
from redraft.types import Canvas, Denoiser


@dataclass(frozen=True)
class Unmask:
    """Reveals tokens by a pick in `steps` steps: ⌈masked/steps left⌉ at each, as LLaDA does.

    The schedule does not change these numbers. It only gives the time that the network sees, at which this share of the
    tokens is expected to be masked. Insertion reveals the share that its schedule expects, since tokens still arrive.
    """

    steps: int = 32
    pick: Pick = Confidence()

    def __post_init__(self) -> None:
        require_steps(self.steps)

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        if not isinstance(process, Masked | Insertion):
            raise ValueError(f"unmasking is for mask noise, not {type(process).__name__}; use Ancestral(steps)")
        canvas = start(denoise, process, canvas, rng=rng)
        yield canvas
        pick = self.pick
        for i, (t, s) in enumerate(pairwise(map(process.moment, grid(canvas, self.steps)))):
            with torch.no_grad():
                pred = denoise(canvas.z, canvas.time(t), canvas.context)
                share = torch.full_like(t, 1 / (self.steps - i))  # an even one, whatever the schedule
                canvas, pick = process.reveal(pred, canvas, s, t, pick, share=share, rng=rng.fold(i))
            yield canvas
