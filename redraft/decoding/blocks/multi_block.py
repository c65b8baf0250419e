"""Several blocks at a time, left to right: later blocks start before earlier ones are finished."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser, Prediction
from redraft.core.processes.base import Process
from redraft.core.processes.masked import Masked, Pick
from redraft.core.randomness import Rng
from redraft.core.vocab import require_range
from redraft.decoding.picks.adaptive import ConfidenceThreshold
from redraft.decoding.samplers.base import Sampler
from redraft.decoding.samplers.stopping import may_stop, stop_rows


@dataclass(frozen=True)
class MultiBlock(Sampler):
    """Decoding of several blocks of `decode_block` tokens at a time, under full attention (d3LLM, 2026).

    A block becomes active when the fraction `add` of the block before it is written. An adaptive pick may then reveal
    any number of its tokens, or none. Once the fraction `full` of the block before is written, the pick must reveal at
    least one token per step. Picks that are not adaptive (`Confidence` …) wait for that and then reveal one per step.
    With add = full = 1 this is `Blocks(Unmask(None, pick), decode_block)`, one block after another.

    Under a rule, the active blocks are drawn from left to right from one prediction, each conditioned on the tokens
    just drawn in earlier blocks. With `stop`, a row ends once everything up to its first end token is written: the rest
    becomes end tokens.
    """

    pick: Pick = ConfidenceThreshold()
    decode_block: int = 32
    add: float = 0.5
    full: float = 0.5
    stop: bool = False
    settings_part = "pick"

    def __post_init__(self) -> None:
        require_range(self, 1, 2**31, "decode_block")
        require_range(self, 0, 1, "add", "full")

    @property
    def writes_once(self) -> bool:
        return self.pick.writes_once

    @property
    def draws_exactly(self) -> bool:
        return self.pick.draws_exactly

    @property
    def stops_at_end_token(self) -> bool:
        return self.stop

    def slowest(self) -> MultiBlock:
        return replace(self, decode_block=1)

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        process = process.narrowed(Masked, "MultiBlock", "use Blocks")
        if denoise.block is not None:
            raise ValueError("this network cannot read unfinished blocks; use Blocks(sampler), one block after another")
        canvas = process.prior(canvas, rng=rng)
        yield canvas
        block = _block_index(canvas, self.decode_block)
        total = _count_per_block(~canvas.fixed, block)
        picks = [self.pick] * total.shape[1]
        steps_made = torch.zeros_like(total)
        while bool((left := _count_per_block(process.hidden(canvas), block)).any()):
            active, forced = self._active(left, total)
            with torch.no_grad():
                pred = self._predict(denoise, process, canvas, block, left / total.clamp(min=1), active)
                z_before = canvas.z
                for k in active.any(0).nonzero().squeeze(-1).tolist():
                    here = (block == k) & active[:, k : k + 1]
                    share = torch.where(forced[:, k], 0.5 / left[:, k].clamp(min=1), -1.0)[:, None]
                    part, keys = replace(canvas, fixed=canvas.fixed | ~here), rng.fold(k).fold(steps_made[:, k])
                    t = share.new_ones(share.shape)
                    # rules: condition on the tokens just drawn in earlier blocks
                    pred = pred.after(torch.where(process.hidden(canvas), z_before, canvas.z))
                    part, picks[k] = process.reveal(pred, part, t, t, picks[k], share=share, rng=keys)
                    canvas = replace(canvas, z=part.z, confidence=part.confidence)
            steps_made = steps_made + active
            if may_stop(self.stop, canvas):
                written = process.hidden(canvas).cumsum(-1) == 0
                canvas = stop_rows(canvas, process.vocab.eos if self.stop else None, written, denoise)
            yield canvas

    def _active(self, left: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        """(B, blocks) bool: blocks in which tokens may be revealed, and those in which at least one must be."""
        written = torch.where(total > 0, 1 - left / total.clamp(min=1), 1.0)
        before = torch.nn.functional.pad(written, (1, 0), value=1.0)[:, :-1]
        active = (before >= self.add).cumprod(-1).bool() & (left > 0)
        return active, active & (before >= self.full)

    def _predict(
        self, denoise: Denoiser, process: Masked, canvas: Canvas, block: Tensor, masked: Tensor, active: Tensor
    ) -> Prediction:
        """Predict all active blocks in one network call. masked: (B, blocks) fraction of each block still masked."""
        here = active.gather(1, block)
        others_fixed = replace(canvas, fixed=canvas.fixed | ~here, future=process.hidden(canvas) & ~here)
        t = process.time_when_masked(masked.to(ops.widest_float(masked.device))).gather(1, block)
        pred, hidden = denoise.predict(canvas.z, others_fixed.time(t), canvas.context), process.hidden(others_fixed)
        return pred.evaluated(hidden)


def _block_index(canvas: Canvas, size: int) -> Tensor:
    """(B, L) block index of each column, counted from the first column to write."""
    column = torch.arange(canvas.z.shape[1], device=canvas.z.device)
    return ((column - (~canvas.fixed).int().argmax(-1, keepdim=True)) // size).clamp(min=0)


def _count_per_block(where: Tensor, block: Tensor) -> Tensor:
    """(B, blocks) number of true positions in each block."""
    blocks = int(block.max()) + 1 if block.numel() else 0
    return block.new_zeros(len(block), blocks).scatter_add(1, block, where.long())
