"""Blocks in parts: one part after the other, each read together with the whole block (sub-blocks of Fast-dLLM v2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.ops import Rng
from redraft.processes import Process
from redraft.samplers.ancestral import Ancestral
from redraft.samplers.base import Sampler
from redraft.types import Canvas, Denoiser


@dataclass(frozen=True)
class Parts:
    """Writes a block in parts of `size` tokens from the left, with the inner sampler: `Blocks(Parts(sampler, 8))`.

    The first token of a block is a part of its own if `first` says so: where states predict the next token, the block
    before it has predicted it already, at no cost (Fast-dLLM v2).
    """

    sampler: Sampler = Ancestral()
    size: int = 8
    first: bool = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size={self.size}; a part has at least one token")

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        canvas = process.prior(canvas, rng=rng)
        yield canvas
        part = self._part_of(canvas)
        for i in range(int(part.max()) + 1):
            active = replace(canvas, fixed=canvas.fixed | (part != i), waiting=~canvas.fixed & (part > i))
            if bool(active.fixed.all()):
                continue
            for inner in self.sampler(denoise, process, active, rng=rng.fold(i)):
                canvas = replace(canvas, z=inner.z, confidence=inner.confidence)
                yield canvas

    def _part_of(self, canvas: Canvas) -> Tensor:
        """(L,) the number of the part that each column belongs to."""
        column = torch.arange(canvas.z.shape[1], device=canvas.z.device)
        part = column // self.size
        return part + (column > 0).int() if self.first else part
