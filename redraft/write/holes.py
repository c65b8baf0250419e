"""`infill`: the holes of given texts are filled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Literal, overload

from redraft.types import Canvas
from redraft.write.aliases import settings_from
from redraft.write.models import Model, Opened, as_opened
from redraft.write.record import Draft, Record
from redraft.write.ruled import Holes
from redraft.write.settings import HOLE, Infilling, require_holes, require_texts
from redraft.write.writing import Order, Plan, plan


@overload
def infill(model: Model, templates: str | Sequence[str], *, stream: Literal[False] = ..., **options: Any) -> Record: ...


@overload
def infill(
    model: Model, templates: str | Sequence[str], *, stream: Literal[True], **options: Any
) -> Iterator[Draft]: ...


def infill(
    model: Model, templates: str | Sequence[str], *, stream: bool = False, **options: Any
) -> Record | Iterator[Draft]:
    """The templates with their holes filled, `n` texts for each; given text stays unchanged.

    A model trained on whole rows also writes a continuation, because it looks at the text that follows. It is part of
    the text only if the template ends with a hole for it.

    Args:
        model: a trained model, or the directory of one
        templates: a text with holes, or a list of them: "She opened the [[6]] and [[3]]." has one of six tokens and one
            of three. Insertion models also fill holes of any length: "She opened the [[*]] and left."
        stream: return an iterator of drafts, one after each step, instead of the finished record
        options: the fields of `Infilling`, by name: steps, seed, temperature, room, … ; also by names of other projects
    """
    plans = infilling(as_opened(model), templates, settings_from(Infilling, options))
    return (
        chain.from_iterable(made.drafts() for made in plans)
        if stream
        else Record.joined(made.record() for made in plans)
    )


def infilling(it: Opened, templates: str | Sequence[str], asked: Infilling) -> list[Plan]:
    """How to fill the holes of each template; whatever the model cannot do is refused here."""
    found = require_texts("templates", templates)
    for template in found:
        require_holes(template)
    if it.model.encoder is not None or it.answers:
        raise ValueError("this model answers sources and cannot fill holes; use redraft generate DIR --source TEXT")
    orders = [
        replace(_order(it, template, asked.room), rules=_rules(asked, found, i)) for i, template in enumerate(found)
    ]
    return [plan(it, order, asked).after(i, found[:i].count(found[i])) for i, order in enumerate(orders)]


def _rules(asked: Infilling, templates: Sequence[str], number: int) -> tuple[Holes, ...]:
    """What each hole of a template must obey."""
    if not asked.ruled:
        return ()
    sizes = [int(size) if size != "*" else asked.room for size in HOLE.findall(templates[number])]
    rules = asked.hole_rules(number, len(templates), len(sizes))
    return (tuple(zip(sizes, rules, strict=True)),)


def _order(it: Opened, template: str, most: int) -> Order:
    it.used(HOLE.sub(" ", template))  # every word is known
    given = [it.used(part) for part in HOLE.split(template)[::2]]
    found = HOLE.findall(template)
    holes, room = [int(hole) for hole in found if hole != "*"], most * found.count("*")
    size = sum(given) - (len(given) - 1) * (it.model.config.vocab.bos is not None) + sum(holes)
    rest = max(0, (it.always or 0) - size - room)
    whole = f"{template}[[{rest}]]" if rest else template

    def compose(some: Sequence[str]) -> Canvas:
        return it.model.infill(whole, rows=len(some), room=most)

    return Order([template], compose, size + rest, sum(holes) + rest + room, size if rest else None, room)
