"""Approximate key–value caches for full attention (Fast-dLLM): entries outside the current block may be stale."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Denoiser, Prediction
from redraft.decoding.blocks.windows import _Window


@dataclass(frozen=True)
class ApproximateCache(ABC):
    """A cache of the row outside a window, so that each step reads only the window (Fast-dLLM, Wu et al. 2025).

    Under full attention every token sees every other, so cached keys and values become stale as the window is written,
    and the text may differ from that without a cache. The whole canvas is read again at the start of each block, and
    every `refresh` steps within it; with refresh=1 nothing is ever stale.
    """

    refresh: int | None = None  # steps between passes over the whole canvas; None for one at the start of each block

    def __post_init__(self) -> None:
        if self.refresh is not None and self.refresh < 1:
            raise ValueError(
                f"refresh={self.refresh}; it must be at least 1 step, or None to refresh only at the start of a block"
            )

    @abstractmethod
    def window(self, row: list[int], first: list[int], size: int, canvas: Canvas) -> _Window:
        """Return the window to read at each step.

        row: indices of the rows to write. first: first column of the block in each of them. size: columns per block.
        """


@dataclass(frozen=True)
class PrefixCache(ApproximateCache):
    """A cache of everything before the block; each step reads the block and everything after it."""

    def window(self, row: list[int], first: list[int], size: int, canvas: Canvas) -> _Window:
        return _Window.of(row, first, canvas.z.shape[1], canvas)


@dataclass(frozen=True)
class DualCache(ApproximateCache):
    """A cache of everything before and after the block; each step reads only the block."""

    def window(self, row: list[int], first: list[int], size: int, canvas: Canvas) -> _Window:
        return _Window.of(row, first, size, canvas)


class _StaleDenoiser:
    """A denoiser for one window that reads the whole rows again every `refresh` calls.

    It counts its calls, so each run of a sampler needs a new one.
    """

    block = None

    def __init__(self, denoise: Denoiser, whole: Canvas, window: _Window, refresh: int | None) -> None:
        """whole: the canvas of the window's rows, with all their columns."""
        self._denoise, self._whole, self._window = denoise, whole, replace(window, row=None)
        self._refresh, self._calls, self._cached = refresh, 0, whole.context

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        if self._calls == 0 or (self._refresh is not None and self._calls % self._refresh == 0):
            self._cached = self._read_rows(z, t, context)
        self._calls += 1
        return self._denoise.predict(z, t, replace(context, cache=self._cached.cache))

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        raise ValueError("under full attention no block is ever finished; do not nest Blocks inside Blocks")

    def _read_rows(self, z: Tensor, t: Tensor, context: Context) -> Context:
        """Read the whole rows with the window's present tokens z into a new cache."""
        given, condition = self._whole.context, context.condition
        if condition.label is not given.condition.label or condition.source is not given.condition.source:
            raise ValueError(
                "guidance inside Blocks would use one approximate cache for both conditions; "
                "use GuidedSampler(Blocks(…), …)"
            )
        elsewhere = self._whole.time(torch.zeros_like(t[:, :1])).expand(self._whole.fixed.shape)  # given 0, future 1
        times = self._window.put(elsewhere, t.expand(z.shape))
        return self._denoise.absorb(self._window.put(self._whole.z, z), given, times)
