"""A sampler together with its guidance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from redraft.guidance import Guidance
from redraft.ops import Rng
from redraft.processes import Process
from redraft.types import Canvas, Denoiser


@dataclass(frozen=True)
class Guided:
    """A sampler that uses a guided denoiser."""

    sampler: Callable[..., Iterator[Canvas]]  # a `Sampler`
    guidance: Guidance

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        return self.sampler(self.guidance(denoise), process, canvas, rng=rng)
