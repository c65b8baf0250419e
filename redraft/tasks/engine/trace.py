"""What writing costs, which tokens are new, and when each of them came."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from redraft.core.canvas import Canvas
from redraft.core.vocab import Vocab
from redraft.models.diffusion_lm import DiffusionLM
from redraft.tasks.engine.result import _StopReason


@dataclass
class NetworkCalls:
    """Network calls, counted per row; divided by the rows written this is the NFE of a sampler."""

    rows: int = 0
    on: bool = True  # False: calls that others make meanwhile do not count

    def add(self, rows: int) -> None:
        self.rows += rows if self.on else 0


@contextmanager
def count_calls(model: DiffusionLM, counted: NetworkCalls | None = None) -> Iterator[NetworkCalls]:
    """Counts the network's calls while it lasts, those that only fill a cache included.

    Where the passes of many writers are merged, those of the current one are counted.
    """
    counted = counted or NetworkCalls()
    if model.network.merger is not None:
        with model.network.merger.counting(counted.add):
            yield counted
        return

    def count(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        counted.add(len(inputs[0]))

    handle = model.network.blocks[0].register_forward_pre_hook(count)
    try:
        yield counted
    finally:
        handle.remove()


def generated_mask(start: Canvas, end: Canvas, vocab: Vocab) -> Tensor:
    """(B, L) bool: tokens of the end that were generated: not given, no padding, before the first new end token."""
    new = ~_given_mask(start, end)
    for pad in (start.context.pad if _in_place(start, end) else None, end.context.pad):
        new = new if pad is None else new & ~pad
    ended = (new & (end.z == vocab.eos)).cumsum(-1) > 0 if vocab.eos is not None else torch.zeros_like(new)
    return new & ~ended


def _given_mask(start: Canvas, end: Canvas) -> Tensor:
    """(B, L) bool: tokens of the end that were given."""
    return start.fixed if _in_place(start, end) else end.fixed


def _in_place(start: Canvas, end: Canvas) -> bool:
    """Whether every token is where it was: insertion moves what is given, a compressed text has no places."""
    return end.open is None and start.fixed.shape == end.fixed.shape


def _stop_reason(end: Canvas, vocab: Vocab, row: int, known: Tensor) -> _StopReason:
    """Whether a text ended by itself; insertion ends where it leaves room."""
    pad = end.context.pad
    if end.open is not None:
        return "end" if pad is not None and bool((pad[row] & ~end.fixed[row]).any()) else "length"
    new = ~known if pad is None else ~known & ~pad[row]
    return "end" if vocab.eos is not None and bool((end.z[row][new] == vocab.eos).any()) else "length"


class _TokenSteps:
    """When each token took the value it has: counted per row, over the canvases in which the row changed.

    So a row has the same numbers in any batch, however many steps the others need. Canvases are compared some at a
    time: one by one, the comparison would cost as much as a small network's layer.
    """

    def __init__(self) -> None:
        self._when: Tensor | None = None  # (B, L) int64: 0 for what stood there from the beginning; None for vectors
        self._count = torch.zeros(0)  # (B, 1) changes of each row so far
        self._seen: list[Tensor] = []  # (B, L) canvases that are not compared yet, and the last one that is

    def observe(self, canvas: Canvas, mask: int | None) -> None:
        """One more canvas, in the order of writing; the first one is the noise to start from."""
        z = canvas.z
        if z.dim() == 3:
            return
        if self._when is None:
            self._when, self._count = torch.zeros_like(z), torch.zeros_like(z[:, :1])
        elif canvas.open is not None:
            rows = zip(self._seen[-1].tolist(), self._when.tolist(), z.tolist(), strict=True)
            when = torch.tensor([_moved(*row, mask) for row in rows], device=z.device)
            self._count = self._count + (when < 0).any(-1, keepdim=True)
            self._when, self._seen = torch.where(when < 0, self._count, when), []
        self._seen.append(z)
        if len(self._seen) > _TOGETHER:
            self._compare()

    @property
    def steps(self) -> Tensor | None:
        """(B, L) the step of each token; None for vectors."""
        if len(self._seen) > 1:
            self._compare()
        return self._when

    def _compare(self) -> None:
        assert self._when is not None
        z = torch.stack(self._seen)
        changed = z[1:] != z[:-1]
        count = self._count + changed.any(-1, keepdim=True).cumsum(0)  # (n, B, 1)
        latest = torch.where(changed, count, 0).amax(0)
        self._when = torch.where(latest > 0, latest, self._when)
        self._count, self._seen = count[-1], self._seen[-1:]


_TOGETHER = 32  # canvases


def _moved(before: list[int], when: list[int], now: list[int], mask: int | None) -> list[int]:
    """When each token of a row came, after insertion has moved some: what was written stays in order; -1 if new."""
    left = deque((token, step) for token, step in zip(before, when, strict=True) if token != mask)
    return [left.popleft()[1] if left and left[0][0] == token else 0 if token == mask else -1 for token in now]
