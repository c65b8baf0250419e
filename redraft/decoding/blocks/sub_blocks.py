"""Sub-blocks (Fast-dLLM v2): a block is written in parts, each read together with the whole block."""

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
from redraft.decoding.samplers.base import CacheKind, Sampler, SamplerWrapper


@dataclass(frozen=True)
class SubBlocks(SamplerWrapper):
    """A sampler that writes a block in sub-blocks of `size` tokens, left to right: `Blocks(SubBlocks(sampler, 8))`.

    With `first`, the first token of a block is a sub-block of its own: if states predict the next token, the block
    before has already predicted it, at no cost (Fast-dLLM v2). With `cache`, the whole block is read only until the
    first token of a sub-block is written. Then the sub-block is read alone, with the keys and values that the rest of
    the block had at that time. This is approximate, so the text may differ, and rows are written one at a time.
    """

    sampler: Sampler = Ancestral()
    size: int = 8
    first: bool = False
    cache: bool = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size={self.size}; a sub-block must have at least one token")

    @property
    def _addition(self) -> str:
        return f"in sub-blocks of {self.size}"

    def slowest(self) -> SubBlocks:
        return replace(self, sampler=self.sampler.slowest(), size=1)

    def cache_kind(self, block: int | None) -> CacheKind:
        return "approximate" if self.cache else self.sampler.cache_kind(block)

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        canvas = process.prior(canvas, rng=rng)
        yield canvas
        if not self.cache:
            yield from self._write(lambda start: denoise, process, canvas, rng)
            return
        for row in range(len(canvas.z)):
            index = torch.tensor([row], device=canvas.z.device)
            cached = _SubBlockDenoiser(denoise, process.vocab.masked, self.size)
            for inner in self._write(cached.starting_at, process, canvas.rows(index), rng.rows(index)):
                canvas = _paste_row(canvas, inner, index)
                yield canvas

    def _write(
        self, denoiser_of: Callable[[int | None], Denoiser], process: Process, canvas: Canvas, rng: Rng
    ) -> Iterator[Canvas]:
        """Write one sub-block after another.

        `denoiser_of` maps the first column of a sub-block to its denoiser; None stands for a first token on its own.
        """
        part = self._part_index(canvas)
        for i in range(int(part.max()) + 1):
            active = replace(canvas, fixed=canvas.fixed | (part != i), future=~canvas.fixed & (part > i))
            if bool(active.fixed.all()):
                continue
            start = None if self.first and i == 0 else (i - self.first) * self.size
            for inner in self.sampler(denoiser_of(start), process, active, rng=rng.fold(i)):
                canvas = replace(canvas, z=inner.z, confidence=inner.confidence)
                yield canvas

    def _part_index(self, canvas: Canvas) -> Tensor:
        """(L,) index of the sub-block of each column."""
        column = torch.arange(canvas.z.shape[1], device=canvas.z.device)
        part = column // self.size
        return part + (column > 0).int() if self.first else part


def _paste_row(canvas: Canvas, inner: Canvas, index: Tensor) -> Canvas:
    """Write the row `inner` back to row `index` of the canvas."""
    z, newest = canvas.z.index_copy(0, index, inner.z), inner.confidence
    if newest is None:
        return replace(canvas, z=z)
    confidence = newest.new_zeros(canvas.fixed.shape) if canvas.confidence is None else canvas.confidence
    return replace(canvas, z=z, confidence=confidence.index_copy(0, index, newest))


class _SubBlockDenoiser:
    """A denoiser for the sub-blocks of one block of one row, with a cache of the block from its last full pass."""

    block = None

    def __init__(self, denoise: Denoiser, mask: int, size: int) -> None:
        self._denoise, self._mask, self._size = denoise, mask, size
        self._start, self._cached = 0, Context()

    def starting_at(self, column: int | None) -> Denoiser:
        """Return the denoiser for the sub-block from `column` on; None for a first token, which needs no cache."""
        if column is None:
            return self._denoise
        self._start = column
        return self

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        lo, hi = self._start, self._start + self._size
        if self._cached.cache is None or bool((z[:, lo] == self._mask).any()):
            self._cached = self._denoise.absorb(z, context, t)
            return self._denoise.predict(z, t, replace(context, cache=self._cached.cache))
        positions = torch.arange(z.shape[1], device=z.device)[None] if context.positions is None else context.positions
        pad, no_end = (None if a is None else a[:, lo:hi] for a in (context.pad, context.constraints.no_end_token))
        window = replace(context, cache=self._cached.cache, positions=positions[:, lo:hi], pad=pad)
        window = window.with_constraints(no_end_token=no_end)
        pred = self._denoise.predict(z[:, lo:hi], t if t.shape[1] == 1 else t[:, lo:hi], window)
        return _WindowPrediction(pred, lo, hi)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        raise ValueError("a sub-block may still change, so it cannot be cached; do not nest Blocks inside SubBlocks")


@dataclass(frozen=True)
class _WindowPrediction(Prediction):
    """A prediction for columns lo..hi of a block that takes masks over the whole block, true only in these columns."""

    inner: Prediction
    lo: int
    hi: int

    @property
    def normalized(self) -> bool:
        return self.inner.normalized

    @property
    def x(self) -> Tensor:
        raise ValueError("only columns of one sub-block were read; query them with at(where)")

    def at(self, where: Tensor) -> Tensor:
        return self.inner.at(where[:, self.lo : self.hi])

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        nats = self.inner.nll(where[:, self.lo : self.hi], target[:, self.lo : self.hi])
        return F.pad(nats, (self.lo, where.shape[1] - self.lo - nats.shape[1]))
