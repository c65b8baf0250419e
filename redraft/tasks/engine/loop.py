"""The decoding loop: steps a sampler over a batch of rows and measures what it costs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from redraft.core import ops, randomness
from redraft.core.canvas import Canvas
from redraft.decoding.samplers.base import Sampler
from redraft.models.canvas_builder import text_positions
from redraft.models.diffusion_lm import DiffusionLM, eval_mode
from redraft.tasks.engine.logprobs import LogprobRecorder
from redraft.tasks.engine.result import TextResult, TextResults, _StopReason
from redraft.tasks.engine.stop_strings import StopStrings
from redraft.tasks.engine.trace import (
    _generated_mask,
    _given_mask,
    _NetworkCalls,
    _stop_reason,
    _TokenSteps,
    count_calls,
)


class DecodingLoop:
    """Decodes one batch of rows: iterate over its canvases as far as you like, then call `results`.

    During iteration the model is in eval mode and keeps no gradients. `seconds` counts the work of the loop, not what
    its caller does between two canvases.
    """

    def __init__(
        self,
        model: DiffusionLM,
        sampler: Sampler,
        start: Canvas,
        *,
        seed: int,
        samples: Tensor,
        first: int = 0,
        log: LogprobRecorder | None = None,
    ) -> None:
        self.model, self.sampler, self.start, self.seed = model, sampler, start, seed
        self.samples = samples  # (B,) index that makes, with the seed, the random key of each row
        self.first_row = first  # index of row 0 among all texts of the call
        self.seconds, self.canvas_count, self.calls = 0.0, 0, _NetworkCalls()
        self.steps, self.recorder = _TokenSteps(), log
        self.canvas = start

    def __iter__(self) -> Iterator[Canvas]:
        keys = randomness.rng(self.seed, self.samples)
        sampler = self.sampler if self.recorder is None else self.recorder.wrap(self.sampler)
        canvases = sampler(self.model, self.model.process, self.start, rng=keys)
        with eval_mode(self.model), count_calls(self.model, self.calls):
            while (canvas := self._next(canvases)) is not None:
                self.canvas, self.canvas_count = canvas, self.canvas_count + 1
                yield canvas

    def _next(self, canvases: Iterator[Canvas]) -> Canvas | None:
        clock = time.perf_counter()
        self.calls.on = True
        with ops.no_grad():
            canvas = next(canvases, None)
        if canvas is not None:
            self.steps.observe(canvas, self.model.config.vocab.mask)
        self.calls.on = False
        if canvas is not None and self.recorder is not None:
            self.recorder.observe(canvas)
        self.seconds += time.perf_counter() - clock
        return canvas

    def results(self) -> TextResults:
        """Returns the texts and their cost; if iteration has not begun, decodes all canvases first."""
        if self.canvas is self.start:
            for _ in self:
                pass
        clock = time.perf_counter()
        end, vocab = self.model.to_tokens(self.canvas), self.model.config.vocab
        count = int(
            (_generated_mask(self.start, end, vocab) & ~self._untouched(end)).sum()
        )  # also waits for the device
        self.seconds += time.perf_counter() - clock
        rows = len(end.z)
        return TextResults(self._texts(end), self.calls.rows / rows, self.seconds, count, self.seed, str(self.sampler))

    def _untouched(self, end: Canvas) -> Tensor:
        """(B, L) bool: tokens of an edited draft that were never noised or changed."""
        steps = self.steps.steps
        if steps is None or end.z.shape != self.start.z.shape or not self.sampler.starts_from_draft:
            return torch.zeros_like(end.fixed)
        return (end.z == self.start.z) & (steps == 0)

    def _texts(self, end: Canvas) -> tuple[TextResult, ...]:
        given, untouched = _given_mask(self.start, end), self._untouched(end)
        steps = None if self.canvas.z.dim() == 3 else self.steps.steps
        confidence = end.confidence
        return tuple(
            self._text(
                end,
                row,
                given[row] | untouched[row],
                None if steps is None else steps[row],
                None if confidence is None else confidence[row],
                _stop_reason(end, self.model.config.vocab, row, given[row]),
            )
            for row in range(len(end.z))
        )

    def _text(
        self, end: Canvas, row: int, given: Tensor, step: Tensor | None, confidence: Tensor | None, stop: _StopReason
    ) -> TextResult:
        tokenizer = self.model.tokenizer
        positions = text_positions(end, self.model.config.vocab, row)
        tokens, was_given = end.z[row, positions].tolist(), given[positions].tolist()
        steps = [None] * len(positions) if step is None else step[positions].tolist()
        probability = [None] * len(positions) if confidence is None else confidence[positions].tolist()
        result = TextResult(
            "" if tokenizer is None else tokenizer.decode(tokens),
            tuple(tokens),
            tuple(was_given),
            tuple(None if g else p for p, g in zip(probability, was_given, strict=True)),
            tuple(0 if g else s for s, g in zip(steps, was_given, strict=True)),
            stop,
            self.first_row + row,
            alternatives=self._alternatives(positions),
            tokenizer=tokenizer,
        )
        stops = self.start.context.constraints.stop_strings
        return stops.truncate(result) if isinstance(stops, StopStrings) else result

    def _alternatives(self, positions: Sequence[int]) -> tuple[tuple[tuple[str, float], ...] | None, ...]:
        if self.recorder is None or self.model.tokenizer is None:
            return ()
        return tuple(self.recorder.alternatives(column, self.model.tokenizer) for column in positions)
