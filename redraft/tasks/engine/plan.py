"""The way from a prompt to its text: an order (what to write), a plan (by which sampler), a writing (row by row).

Every row draws from its own key, (seed, number of the row), so no text depends on the batch size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from redraft.core.canvas import Canvas
from redraft.core.processes.gaussian import Gaussian
from redraft.decoding.blocks.blocks import Blocks
from redraft.decoding.constraints.constrained import Constrained
from redraft.decoding.constraints.rules import Rule
from redraft.decoding.samplers.base import Sampler, sampler_layers
from redraft.decoding.samplers.guided import GuidedSampler
from redraft.decoding.samplers.particles import ParticleSampler
from redraft.decoding.speculation.speculative import DraftStats, SpeculativeSampler
from redraft.tasks.arguments.rules import HoleRules, with_rules
from redraft.tasks.arguments.settings import DecodingSettings
from redraft.tasks.engine.given_text import GivenText
from redraft.tasks.engine.logprobs import LogprobRecorder
from redraft.tasks.engine.loop import DecodingLoop
from redraft.tasks.engine.model import TextModel
from redraft.tasks.engine.result import PartialText, TextResults, _CacheKind, _Exactness
from redraft.tasks.engine.sampler_choice import (
    _draws_exactly,
    _TruncatedSampler,
    _with_filters,
    batch_size,
    choose_sampler,
    forbid_end_token,
)
from redraft.tasks.engine.streaming import StreamView


@dataclass(frozen=True)
class TextRequest:
    """What is to be written, before anything of its size is built."""

    prompts: Sequence[str]
    compose: Callable[[Sequence[str]], Canvas]  # a row for each of some prompts
    row_length: int  # of the longest row, in tokens
    most_new: int  # the most tokens that a row has to get
    text_length: int | None = None  # tokens after the first `size` are not part of the text
    room: int = 0  # what holes of any length may take besides
    rules: Sequence[Rule | HoleRules | None] = ()  # what the text of each prompt must obey; nothing: all are free
    given_text: GivenText | None = None  # how given parts are spelt; None: as the tokenizer has it

    def canvas(self, numbers: Sequence[int], it: TextModel) -> Canvas:
        """A row for each of some prompts, by their numbers, under their rules."""
        canvas = self.compose([self.prompts[number] for number in numbers])
        if not self.rules:
            return canvas
        return with_rules(it.lm, canvas, [self.rules[number] for number in numbers], self.text_length)


class UpfrontCost(NamedTuple):
    """What was done before the first word is written, such as finding out how long a hole is."""

    rows: int = 0  # rows that the network has read
    seconds: float = 0.0


@dataclass(frozen=True)
class DecodingPlan:
    """An order, the sampler that carries it out, and how many rows it writes at a time."""

    model: TextModel
    request: TextRequest
    settings: DecodingSettings
    sampler: Sampler
    batch: int
    notes: tuple[str, ...] = ()
    first_row: int = 0  # the number of its first text in the call
    earlier: int = 0  # how often the first prompt was written for before
    upfront: UpfrontCost = UpfrontCost()

    def __len__(self) -> int:
        """How many texts there will be."""
        return self.settings.n * len(self.request.prompts)

    def loops(self) -> Iterator[DecodingLoop]:
        """The rows, some at a time, in the order of their prompts."""
        earlier = list(self._earlier())
        for begin in range(0, len(self), self.batch):
            yield self._writing(range(begin, min(begin + self.batch, len(self))), earlier)

    def _writing(self, rows: range, earlier: Sequence[int]) -> DecodingLoop:
        n = self.settings.n
        canvas = self.request.canvas([row // n for row in rows], self.model)
        samples = torch.tensor([earlier[row // n] * n + row % n for row in rows], device=canvas.z.device)
        sampler = (
            self.sampler
            if self.request.text_length is None
            else _TruncatedSampler(self.sampler, self.request.text_length)
        )
        first, log = self.first_row + rows.start, LogprobRecorder(self.settings.alternatives) if self._watched else None
        return DecodingLoop(
            self.model.lm, sampler, canvas, seed=self.settings.seed, samples=samples, first=first, log=log
        )

    @property
    def _watched(self) -> bool:
        return self.settings.alternatives > 0

    def _earlier(self) -> Iterator[int]:
        """How often each prompt came before: a text depends on its prompt and the seed, not on other prompts."""
        seen = Counter({prompt: self.earlier for prompt in self.request.prompts[:1]})
        for prompt in self.request.prompts:
            yield seen[prompt]
            seen[prompt] += 1

    def prompt(self, row: int) -> str:
        """What a text of the call was written for."""
        return self.request.prompts[(row - self.first_row) // self.settings.n]

    def loop_results(self, writing: DecodingLoop) -> TextResults:
        """The record of some rows, with what the plan knows."""
        found = writing.results()
        verbatim, share = self.request.given_text, len(found) / len(self)
        written = tuple(replace(each, prompt=self.prompt(each.row)).with_given_text(verbatim) for each in found)
        return replace(
            found,
            written=written,
            nfe=found.nfe + self.upfront.rows / len(self),
            seconds=found.seconds + self.upfront.seconds * share,
            run=self.model.name,
            sampler=str(self.sampler),
            cache=self.cache,
            notes=self.notes,
            exactness=self.exactness,
            acceptance=None if self.draft_stats is None else self.draft_stats.acceptance,
            tokens_per_round=None if self.draft_stats is None else self.draft_stats.tokens_per_round,
        )

    @property
    def draft_stats(self) -> DraftStats | None:
        """What became of the drafts so far; None: nobody drafts."""
        return next((part.tally for part in sampler_layers(self.sampler) if isinstance(part, SpeculativeSampler)), None)

    def results(self) -> TextResults:
        """All of it at once."""
        return TextResults.joined(map(self.loop_results, self.loops()))

    def stream(self) -> Iterator[PartialText]:
        """A draft for each text that changed in a step; the last one of each text brings it finished."""
        for writing in self.loops():
            view = StreamView(self.model, writing.sampler, writing.first_row, self.request.given_text)
            said: dict[int, tuple[str, str]] = {}
            for canvas in writing:
                for row in range(len(canvas.z)):
                    draft = view.partial_text(canvas, row)
                    if (draft.committed, draft.tentative) != said.get(row):
                        said[row] = (draft.committed, draft.tentative)
                        yield draft
            for written in self.loop_results(writing):
                yield PartialText(written.row, written.text, "", written)

    def with_notes(self, *notes: str) -> DecodingPlan:
        return replace(self, notes=(*self.notes, *notes))

    def offset_by(self, prompts: int, earlier: int) -> DecodingPlan:
        """The same as a later part of a call: so many prompts come before, and the same one so many times."""
        return replace(self, first_row=prompts * self.settings.n, earlier=earlier)

    @property
    def cache(self) -> _CacheKind:
        """Of keys and values, as the sampler declares it."""
        words = {
            part.exact(self.model.lm)
            for part in sampler_layers(self.sampler)
            if isinstance(part, Blocks | SpeculativeSampler)
        }
        return "approximate" if False in words else "exact" if True in words else "none"

    @property
    def exactness(self) -> _Exactness:
        """In which sense texts obey; a pick that looks at what it drew, or another temperature, changes the law."""
        if not self.request.rules:
            return "free"
        parts = list(sampler_layers(self.sampler))
        if any(isinstance(part, ParticleSampler) for part in parts):
            return "model"
        vectors = isinstance(self.model.lm.process, Gaussian)
        return "matches" if vectors or not all(map(_draws_exactly, parts)) else "steps"


def make_plan(
    it: TextModel, order: TextRequest, decoding: DecodingSettings, around: Callable[[Sampler], Sampler] | None = None
) -> DecodingPlan:
    """How an order will be carried out; refuses what is too long, before anything is built."""
    sampler, notes = choose_sampler(it, decoding, order.most_new)
    batch = batch_size(it, sampler, order.row_length, order.room)
    batch = 1 if decoding.alternatives else batch  # the log of what was said is that of one row
    order = _apply_rules(it, order, decoding)
    if decoding.end_token == "never":
        order = replace(order, compose=_unending(order.compose))
    if order.rules:  # before other guidance: it is the outermost on the denoiser
        sampler = GuidedSampler(sampler, Constrained(it.lm.process))
    sampler = _with_filters(it, sampler, decoding)
    return DecodingPlan(it, order, decoding, sampler if around is None else around(sampler), batch, notes)


def _unending(compose: Callable[[Sequence[str]], Canvas]) -> Callable[[Sequence[str]], Canvas]:
    return lambda some: forbid_end_token(compose(some))


def _apply_rules(it: TextModel, order: TextRequest, decoding: DecodingSettings) -> TextRequest:
    """The order under its rules; each prompt that contradicts its own is refused now, before the network is asked."""
    if not decoding.ruled:
        return order
    order = order if order.rules else replace(order, rules=decoding.rules(len(order.prompts)))
    different = {
        (prompt, rule): number for number, (prompt, rule) in enumerate(zip(order.prompts, order.rules, strict=True))
    }
    for number in different.values():
        order.canvas([number], it)
    return order
