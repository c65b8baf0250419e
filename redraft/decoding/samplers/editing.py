"""Editing: sampling that starts from a partly noised draft instead of pure noise (SDEdit)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core.batch import NoisySample
from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.randomness import Rng
from redraft.decoding.samplers.base import Sampler, SamplerWrapper, time_column


@dataclass(frozen=True)
class SDEdit(SamplerWrapper):
    """A sampler that starts from the text on the canvas, noised to the time `strength` (Meng et al. 2022).

    Strength 0 would change nothing; 1 writes a new text. Fixed positions never change. Mask noise hides tokens (that
    fraction of them under the linear schedule) and fills the holes; insertion also deletes some; other noise may change
    any token.
    """

    sampler: Sampler
    strength: float = 0.5
    starts_from_draft = True

    def __post_init__(self) -> None:
        if not 0 < self.strength <= 1:
            raise ValueError(f"strength={self.strength}; it must be above 0 (no change) and at most 1 (a new text)")

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        for_noise, for_sampler = rng.split(2)
        t = torch.where(canvas.fixed, 0.0, time_column(canvas, self.strength))
        noised = process.noise(canvas.z, t, pad=canvas.context.pad, rng=for_noise)
        return self.sampler(denoise, process, self._noised_canvas(denoise, process, canvas, noised), rng=for_sampler)

    def _noised_canvas(self, denoise: Denoiser, process: Process, canvas: Canvas, noised: NoisySample) -> Canvas:
        """Return the canvas with the noised draft on it, ready for the sampler."""
        if process.grows:
            return replace(_insertion_canvas(process, canvas, noised), start_time=self.strength)
        if process.fills_masks:  # visible tokens never change, so only the holes are left to write
            fixed = canvas.fixed | (noised.z != process.vocab.masked)
            return replace(canvas, fixed=fixed, context=_with_following_text(canvas, fixed, process))
        if denoise.block is not None:
            raise ValueError(
                f"a block model with {type(process).__name__} noise cannot start from a draft; use one with mask noise"
            )
        return replace(canvas, z=noised.z, start_time=self.strength)


def _with_following_text(canvas: Canvas, fixed: Tensor, process: Process) -> Context:
    """Return the context with `no_end_token` set at holes before fixed text, where the text cannot end."""
    ends = torch.tensor(process.vocab.ends, dtype=canvas.z.dtype, device=canvas.z.device)
    words = fixed & ~torch.isin(canvas.z, ends)
    words = words if canvas.context.pad is None else words & ~canvas.context.pad
    return canvas.context.with_constraints(no_end_token=~fixed & (words.flip(-1).cumsum(-1).flip(-1) > 0))


def _insertion_canvas(process: Process, canvas: Canvas, noised: NoisySample) -> Canvas:
    """Return a canvas of the remaining tokens, moved together, with room for the deleted ones after them."""
    assert noised.pad is not None
    fixed = (noised.z != process.vocab.masked) & ~noised.pad
    context = replace(canvas.context, pad=noised.pad).with_constraints(no_end_token=~noised.pad)
    return replace(canvas, z=noised.z, fixed=fixed, context=context, open=noised.open)
