"""Several blocks at once, left to right: later ones begin before earlier ones are finished."""

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
from redraft.decoding.constraints.constrained import ConstrainedPrediction
from redraft.decoding.picks.adaptive import ConfidenceThreshold
from redraft.decoding.samplers.stopping import may_stop, stop_rows


@dataclass(frozen=True)
class MultiBlock:
    """Writes blocks of `decode_block` tokens, of which several are active at a time (d3LLM, 2026); full attention.

    A block becomes active when the share `add` of the tokens of the one before it is written. The pick then reveals
    what it dares in it. It must reveal at least one token there only when the share `full` of the block before is
    written. Picks that do not decide by themselves how many (`Confidence` …) reveal one, and wait for that moment.
    With add = full = 1 this is `Blocks(Unmask(None, pick), decode_block)`, one block after the other.
    Under a rule blocks are drawn one after the other from the same prediction, each given what the ones before got.
    With `stop`, a row ends once everything up to its first end token is written: the rest becomes end tokens.
    """

    pick: Pick = ConfidenceThreshold()
    decode_block: int = 32
    add: float = 0.5
    full: float = 0.5
    stop: bool = False

    def __post_init__(self) -> None:
        require_range(self, 1, 2**31, "decode_block")
        require_range(self, 0, 1, "add", "full")

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        self._require(denoise, process)
        assert isinstance(process, Masked)
        canvas = process.prior(canvas, rng=rng)
        yield canvas
        block_of = _block_of(canvas, self.decode_block)
        total = _count(~canvas.fixed, block_of)
        picks = [self.pick] * total.shape[1]
        clock = torch.zeros_like(total)
        while bool((left := _count(process.hidden(canvas), block_of)).any()):
            active, forced = self._active(left, total)
            with torch.no_grad():
                pred, seen = self._read(denoise, process, canvas, block_of, left / total.clamp(min=1), active), canvas.z
                for k in active.any(0).nonzero().squeeze(-1).tolist():
                    here = (block_of == k) & active[:, k : k + 1]
                    share = torch.where(forced[:, k], 0.5 / left[:, k].clamp(min=1), -1.0)[:, None]
                    part, keys = replace(canvas, fixed=canvas.fixed | ~here), rng.fold(k).fold(clock[:, k])
                    t = share.new_ones(share.shape)
                    if isinstance(pred, ConstrainedPrediction):  # what earlier blocks got now is part of the text
                        pred = pred.after(torch.where(process.hidden(canvas), seen, canvas.z))
                    part, picks[k] = process.reveal(pred, part, t, t, picks[k], share=share, rng=keys)
                    canvas = replace(canvas, z=part.z, confidence=part.confidence)
            clock = clock + active
            if may_stop(self.stop, canvas):
                written = process.hidden(canvas).cumsum(-1) == 0
                canvas = stop_rows(canvas, process.vocab.eos if self.stop else None, written, denoise)
            yield canvas

    def _active(self, left: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        """(B, blocks) bool: where tokens may be revealed, and where at least one must be."""
        written = torch.where(total > 0, 1 - left / total.clamp(min=1), 1.0)
        before = torch.nn.functional.pad(written, (1, 0), value=1.0)[:, :-1]
        active = (before >= self.add).cumprod(-1).bool() & (left > 0)
        return active, active & (before >= self.full)

    def _read(
        self, denoise: Denoiser, process: Masked, canvas: Canvas, block_of: Tensor, share: Tensor, active: Tensor
    ) -> Prediction:
        """What the network says of the active blocks: asked once for all of them; others are clean, or still noise."""
        here = active.gather(1, block_of)
        shown = replace(canvas, fixed=canvas.fixed | ~here, waiting=process.hidden(canvas) & ~here)
        t = process.moment(share.to(ops.widest_float(share.device))).gather(1, block_of)
        pred, hidden = denoise(canvas.z, shown.time(t), canvas.context), process.hidden(shown)
        if not isinstance(pred, ConstrainedPrediction):
            return CachedPrediction(pred, hidden)
        pred.at(hidden)  # it remembers what it has asked
        return pred

    def _require(self, denoise: Denoiser, process: Process) -> None:
        if not isinstance(process, Masked):
            raise ValueError(f"several blocks at once are for mask noise, not {type(process).__name__}; use Blocks")
        if denoise.block is not None:
            raise ValueError("this network reads finished blocks only; use Blocks(sampler), one block after the other")


class CachedPrediction(Prediction):
    """A prediction that is asked once at the marked positions, and answers for any of them from memory."""

    def __init__(self, inner: Prediction, where: Tensor) -> None:
        self._inner, self._where, self._log_x = inner, where, inner.at(where)

    @property
    def normalised(self) -> bool:
        return self._inner.normalised

    @property
    def x(self) -> Tensor:
        return self._inner.x

    def at(self, where: Tensor) -> Tensor:
        return self._log_x[where[self._where]]

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        return self._inner.nll(where, target)


def _block_of(canvas: Canvas, size: int) -> Tensor:
    """(B, L) the number of the block of each column, counted from the first one to be written."""
    column = torch.arange(canvas.z.shape[1], device=canvas.z.device)
    return ((column - (~canvas.fixed).int().argmax(-1, keepdim=True)) // size).clamp(min=0)


def _count(where: Tensor, block_of: Tensor) -> Tensor:
    """(B, blocks) how many marked columns each block has."""
    blocks = int(block_of.max()) + 1 if block_of.numel() else 0
    return block_of.new_zeros(len(block_of), blocks).scatter_add(1, block_of, where.long())
