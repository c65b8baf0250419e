"""What a sampler is, and what all of them share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from redraft import ops
from redraft.ops import Rng
from redraft.processes.base import Process
from redraft.types import Canvas, Denoiser


class Sampler(Protocol):
    """A generator of canvases from noise to text; the last one is the result. Settings are its fields."""

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]: ...


def last(canvases: Iterator[Canvas]) -> Canvas:
    """The finished canvas."""
    for canvas in canvases:  # noqa: B007
        pass
    return canvas


def instant(canvas: Canvas, t: float) -> Tensor:
    """(B, 1) the same time for all rows, in the widest float."""
    return torch.full((canvas.z.shape[0], 1), t, dtype=ops.wide(canvas.z.device), device=canvas.z.device)


def start(denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Canvas:
    """Noise to begin with; refuses to write several blocks at once with a network that wants one after the other."""
    cache, block = canvas.context.cache, denoise.block
    columns = (~canvas.fixed).any(0).nonzero().flatten() + (0 if cache is None else cache.length)
    if block is not None and len(columns) and columns[0] // block != columns[-1] // block:
        raise ValueError(f"this network writes blocks of {block}, one after the other; use Blocks(sampler)")
    return process.prior(canvas, rng=rng)
