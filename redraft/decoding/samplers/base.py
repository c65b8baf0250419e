"""The sampler protocol, time warps, and functions that samplers share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.randomness import Rng


class TimeWarp(Protocol):
    """A time grid for samplers: maps the fraction of steps left to a time."""

    def __call__(self, left: float) -> float:
        """Return the time when the fraction `left` of the steps is left; falls from 1 to 0 as `left` does."""
        ...


@dataclass(frozen=True)
class EvenWarp:
    """Equal steps of time."""

    def __call__(self, left: float) -> float:
        return left


@dataclass(frozen=True)
class HoldWarp:
    """Time falls evenly to `at`, stays there while the fraction of steps left goes from `on` to `off`, then falls to 0.

    Meant for remasking: while time stands still, tokens are only remasked and rewritten. ReMDM's "loop" strategy has
    at = 0.1, where α = 0.9 under the linear schedule. With at = off/(1 − on + off), time falls equally fast before and
    after the pause.
    """

    on: float = 0.55
    off: float = 0.05
    at: float = 0.1

    def __post_init__(self) -> None:
        if not (0 < self.off <= self.on < 1 and 0 < self.at < 1):
            raise ValueError(f"on={self.on}, off={self.off}, at={self.at}; use 0 < off <= on < 1 and 0 < at < 1")

    def __call__(self, left: float) -> float:
        if left > self.on:
            return self.at + (1 - self.at) * (left - self.on) / (1 - self.on)
        return self.at if left >= self.off else self.at * left / self.off


def require_steps(steps: int) -> None:
    """Raise unless `steps` is between one and a million."""
    if steps < 1:
        raise ValueError(f"steps={steps}; a sampler needs at least one step")
    if steps > 10**6:  # far finer than in any paper, and hours for one text
        raise ValueError(f"steps={steps}; a sampler takes at most a million steps")


def require_unconstrained(canvas: Canvas, sampler: object, reason: str) -> None:
    """Raise if the canvas has rules (`constrain`), for samplers that cannot obey them."""
    if canvas.context.rules is not None:
        raise ValueError(f"{type(sampler).__name__} cannot obey rules: {reason}; use Ancestral or Unmask (--sampler)")


def _time_grid(canvas: Canvas, steps: int, warp: TimeWarp = EvenWarp()) -> list[Tensor]:
    """Return steps + 1 times (B, 1), from `start_time` down to 0."""
    return [time_column(canvas, start_time(canvas) * warp(1 - i / steps)) for i in range(steps + 1)]


def start_time(canvas: Canvas) -> float:
    """Return the time at which sampling begins: 1, or less if the canvas holds a draft."""
    return 1.0 if canvas.start_time is None else canvas.start_time


class Sampler(Protocol):
    """A generator of canvases from noise to text, whose last canvas is the result. Its fields are its settings."""

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]: ...


def final_canvas(canvases: Iterator[Canvas]) -> Canvas:
    """Run a sampler to its end and return the last canvas."""
    for canvas in canvases:  # noqa: B007
        pass
    return canvas


def time_column(canvas: Canvas, t: float) -> Tensor:
    """(B, 1) time t for every row, in the widest float."""
    return torch.full((canvas.z.shape[0], 1), t, dtype=ops.widest_float(canvas.z.device), device=canvas.z.device)


def initial_canvas(denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Canvas:
    """Return the canvas filled with noise, or unchanged if it holds a draft.

    Raises if the network writes block by block and there are tokens to write in several blocks.
    """
    if denoise.block is not None and _spans_several_blocks(canvas, denoise.block):
        raise ValueError(f"this network writes one block of {denoise.block} after another; use Blocks(sampler)")
    return process.prior(canvas, rng=rng) if canvas.start_time is None else canvas


def _spans_several_blocks(canvas: Canvas, block: int) -> bool:
    """Whether any row has tokens to write in more than one block."""
    if canvas.context.positions is not None and canvas.z.shape[1] <= block and len(canvas.context.positions) == 1:
        positions = canvas.context.positions[0].tolist()  # usually a window within one block, which is quick to see
        if positions and positions[0] // block == positions[-1] // block:
            return False
    index, free = canvas.positions // block, ~canvas.fixed
    first, last = index.masked_fill(~free, 2**62).amin(-1), index.masked_fill(~free, -1).amax(-1)
    return bool((first < last).any())


def sampler_layers(sampler: Any) -> Iterator[Any]:
    """Yield the sampler, then its inner sampler, and so on inward."""
    while sampler is not None:
        yield sampler
        sampler = getattr(sampler, "sampler", None)
