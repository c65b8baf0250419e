"""Given places for networks that never saw a clean one beside noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.ops import Rng
from redraft.processes import Process
from redraft.samplers.ancestral import Ancestral
from redraft.samplers.base import Sampler
from redraft.types import Around, Canvas, Context, Denoiser, Prediction


@dataclass(frozen=True)
class Replaced:
    """The inner sampler, around a network that sees what is given as noisy as the rest of its row.

    For networks that learnt whole rows (Diffusion-LM): at any time they saw one level of noise, so a clean place beside
    noisy ones is strange to them, and the replacement of Song et al. (2021, App. I.2) gives them what they know.
    DiffuSeq and GENIE learn with clean sources and need none of it. A place has the same noise at all times.
    """

    sampler: Sampler = Ancestral()

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        own, noise = rng.split(2)
        return self.sampler(_Even(denoise, process, noise), process, canvas, rng=own)


@dataclass(frozen=True)
class _Even(Around):
    """A denoiser that is told one time for each row."""

    process: Process
    noise: Rng

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        row = t.amax(1, keepdim=True)
        noisy = self.process.noise(z, row, rng=self.noise).z
        given = (t < row) if z.dim() == 2 else (t < row)[..., None]
        return self.denoise(torch.where(given, noisy, z), row, context)
