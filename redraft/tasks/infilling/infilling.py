"""`infill`: fills the holes of given texts."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, Literal, overload

import torch

from redraft.core.canvas import Canvas
from redraft.core.text.boundaries import GivenTokens, split_given_text
from redraft.core.text.tokenizers import UNKNOWN, Tokenizer
from redraft.decoding.constraints.placement import can_constrain, possible_lengths
from redraft.decoding.constraints.rules import Between, Rule
from redraft.decoding.samplers.base import Sampler
from redraft.models.canvas_builder import VariableHole
from redraft.models.shipped import SMOL
from redraft.tasks.arguments.aliases import settings_from
from redraft.tasks.arguments.rules import RowRules
from redraft.tasks.arguments.setting import ArgumentError
from redraft.tasks.arguments.settings import InfillSettings, require_texts
from redraft.tasks.arguments.templates import Hole, Template
from redraft.tasks.engine.given_text import GivenText
from redraft.tasks.engine.model import ModelOrPath, TextModel, as_text_model
from redraft.tasks.engine.plan import DecodingPlan, TextRequest, UpfrontCost, make_plan
from redraft.tasks.engine.result import PartialText, TextResults
from redraft.tasks.engine.sampler_choice import choose_sampler
from redraft.tasks.engine.trace import count_calls
from redraft.tasks.infilling.causal_judge import _judged_sampler
from redraft.tasks.infilling.hole_length import _MOST_LENGTHS, _LengthSearch, _max_row_length
from redraft.tasks.infilling.span_search import _SpanSearch
from redraft.tasks.infilling.word_search import _Filling, _KnownFillings, _WordSearch

_WORD = re.compile(r"\w+(['’-]\w+)*")
_LEAST_SPAN, _LONGEST_SPAN = 2, 24  # tokens of a span that is searched for
_MOST_SPANS = 8  # lengths of a span that are searched; of more lengths, one is chosen first


@overload
def infill(
    model: ModelOrPath, templates: str | Sequence[str], *, stream: Literal[False] = ..., **options: Any
) -> TextResults: ...


@overload
def infill(
    model: ModelOrPath, templates: str | Sequence[str], *, stream: Literal[True], **options: Any
) -> Iterator[PartialText]: ...


def infill(
    model: ModelOrPath, templates: str | Sequence[str], *, stream: bool = False, **options: Any
) -> TextResults | Iterator[PartialText]:
    """Fill the holes of templates, `n` texts for each; given text is kept byte for byte.

    A model trained only on full rows also writes what follows the text, because its network expects a full row. This
    continuation is not part of the result.

    Args:
        model: a trained model, or its directory
        templates: a text with holes, or a list of them: "She opened the [[6]] and [[2-5]], then [[*]]." has one of six
            tokens, one of two to five, and one of any length up to `room`
        stream: return an iterator of partial texts after each step instead of the results
        options: the fields of `InfillSettings`, by name: steps, seed, temperature, room, …; the names that other
            projects use also work
    """
    plans = plan_infilling(as_text_model(model), templates, settings_from(InfillSettings, options))
    return (
        chain.from_iterable(plan.stream() for plan in plans)
        if stream
        else TextResults.joined(plan.results() for plan in plans)
    )


def fill_words(model: ModelOrPath, template: str, count: int) -> list[tuple[str, float]]:
    """The most likely words for the hole of a template, "The [[?]] sat on the mat.", with their probabilities.

    They are proposals of an adapted model, such as smol; probabilities are normalized over all that were judged.
    """
    text_model, parsed = as_text_model(model), Template.parse(template)
    judged = _judged_sampler(text_model, InfillSettings())
    row = _TemplateRow.of(text_model, parsed, _rules_work(text_model, InfillSettings(), judged))
    fillings = _word_fillings(text_model, row) if judged is not None else []
    if not fillings:
        raise ArgumentError(
            "candidates",
            f"candidates={count}: give {SMOL} or another adapted model a template with one hole [[?]] "
            "that is not part of a word and has text on both sides",
        )
    scores = torch.tensor([filling.score for filling in fillings]).double().softmax(-1).tolist()
    words: dict[str, float] = {}
    for filling, probability in zip(fillings, scores, strict=True):
        word = text_model.tokenizer.decode(list(filling.ids)).removeprefix(row.given[0].tail)
        words[word] = words.get(word, 0.0) + probability  # a word may have several spellings in tokens
    return sorted(words.items(), key=lambda item: -item[1])[:count]


def plan_infilling(
    model: TextModel, templates: str | Sequence[str] | Sequence[Template], settings: InfillSettings
) -> list[DecodingPlan]:
    """Plans the filling of each template. Raises if the model does not support a setting.

    Strings are parsed for holes [[…]]; the texts of a `Template` are not.
    """
    parsed = [template for template in templates if isinstance(template, Template)]
    if not parsed:
        parsed = [Template.parse(text) for text in require_texts("templates", templates)]  # type: ignore[arg-type]
    _require_holes(model)
    return [
        _plan_template(model, parsed, index, settings).offset_by(index, parsed[:index].count(template))
        for index, template in enumerate(parsed)
    ]


def _require_holes(model: TextModel) -> None:
    """Raises for models that cannot fill holes."""
    if "encoder" in model.lm.parts or model.needs_source:
        raise ValueError("this model answers a source and cannot fill holes; use redraft generate DIR --source TEXT")
    if model.compresses:
        raise ValueError("this model compresses whole texts and cannot fill holes; use redraft generate")


def _plan_template(
    model: TextModel, templates: Sequence[Template], index: int, settings: InfillSettings
) -> DecodingPlan:
    """Plans the filling of one template; chooses the lengths of its holes if they are not fixed."""
    model.token_count(" ".join(templates[index].parts))  # raises if a word is unknown
    judged, clock = _judged_sampler(model, settings), time.perf_counter()
    row = _TemplateRow.of(model, templates[index], _rules_work(model, settings, judged))
    rules = _hole_rules(settings, row, index, len(templates))

    def plan_sizes(sizes: Sequence[int | None], sampler: Sampler | None = judged) -> DecodingPlan:
        holes = tuple(zip((settings.room if size is None else size for size in sizes), rules, strict=False))
        request = replace(row.request(model, sizes, settings.room), rules=(RowRules(holes=holes),) if rules else ())
        return make_plan(model, request, settings, sampler=sampler)

    sizes: Sequence[int | None] = [hole.most for hole in row.holes]
    with count_calls(model.lm) as counted:
        fillings = _single_hole_fillings(model, row) if judged is not None and not settings.ruled else []
        chosen = not fillings and not all(hole.sized for hole in row.holes)
        if chosen and model.lm.process.grows and row.ranges:
            sizes = _insertion_lengths(model, row, settings)
        elif chosen and not model.lm.process.grows:
            sizes = _search_lengths(model, row, settings, rules)
            if judged is not None and not settings.ruled and sizes[0]:
                fillings = _span_fillings(model, row, range(sizes[0], sizes[0] + 1))
    if judged is None or not fillings:
        plan = plan_sizes(sizes)
    else:
        best = tuple(filling for filling in fillings if len(filling.ids) == len(fillings[0].ids))
        plan = plan_sizes([len(best[0].ids)], _KnownFillings(best, judged.temperature))
    return replace(plan, upfront=UpfrontCost(counted.rows, time.perf_counter() - clock)) if counted.rows else plan


def _single_hole_fillings(model: TextModel, row: _TemplateRow) -> list[_Filling]:
    """The fillings of a single hole that a search finds, best first; none for other templates."""
    hole = row.holes[0]
    if hole.is_word or hole.most is None:
        return _word_fillings(model, row)
    return _span_fillings(model, row, range(hole.least, hole.most + 1))


def _span_fillings(model: TextModel, row: _TemplateRow, lengths: range) -> list[_Filling]:
    """The fillings of a single hole of these lengths between two texts; none if it touches a part of a word."""
    before, after = row.given[0].tail, row.given[1].head
    searched = len(row.holes) == 1 and row.parts[0] and row.ids[1] and not before.strip() and not after
    if not searched or lengths[0] == 0 or not _LEAST_SPAN <= lengths[-1] <= _LONGEST_SPAN or len(lengths) > _MOST_SPANS:
        return []

    def accepts(text: str) -> bool:
        return text.startswith(before) and bool(text[len(before) :].strip()) and UNKNOWN not in text

    return _SpanSearch(model.lm, row.parts[0], row.ids[1], accepts, before).best(lengths)


def _word_fillings(model: TextModel, row: _TemplateRow) -> list[_Filling]:
    """The words for a single hole [[?]] between two texts, best first; none for other templates."""
    hole, *others = row.holes
    if others or not hole.is_word or hole.most is None or not (row.parts[0] and row.ids[1]):
        return []
    before, after = row.given[0].tail, row.given[1].head

    def accepts(text: str) -> bool:
        inner = text[len(before) : len(text) - len(after)]
        fits = text.startswith(before) and text.endswith(after) and len(text) >= len(before) + len(after)
        return fits and _WORD.fullmatch(inner) is not None

    return _WordSearch(model.lm, row.parts[0], row.ids[1], accepts).best(range(hole.least, hole.most + 1))


def _hole_rules(settings: InfillSettings, row: _TemplateRow, index: int, templates: int) -> tuple[Rule | None, ...]:
    """The rule of each hole: that of the settings, and its text begins and ends with the given text that is in it."""
    count = len(row.holes)
    rules = settings.hole_rules(index, templates, count) if settings.ruled else (None,) * count
    placed = tuple(map(row.rule, range(count), rules))
    return placed if any(placed) else ()


def _rules_work(model: TextModel, settings: InfillSettings, sampler: Sampler | None) -> bool:
    """Whether holes get a rule for the given text in their tokens; without masks only if they have a rule anyway."""
    sampler, process = choose_sampler(model, settings)[0] if sampler is None else sampler, model.lm.process
    fits = (process.fills_masks or settings.ruled) and not process.grows
    return fits and sampler.obeys_rules and can_constrain(model.tokenizer)


@dataclass(frozen=True)
class _TemplateRow:
    """A template as tokens.

    A token of a hole may also contain given text beside it: the space before a word, or the first part of a word that
    the hole continues (`split_given_text`). The hole then has a rule, and tokens for such parts of words.
    """

    template: Template
    given: tuple[GivenTokens, ...]  # tokens of each given part, without the start token
    begin: tuple[int, ...]  # the start token; empty if there is none
    tokenizer: Tokenizer
    rules_work: bool  # whether holes get a rule for the given text in their tokens
    left_to_right: bool  # whether the network cannot choose the length of a hole

    @classmethod
    def of(cls, model: TextModel, template: Template, rules_work: bool) -> _TemplateRow:
        tokenizer, start, end = model.tokenizer, model.lm.config.vocab.bos, len(template.holes)
        given = (
            split_given_text(tokenizer, part, hole_before=i > 0, hole_after=i < end)
            if rules_work
            else GivenTokens.alone(tokenizer, part, hole_after=i < end)
            for i, part in enumerate(template.parts)
        )
        return cls(
            template, tuple(given), () if start is None else (start,), tokenizer, rules_work, model.lm.block is not None
        )

    @cached_property
    def holes(self) -> tuple[Hole, ...]:
        """The holes with all their tokens; a hole with given text in it has at least one.

        Parts of words beside a hole may add tokens or merge with it, so its length gets a range, if one can be chosen.
        """
        return tuple(map(self._hole, self.template.holes, self._extra, pairwise(self.given)))

    def _hole(self, hole: Hole, extra: int, beside: tuple[GivenTokens, GivenTokens]) -> Hole:
        least = max(hole.least, int(bool(beside[0].tail or beside[1].head)))
        most = None if hole.most is None else max(hole.most + extra, least)
        if hole.is_word and self.tokenizer.known_words:
            return Hole(1, 1)
        return Hole(most, most) if self.left_to_right and hole.sized and most else replace(hole, least=least, most=most)

    @cached_property
    def _extra(self) -> list[int]:
        """Most tokens in each hole for parts of words beside it; a space is in the same token as the next word."""
        encode = self.tokenizer.encode_inside
        return [len(encode(a.tail.rstrip())) + len(encode(b.head)) for a, b in pairwise(self.given)]

    def rule(self, hole: int, rule: Rule | None) -> Rule | None:
        """The rule of a hole, with the given text that is in its tokens."""
        before, after = self.given[hole].tail, self.given[hole + 1].head
        in_hole = self.rules_work and (before or after)
        return Between(before, rule, after, self._extra[hole]) if in_hole else rule

    @property
    def ids(self) -> tuple[tuple[int, ...], ...]:
        """Tokens of the given parts, without the start token."""
        return tuple(tokens.ids for tokens in self.given)

    @property
    def ranges(self) -> bool:
        """Whether any hole has a range of lengths."""
        return any(not hole.sized and hole.most is not None for hole in self.holes)

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """Tokens of the given parts, including the start token."""
        return ((*self.begin, *self.ids[0]), *self.ids[1:])

    @property
    def used(self) -> int:
        """Number of given tokens."""
        return sum(map(len, self.parts))

    def request(self, model: TextModel, sizes: Sequence[int | None], room: int) -> TextRequest:
        """The request for holes of these sizes; None lets an insertion model choose a size up to `room`."""
        fixed, variable = sum(size for size in sizes if size is not None), room * list(sizes).count(None)
        size = self.used + fixed
        rest = max(0, (model.full_row_length or 0) - size - variable)
        holes = [VariableHole(room) if size is None else size for size in sizes]
        row: list[Any] = [piece for pair in zip(self.parts, holes, strict=False) for piece in pair]
        row += [self.parts[-1], *([rest] if rest else [])]

        def compose(prompts: Sequence[str]) -> Canvas:
            return self._require_least(model.lm.compose([row] * len(prompts)), size - (sizes[-1] or 0))

        given_text = GivenText(self.tokenizer, self.template.parts, self.given, tuple(sizes))
        text_length = size if rest else None
        most_new = max(1, fixed + rest + variable)  # all holes may turn out to be empty
        text = self.template.text
        return TextRequest([text], compose, size + rest, most_new, text_length, variable, given_text=given_text)

    def _require_least(self, canvas: Canvas, last: int) -> Canvas:
        """The canvas with end tokens forbidden in the required tokens of a last hole that begins at `last`."""
        hole = self.holes[-1]
        if self.ids[-1] or hole.sized or not hole.least or canvas.open is not None:
            return canvas
        column = torch.arange(canvas.fixed.shape[1], device=canvas.fixed.device)
        required = ~canvas.fixed & (column >= last) & (column < last + hole.least)
        before = canvas.context.constraints.no_end_token
        return canvas.with_constraints(no_end_token=required if before is None else before | required)


def _search_lengths(
    model: TextModel, row: _TemplateRow, settings: InfillSettings, rules: Sequence[Rule | None]
) -> list[int | None]:
    """Chooses the lengths of all holes by the model's bound on log p.

    A hole with a rule only gets lengths that the rule allows. A hole at the end of the template gets the largest
    possible length, and the text ends by itself.
    """
    holes, longest = row.holes, _max_row_length(model)
    left = _MOST_LENGTHS if longest is None else longest - row.used - sum(hole.least for hole in holes)
    if left < 0:
        raise ArgumentError("templates", f"the holes do not fit into the {longest} tokens of a row; make them shorter")
    choices = [_lengths(hole, settings.room, left) for hole in holes]
    if any(len(a) > 1 and len(b) > 1 and not ids for a, b, ids in zip(choices, choices[1:], row.ids[1:], strict=False)):
        raise ArgumentError("templates", "two holes of unknown length need a word between them; write one hole instead")
    open_end = not row.ids[-1]
    inner = [_allowed(model, row, rules, n, sizes) for n, sizes in enumerate(choices[:-1] if open_end else choices)]
    if model.lm.block is not None and any(len(sizes) > 1 for sizes in inner):
        raise ArgumentError(
            "templates",
            "this network writes left to right and cannot choose the length of a hole; write [[n]] for n tokens",
        )
    search = _LengthSearch(
        model, row.parts[: len(inner) + 1], inner, left + sum(hole.least for hole in holes[: len(inner)])
    )
    sizes = search.best(settings.draws, settings.seed)[0].sizes
    if not open_end:
        return [*sizes]
    spare = left - sum(size - hole.least for size, hole in zip(sizes, holes, strict=False))
    return [*sizes, min(choices[-1][-1], holes[-1].least + spare)]


def _allowed(
    model: TextModel, row: _TemplateRow, rules: Sequence[Rule | None], hole: int, sizes: range
) -> Sequence[int]:
    """The lengths of a hole that its rule allows."""
    if not rules or (rule := rules[hole]) is None:
        return sizes
    begins = hole == 0 and not row.ids[0]
    lengths = [size for size in possible_lengths(rule, model.tokenizer, sizes[-1], begins) if size in sizes]
    if not lengths:
        raise ArgumentError("templates", f"no text of {sizes[0]} to {sizes[-1]} tokens obeys {rule}; change the hole")
    return lengths


def _lengths(hole: Hole, room: int, left: int) -> range:
    """The lengths to compare; a hole may have up to `left` tokens more than its least."""
    most = min(max(room, hole.least) if hole.most is None else hole.most, hole.least + left)
    if most - hole.least >= _MOST_LENGTHS:
        raise ArgumentError(
            "templates", f"a hole of {hole.least} to {most} tokens has too many possible lengths; use a shorter range"
        )
    return range(hole.least, most + 1)


def _insertion_lengths(model: TextModel, row: _TemplateRow, settings: InfillSettings) -> list[int | None]:
    """Lengths from a trial run of an insertion model, clamped to the ranges of their holes; None for holes [[*]]."""
    holes = row.holes
    room = max(settings.room, *(hole.most or 0 for hole in holes))
    request = row.request(model, [hole.most if hole.sized else None for hole in holes], room)
    (result,) = make_plan(model, request, replace(settings, n=1)).results()
    assert request.given_text is not None
    sizes = request.given_text.hole_sizes(result.given)
    return [
        hole.most if hole.most is None or hole.sized else min(max(size, hole.least), hole.most)
        for hole, size in zip(holes, sizes, strict=True)
    ]
