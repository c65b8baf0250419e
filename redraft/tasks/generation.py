"""`generate`: texts that begin with a prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, overload

from redraft.core.canvas import Canvas
from redraft.tasks.arguments.aliases import settings_from
from redraft.tasks.arguments.settings import Generation, require_texts
from redraft.tasks.engine.conditions import (
    class_number,
    longer_than_learnt,
    new_tokens,
    require_comparison,
    require_source,
    source_tokens,
    with_guidance,
)
from redraft.tasks.engine.model import Model, Opened, as_opened
from redraft.tasks.engine.plan import Order, Plan, plan
from redraft.tasks.engine.result import Draft, Record
from redraft.tasks.engine.speculation import speculating
from redraft.tasks.engine.stop_strings import with_stops


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
