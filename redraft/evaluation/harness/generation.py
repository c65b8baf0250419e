"""Answers that are written: prompts to canvases, samplers by what a task asks for, texts up to where they stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from redraft.core import randomness
from redraft.core.canvas import Canvas
from redraft.core.processes.masked import Masked
from redraft.decoding.blocks.blocks import Blocks
from redraft.decoding.samplers.base import Sampler, final_canvas
from redraft.evaluation.harness.requests import AnswerRequest, RowLayout
from redraft.evaluation.harness.scoring import _BATCH_ROWS, NoProgress, ProgressCallback, _rows_at_once
from redraft.models.canvas_builder import make_hole
from redraft.tasks.arguments.aliases import ALIASES, settings_from
from redraft.tasks.arguments.settings import DecodingSettings
from redraft.tasks.engine.sampler_choice import choose_sampler, forbid_end_token
from redraft.tasks.engine.stop_strings import StopStrings, with_stop_strings

_NEW = 256  # tokens, if a task says nothing
_SIZES = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # the harness knows them all


@dataclass(frozen=True)
class TaskGeneration:
    """How a task wants its answers written."""

    new: int = _NEW  # tokens at most
    until: tuple[str, ...] = ()  # texts that end an answer
    decoding: DecodingSettings = DecodingSettings(temperature=0.0)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> tuple[TaskGeneration, list[str]]:
        """From `generation_kwargs`, and the names of those that mean nothing here.

        Besides the harness's own names, those of `DecodingSettings` count, and what other projects call them.
        """
        sizes = [settings[name] for name in _SIZES if settings.get(name) is not None]
        if sizes and not (isinstance(sizes[0], int) and sizes[0] > 0):
            raise ValueError(f"the task asks for {sizes[0]!r} new tokens; it must ask for one or more")
        until = settings.get("until") or ()
        ours = {name: value for name, value in settings.items() if _is_ours(name)}
        chance = settings.get("temperature", 1.0) if settings.get("do_sample") else 0.0
        decoding = settings_from(DecodingSettings, {**ours, "temperature": float(chance)})
        ignored = set(settings) - set(ours) - {*_SIZES, "until", "do_sample", "temperature"}
        stops = (until,) if isinstance(until, str) else tuple(text for text in until if text)
        return cls(sizes[0] if sizes else _NEW, stops, decoding), sorted(ignored)


@dataclass(frozen=True)
class AnswerWriter:
    """Writes answers; a text depends on its prompt, the seed and how often the prompt came before."""

    layout: RowLayout
    seed: int = 0
    steps: int | None = None  # where the task says nothing; None: one for each token for mask noise

    def __call__(
        self, asked: Sequence[tuple[AnswerRequest, TaskGeneration]], watch: ProgressCallback = NoProgress()
    ) -> list[str]:
        """One text per request, in their order."""
        sized = [self._sized(request, how) for request, how in asked]
        earlier, texts = _earlier([request for request, _, _ in sized]), [""] * len(asked)
        watch.begin("answers written", len(asked))
        for some in self._batches(sized):
            _, new, how = sized[some[0]]
            written = self._written([sized[i][0] for i in some], [earlier[i] for i in some], new, how)
            for i, text in zip(some, written, strict=True):
                texts[i] = text
            watch.advance(len(some))
        return texts

    def _batches(self, sized: Sequence[tuple[AnswerRequest, int, TaskGeneration]]) -> Iterator[list[int]]:
        """Answers of the same length, decoding and ends together, short prompts first."""
        kinds = [(new, how.decoding, how.until) for _, new, how in sized]
        for kind in dict.fromkeys(kinds):
            order = [i for i, each in enumerate(kinds) if each == kind]
            order.sort(key=lambda i: len(sized[i][0].context))
            while order:
                longest = max(len(self.layout.before(sized[i][0])) for i in order[:_BATCH_ROWS])
                rows = _rows_at_once(self.layout.it, self.layout.filled(longest + kind[0]))
                yield order[:rows]
                order = order[rows:]

    def _sized(self, request: AnswerRequest, asked: TaskGeneration) -> tuple[AnswerRequest, int, TaskGeneration]:
        """The request with the end of its context, and how many tokens to write: half a row at most, if it is full."""
        room = self.layout.room
        new = min(asked.new, max(1, room // 2, room - self.layout.taken(request)))
        return self.layout.shortened(request, new), new, asked

    def _written(
        self, some: Sequence[AnswerRequest], earlier: Sequence[int], new: int, how: TaskGeneration
    ) -> list[str]:
        """Rows that are written together."""
        model, tokenizer = self.layout.model, self.layout.it.tokenizer
        canvas = with_stop_strings(self._canvas(some, new), how.until, tokenizer)
        canvas = forbid_end_token(canvas) if how.decoding.end_token == "never" else canvas
        samples = torch.tensor([request.sample for request in some], device=canvas.z.device)
        keys = randomness.rng(self.seed, samples).fold(torch.tensor(earlier, device=canvas.z.device))
        sampler = self._chosen(how.decoding, int((~canvas.fixed).sum(-1).max()))
        with torch.no_grad():
            end = model.to_tokens(final_canvas(sampler(model, model.process, canvas, rng=keys)))
        stop = StopStrings(how.until, tokenizer)
        given = [self.layout.before(request) for request in some]
        return [stop.text_before(self._answer(end, row, len(ids), new), ids) for row, ids in enumerate(given)]

    def _canvas(self, some: Sequence[AnswerRequest], new: int) -> Canvas:
        layout, rows = self.layout, []
        for request in some:
            before = tuple(layout.before(request))
            size = layout.filled(len(before) + new) - len(before)
            rows.append([before, make_hole(layout.model.process, size)])
        beside = layout.model.encoder is not None
        return layout.model.compose(rows, [request.context for request in some] if beside else None)

    def _answer(self, end: Canvas, row: int, used: int, new: int) -> list[int]:
        """The ids that were written after the first `used` tokens, up to the end token."""
        pad, vocab = end.context.pad, self.layout.model.config.vocab
        there = torch.ones_like(end.fixed[row]) if pad is None else ~pad[row]
        ids: list[int] = end.z[row][there].tolist()[used : used + new]
        return ids[: ids.index(vocab.eos)] if vocab.eos in ids else ids

    def _chosen(self, decoding: DecodingSettings, hidden: int) -> Sampler:
        """For mask noise the most confident token first, in the blocks of network or run; else the run's sampler.

        A temperature means nothing to samplers of other noise, which draw as they were trained to.
        """
        it, steps = self.layout.it, decoding.steps or self.steps
        if not isinstance(it.lm.process, Masked):
            return choose_sampler(it, replace(decoding, steps=steps, temperature=None), hidden)[0]
        block = decoding.decode_block or (it.sampler.decode_block if isinstance(it.sampler, Blocks) else None)
        kind = "confidence" if decoding.sampler == "own" else decoding.sampler
        ranked = kind in ("confidence", "margin", "entropy")
        at_once = min(hidden, it.lm.block or block or hidden)
        return choose_sampler(
            it,
            replace(
                decoding,
                sampler=kind,
                steps=steps or at_once,
                decode_block=block,
                temperature=decoding.temperature if ranked else None,
            ),
            hidden,
        )[0]


def _is_ours(name: str) -> bool:
    """Whether a setting is one of `DecodingSettings`, by our name or another; number and seed are the harness's business."""
    known = {field.name for field in fields(DecodingSettings)} - {"n", "seed", "temperature"}
    return name in known or (name in ALIASES and ALIASES[name].name in known)


def _earlier(requests: Sequence[AnswerRequest]) -> list[int]:
    """How often each prompt came before."""
    seen: Counter[AnswerRequest] = Counter()
    found = []
    for request in requests:
        found.append(seen[request])
        seen[request] += 1
    return found
