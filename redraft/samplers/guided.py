"""Guidance: denoisers made of denoisers, which sharpen a condition, follow a classifier, or keep to known vectors.

The scale γ means the same everywhere: log p_γ = (1 − γ)·log p(x) + γ·log p(x | y) + const. γ = 0 forgets the condition,
1 obeys it, more exaggerates it. Each guidance is a frozen dataclass that is called with a denoiser; they can be nested.
Samplers carry the guided x̂ to the next step as its hint (self-conditioning); `Guided` is a sampler with its guidance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from redraft.guidance import Guidance
from redraft.ops import Rng
from redraft.processes import Process
from redraft.types import Canvas, Denoiser


@dataclass(frozen=True)
class Guided:
    """A sampler that asks a guided denoiser."""

    sampler: Callable[..., Iterator[Canvas]]  # a `Sampler`
    guidance: Guidance

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        return self.sampler(self.guidance(denoise), process, canvas, rng=rng)
