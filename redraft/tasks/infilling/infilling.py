"""`infill`: the holes of given texts are filled."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, overload

import torch

from redraft.core.canvas import Canvas
from redraft.core.text.tokenizers import Tokenizer
from redraft.decoding.constraints.placement import possible_lengths
from redraft.decoding.constraints.rules import Rule, WithOptionalSpace
from redraft.models.canvas_builder import VariableHole, inserts_tokens
from redraft.tasks.arguments.aliases import settings_from
from redraft.tasks.arguments.rules import ArgumentError
from redraft.tasks.arguments.settings import InfillSettings, require_texts
from redraft.tasks.arguments.templates import Hole, Template
from redraft.tasks.engine.given_text import GivenText, encode_given
from redraft.tasks.engine.model import ModelOrPath, TextModel, as_text_model
from redraft.tasks.engine.plan import DecodingPlan, TextRequest, UpfrontCost, make_plan
from redraft.tasks.engine.result import PartialText, TextResults
from redraft.tasks.engine.trace import count_calls
from redraft.tasks.infilling.causal_judge import _judged_sampler
from redraft.tasks.infilling.hole_length import _MOST_LENGTHS, _LengthSearch, _max_row_length


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
    """The templates with their holes filled, `n` texts for each; given text is kept byte for byte.

    A model trained on whole rows also writes a continuation, because it looks at the text that follows. It is part of
    the text only if the template ends with a hole for it.

    Args:
        model: a trained model, or the directory of one
        templates: a text with holes, or a list of them: "She opened the [[6]] and [[2-5]], then [[*]]." has one of six
            tokens, one of two to five, and one of any length up to `room`
        stream: return an iterator of drafts, one after each step, instead of the finished record
        options: the fields of `InfillSettings`, by name: steps, seed, temperature, room, … ; also by names of other projects
    """
    plans = plan_infilling(as_text_model(model), templates, settings_from(InfillSettings, options))
    return (
        chain.from_iterable(made.stream() for made in plans)
        if stream
        else TextResults.joined(made.results() for made in plans)
    )


def plan_infilling(
    it: TextModel, templates: str | Sequence[str] | Sequence[Template], asked: InfillSettings
) -> list[DecodingPlan]:
    """How to fill the holes of each template; whatever the model cannot do is refused here.

    A `Template` has its holes as values: nothing in its texts is read as one.
    """
    typed = [each for each in templates if isinstance(each, Template)]
    found = typed or [Template.parse(each) for each in require_texts("templates", templates)]  # type: ignore[arg-type]
    if it.lm.encoder is not None or it.needs_source:
        raise ValueError("this model answers sources and cannot fill holes; use redraft generate DIR --source TEXT")
    return [
        _planned(it, found, number, asked).offset_by(number, found[:number].count(template))
        for number, template in enumerate(found)
    ]


def _planned(it: TextModel, templates: Sequence[Template], number: int, asked: InfillSettings) -> DecodingPlan:
    """How to fill template number so-and-so; the lengths of its holes are looked for if they are not known."""
    it.token_count(" ".join(templates[number].parts))  # every word is known
    row, clock = _TemplateRow.of(it, templates[number]), time.perf_counter()
    rules = _rules(asked, row, number, len(templates))

    def planned(sizes: Sequence[int | None]) -> DecodingPlan:
        holes = tuple(zip((asked.room if size is None else size for size in sizes), rules, strict=False))
        order, both = (
            replace(row.order(it, sizes, asked.room), rules=(holes,) if rules else ()),
            _judged_sampler(it, asked),
        )
        return make_plan(it, order, asked, None if both is None else lambda _: both)

    if all(hole.sized for hole in row.template.holes) or (inserts_tokens(it.lm.process) and not row.ranges):
        return planned([hole.most for hole in row.template.holes])
    with count_calls(it.lm) as counted:
        sizes = _pilot(it, row, asked) if inserts_tokens(it.lm.process) else _searched(it, row, asked, rules)
    return replace(planned(sizes), upfront=UpfrontCost(counted.rows, time.perf_counter() - clock))


def _rules(asked: InfillSettings, row: _TemplateRow, number: int, templates: int) -> tuple[Rule | None, ...]:
    """What each hole must obey; where it has got the space before it (`encode_given`), the rule is about what follows."""
    if not asked.ruled:
        return ()
    found = asked.hole_rules(number, templates, len(row.template.holes))
    spaces = [tuple(row.tokenizer.encode(part)) != ids for part, ids in zip(row.template.parts, row.ids, strict=True)]
    return tuple(
        WithOptionalSpace(rule) if rule and space else rule for rule, space in zip(found, spaces, strict=False)
    )


@dataclass(frozen=True)
class _TemplateRow:
    """A template in tokens."""

    template: Template
    ids: tuple[tuple[int, ...], ...]  # of each given part; the first one has the start token
    begin: tuple[int, ...]  # the start token, if there is one
    tokenizer: Tokenizer

    @classmethod
    def of(cls, it: TextModel, template: Template) -> _TemplateRow:
        tokenizer, start = it.tokenizer, it.lm.config.vocab.bos
        *before, last = template.parts
        ids = (*(tuple(encode_given(tokenizer, part)) for part in before), tuple(tokenizer.encode(last)))
        return cls(template, ids, () if start is None else (start,), tokenizer)

    @property
    def ranges(self) -> bool:
        """Whether a hole has a range of lengths."""
        return any(not hole.sized and hole.most is not None for hole in self.template.holes)

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The given parts as they stand in a row."""
        return ((*self.begin, *self.ids[0]), *self.ids[1:])

    @property
    def used(self) -> int:
        """How many tokens are given."""
        return sum(map(len, self.parts))

    def order(self, it: TextModel, sizes: Sequence[int | None], room: int) -> TextRequest:
        """What to write, with holes of these sizes; None: as many as an insertion model wants, up to the room."""
        known, more = sum(size for size in sizes if size is not None), room * list(sizes).count(None)
        size = self.used + known
        rest = max(0, (it.full_row_length or 0) - size - more)
        holes = [VariableHole(room) if size is None else size for size in sizes]
        row: list[Any] = [piece for pair in zip(self.parts, holes, strict=False) for piece in pair]
        row += [self.parts[-1], *([rest] if rest else [])]

        def compose(some: Sequence[str]) -> Canvas:
            return self._unended(it.lm.compose([row] * len(some)), size - (sizes[-1] or 0))

        verbatim = GivenText(self.tokenizer, self.template.parts, self.ids, tuple(sizes))
        shown = size if rest else None
        hidden = max(1, known + rest + more)  # all holes may turn out to be empty
        return TextRequest([self.template.text], compose, size + rest, hidden, shown, more, given_text=verbatim)

    def _unended(self, canvas: Canvas, last: int) -> Canvas:
        """The canvas on which no text ends before its last hole, which begins at `last`, is as long as it must be."""
        hole = self.template.holes[-1]
        if self.ids[-1] or hole.sized or not hole.least or canvas.open is not None:
            return canvas
        place = torch.arange(canvas.fixed.shape[1], device=canvas.fixed.device)
        must = ~canvas.fixed & (place >= last) & (place < last + hole.least)
        inside = must if canvas.context.inside is None else canvas.context.inside | must
        return replace(canvas, context=replace(canvas.context, inside=inside))


def _searched(it: TextModel, row: _TemplateRow, asked: InfillSettings, rules: Sequence[Rule | None]) -> list[int]:
    """The lengths of all holes, by the model's own bound; a hole at the end has room, and the text ends by itself.

    A hole under a rule has one of the lengths that texts which obey it have.
    """
    holes, longest = row.template.holes, _max_row_length(it)
    left = _MOST_LENGTHS if longest is None else longest - row.used - sum(hole.least for hole in holes)
    if left < 0:
        raise ArgumentError("templates", f"the holes do not fit into the {longest} tokens of a row; make them shorter")
    choices = [_lengths(hole, asked.room, left) for hole in holes]
    if any(len(a) > 1 and len(b) > 1 and not ids for a, b, ids in zip(choices, choices[1:], row.ids[1:], strict=False)):
        raise ArgumentError("templates", "two holes of unknown length without a word between them; write one hole")
    open_end = not row.ids[-1]
    inner = [_obeying(it, row, rules, n, sizes) for n, sizes in enumerate(choices[:-1] if open_end else choices)]
    if it.lm.block is not None and any(len(each) > 1 for each in inner):
        raise ArgumentError(
            "templates",
            "this network writes from left to right and cannot tell how long a hole is; say it: [[n]] for n tokens",
        )
    search = _LengthSearch(
        it, row.parts[: len(inner) + 1], inner, left + sum(hole.least for hole in holes[: len(inner)])
    )
    sizes = list(search.best(asked.draws, asked.seed)[0].sizes)
    if open_end:
        spare = left - sum(size - hole.least for size, hole in zip(sizes, holes, strict=False))
        sizes.append(min(choices[-1][-1], holes[-1].least + spare))
    return sizes


def _obeying(
    it: TextModel, row: _TemplateRow, rules: Sequence[Rule | None], number: int, sizes: range
) -> Sequence[int]:
    """The lengths that a hole can have under its rule."""
    if not rules or (rule := rules[number]) is None:
        return sizes
    begins = number == 0 and not row.ids[0]
    found = [size for size in possible_lengths(rule, it.tokenizer, sizes[-1], begins) if size in sizes]
    if not found:
        raise ArgumentError("templates", f"no text of {sizes[0]} to {sizes[-1]} tokens obeys {rule}; change the hole")
    return found


def _lengths(hole: Hole, room: int, left: int) -> range:
    """The lengths to compare: a hole may have `left` tokens more than it needs."""
    most = min(max(room, hole.least) if hole.most is None else hole.most, hole.least + left)
    if most - hole.least >= _MOST_LENGTHS:
        raise ArgumentError(
            "templates", f"a hole of {hole.least} to {most} tokens has too many lengths to compare; use a shorter range"
        )
    return range(hole.least, most + 1)


def _pilot(it: TextModel, row: _TemplateRow, asked: InfillSettings) -> list[int | None]:
    """The lengths of an insertion model: as it inserts by itself, moved into the ranges; holes [[*]] stay open."""
    holes = row.template.holes
    room = max(asked.room, *(hole.most or 0 for hole in holes))
    order = row.order(it, [hole.most if hole.sized else None for hole in holes], room)
    (found,) = make_plan(it, order, replace(asked, n=1)).results()
    assert order.given_text is not None
    sizes = order.given_text.hole_sizes(found.given)
    return [
        hole.most if hole.most is None or hole.sized else min(max(size, hole.least), hole.most)
        for hole, size in zip(holes, sizes, strict=True)
    ]
