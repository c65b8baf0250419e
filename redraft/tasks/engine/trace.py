"""What decoding did: network calls, which tokens are new, and the step at which each was written."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from redraft.core.canvas import Canvas
from redraft.core.vocab import Vocab
from redraft.models.diffusion_lm import DiffusionLM
from redraft.tasks.engine.result import _StopReason

_COMPARED_AT_ONCE = 32  # canvases


@dataclass
class _NetworkCalls:
    """Network calls, counted per row; divided by the number of texts they are the NFE of a sampler."""

    rows: int = 0
    on: bool = True  # False pauses counting, so that calls made by others in between are left out

    def add(self, rows: int) -> None:
        """Counts a call with this many rows, unless counting is paused."""
        self.rows += rows if self.on else 0


@contextmanager
def count_calls(model: DiffusionLM, counted: _NetworkCalls | None = None) -> Iterator[_NetworkCalls]:
    """Counts the network calls made inside the `with` block, including those that only fill a cache.

    If the passes of concurrent requests are merged, only those of the current request count.
    """
    counted = counted or _NetworkCalls()
    with model.network.counting(counted.add):
        yield counted


def _generated_mask(start: Canvas, end: Canvas, vocab: Vocab) -> Tensor:
    """(B, L) bool: generated tokens of the final canvas, neither given nor padding, before the first new end token."""
    new = ~_given_mask(start, end)
    for pad in (start.context.pad if _in_place(start, end) else None, end.context.pad):
        new = new if pad is None else new & ~pad
    ended = (new & (end.z == vocab.eos)).cumsum(-1) > 0 if vocab.eos is not None else torch.zeros_like(new)
    return new & ~ended


def _given_mask(start: Canvas, end: Canvas) -> Tensor:
    """(B, L) bool: tokens of the final canvas that were given."""
    return start.fixed if _in_place(start, end) else end.fixed


def _in_place(start: Canvas, end: Canvas) -> bool:
    """Whether tokens kept their positions; insertion moves given tokens, and compressed latents have no positions."""
    return end.open is None and start.fixed.shape == end.fixed.shape


def _stop_reason(end: Canvas, vocab: Vocab, row: int, given: Tensor) -> _StopReason:
    """Returns "end" if the text ended by itself (for insertion: if it left room unused), else "length"."""
    pad = end.context.pad
    if end.open is not None:
        return "end" if pad is not None and bool((pad[row] & ~end.fixed[row]).any()) else "length"
    new = ~given if pad is None else ~given & ~pad[row]
    return "end" if vocab.eos is not None and bool((end.z[row][new] == vocab.eos).any()) else "length"


class _TokenSteps:
    """The step at which each token took its current value, counting only canvases in which its row changed.

    A row therefore has the same steps in any batch, however many steps the other rows need. Canvases are compared in
    groups, because comparing each one alone would cost as much as a layer of a small network.
    """

    def __init__(self) -> None:
        self._steps: Tensor | None = None  # (B, L) int64: 0 for tokens of the initial canvas; None for vectors
        self._count = torch.zeros(0)  # (B, 1) changes of each row so far
        self._pending: list[Tensor] = []  # (B, L) the last compared canvas, then those not yet compared

    def observe(self, canvas: Canvas, mask: int | None) -> None:
        """Adds the next canvas in the order of decoding; the first one is the initial noise."""
        z = canvas.z
        if z.dim() == 3:
            return
        if self._steps is None:
            self._steps, self._count = torch.zeros_like(z), torch.zeros_like(z[:, :1])
        elif canvas.open is not None:
            rows = zip(self._pending[-1].tolist(), self._steps.tolist(), z.tolist(), strict=True)
            steps = torch.tensor([_steps_after_insertion(*row, mask) for row in rows], device=z.device)
            self._count = self._count + (steps < 0).any(-1, keepdim=True)
            self._steps, self._pending = torch.where(steps < 0, self._count, steps), []
        self._pending.append(z)
        if len(self._pending) > _COMPARED_AT_ONCE:
            self._compare()

    @property
    def steps(self) -> Tensor | None:
        """(B, L) the step of each token; None for vectors."""
        if len(self._pending) > 1:
            self._compare()
        return self._steps

    def _compare(self) -> None:
        assert self._steps is not None
        z = torch.stack(self._pending)
        changed = z[1:] != z[:-1]
        count = self._count + changed.any(-1, keepdim=True).cumsum(0)  # (n, B, 1)
        latest = torch.where(changed, count, 0).amax(0)
        self._steps = torch.where(latest > 0, latest, self._steps)
        self._count, self._pending = count[-1], self._pending[-1:]


def _steps_after_insertion(before: list[int], steps: list[int], now: list[int], mask: int | None) -> list[int]:
    """Step of each token in a row after an insertion moved tokens, whose order is kept; −1 for a new token."""
    left = deque((token, step) for token, step in zip(before, steps, strict=True) if token != mask)
    return [left.popleft()[1] if left and left[0][0] == token else 0 if token == mask else -1 for token in now]
