"""Blocks in parts: one part after the other, each read together with the whole block (sub-blocks of Fast-dLLM v2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Denoiser, Prediction
from redraft.core.processes.base import Process
from redraft.core.randomness import Rng
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.base import Sampler


@dataclass(frozen=True)
class SubBlocks:
    """Writes a block in parts of `size` tokens from the left, with the inner sampler: `Blocks(SubBlocks(sampler, 8))`.

    The first token of a block is a part of its own if `first` says so: where states predict the next token, the block
    before it has predicted it already, at no cost (Fast-dLLM v2).
    With `cache` the whole block is read only until the first token of a part is written; then the part is read alone,
    beside keys and values that the rest of the block had a while ago. That is approximate: the text may differ.
    Rows are written one after the other.
    """

    sampler: Sampler = Ancestral()
    size: int = 8
    first: bool = False
    cache: bool = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size={self.size}; a part has at least one token")

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        canvas = process.prior(canvas, rng=rng)
        yield canvas
        if not self.cache:
            yield from self._written(lambda lo: denoise, process, canvas, rng)
            return
        for row in range(len(canvas.z)):
            index = torch.tensor([row], device=canvas.z.device)
            reader = _SubBlockDenoiser(denoise, process.vocab.masked, self.size)
            for inner in self._written(reader.part, process, canvas.rows(index), rng.rows(index)):
                canvas = _with_row(canvas, inner, index)
                yield canvas

    def _written(
        self, reading: Callable[[int | None], Denoiser], process: Process, canvas: Canvas, rng: Rng
    ) -> Iterator[Canvas]:
        """Part after part; `reading`: the denoiser of the part that begins at a column, None: of the first token."""
        part = self._part_of(canvas)
        for i in range(int(part.max()) + 1):
            active = replace(canvas, fixed=canvas.fixed | (part != i), waiting=~canvas.fixed & (part > i))
            if bool(active.fixed.all()):
                continue
            begin = None if self.first and i == 0 else (i - self.first) * self.size
            for inner in self.sampler(reading(begin), process, active, rng=rng.fold(i)):
                canvas = replace(canvas, z=inner.z, confidence=inner.confidence)
                yield canvas

    def _part_of(self, canvas: Canvas) -> Tensor:
        """(L,) the number of the part that each column belongs to."""
        column = torch.arange(canvas.z.shape[1], device=canvas.z.device)
        part = column // self.size
        return part + (column > 0).int() if self.first else part


def _with_row(canvas: Canvas, inner: Canvas, index: Tensor) -> Canvas:
    """The canvas with one row as it is now."""
    z, sure = canvas.z.index_copy(0, index, inner.z), inner.confidence
    if sure is None:
        return replace(canvas, z=z)
    old = sure.new_zeros(canvas.fixed.shape) if canvas.confidence is None else canvas.confidence
    return replace(canvas, z=z, confidence=old.index_copy(0, index, sure))


class _SubBlockDenoiser:
    """A denoiser for the parts of one block of one row; it remembers the block as it was when it was read whole."""

    block = None

    def __init__(self, denoise: Denoiser, mask: int, size: int) -> None:
        self._denoise, self._mask, self._size = denoise, mask, size
        self._begin, self._held = 0, Context()

    def part(self, begin: int | None) -> Denoiser:
        """The same for another part; the first token of a block needs no reading of it."""
        if begin is None:
            return self._denoise
        self._begin = begin
        return self

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        lo, hi = self._begin, self._begin + self._size
        if self._held.cache is None or bool((z[:, lo] == self._mask).any()):
            self._held = self._denoise.absorb(z, context, t)
            return self._denoise(z, t, replace(context, cache=self._held.cache))
        place = torch.arange(z.shape[1], device=z.device)[None] if context.place is None else context.place
        pad, inside = (None if a is None else a[:, lo:hi] for a in (context.pad, context.inside))
        near = replace(context, cache=self._held.cache, place=place[:, lo:hi], pad=pad, inside=inside)
        part = self._denoise(z[:, lo:hi], t if t.shape[1] == 1 else t[:, lo:hi], near)
        return _WindowPrediction(part, lo, hi)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        raise ValueError("a part of a block is never finished for good: no Blocks inside of Parts")


@dataclass(frozen=True)
class _WindowPrediction(Prediction):
    """A prediction for columns lo..hi of a window, asked as if it were for the whole window; nothing else may be."""

    inner: Prediction
    lo: int
    hi: int

    @property
    def normalised(self) -> bool:
        return self.inner.normalised

    @property
    def x(self) -> Tensor:
        raise ValueError("only a part of the block was read; ask for its positions: at(where)")

    def at(self, where: Tensor) -> Tensor:
        return self.inner.at(where[:, self.lo : self.hi])

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        found = self.inner.nll(where[:, self.lo : self.hi], target[:, self.lo : self.hi])
        return F.pad(found, (self.lo, where.shape[1] - self.lo - found.shape[1]))
