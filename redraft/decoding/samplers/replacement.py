"""Prompts for networks that were never trained on clean positions next to noisy ones."""

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
from redraft.decoding.samplers.base import Sampler, SamplerWrapper, require_unconstrained


@dataclass(frozen=True)
class NoisedPrompt(SamplerWrapper):
    """A sampler whose network sees given positions noised to the time of their row (Song et al. 2021, App. I.2).

    For networks trained with one noise level per row (Diffusion-LM), which never saw a clean position next to noisy
    ones. DiffuSeq and GENIE are trained with clean sources and do not need it. Each position keeps the same noise ε at
    all times.
    """

    sampler: Sampler = Ancestral()

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        require_unconstrained(canvas, self, "the network sees given positions only with noise")
        for_sampler, for_noise = rng.split(2)
        return self.sampler(_RowTimeDenoiser(denoise, process, for_noise), process, canvas, rng=for_sampler)


@dataclass(frozen=True)
class _RowTimeDenoiser(DenoiserWrapper):
    """A denoiser that noises given positions to the time of their row and passes on one time per row."""

    process: Process
    noise: Rng

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        row_time = t.amax(1, keepdim=True)
        noisy = self.process.noise(z, row_time, rng=self.noise).z
        given = (t < row_time) if z.dim() == 2 else (t < row_time)[..., None]
        return self.denoise(torch.where(given, noisy, z), row_time, context)
