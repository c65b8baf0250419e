"""From prompt to text: a request (what to write), a plan (with which sampler), and decoding loops (batches of rows).

Every row draws from its own key, (seed, index of the text for its prompt), so no text depends on the batch size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from redraft.core.canvas import Canvas
from redraft.decoding.constraints.constrained import Constrained
from redraft.decoding.constraints.rules import Json
from redraft.decoding.samplers.base import CacheKind, DraftStats, Sampler
from redraft.decoding.samplers.guided import GuidedSampler
from redraft.tasks.arguments.rules import RowRules, with_rules
from redraft.tasks.arguments.settings import DecodingSettings, Prompt
from redraft.tasks.engine.given_text import GivenText
from redraft.tasks.engine.logprobs import LogprobRecorder
from redraft.tasks.engine.loop import DecodingLoop
from redraft.tasks.engine.model import TextModel
from redraft.tasks.engine.result import PartialText, TextResults, _Exactness
from redraft.tasks.engine.sampler_choice import (
    _TruncatedSampler,
    _with_filters,
    batch_size,
    choose_sampler,
    forbid_end_token,
)
from redraft.tasks.engine.streaming import StreamView


@dataclass(frozen=True)
class TextRequest:
    """What to write; canvases are built later, batch by batch."""

    prompts: Sequence[Prompt]
    compose: Callable[[Sequence[Any]], Canvas]  # prompts → a canvas with one row for each
    row_length: int  # tokens in the longest row
    most_new: int  # maximum number of tokens to write in a row
    text_length: int | None = None  # tokens that belong to the text, if the rest of the row is only context
    room: int = 0  # additional tokens that holes of any length may take
    rules: Sequence[RowRules] = ()  # one for each prompt; empty if texts are unconstrained
    given_text: GivenText | None = None  # exact spelling of given parts; None to decode them like the rest

    def canvas(self, indices: Sequence[int], model: TextModel) -> Canvas:
        """A canvas with a row for each of the prompts at `indices`, under their rules."""
        canvas = self.compose([self.prompts[index] for index in indices])
        if not self.rules:
            return canvas
        return with_rules(model.lm, canvas, [self.rules[index] for index in indices], self.text_length)


class UpfrontCost(NamedTuple):
    """Work done before decoding, such as choosing the length of a hole."""

    rows: int = 0  # rows passed through the network
    seconds: float = 0.0


@dataclass(frozen=True)
class DecodingPlan:
    """A request with everything needed to decode it: model, settings, sampler and batch size."""

    model: TextModel
    request: TextRequest
    settings: DecodingSettings
    sampler: Sampler
    batch: int
    notes: tuple[str, ...] = ()
    first_row: int = 0  # index of its first text among all texts of the call
    earlier: int = 0  # earlier occurrences of the first prompt in the call
    upfront: UpfrontCost = UpfrontCost()

    def __len__(self) -> int:
        """Number of texts it will write."""
        return self.settings.n * len(self.request.prompts)

    def loops(self) -> Iterator[DecodingLoop]:
        """Yields a decoding loop for each batch of rows, in the order of the prompts."""
        earlier = list(self._earlier())
        for begin in range(0, len(self), self.batch):
            yield self._loop(range(begin, min(begin + self.batch, len(self))), earlier)

    def _loop(self, rows: range, earlier: Sequence[int]) -> DecodingLoop:
        n = self.settings.n
        canvas = self.request.canvas([row // n for row in rows], self.model)
        samples = torch.tensor([earlier[row // n] * n + row % n for row in rows], device=canvas.z.device)
        length, alternatives = self.request.text_length, self.settings.alternatives
        sampler = self.sampler if length is None else _TruncatedSampler(self.sampler, length)
        first, recorder = self.first_row + rows.start, LogprobRecorder(alternatives) if alternatives else None
        return DecodingLoop(
            self.model.lm, sampler, canvas, seed=self.settings.seed, samples=samples, first=first, log=recorder
        )

    def _earlier(self) -> Iterator[int]:
        """Yields the number of earlier occurrences of each prompt.

        It makes the random key of a text, which therefore depends on its prompt and the seed, not on other prompts.
        """
        seen = Counter({prompt: self.earlier for prompt in self.request.prompts[:1]})
        for prompt in self.request.prompts:
            yield seen[prompt]
            seen[prompt] += 1

    def prompt(self, row: int) -> str:
        """The prompt of a text, by its index in the call."""
        prompt = self.request.prompts[(row - self.first_row) // self.settings.n]
        return prompt if isinstance(prompt, str) else self.model.tokenizer.decode(prompt)

    def schemas(self, row: int) -> tuple[Json | None, ...]:
        """The JSON schema of a text, or of each of its holes."""
        if not self.settings.ruled:
            return ()
        return self.request.rules[(row - self.first_row) // self.settings.n].schemas

    def loop_results(self, loop: DecodingLoop) -> TextResults:
        """The results of one loop, with prompts, given text, and its fraction of the upfront cost."""
        results = loop.results()
        given_text, fraction = self.request.given_text, len(results) / len(self)
        written = tuple(
            replace(text, prompt=self.prompt(text.row), schemas=self.schemas(text.row)).with_given_text(given_text)
            for text in results
        )
        return replace(
            results,
            results=written,
            nfe=results.nfe + self.upfront.rows / len(self),
            seconds=results.seconds + self.upfront.seconds * fraction,
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
        """Draft statistics so far; None without a drafter."""
        return self.sampler.draft_stats

    def results(self) -> TextResults:
        """Decodes everything and returns the results."""
        return TextResults.joined(map(self.loop_results, self.loops()))

    def stream(self) -> Iterator[PartialText]:
        """Yields a partial text whenever a text changes in a step, and each finished text at the end of its loop."""
        for loop in self.loops():
            view = StreamView(self.model, loop.sampler, loop.first_row, self.request.given_text)
            shown: dict[int, tuple[str, str]] = {}
            for canvas in loop:
                for row in range(len(canvas.z)):
                    partial = view.partial_text(canvas, row)
                    if (partial.committed, partial.tentative) != shown.get(row):
                        shown[row] = (partial.committed, partial.tentative)
                        yield partial
            for result in self.loop_results(loop):
                yield PartialText(result.row, result.text, "", result)

    def with_notes(self, *notes: str) -> DecodingPlan:
        """A copy with more notes."""
        return replace(self, notes=(*self.notes, *notes))

    def offset_by(self, prompts: int, earlier: int) -> DecodingPlan:
        """This plan as a later part of a call, after `prompts` prompts, `earlier` of them the same as its own."""
        return replace(self, first_row=prompts * self.settings.n, earlier=earlier)

    @property
    def cache(self) -> CacheKind:
        """The kind of key–value cache that the sampler uses."""
        return self.sampler.cache_kind(self.model.lm.block)

    @property
    def exactness(self) -> _Exactness:
        """How texts obey the rules (see `TextResults.exactness`).

        Picks that depend on the drawn tokens, filters, and temperatures other than 1 change the distribution.
        """
        if not self.settings.ruled:
            return "free"
        return "matches" if self.model.lm.process.vectors else self.sampler.rule_exactness


def make_plan(
    model: TextModel,
    request: TextRequest,
    settings: DecodingSettings,
    around: Callable[[Sampler], Sampler] | None = None,
    sampler: Sampler | None = None,
) -> DecodingPlan:
    """Plans a request; `around` wraps the sampler. Raises if rows are too long or a prompt contradicts its rule.

    By default the settings choose the sampler.
    """
    sampler, notes = choose_sampler(model, settings, request.most_new) if sampler is None else (sampler, ())
    batch = batch_size(model, sampler, request.row_length, request.room)
    batch = 1 if settings.alternatives else batch  # LogprobRecorder records a single row
    request = _apply_rules(model, request, settings)
    if settings.end_token == "never":
        request = replace(request, compose=_without_end(request.compose))
    if request.rules:  # innermost on the sampler, so that rules wrap the denoiser outside all other guidance
        sampler = GuidedSampler(sampler, Constrained(model.lm.process))
    sampler = _with_filters(model, sampler, settings)
    plan = DecodingPlan(model, request, settings, sampler if around is None else around(sampler), batch, notes)
    return plan.with_notes(*_schema_notes(plan))


def _schema_notes(plan: DecodingPlan) -> Iterator[str]:
    """Says which properties of a schema are left out."""
    schemas = {schema for row in range(0, len(plan), plan.settings.n) for schema in plan.schemas(row)}
    for schema in filter(None, schemas):
        if names := schema.left_out:
            shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
            yield f"schema=…: it is too large to write every property; some objects lack these: {shown}"


def _without_end(compose: Callable[[Sequence[Any]], Canvas]) -> Callable[[Sequence[Any]], Canvas]:
    return lambda prompts: forbid_end_token(compose(prompts))


def _apply_rules(model: TextModel, request: TextRequest, settings: DecodingSettings) -> TextRequest:
    """The request with its rules. Raises now, before any network call, if a prompt contradicts its rule."""
    if not (settings.ruled or request.rules):
        return request
    request = request if request.rules else replace(request, rules=settings.rules(len(request.prompts)))
    unique = {
        (prompt, rule): index for index, (prompt, rule) in enumerate(zip(request.prompts, request.rules, strict=True))
    }
    for index in unique.values():
        request.canvas([index], model)
    return request
