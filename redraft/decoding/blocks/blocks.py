"""Decoding left to right in blocks, with any sampler; the cache is exact where the attention allows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.randomness import Rng
from redraft.decoding.blocks.approximate_cache import ApproximateCache, _StaleDenoiser
from redraft.decoding.blocks.windows import _Window
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.base import CacheKind, Sampler, SamplerWrapper
from redraft.decoding.samplers.stopping import may_stop, stop_rows


@dataclass(frozen=True)
class Blocks(SamplerWrapper):
    """Block-wise decoding: the inner sampler writes one block after another.

    Block-causal and causal networks have blocks of their own. Finished blocks never change and never see later tokens,
    so their keys and values are cached exactly. With a causal network, `Blocks(Ancestral(1))` is plain autoregressive
    sampling. Each row starts at its first block that is not given, independently of the other rows.

    For full attention, `decode_block` is the number of tokens per block, counted from the first token to write in each
    row. Each step then reads the whole canvas (LLaDA's semi-autoregressive decoding), or with `cache=DualCache()` or
    `PrefixCache()` a window of it, with an approximate cache of the rest (Fast-dLLM).

    With `stop`, a row ends at its first end token: the rest is filled with end tokens and needs no network calls.
    """

    sampler: Sampler = Ancestral()
    decode_block: int | None = None
    cache: bool | ApproximateCache = True  # True for an exact cache where the attention allows it; False for no cache
    stop: bool = False

    def __post_init__(self) -> None:
        if self.decode_block is not None and self.decode_block < 1:
            raise ValueError(f"decode_block={self.decode_block}; it must be at least one token")

    @property
    def block_size(self) -> int | None:
        return self.sampler.block_size if self.decode_block is None else self.decode_block

    @property
    def stops_at_end_token(self) -> bool:
        return self.stop

    def cache_kind(self, block: int | None) -> CacheKind:
        inner = self.sampler.cache_kind(block)
        if self._approximate_cache is not None or inner == "approximate":
            return "approximate"
        return "exact" if self.cache and block is not None else inner

    @property
    def _approximate_cache(self) -> ApproximateCache | None:
        return self.cache if isinstance(self.cache, ApproximateCache) else None

    @property
    def _addition(self) -> str:
        return "in blocks" if self.decode_block is None else f"in blocks of {self.decode_block}"

    def slowest(self) -> Blocks:
        return replace(self, sampler=self.sampler.slowest(), decode_block=None if self.decode_block is None else 1)

    def in_blocks(self, size: int) -> Blocks:
        return replace(self, decode_block=size)

    def with_cache(self, cache: bool | ApproximateCache) -> Blocks:
        return replace(self, cache=cache)

    def with_total_steps(self, steps: int, length: int, at_once: int) -> Sampler | None:
        return super().with_total_steps(steps, length, min(at_once, self.decode_block or at_once))

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        if process.grows:
            raise ValueError("insertion moves later tokens, so it has no blocks; use Ancestral or Unmask")
        size = self._size(denoise)
        canvas = process.prior(canvas, rng=rng)
        yield canvas
        if self._approximate_cache is not None:
            yield from self._with_approximate_cache(denoise, process, canvas, size, self._approximate_cache, rng)
        elif denoise.block is not None and self.cache:
            yield from self._with_exact_cache(denoise, process, canvas, size, rng)
        else:
            yield from self._without_cache(denoise, process, canvas, _block_index(denoise, canvas, size), rng)

    def _with_exact_cache(
        self, denoise: Denoiser, process: Process, canvas: Canvas, size: int, rng: Rng
    ) -> Iterator[Canvas]:
        """Decode with an exact cache of finished blocks; rows may be at different blocks."""
        lo, last = _given_columns(canvas, size), _last_columns(canvas)  # Python ints: few rows, many steps
        row = [i for i, first in enumerate(lo) if first <= last[i]]
        context = _absorb_given(denoise, canvas, row, lo)
        while row:
            window = _Window.of(row, [lo[i] for i in row], size, canvas)
            part = window.cut(window.whole(canvas), context)
            for inner in self.sampler(denoise, process, part, rng=window.keys(rng, size)):
                canvas = window.paste(canvas, inner)
                yield canvas
            lo = [first + size for first in lo]
            if may_stop(self.stop, canvas):
                canvas = stop_rows(canvas, self._end(process), ~_columns_from(canvas, lo), denoise)
                last = _last_columns(canvas)
            yield canvas
            index = [k for k, i in enumerate(row) if lo[i] <= last[i]]
            if not index:
                return
            if len(index) < len(row):
                row, window, context = [row[k] for k in index], window.rows(index), window.context(context, index)
            done = window.cut(window.whole(canvas), context)
            context = denoise.absorb(done.z, done.context)

    def _with_approximate_cache(
        self, denoise: Denoiser, process: Process, canvas: Canvas, size: int, cache: ApproximateCache, rng: Rng
    ) -> Iterator[Canvas]:
        """Decode under full attention with an approximate cache; a block skips rows with nothing to write in it."""
        block, start = _block_index(denoise, canvas, size), _first_free_column(canvas).tolist()
        for i in range(int(block.max()) + 1):
            active = replace(canvas, fixed=canvas.fixed | (block != i), future=~canvas.fixed & (block > i))
            if row := (~active.fixed).any(-1).nonzero().squeeze(-1).tolist():
                window = cache.window(row, [start[k] + i * size for k in row], size, canvas)
                whole = window.whole(active)
                part, stale = window.cut(whole, whole.context), _StaleDenoiser(denoise, whole, window, cache.refresh)
                for inner in self.sampler(stale, process, part, rng=window.keys(rng.fold(i))):
                    canvas = window.paste(canvas, inner)
                    yield canvas
            canvas = stop_rows(canvas, self._end(process), block <= i, denoise)
            yield canvas

    def _without_cache(
        self, denoise: Denoiser, process: Process, canvas: Canvas, block: Tensor, rng: Rng
    ) -> Iterator[Canvas]:
        """Decode without a cache: every step reads the whole canvas."""
        for i in range(int(block.max()) + 1):
            active = replace(canvas, fixed=canvas.fixed | (block != i), future=~canvas.fixed & (block > i))
            if bool(active.fixed.all()):
                continue
            if denoise.block is not None:
                active = _without_later_rules(active, (i + 1) * denoise.block - 1)
            for inner in self.sampler(denoise, process, active, rng=rng.fold(i)):
                canvas = replace(canvas, z=inner.z, confidence=inner.confidence)
                yield canvas
            canvas = stop_rows(canvas, self._end(process), block <= i, denoise)
            yield canvas

    def _end(self, process: Process) -> int | None:
        """Return the id of the end token if rows stop there."""
        return process.vocab.eos if self.stop else None

    def _size(self, denoise: Denoiser) -> int:
        """Return the number of tokens per block."""
        size = denoise.block if self.decode_block is None else self.decode_block
        if size is None:
            raise ValueError("a network with full attention has no blocks of its own; use Blocks(…, decode_block=32)")
        if denoise.block not in (None, size):
            raise ValueError(
                f"decode_block={size}; the network has blocks of {denoise.block}, so leave decode_block out"
            )
        if denoise.block is not None and self._approximate_cache is not None:
            name = type(self.cache).__name__
            raise ValueError(f"cache={name}(); a network that writes in blocks has an exact cache, so use cache=True")
        return size


def _without_later_rules(canvas: Canvas, last: int) -> Canvas:
    """Make the rules ignore predictions for columns after `last`, as they do with a cache.

    A network that writes in blocks is not trained to predict later blocks.
    """
    rules = canvas.context.constraints.rules
    if rules is None:
        return canvas
    return canvas.with_constraints(rules=rules.until(torch.tensor([[last]], device=canvas.z.device)))


def _block_index(denoise: Denoiser, canvas: Canvas, size: int) -> Tensor:
    """(B, L) index of the block in which each position is written."""
    column = torch.arange(canvas.z.shape[1], device=canvas.z.device)
    if denoise.block is not None:
        return (column // size).expand_as(canvas.fixed)
    return ((column - _first_free_column(canvas)[:, None]) // size).clamp(min=0)


def _first_free_column(canvas: Canvas) -> Tensor:
    """(B,) first column to write in each row; 0 if there is none."""
    return (~canvas.fixed).int().argmax(-1)


def _given_columns(canvas: Canvas, size: int) -> list[int]:
    """Return how many leading columns of each row are given, rounded down to whole blocks."""
    given = torch.where(canvas.fixed.all(-1), canvas.z.shape[1], _first_free_column(canvas)) // size * size
    columns: list[int] = given.tolist()
    return columns


def _last_columns(canvas: Canvas) -> list[int]:
    """Return the last column to write in each row; −1 if there is none."""
    column = torch.arange(canvas.z.shape[1], device=canvas.z.device)
    last: list[int] = torch.where(canvas.fixed, -1, column).amax(-1).tolist() if len(column) else [-1] * len(canvas.z)
    return last


def _columns_from(canvas: Canvas, first: list[int]) -> Tensor:
    """(B, L) bool: columns from `first` of each row on."""
    return torch.arange(canvas.z.shape[1], device=canvas.z.device) >= canvas.z.new_tensor(first)[:, None]


def _absorb_given(denoise: Denoiser, canvas: Canvas, row: list[int], lo: list[int]) -> Context:
    """Return the context of these rows, with their columns before `lo` in the cache."""
    if not row:
        return canvas.context
    ends = [lo[i] for i in row]
    given = _Window.of(row, [0] * len(row), max(ends), canvas)
    part = given.whole(canvas)
    part = given.cut(part, part.context)
    if min(ends) < max(ends):
        beyond = _columns_from(part, ends)
        pad = beyond if part.context.pad is None else part.context.pad | beyond
        part = replace(part, context=replace(part.context, pad=pad))
    return denoise.absorb(part.z, part.context)
