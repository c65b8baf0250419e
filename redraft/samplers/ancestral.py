"""Ancestral sampling: the reverse process itself, on a time grid or from hit to hit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from redraft.ops import Rng
from redraft.processes.base import Process
from redraft.processes.masked import Choice, Masked, draw_at
from redraft.samplers.base import instant, start
from redraft.types import Canvas, Denoiser, Prediction


class Warp(Protocol):
    """How time passes while a sampler works."""

    def __call__(self, left: float) -> float:
        """The share of the work that is left, from 1 to 0 → the time, which falls from 1 to 0."""
        ...


@dataclass(frozen=True)
class Even:
    """Equal steps."""

    def __call__(self, left: float) -> float:
        return left


@dataclass(frozen=True)
class Hold:
    """Time falls evenly to `at`, stands still from `on` to `off`, and falls evenly to zero.

    For remasking, which works while nothing else happens: ReMDM's "loop" has at = 0.1, α = 0.9 of the linear schedule.
    With at = off/(1 − on + off) the way is the even one with a pause.
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


@dataclass(frozen=True)
class Ancestral:
    """z_s ~ p(z_s | z_t) on `steps` steps from t = 1 to 0, equal ones unless a `warp` says otherwise; any process.

    The error falls as 1/steps. A row in which a step changes nothing costs no network call, so mask noise needs at
    most as many calls per row as it has tokens to write.
    """

    steps: int = 64
    warp: Warp = Even()

    def __post_init__(self) -> None:
        require_steps(self.steps)

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        canvas = start(denoise, process, canvas, rng=rng.fold(self.steps))
        yield canvas
        for i, (t, s) in enumerate(pairwise(grid(canvas, self.steps, self.warp))):
            with torch.no_grad():
                pred = denoise(canvas.z, canvas.time(t), canvas.context)
                canvas = process.step(pred, canvas, s, t, rng=rng.fold(i))
            yield canvas


@dataclass(frozen=True)
class FirstHitting:
    """Mask noise without a time grid: jump to the time of the next reveal, write one token (Zheng et al. 2024).

    Exactly the continuous-time process, one network call per token. Where the sum of x̂ is free (`Score`) it is taken
    as one: every mask is then as likely to be next.
    """

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        if not isinstance(process, Masked):
            raise ValueError(f"first hitting knows mask noise only, not {type(process).__name__}; use Ancestral(steps)")
        canvas, t = start(denoise, process, canvas, rng=rng), instant(canvas, 1.0)
        yield canvas
        hidden = (canvas.z == process.vocab.masked) & ~canvas.fixed
        for i in range(int(hidden.sum(-1).max())):
            when, what = rng.fold(i).split(2)
            with torch.no_grad():
                s = process.hit(canvas, t, rng=when)
                pred = denoise(canvas.z, canvas.time(s), canvas.context)
                canvas, t = process.reveal(pred, canvas, s, t, _One(), rng=what), s
            yield canvas


@dataclass(frozen=True)
class _One:
    """One masked position per row, each as likely as the others."""

    def __call__(self, pred: Prediction, hidden: Tensor, share: Tensor, *, rng: Rng) -> Choice:
        which, what = rng.split(2)
        chosen = (which.uniform(hidden.shape[1]) * hidden).argmax(-1, keepdim=True)
        where = hidden & torch.zeros_like(hidden).scatter(-1, chosen, True)
        return Choice(where, draw_at(pred, where, rng=what))


def require_steps(steps: int) -> None:
    if steps < 1:
        raise ValueError(f"steps={steps}; a sampler needs at least one step")
    if steps > 10**6:  # a grid a thousand times finer than any paper's, and hours for one text
        raise ValueError(f"steps={steps}; a sampler takes at most a million steps")


def grid(canvas: Canvas, steps: int, warp: Warp = Even()) -> list[Tensor]:
    """steps + 1 times (B, 1) from 1 down to 0."""
    return [instant(canvas, warp(1 - i / steps)) for i in range(steps + 1)]
