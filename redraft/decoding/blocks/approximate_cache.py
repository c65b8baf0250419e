"""Approximate key–value caches for full attention (Fast-dLLM): what is outside the block being written may be stale."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Denoiser, Prediction
from redraft.decoding.blocks.windows import Window


@dataclass(frozen=True)
class ApproximateCache(ABC):
    """Reads a window beside keys and values that the rest of the row had a while ago (Fast-dLLM, Wu et al. 2025).

    Under full attention every token sees every other, so what is kept of the others grows stale as the window is
    written: the text may differ from the one without a cache. The whole canvas is read again at the start of each
    block, and within it every `refresh` steps; with refresh=1 nothing is ever stale.
    """

    refresh: int | None = None  # steps between two readings of the whole canvas; None: only at the start of a block

    def __post_init__(self) -> None:
        if self.refresh is not None and self.refresh < 1:
            raise ValueError(f"refresh={self.refresh}; the whole canvas is read again every 1, 2, … steps, or None")

    @abstractmethod
    def window(self, row: list[int], first: list[int], size: int, canvas: Canvas) -> Window:
        """What is read at each step, of the block of `size` columns that begins at `first`."""


@dataclass(frozen=True)
class PrefixCache(ApproximateCache):
    """Keeps what stands before the block; the block and all after it are read at each step."""

    def window(self, row: list[int], first: list[int], size: int, canvas: Canvas) -> Window:
        return Window.of(row, first, canvas.z.shape[1], canvas)


@dataclass(frozen=True)
class DualCache(ApproximateCache):
    """Keeps what stands before and after the block; only the block is read at each step."""

    def window(self, row: list[int], first: list[int], size: int, canvas: Canvas) -> Window:
        return Window.of(row, first, size, canvas)


class StaleDenoiser:
    """A denoiser for one window, around one for whole rows, which it asks to read the whole rows now and then.

    It counts its calls, so it serves one run of one sampler.
    """

    block = None

    def __init__(self, denoise: Denoiser, whole: Canvas, window: Window, refresh: int | None) -> None:
        """whole: the rows of the window."""
        self._denoise, self._whole, self._window = denoise, whole, replace(window, row=None)
        self._refresh, self._calls, self._seen = refresh, 0, whole.context

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        if self._calls == 0 or (self._refresh is not None and self._calls % self._refresh == 0):
            self._seen = self._read(z, t, context)
        self._calls += 1
        return self._denoise(z, t, replace(context, cache=self._seen.cache))

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        raise ValueError("under full attention a window is never finished for good: no Blocks inside of Blocks")

    def _read(self, z: Tensor, t: Tensor, context: Context) -> Context:
        """The whole rows, as they are now, enter a new cache."""
        given = self._whole.context
        if context.label is not given.label or context.cond is not given.cond:
            raise ValueError("guidance inside of blocks would share one approximate cache; use Guided(Blocks(…), …)")
        elsewhere = self._whole.time(torch.zeros_like(t[:, :1])).expand(self._whole.fixed.shape)  # given 0, waiting 1
        times = self._window.put(elsewhere, t.expand(z.shape))
        return self._denoise.absorb(self._window.put(self._whole.z, z), given, times)
