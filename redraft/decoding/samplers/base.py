"""What a sampler is, and what all of them share: the protocol, times, warps."""

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
    """How time passes while a sampler works."""

    def __call__(self, left: float) -> float:
        """The share of the steps that is left, from 1 to 0 → the time, which falls from 1 to 0."""
        ...


@dataclass(frozen=True)
class EvenWarp:
    """Equal steps."""

    def __call__(self, left: float) -> float:
        return left


@dataclass(frozen=True)
class HoldWarp:
    """Time falls evenly to `at`, stands still from `on` to `off`, and falls evenly to zero.

    For remasking, which works while nothing else happens: ReMDM's "loop" has at = 0.1, where α = 0.9 if the schedule is
    linear. With at = off/(1 − on + off) time falls at the same speed before and after the pause.
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
    if steps < 1:
        raise ValueError(f"steps={steps}; a sampler needs at least one step")
    if steps > 10**6:  # a grid a thousand times finer than any paper's, and hours for one text
        raise ValueError(f"steps={steps}; a sampler takes at most a million steps")


def require_unconstrained(canvas: Canvas, sampler: object, reason: str) -> None:
    """An error if there are rules on the canvas (`constrain`) that a sampler cannot obey."""
    if canvas.context.marks is not None:
        raise ValueError(f"{type(sampler).__name__} cannot obey rules: {reason}; use Ancestral or Unmask (--sampler)")


def time_grid(canvas: Canvas, steps: int, warp: TimeWarp = EvenWarp()) -> list[Tensor]:
    """steps + 1 times (B, 1) from 1, or where a draft begins, down to 0."""
    return [time_column(canvas, start_time(canvas) * warp(1 - i / steps)) for i in range(steps + 1)]


def start_time(canvas: Canvas) -> float:
    """The time at which sampling begins."""
    return 1.0 if canvas.since is None else canvas.since


class Sampler(Protocol):
    """A generator of canvases from noise to text; the last one is the result. Settings are its fields."""

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]: ...


def final_canvas(canvases: Iterator[Canvas]) -> Canvas:
    """The finished canvas."""
    for canvas in canvases:  # noqa: B007
        pass
    return canvas


def time_column(canvas: Canvas, t: float) -> Tensor:
    """(B, 1) the same time for all rows, in the widest float."""
    return torch.full((canvas.z.shape[0], 1), t, dtype=ops.widest_float(canvas.z.device), device=canvas.z.device)


def initial_canvas(denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Canvas:
    """Noise, or the draft that is there; an error if a network that writes blocks is asked for several at once."""
    if denoise.block is not None and _scattered(canvas, denoise.block):
        raise ValueError(f"this network writes blocks of {denoise.block}, one after the other; use Blocks(sampler)")
    return process.prior(canvas, rng=rng) if canvas.since is None else canvas


def _scattered(canvas: Canvas, block: int) -> bool:
    """Whether a row has tokens to write in more than one block."""
    if canvas.context.place is not None and canvas.z.shape[1] <= block and len(canvas.context.place) == 1:
        places = canvas.context.place[0].tolist()  # a window that lies in one block, as it should: nothing to compute
        if places and places[0] // block == places[-1] // block:
            return False
    number, free = canvas.place // block, ~canvas.fixed
    first, last = number.masked_fill(~free, 2**62).amin(-1), number.masked_fill(~free, -1).amax(-1)
    return bool((first < last).any())


def sampler_layers(sampler: Any) -> Iterator[Any]:
    """A sampler, the one it is built around, and so on."""
    while sampler is not None:
        yield sampler
        sampler = getattr(sampler, "sampler", None)
