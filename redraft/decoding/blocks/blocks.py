"""Left to right in blocks, around any sampler; with an exact cache where the attention allows one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.processes.insertion import Insertion
from redraft.core.randomness import Rng
from redraft.decoding.blocks.approximate_cache import ApproximateCache, StaleDenoiser
from redraft.decoding.blocks.sub_blocks import SubBlocks
from redraft.decoding.blocks.windows import Window
from redraft.decoding.constraints.placement import PlacedRuleSet
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.base import Sampler
from redraft.decoding.samplers.stopping import may_stop, stop_rows


@dataclass(frozen=True)
class Blocks:
    """Write one block after the other with the inner sampler.

    For block-causal and causal networks the blocks are those of the network, and finished ones are read from a cache
    of keys and values, which is exact: they never change and never see later tokens. `Blocks(Ancestral(1))` is plain
    autoregressive sampling. Each row begins with the first block that is not given, whatever the others.
    For full attention `decode_block` says how many tokens at a time, counted from the first token to be written in each
    row. The whole canvas is then read at every step (semi-autoregressive decoding of LLaDA), or with `cache=DualCache()` or
    `PrefixCache()` a window of it, beside an approximate cache of the rest (Fast-dLLM).
    With `stop`, a row ends at its first end token: the rest of it is filled with end tokens and costs nothing.
    """

    sampler: Sampler = Ancestral()
    decode_block: int | None = None
    cache: bool | ApproximateCache = True  # True: exact, where the attention allows one; False: none
    stop: bool = False

    def __post_init__(self) -> None:
        if self.decode_block is not None and self.decode_block < 1:
            raise ValueError(f"decode_block={self.decode_block}; a block has at least one token")

    def exact(self, denoise: Denoiser) -> bool | None:
        """Whether the cache that this denoiser is read with is exact; None: there is no cache."""
        if isinstance(self.cache, ApproximateCache) or (isinstance(self.sampler, SubBlocks) and self.sampler.cache):
            return False
        return True if self.cache and denoise.block is not None else None

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        if isinstance(process, Insertion):
            raise ValueError("insertion shifts later tokens right, so it has no blocks; use Ancestral or Unmask")
        size = self._size(denoise)
        canvas = process.prior(canvas, rng=rng)
        yield canvas
        if isinstance(self.cache, ApproximateCache):
            yield from self._windows(denoise, process, canvas, size, self.cache, rng)
        elif denoise.block is not None and self.cache:
            yield from self._cached(denoise, process, canvas, size, rng)
        else:
            yield from self._whole(denoise, process, canvas, _block_of(denoise, canvas, size), rng)

    def _cached(self, denoise: Denoiser, process: Process, canvas: Canvas, size: int, rng: Rng) -> Iterator[Canvas]:
        """With an exact cache of finished blocks; each row is at a block of its own."""
        lo, last = _given_columns(canvas, size), _last_columns(canvas)  # numbers in Python: rows are few, steps many
        row = [i for i, first in enumerate(lo) if first <= last[i]]
        context = _absorbed(denoise, canvas, row, lo)
        while row:
            window = Window.of(row, [lo[i] for i in row], size, canvas)
            part = window.cut(window.whole(canvas), context)
            for inner in self.sampler(denoise, process, part, rng=window.keys(rng, size)):
                canvas = window.paste(canvas, inner)
                yield canvas
            lo = [first + size for first in lo]
            if may_stop(self.stop, canvas):
                canvas = stop_rows(canvas, self._end(process), ~_from(canvas, lo), denoise)
                last = _last_columns(canvas)
            yield canvas
            index = [k for k, i in enumerate(row) if lo[i] <= last[i]]
            if not index:
                return
            if len(index) < len(row):
                row, window, context = [row[k] for k in index], window.rows(index), window.context(context, index)
            done = window.cut(window.whole(canvas), context)
            context = denoise.absorb(done.z, done.context)

    def _windows(
        self, denoise: Denoiser, process: Process, canvas: Canvas, size: int, cache: ApproximateCache, rng: Rng
    ) -> Iterator[Canvas]:
        """Full attention with an approximate cache; rows with nothing to write in a block are left out of it."""
        block_of, begin = _block_of(denoise, canvas, size), _begin(canvas).tolist()
        for i in range(int(block_of.max()) + 1):
            active = replace(canvas, fixed=canvas.fixed | (block_of != i), waiting=~canvas.fixed & (block_of > i))
            if row := (~active.fixed).any(-1).nonzero().squeeze(-1).tolist():
                window = cache.window(row, [begin[k] + i * size for k in row], size, canvas)
                whole = window.whole(active)
                part, reader = window.cut(whole, whole.context), StaleDenoiser(denoise, whole, window, cache.refresh)
                for inner in self.sampler(reader, process, part, rng=window.keys(rng.fold(i))):
                    canvas = window.paste(canvas, inner)
                    yield canvas
            canvas = stop_rows(canvas, self._end(process), block_of <= i, denoise)
            yield canvas

    def _whole(
        self, denoise: Denoiser, process: Process, canvas: Canvas, block_of: Tensor, rng: Rng
    ) -> Iterator[Canvas]:
        """Without a cache: the whole canvas is read at every step."""
        for i in range(int(block_of.max()) + 1):
            active = replace(canvas, fixed=canvas.fixed | (block_of != i), waiting=~canvas.fixed & (block_of > i))
            if bool(active.fixed.all()):
                continue
            if denoise.block is not None:
                active = _unread(active, (i + 1) * denoise.block - 1)
            for inner in self.sampler(denoise, process, active, rng=rng.fold(i)):
                canvas = replace(canvas, z=inner.z, confidence=inner.confidence)
                yield canvas
            canvas = stop_rows(canvas, self._end(process), block_of <= i, denoise)
            yield canvas

    def _end(self, process: Process) -> int | None:
        return process.vocab.eos if self.stop else None

    def _size(self, denoise: Denoiser) -> int:
        """How many tokens a block has."""
        size = denoise.block if self.decode_block is None else self.decode_block
        if size is None:
            raise ValueError("a network with full attention has no blocks of its own; use Blocks(…, decode_block=32)")
        if denoise.block not in (None, size):
            raise ValueError(f"decode_block={size} for a network of blocks of {denoise.block}; leave decode_block out")
        if denoise.block is not None and isinstance(self.cache, ApproximateCache):
            name = type(self.cache).__name__
            raise ValueError(f"a network that writes in blocks has an exact cache: use cache=True instead of {name}()")
        return size


def _unread(canvas: Canvas, last: int) -> Canvas:
    """The canvas under rules that do not look at what the network says of columns behind `last`.

    Nor do they with a cache: a network that writes in blocks has not learnt to say anything of later ones.
    """
    if not isinstance(canvas.context.marks, PlacedRuleSet):
        return canvas
    marks = canvas.context.marks.until(torch.tensor([[last]], device=canvas.z.device))
    return replace(canvas, context=replace(canvas.context, marks=marks))


def _block_of(denoise: Denoiser, canvas: Canvas, size: int) -> Tensor:
    """(B, L) the number of the block that each position is written in."""
    pos = torch.arange(canvas.z.shape[1], device=canvas.z.device)
    if denoise.block is not None:
        return (pos // size).expand_as(canvas.fixed)
    return ((pos - _begin(canvas)[:, None]) // size).clamp(min=0)


def _begin(canvas: Canvas) -> Tensor:
    """(B,) the first column to be written."""
    return (~canvas.fixed).int().argmax(-1)


def _given_columns(canvas: Canvas, size: int) -> list[int]:
    """How many columns, in whole blocks from the left, are given in each row."""
    given = torch.where(canvas.fixed.all(-1), canvas.z.shape[1], _begin(canvas)) // size * size
    columns: list[int] = given.tolist()
    return columns


def _last_columns(canvas: Canvas) -> list[int]:
    """The last column of each row that is to be written; −1: none."""
    column = torch.arange(canvas.z.shape[1], device=canvas.z.device)
    last: list[int] = torch.where(canvas.fixed, -1, column).amax(-1).tolist() if len(column) else [-1] * len(canvas.z)
    return last


def _from(canvas: Canvas, first: list[int]) -> Tensor:
    """(B, L) bool: columns from `first` on."""
    return torch.arange(canvas.z.shape[1], device=canvas.z.device) >= canvas.z.new_tensor(first)[:, None]


def _absorbed(denoise: Denoiser, canvas: Canvas, row: list[int], lo: list[int]) -> Context:
    """What the network remembers of the columns before `lo` of these rows."""
    if not row:
        return canvas.context
    ends = [lo[i] for i in row]
    given = Window.of(row, [0] * len(row), max(ends), canvas)
    part = given.whole(canvas)
    part = given.cut(part, part.context)
    if min(ends) < max(ends):
        later = _from(part, ends)
        pad = later if part.context.pad is None else part.context.pad | later
        part = replace(part, context=replace(part.context, pad=pad))
    return denoise.absorb(part.z, part.context)
