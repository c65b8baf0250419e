"""Editing: a sampler that begins with a draft, noised a little, instead of with noise (SDEdit)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core.batch import NoisySample
from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.processes.insertion import Insertion
from redraft.core.processes.masked import Masked
from redraft.core.randomness import Rng
from redraft.decoding.samplers.base import Sampler, time_column


@dataclass(frozen=True)
class SDEdit:
    """Noises what stands on the canvas to the time `strength` and writes on from there (Meng et al. 2022).

    Strength 0 would leave everything, 1 writes a new text. Fixed places stay as they are. Mask noise hides that share
    of the tokens and fills the holes; insertion also loses some; other noise changes any token.
    """

    sampler: Sampler
    strength: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.strength <= 1:
            raise ValueError(f"strength={self.strength}; it must be above 0 (as it is) and at most 1 (written anew)")

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        early, late = rng.split(2)
        t = torch.where(canvas.fixed, 0.0, time_column(canvas, self.strength))
        noised = process.noise(canvas.z, t, pad=canvas.context.pad, rng=early)
        return self.sampler(denoise, process, self._begun(denoise, process, canvas, noised), rng=late)

    def _begun(self, denoise: Denoiser, process: Process, canvas: Canvas, noised: NoisySample) -> Canvas:
        """The canvas at the time of the draft."""
        if isinstance(process, Insertion):
            return replace(_packed(process, canvas, noised), since=self.strength)
        if isinstance(process, Masked):  # what is visible stays so: the holes are all there is to write
            kept = canvas.fixed | (noised.z != process.vocab.masked)
            return replace(canvas, fixed=kept, context=_followed(canvas, kept, process))
        if denoise.block is not None:
            raise ValueError(f"{type(process).__name__} noise in blocks cannot begin with a draft; use mask noise")
        return replace(canvas, z=noised.z, since=self.strength)


def _followed(canvas: Canvas, kept: Tensor, process: Process) -> Context:
    """The context, which says where kept text follows: no text ends there."""
    ends = torch.tensor(process.vocab.ends, dtype=canvas.z.dtype, device=canvas.z.device)
    words = kept & ~torch.isin(canvas.z, ends)
    words = words if canvas.context.pad is None else words & ~canvas.context.pad
    return replace(canvas.context, inside=~kept & (words.flip(-1).cumsum(-1).flip(-1) > 0))


def _packed(process: Insertion, canvas: Canvas, noised: NoisySample) -> Canvas:
    """The tokens that are left, moved together, with the room of the others behind them."""
    assert noised.pad is not None
    kept = (noised.z != process.vocab.masked) & ~noised.pad
    context = replace(canvas.context, pad=noised.pad, inside=~noised.pad)
    return replace(canvas, z=noised.z, fixed=kept, context=context, open=noised.open)
