"""Text of any length from a network with a limited context: semi-autoregressive decoding in a sliding window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.randomness import Rng
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.base import Sampler, SamplerWrapper
from redraft.decoding.samplers.stopping import stop_rows


@dataclass(frozen=True)
class SlidingWindow(SamplerWrapper):
    """Semi-autoregressive decoding in a sliding window (MDLM).

    Writes a window, keeps its last `window − stride` tokens as prompt, writes `stride` more tokens, and so on.
    Works with full attention and any inner sampler, and with block networks if the inner sampler is `Blocks(…)`.
    `window` is the length that the network was trained on. Tokens to the left of the window are not read, so this is
    exact only if each token depends on at most the `window − stride` tokens before it. With `stop`, a row ends at its
    first end token, as in `Blocks`.
    """

    sampler: Sampler = Ancestral()
    window: int = 1024
    stride: int = 512
    stop: bool = False
    obeys_rules = False

    def __post_init__(self) -> None:
        if not 0 < self.stride <= self.window:
            raise ValueError(
                f"stride={self.stride}, window={self.window}; the stride must be at least 1 and at most the window"
            )

    @property
    def stops_at_end_token(self) -> bool:
        return self.stop or self.sampler.stops_at_end_token

    @property
    def _addition(self) -> str:
        return f"in windows of {self.window}"

    def longest_read(self, length: int) -> int:
        return self.sampler.longest_read(min(length, self.window))

    def with_total_steps(self, steps: int, length: int, at_once: int) -> Sampler | None:
        return super().with_total_steps(steps, length, min(at_once, self.stride))

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        if denoise.block is not None and self.sampler.in_blocks(denoise.block) is None:
            raise ValueError(
                "this network writes one block after another; use Blocks(sampler), or SlidingWindow(Blocks(…))"
            )
        if process.grows:
            raise ValueError("insertion moves later tokens, so it needs the whole text; use Ancestral or Unmask")
        canvas = process.prior(canvas, rng=rng)
        yield canvas
        length, fixed = canvas.z.shape[1], canvas.fixed
        for lo in range(0, max(1, length - self.window + self.stride), self.stride):
            hi = min(lo + self.window, length)
            if not bool(fixed[:, lo:hi].all()):
                window = replace(canvas, fixed=fixed).window(lo, hi, canvas.context)
                window = replace(window, context=replace(window.context, positions=None))  # positions start at 0
                for inner in self.sampler(denoise, process, window, rng=rng.fold(lo)):
                    canvas = canvas.paste(inner, lo)
                    yield canvas
            canvas = stop_rows(canvas, process.vocab.eos if self.stop else None, hi, denoise)
            fixed = canvas.fixed | (torch.arange(length, device=fixed.device) < hi)
        yield canvas
