"""Left to right in blocks, around any sampler; with an exact cache where the attention allows one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.ops import Rng
from redraft.processes import Insertion, Process
from redraft.samplers.ancestral import Ancestral
from redraft.samplers.base import Sampler
from redraft.samplers.stops import require_flag, stopped
from redraft.types import Canvas, Denoiser


@dataclass(frozen=True)
class Blocks:
    """Write one block after the other with the inner sampler.

    For block-causal and causal networks the blocks are those of the network, and finished ones are read from a cache
    of keys and values, which is exact: they never change and never see later tokens. `Blocks(Ancestral(1))` is plain
    autoregressive sampling. For full attention `decode_block` says how many tokens at a time, counted from the first
    token to be written in each row; the whole canvas is read at every step (semi-autoregressive decoding of LLaDA).
    With `stop`, a row ends at its first end token: the rest of it is filled with end tokens and costs nothing.
    """

    sampler: Sampler = Ancestral()
    decode_block: int | None = None
    cache: bool = True
    stop: bool = False

    def __post_init__(self) -> None:
        if self.decode_block is not None and self.decode_block < 1:
            raise ValueError(f"decode_block={self.decode_block}; a block has at least one token")
        require_flag(self.stop)

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        if isinstance(process, Insertion):
            raise ValueError("insertion shifts later tokens right, so it has no blocks; use Ancestral or Unmask")
        canvas = process.prior(canvas, rng=rng)
        yield canvas
        block_of = self._block_of(denoise, canvas)
        if denoise.block is not None and self.cache:
            yield from self._cached(denoise, process, canvas, denoise.block, rng)
        else:
            yield from self._whole(denoise, process, canvas, block_of, rng)

    def _cached(self, denoise: Denoiser, process: Process, canvas: Canvas, size: int, rng: Rng) -> Iterator[Canvas]:
        length, begin = canvas.z.shape[1], _given_blocks(canvas, size)
        given = canvas.window(0, begin, canvas.context)
        context = denoise.absorb(given.z, given.context)
        for lo in range(begin, length, size):
            hi = min(lo + size, length)
            window = canvas.window(lo, hi, context)
            for inner in self.sampler(denoise, process, window, rng=rng.fold(lo // size).at(window.place)):
                canvas = canvas.paste(inner, lo)
                yield canvas
            canvas = stopped(canvas, self._end(process), hi, denoise)
            yield canvas
            if bool(canvas.fixed[:, hi:].all()):
                return
            context = denoise.absorb(canvas.z[:, lo:hi], window.context)

    def _whole(
        self, denoise: Denoiser, process: Process, canvas: Canvas, block_of: Tensor, rng: Rng
    ) -> Iterator[Canvas]:
        for i in range(int(block_of.max()) + 1):
            active = replace(canvas, fixed=canvas.fixed | (block_of != i), waiting=~canvas.fixed & (block_of > i))
            if bool(active.fixed.all()):
                continue
            for inner in self.sampler(denoise, process, active, rng=rng.fold(i)):
                canvas = replace(canvas, z=inner.z, confidence=inner.confidence)
                yield canvas
            canvas = stopped(canvas, self._end(process), block_of <= i, denoise)
            yield canvas

    def _end(self, process: Process) -> int | None:
        return process.vocab.eos if self.stop else None

    def _block_of(self, denoise: Denoiser, canvas: Canvas) -> Tensor:
        """(B, L) the number of the block that each position is written in."""
        pos = torch.arange(canvas.z.shape[1], device=canvas.z.device)
        size = denoise.block if self.decode_block is None else self.decode_block
        if size is None:
            raise ValueError("a network with full attention has no blocks of its own; use Blocks(…, decode_block=32)")
        if denoise.block not in (None, size):
            raise ValueError(f"decode_block={size} for a network of blocks of {denoise.block}; leave decode_block out")
        if denoise.block is not None:
            return (pos // size).expand_as(canvas.fixed)
        begin = (~canvas.fixed).int().argmax(-1, keepdim=True)
        return ((pos - begin) // size).clamp(min=0)


def _given_blocks(canvas: Canvas, size: int) -> int:
    """How many columns, in whole blocks from the left, are given in every row."""
    given = canvas.fixed.all(0)
    columns = len(given) if bool(given.all()) else int((~given).int().argmax())
    return columns // size * size
