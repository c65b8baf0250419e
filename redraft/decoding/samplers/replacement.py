"""Given places for networks that never saw a clean place beside noisy ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Denoiser, DenoiserWrapper, Prediction
from redraft.core.processes.base import Process
from redraft.core.randomness import Rng
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.base import Sampler, require_unconstrained


@dataclass(frozen=True)
class NoisedPrompt:
    """The inner sampler, with given places noised to the level of their row before the network sees them.

    For networks trained on whole rows (Diffusion-LM): they saw one noise level per row, so a clean place beside noisy
    ones is foreign to them; the replacement of Song et al. (2021, App. I.2) shows them what they know. DiffuSeq and
    GENIE learn with clean sources and need no replacement. A place keeps the same noise ε at all times.
    """

    sampler: Sampler = Ancestral()

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        require_unconstrained(canvas, self, "the network does not see what is given")
        own, noise = rng.split(2)
        return self.sampler(_Even(denoise, process, noise), process, canvas, rng=own)


@dataclass(frozen=True)
class _Even(DenoiserWrapper):
    """A denoiser that sees one time per row, and given places as noisy as that."""

    process: Process
    noise: Rng

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        row = t.amax(1, keepdim=True)
        noisy = self.process.noise(z, row, rng=self.noise).z
        given = (t < row) if z.dim() == 2 else (t < row)[..., None]
        return self.denoise(torch.where(given, noisy, z), row, context)
