"""Text of any length from a network that sees a limited length: semi-autoregressive, by strides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.processes.insertion import Insertion
from redraft.core.randomness import Rng
from redraft.decoding.blocks.blocks import Blocks
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.base import Sampler
from redraft.decoding.samplers.stopping import stop_rows


@dataclass(frozen=True)
class SlidingWindow:
    """Write a window, keep its last `window − stride` tokens as prompt, write `stride` more, and so on (MDLM).

    For any network with full attention and any inner sampler, and for networks of blocks with `Blocks(…)` inside, whose
    positions know no more than their rows; `window` is the length that the network was trained on.
    Tokens to the left of the window are forgotten, so this is exact only if a token depends on no more than the
    `window − stride` tokens before it. With `stop`, a row ends at its first end token, as in `Blocks`.
    """

    sampler: Sampler = Ancestral()
    window: int = 1024
    stride: int = 512
    stop: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.stride <= self.window:
            raise ValueError(
                f"stride={self.stride}, window={self.window}; a stride has at least one token and at most a window"
            )

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        if denoise.block is not None and not isinstance(self.sampler, Blocks):
            raise ValueError("a network of blocks writes block after block; use Blocks(sampler), or Strides(Blocks(…))")
        if isinstance(process, Insertion):
            raise ValueError("insertion shifts later tokens right, so it has no strides; use Ancestral or Unmask")
        canvas = process.prior(canvas, rng=rng)
        yield canvas
        length, held = canvas.z.shape[1], canvas.fixed
        for lo in range(0, max(1, length - self.window + self.stride), self.stride):
            hi = min(lo + self.window, length)
            if not bool(held[:, lo:hi].all()):
                window = replace(canvas, fixed=held).window(lo, hi, canvas.context)
                window = replace(window, context=replace(window.context, place=None))  # to the network a row of its own
                for inner in self.sampler(denoise, process, window, rng=rng.fold(lo)):
                    canvas = canvas.paste(inner, lo)
                    yield canvas
            canvas = stop_rows(canvas, process.vocab.eos if self.stop else None, hi, denoise)
            held = canvas.fixed | (torch.arange(length, device=held.device) < hi)
        yield canvas
