"""The way from a prompt to its text: an order (what to write), a plan (by which sampler), a writing (row by row).

Every row draws from its own key, (seed, number of the row), so no text depends on the batch size.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor

from redraft.core import randomness
from redraft.core.canvas import Canvas
from redraft.core.processes.gaussian import Gaussian
from redraft.decoding.blocks.blocks import Blocks
from redraft.decoding.constraints.constrained import Constrained
from redraft.decoding.constraints.rules import Rule
from redraft.decoding.samplers.base import Sampler
from redraft.decoding.samplers.guided import Guided
from redraft.decoding.samplers.particles import Particles
from redraft.decoding.speculation.speculative import DraftTally, Speculate
from redraft.models.canvas_builder import text_places
from redraft.models.diffusion_lm import DiffusionLM, eval_mode
from redraft.tasks.arguments.aliases import settings_from
from redraft.tasks.arguments.rules import Holes, obedient
from redraft.tasks.arguments.settings import Decoding, Generation, require_texts
from redraft.tasks.engine.conditions import (
    class_number,
    longer_than_learnt,
    new_tokens,
    require_comparison,
    require_source,
    source_tokens,
    with_guidance,
)
from redraft.tasks.engine.given_text import Verbatim
from redraft.tasks.engine.logprobs import LikelyTokens
from redraft.tasks.engine.model import Model, Opened, as_opened
from redraft.tasks.engine.result import CacheKind, Draft, Exactness, Record, Stop, Written
from redraft.tasks.engine.sampler_choice import (
    Beginning,
    batch_size,
    choose_sampler,
    edits,
    filtering,
    keeps_law,
    layers,
    unending,
)
from redraft.tasks.engine.speculation import speculating
from redraft.tasks.engine.stop_strings import StopTexts, with_stops
from redraft.tasks.engine.streaming import View
from redraft.tasks.engine.trace import Calls, Steps, calls, generated, given, stop_reason


@overload
def generate(
    model: Model, prompts: str | Sequence[str] = ..., *, stream: Literal[False] = ..., **options: Any
) -> Record: ...


@overload
def generate(
    model: Model, prompts: str | Sequence[str] = ..., *, stream: Literal[True], **options: Any
) -> Iterator[Draft]: ...


def generate(
    model: Model, prompts: str | Sequence[str] = "", *, stream: bool = False, **options: Any
) -> Record | Iterator[Draft]:
    """Texts that begin with the prompts, `n` for each, in the order of the prompts.

    A text depends on its prompt, the seed and its number among the texts of that prompt, not on other prompts, the
    batch, or whether it is streamed.

    Args:
        model: a trained model, or the directory of one. A directory knows its run: its sampler, its length, its classes
        prompts: the beginning of a text, or a list of them, of any lengths
        stream: return an iterator of drafts, one after each step, instead of the finished record
        options: the fields of `Generation`, by name: max_new_tokens, steps, seed, temperature, … ; also by names that
            other projects use (gen_length, num_return_sequences, …)
    """
    made = generation(as_opened(model), prompts, settings_from(Generation, options))
    return made.drafts() if stream else made.record()


def generation(it: Opened, prompts: str | Sequence[str], asked: Generation) -> Plan:
    """How to generate; whatever the model cannot do is refused here, before anything is written."""
    prompts = require_texts("prompts", prompts)
    if asked.draft is not None:
        asked = replace(asked, sampler=speculating(it, asked), draft=None)  # type: ignore[arg-type]
    require_source(it, asked)
    label = class_number(it, asked)
    require_comparison(it, asked, label, prompts)
    given, question = source_tokens(it, asked), it.question(asked.source)
    used = {prompt: it.used(prompt) + given for prompt in prompts}
    holes = {prompt: new_tokens(it, asked, used[prompt]) for prompt in used}
    length, most = max(used[prompt] + holes[prompt] for prompt in used), max(holes.values())

    def compose(some: Sequence[str]) -> Canvas:
        rows: list[list[Any]] = [[*question, prompt, it.hole(holes[prompt])] for prompt in some]
        beside = asked.source is not None and not question
        canvas = it.model.compose(rows, [asked.source or ""] * len(rows) if beside else None)
        canvas = with_stops(canvas, asked.stop, it.tokenizer)
        return canvas if label is None else it.model.labelled(canvas, label)

    fixed = isinstance(it.hole(0), int)
    order = Order(prompts, compose, length if fixed else max(used.values()), most, room=0 if fixed else most)
    made = plan(it, order, asked, partial(with_guidance, it, asked))
    return made.noting(*longer_than_learnt(it, length))


@dataclass(frozen=True)
class Order:
    """What is to be written, before anything of its size is built."""

    prompts: Sequence[str]
    compose: Callable[[Sequence[str]], Canvas]  # a row for each of some prompts
    length: int  # of the longest row, in tokens
    hidden: int  # the most tokens that a row has to get
    size: int | None = None  # tokens after the first `size` are not part of the text
    room: int = 0  # what holes of any length may take besides
    rules: Sequence[Rule | Holes | None] = ()  # what the text of each prompt must obey; nothing: all are free
    verbatim: Verbatim | None = None  # how given parts are spelt; None: as the tokenizer has it

    def canvas(self, numbers: Sequence[int], it: Opened) -> Canvas:
        """A row for each of some prompts, by their numbers, under their rules."""
        canvas = self.compose([self.prompts[number] for number in numbers])
        if not self.rules:
            return canvas
        return obedient(it.model, canvas, [self.rules[number] for number in numbers], self.size)


class Before(NamedTuple):
    """What was done before the first word is written, such as finding out how long a hole is."""

    calls: int = 0  # rows that the network has read
    seconds: float = 0.0


@dataclass(frozen=True)
class Plan:
    """An order, the sampler that carries it out, and how many rows it writes at a time."""

    it: Opened
    order: Order
    decoding: Decoding
    sampler: Sampler
    batch: int
    notes: tuple[str, ...] = ()
    first: int = 0  # the number of its first text in the call
    earlier: int = 0  # how often the first prompt was written for before
    before: Before = Before()

    def __len__(self) -> int:
        """How many texts there will be."""
        return self.decoding.n * len(self.order.prompts)

    def writings(self) -> Iterator[Writing]:
        """The rows, some at a time, in the order of their prompts."""
        earlier = list(self._earlier())
        for begin in range(0, len(self), self.batch):
            yield self._writing(range(begin, min(begin + self.batch, len(self))), earlier)

    def _writing(self, rows: range, earlier: Sequence[int]) -> Writing:
        n = self.decoding.n
        canvas = self.order.canvas([row // n for row in rows], self.it)
        samples = torch.tensor([earlier[row // n] * n + row % n for row in rows], device=canvas.z.device)
        sampler = self.sampler if self.order.size is None else Beginning(self.sampler, self.order.size)
        first, log = self.first + rows.start, LikelyTokens(self.decoding.alternatives) if self._watched else None
        return Writing(self.it.model, sampler, canvas, seed=self.decoding.seed, samples=samples, first=first, log=log)

    @property
    def _watched(self) -> bool:
        return self.decoding.alternatives > 0

    def _earlier(self) -> Iterator[int]:
        """How often each prompt came before: a text depends on its prompt and the seed, not on other prompts."""
        seen = Counter({prompt: self.earlier for prompt in self.order.prompts[:1]})
        for prompt in self.order.prompts:
            yield seen[prompt]
            seen[prompt] += 1

    def prompt(self, row: int) -> str:
        """What a text of the call was written for."""
        return self.order.prompts[(row - self.first) // self.decoding.n]

    def finished(self, writing: Writing) -> Record:
        """The record of some rows, with what the plan knows."""
        found = writing.record()
        verbatim, share = self.order.verbatim, len(found) / len(self)
        written = tuple(replace(each, prompt=self.prompt(each.row)).spelt(verbatim) for each in found)
        return replace(
            found,
            written=written,
            nfe=found.nfe + self.before.calls / len(self),
            seconds=found.seconds + self.before.seconds * share,
            run=self.it.name,
            sampler=str(self.sampler),
            cache=self.cache,
            notes=self.notes,
            exactness=self.exactness,
            acceptance=None if self.tally is None else self.tally.acceptance,
            tokens_per_round=None if self.tally is None else self.tally.tokens_per_round,
        )

    @property
    def tally(self) -> DraftTally | None:
        """What became of the drafts so far; None: nobody drafts."""
        return next((part.tally for part in layers(self.sampler) if isinstance(part, Speculate)), None)

    def record(self) -> Record:
        """All of it at once."""
        return Record.joined(map(self.finished, self.writings()))

    def drafts(self) -> Iterator[Draft]:
        """A draft for each text that changed in a step; the last one of each text brings it finished."""
        for writing in self.writings():
            view = View(self.it, writing.sampler, writing.first, self.order.verbatim)
            said: dict[int, tuple[str, str]] = {}
            for canvas in writing:
                for row in range(len(canvas.z)):
                    draft = view.draft(canvas, row)
                    if (draft.committed, draft.tentative) != said.get(row):
                        said[row] = (draft.committed, draft.tentative)
                        yield draft
            for written in self.finished(writing):
                yield Draft(written.row, written.text, "", written)

    def noting(self, *notes: str) -> Plan:
        return replace(self, notes=(*self.notes, *notes))

    def after(self, prompts: int, earlier: int) -> Plan:
        """The same as a later part of a call: so many prompts come before, and the same one so many times."""
        return replace(self, first=prompts * self.decoding.n, earlier=earlier)

    @property
    def cache(self) -> CacheKind:
        """Of keys and values, as the sampler declares it."""
        words = {part.exact(self.it.model) for part in layers(self.sampler) if isinstance(part, Blocks | Speculate)}
        return "approximate" if False in words else "exact" if True in words else "none"

    @property
    def exactness(self) -> Exactness:
        """In which sense texts obey; a pick that looks at what it drew, or another temperature, changes the law."""
        if not self.order.rules:
            return "free"
        parts = list(layers(self.sampler))
        if any(isinstance(part, Particles) for part in parts):
            return "model"
        vectors = isinstance(self.it.model.process, Gaussian)
        return "matches" if vectors or not all(map(keeps_law, parts)) else "steps"


def plan(it: Opened, order: Order, decoding: Decoding, around: Callable[[Sampler], Sampler] | None = None) -> Plan:
    """How an order will be carried out; refuses what is too long, before anything is built."""
    sampler, notes = choose_sampler(it, decoding, order.hidden)
    batch = batch_size(it, sampler, order.length, order.room)
    batch = 1 if decoding.alternatives else batch  # the log of what was said is that of one row
    order = obeying(it, order, decoding)
    if decoding.end_token == "never":
        order = replace(order, compose=_unending(order.compose))
    if order.rules:  # before other guidance: it is the outermost on the denoiser
        sampler = Guided(sampler, Constrained(it.model.process))
    sampler = filtering(it, sampler, decoding)
    return Plan(it, order, decoding, sampler if around is None else around(sampler), batch, notes)


def _unending(compose: Callable[[Sequence[str]], Canvas]) -> Callable[[Sequence[str]], Canvas]:
    return lambda some: unending(compose(some))


def obeying(it: Opened, order: Order, decoding: Decoding) -> Order:
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


class Writing:
    """Some rows being written: iterate over their canvases, as many as wanted, and take the record at the end.

    The model is in eval mode meanwhile, and no gradients are kept; `seconds` count the work alone, not what its user
    does between two canvases.
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
        log: LikelyTokens | None = None,
    ) -> None:
        self.model, self.sampler, self.start, self.seed = model, sampler, start, seed
        self.samples = samples  # (B,) with the seed, the random key of each row
        self.first = first  # the number of row 0 in its call
        self.seconds, self.canvases, self.calls = 0.0, 0, Calls()
        self.steps, self.log = Steps(), log
        self.canvas = start

    def __iter__(self) -> Iterator[Canvas]:
        keys = randomness.rng(self.seed, self.samples)
        sampler = self.sampler if self.log is None else self.log.around(self.sampler)
        canvases = sampler(self.model, self.model.process, self.start, rng=keys)
        with eval_mode(self.model), calls(self.model, self.calls):
            while (canvas := self._next(canvases)) is not None:
                self.canvas, self.canvases = canvas, self.canvases + 1
                yield canvas

    def _next(self, canvases: Iterator[Canvas]) -> Canvas | None:
        clock = time.perf_counter()
        self.calls.on = True
        with torch.no_grad():
            canvas = next(canvases, None)
        if canvas is not None:
            self.steps.see(canvas, self.model.config.vocab.mask)
        self.calls.on = False
        if canvas is not None and self.log is not None:
            self.log.see(canvas)
        self.seconds += time.perf_counter() - clock
        return canvas

    def record(self) -> Record:
        """What was written and what it cost; writes the remaining canvases first."""
        if self.canvas is self.start:
            for _ in self:
                pass
        clock = time.perf_counter()
        end, vocab = self.model.to_tokens(self.canvas), self.model.config.vocab
        count = int((generated(self.start, end, vocab) & ~self._kept(end)).sum())  # also waits for the device
        self.seconds += time.perf_counter() - clock
        rows = len(end.z)
        return Record(self._written(end), self.calls.rows / rows, self.seconds, count, self.seed, str(self.sampler))

    def _kept(self, end: Canvas) -> Tensor:
        """(B, L) bool: tokens of a draft that noise has not touched and nobody has changed."""
        steps = self.steps.when
        if steps is None or end.z.shape != self.start.z.shape or not edits(self.sampler):
            return torch.zeros_like(end.fixed)
        return (end.z == self.start.z) & (steps == 0)

    def _written(self, end: Canvas) -> tuple[Written, ...]:
        known, kept = given(self.start, end), self._kept(end)
        steps = None if self.canvas.z.dim() == 3 else self.steps.when
        sure = end.confidence
        return tuple(
            self._row(
                end,
                row,
                known[row] | kept[row],
                None if steps is None else steps[row],
                None if sure is None else sure[row],
                stop_reason(end, self.model.config.vocab, row, known[row]),
            )
            for row in range(len(end.z))
        )

    def _row(
        self, end: Canvas, row: int, known: Tensor, step: Tensor | None, sure: Tensor | None, stop: Stop
    ) -> Written:
        tokenizer = self.model.tokenizer
        places = text_places(end, self.model.config.vocab, row)
        tokens, was_given = end.z[row, places].tolist(), known[places].tolist()
        steps = [None] * len(places) if step is None else step[places].tolist()
        probability = [None] * len(places) if sure is None else sure[places].tolist()
        written = Written(
            "" if tokenizer is None else tokenizer.decode(tokens),
            tuple(tokens),
            tuple(was_given),
            tuple(None if g else p for p, g in zip(probability, was_given, strict=True)),
            tuple(0 if g else s for s, g in zip(steps, was_given, strict=True)),
            stop,
            self.first + row,
            alternatives=self._alternatives(places),
            tokenizer=tokenizer,
        )
        ending = self.start.context.ending
        return ending.cut(written) if isinstance(ending, StopTexts) else written

    def _alternatives(self, places: Sequence[int]) -> tuple[tuple[tuple[str, float], ...] | None, ...]:
        if self.log is None or self.model.tokenizer is None:
            return ()
        return tuple(self.log.spelt(place, self.model.tokenizer) for place in places)
