"""Filling a canvas: the rows of a batch being written, what they cost, and when each token came.

Every row draws from its own key, (seed, number of the row), so no text depends on the batch size.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from redraft import ops
from redraft.data import Framing
from redraft.model import DiffusionLM, eval_mode, text_places
from redraft.samplers import Sampler
from redraft.types import Batch, Canvas, Vocab
from redraft.write.record import Record, Stop, Written


@dataclass
class Calls:
    """Network calls, counted per row; divided by the rows written this is the NFE of a sampler."""

    rows: int = 0


@contextmanager
def calls(model: DiffusionLM, counted: Calls | None = None) -> Iterator[Calls]:
    """Counts the network's calls while it lasts, those that only fill a cache included."""
    counted = counted or Calls()

    def count(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        counted.rows += len(inputs[0])

    handle = model.network.blocks[0].register_forward_pre_hook(count)
    try:
        yield counted
    finally:
        handle.remove()


def generated(start: Canvas, end: Canvas, vocab: Vocab) -> Tensor:
    """(B, L) bool: tokens of the end that were generated: not given, no padding, before the first new end token."""
    new = ~given(start, end)
    for pad in (start.context.pad if _in_place(start, end) else None, end.context.pad):
        new = new if pad is None else new & ~pad
    ended = (new & (end.z == vocab.eos)).cumsum(-1) > 0 if vocab.eos is not None else torch.zeros_like(new)
    return new & ~ended


def given(start: Canvas, end: Canvas) -> Tensor:
    """(B, L) bool: tokens of the end that were given."""
    return start.fixed if _in_place(start, end) else end.fixed


def _in_place(start: Canvas, end: Canvas) -> bool:
    """Whether every token is where it was: insertion moves what is given, a compressed text has no places."""
    return end.open is None and start.fixed.shape == end.fixed.shape


class Writing:
    """Some rows being written: iterate over their canvases, as many as wanted, and take the record at the end.

    The model is in eval mode meanwhile, and no gradients are kept; `seconds` count the work alone, not what its user
    does between two canvases.
    """

    def __init__(
        self, model: DiffusionLM, sampler: Sampler, start: Canvas, *, seed: int, samples: Tensor, first: int = 0
    ) -> None:
        self.model, self.sampler, self.start, self.seed = model, sampler, start, seed
        self.samples = samples  # (B,) with the seed, the random key of each row
        self.first = first  # the number of row 0 in its call
        self.seconds, self.canvases, self.calls = 0.0, 0, Calls()
        self.steps = Steps()
        self.canvas = start

    def __iter__(self) -> Iterator[Canvas]:
        keys = ops.rng(self.seed, self.samples)
        canvases = self.sampler(self.model, self.model.process, self.start, rng=keys)
        with eval_mode(self.model):
            while (canvas := self._next(canvases)) is not None:
                self.canvas, self.canvases = canvas, self.canvases + 1
                yield canvas

    def _next(self, canvases: Iterator[Canvas]) -> Canvas | None:
        clock = time.perf_counter()
        with torch.no_grad(), calls(self.model, self.calls):
            canvas = next(canvases, None)
            if canvas is not None:
                self.steps.see(canvas, self.model.config.vocab.mask)
        self.seconds += time.perf_counter() - clock
        return canvas

    def record(self) -> Record:
        """What was written and what it cost; writes the remaining canvases first."""
        if self.canvas is self.start:
            for _ in self:
                pass
        clock = time.perf_counter()
        end, vocab = self.model.to_tokens(self.canvas), self.model.config.vocab
        count = int(generated(self.start, end, vocab).sum())  # also waits for the device
        self.seconds += time.perf_counter() - clock
        rows = len(end.z)
        return Record(self._written(end), self.calls.rows / rows, self.seconds, count, self.seed, str(self.sampler))

    def _written(self, end: Canvas) -> tuple[Written, ...]:
        known = given(self.start, end)
        steps = None if self.canvas.z.dim() == 3 else self.steps.when
        sure = end.confidence
        return tuple(
            self._row(end, row, known[row], None if steps is None else steps[row], None if sure is None else sure[row])
            for row in range(len(end.z))
        )

    def _row(self, end: Canvas, row: int, known: Tensor, step: Tensor | None, sure: Tensor | None) -> Written:
        vocab, tokenizer = self.model.config.vocab, self.model.tokenizer
        places = text_places(end, vocab, row)
        tokens, was_given = end.z[row, places].tolist(), known[places].tolist()
        steps = [None] * len(places) if step is None else step[places].tolist()
        probability = [None] * len(places) if sure is None else sure[places].tolist()
        return Written(
            "" if tokenizer is None else tokenizer.decode(tokens),
            tuple(tokens),
            tuple(was_given),
            tuple(None if g else p for p, g in zip(probability, was_given, strict=True)),
            tuple(0 if g else s for s, g in zip(steps, was_given, strict=True)),
            _stop(end, vocab, row, known),
            self.first + row,
            tokenizer=tokenizer,
        )


def _stop(end: Canvas, vocab: Vocab, row: int, known: Tensor) -> Stop:
    """Whether a text ended by itself; insertion ends where it leaves room."""
    pad = end.context.pad
    if end.open is not None:
        return "end" if pad is not None and bool((pad[row] & ~end.fixed[row]).any()) else "length"
    new = ~known if pad is None else ~known & ~pad[row]
    return "end" if vocab.eos is not None and bool((end.z[row][new] == vocab.eos).any()) else "length"


class Steps:
    """When each token took the value it has: counted per row, over the canvases in which the row changed.

    So a row has the same numbers in any batch, however many steps the others need. Canvases are compared some at a
    time: one by one, the comparison would cost as much as a small network's layer.
    """

    def __init__(self) -> None:
        self._when: Tensor | None = None  # (B, L) int64: 0 for what stood there from the beginning; None for vectors
        self._count = torch.zeros(0)  # (B, 1) changes of each row so far
        self._seen: list[Tensor] = []  # (B, L) canvases that are not compared yet, and the last one that is

    def see(self, canvas: Canvas, mask: int | None) -> None:
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
    def when(self) -> Tensor | None:
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


def fill(
    model: DiffusionLM, sampler: Sampler, canvas: Canvas, *, seed: int = 0, batch: int = 64, first: int = 0
) -> Record:
    """Fills all rows of a canvas, `batch` at a time; row i draws from the key (seed, first + i), whatever its batch."""
    rows = torch.arange(len(canvas.z), device=canvas.z.device)
    parts = (
        Writing(model, sampler, canvas.rows(some), seed=seed, samples=first + some, first=int(some[0]))
        for some in rows.split(batch)
    )
    return Record.joined(part.record() for part in parts)


def to_write(model: DiffusionLM, framing: Framing, rows: int, held_out: Batch) -> Canvas:
    """Empty canvases as long as the training rows; for models that answer sources, one per held-out source.

    At most as many answers as the batch has rows.
    """
    device = next(model.parameters()).device
    if framing.asked:
        answers = model.blank(held_out.to(device))
        return answers.rows(torch.arange(min(rows, len(answers.z)), device=device))
    given = model.config.vocab.bos is not None  # a canvas begins with it
    return model.canvas(new=framing.length - given, rows=rows)
