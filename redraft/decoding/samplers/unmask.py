"""Unmasking with a pick: equal numbers of tokens per step, or as many as the pick chooses (MaskGIT, LLaDA, Dream).

The number does not depend on the noise schedule. Picking by confidence is not ancestral sampling: it sharpens the
distribution, and no bound applies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, pairwise

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.processes.insertion import Insertion
from redraft.core.processes.masked import Masked, Pick
from redraft.core.randomness import Rng
from redraft.decoding.picks.order import Confidence
from redraft.decoding.picks.pace import EvenPace, Pace
from redraft.decoding.samplers.base import Sampler, _time_grid, initial_canvas, require_steps
from redraft.decoding.samplers.stopping import may_stop, stop_rows


@dataclass(frozen=True)
class Unmask(Sampler):
    """Unmasking by a pick in `steps` steps: ⌈masked / steps left⌉ tokens in each, as LLaDA does.

    Sampling ends as soon as no row has a masked token. So `steps` is a maximum for adaptive picks, which may reveal
    more than requested. With steps=None they alone decide, and other picks reveal one token per step. With `stop`, a
    row also ends once everything up to its first end token is written: the rest becomes end tokens.

    The schedule does not change these numbers. It only determines the time given to the network, at which this fraction
    of the tokens is expected to be masked. Insertion models reveal the fraction that the schedule expects, since tokens
    are still being inserted.
    """

    steps: int | None = 32
    pick: Pick = Confidence()
    pace: Pace = EvenPace()
    stop: bool = False
    settings_part = "pick"
    writes_every_step = True

    def __post_init__(self) -> None:
        if self.steps is not None:
            require_steps(self.steps)

    @property
    def writes_once(self) -> bool:
        return self.pick.writes_once

    @property
    def draws_exactly(self) -> bool:
        return self.pick.draws_exactly

    @property
    def stops_at_end_token(self) -> bool:
        return self.stop

    def describe(self) -> str:
        return self.pick.describe() if self.steps is None else f"{self.pick.describe()}, {self.steps} steps"

    def with_end_tokens_last(self, tokens: tuple[int, ...]) -> Unmask | None:
        pick = self.pick.with_end_tokens_last(tokens)
        return None if pick is None else replace(self, pick=pick)

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        if process.grows:
            insertion = process.narrowed(Insertion, "Unmask", "use Ancestral(steps)")
            yield from self._unmask_and_insert(denoise, insertion, canvas, rng)
        else:
            yield from self._unmask(denoise, process.narrowed(Masked, "Unmask", "use Ancestral(steps)"), canvas, rng)

    def _unmask(self, denoise: Denoiser, process: Masked, canvas: Canvas, rng: Rng) -> Iterator[Canvas]:
        canvas = initial_canvas(denoise, process, canvas, rng=rng)
        yield canvas
        pick, hidden = self.pick, process.hidden(canvas)
        left = hidden.sum(-1, keepdim=True)
        times, by_count = self._times(process, left), self._time_by_count
        for i, key in zip(count() if self.steps is None else range(self.steps), rng.steps(), strict=False):
            if not any(left.view(-1).tolist()):
                return
            t = times.gather(1, left) if by_count else times[i].expand_as(left)
            with ops.no_grad():
                pred, share = denoise.predict(canvas.z, canvas.time(t), canvas.context), self._share(left, i)
                canvas, pick = process.reveal(pred, canvas, t, t, pick, share=share, hidden=hidden, rng=key)
            if may_stop(self.stop, canvas):
                end = process.vocab.eos if self.stop else None
                canvas = stop_rows(canvas, end, process.hidden(canvas).cumsum(-1) == 0, denoise)
            hidden = process.hidden(canvas)
            left = hidden.sum(-1, keepdim=True)
            yield canvas

    @property
    def _time_by_count(self) -> bool:
        """Whether the time depends on how many masked tokens a row has; otherwise it follows from the step."""
        return self.steps is None or self.pick.adaptive

    def _times(self, process: Masked, hidden: Tensor) -> Tensor:
        """Return the times given to the network: (B, most + 1) by the number of masked tokens, or (steps,) by step."""
        dtype, device = ops.widest_float(hidden.device), hidden.device
        if not self._time_by_count:
            steps = self.steps or 1
            return process.time_when_masked(
                torch.tensor([1 - i / steps for i in range(steps)], dtype=dtype, device=device)
            )
        most = int(hidden.max()) if hidden.numel() else 0
        return process.time_when_masked(torch.arange(most + 1, dtype=dtype, device=device) / hidden.clamp(min=1))

    def _share(self, hidden: Tensor, step: int) -> Tensor:
        """(B, 1) fraction of the masked tokens to reveal; with steps=None half a token, which rounds up to one."""
        if self.steps is None:
            return 0.5 / hidden.clamp(min=1).to(ops.widest_float(hidden.device))
        return self.pace(hidden, step, self.steps)

    def _unmask_and_insert(self, denoise: Denoiser, process: Insertion, canvas: Canvas, rng: Rng) -> Iterator[Canvas]:
        if self.steps is None or self.stop:
            raise ValueError(
                f"steps={self.steps}, stop={self.stop}; insertion needs a number of steps and no stop: "
                "Unmask(steps, pick)"
            )
        canvas, pick = initial_canvas(denoise, process, canvas, rng=rng), self.pick
        yield canvas
        for i, (t, s) in enumerate(pairwise(map(process.time_when_masked, _time_grid(canvas, self.steps)))):
            with torch.no_grad():
                pred = denoise.predict(canvas.z, canvas.time(t), canvas.context)
                canvas, pick = process.reveal(pred, canvas, s, t, pick, rng=rng.fold(i))
            yield canvas
