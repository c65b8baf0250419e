"""`generate`: texts that begin with a prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, overload

from redraft.core.canvas import Canvas
from redraft.tasks.arguments.aliases import settings_from
from redraft.tasks.arguments.settings import GenerationSettings, require_texts
from redraft.tasks.engine.conditions import (
    label_id,
    length_warning,
    new_token_count,
    require_guidable,
    require_source,
    source_token_count,
    with_guidance,
)
from redraft.tasks.engine.model import ModelOrPath, TextModel, as_text_model
from redraft.tasks.engine.plan import DecodingPlan, TextRequest, make_plan
from redraft.tasks.engine.result import PartialText, TextResults
from redraft.tasks.engine.speculation import speculative_sampler
from redraft.tasks.engine.stop_strings import with_stop_strings


@overload
def generate(
    model: ModelOrPath, prompts: str | Sequence[str] = ..., *, stream: Literal[False] = ..., **options: Any
) -> TextResults: ...


@overload
def generate(
    model: ModelOrPath, prompts: str | Sequence[str] = ..., *, stream: Literal[True], **options: Any
) -> Iterator[PartialText]: ...


def generate(
    model: ModelOrPath, prompts: str | Sequence[str] = "", *, stream: bool = False, **options: Any
) -> TextResults | Iterator[PartialText]:
    """Texts that begin with the prompts, `n` for each, in the order of the prompts.

    A text depends on its prompt, the seed and its number among the texts of that prompt, not on other prompts, the
    batch, or whether it is streamed.

    Args:
        model: a trained model, or the directory of one. A directory knows its run: its sampler, its length, its classes
        prompts: the beginning of a text, or a list of them, of any lengths
        stream: return an iterator of drafts, one after each step, instead of the finished record
        options: the fields of `GenerationSettings`, by name: max_new_tokens, steps, seed, temperature, … ; also by names that
            other projects use (gen_length, num_return_sequences, …)
    """
    made = plan_generation(as_text_model(model), prompts, settings_from(GenerationSettings, options))
    return made.stream() if stream else made.results()


def plan_generation(it: TextModel, prompts: str | Sequence[str], asked: GenerationSettings) -> DecodingPlan:
    """How to generate; whatever the model cannot do is refused here, before anything is written."""
    prompts = require_texts("prompts", prompts)
    if asked.draft is not None:
        asked = replace(asked, sampler=speculative_sampler(it, asked), draft=None)  # type: ignore[arg-type]
    require_source(it, asked)
    label = label_id(it, asked)
    require_guidable(it, asked, label, prompts)
    given, question = source_token_count(it, asked), it.source_turn(asked.source)
    used = {prompt: it.token_count(prompt) + given for prompt in prompts}
    holes = {prompt: new_token_count(it, asked, used[prompt]) for prompt in used}
    length, most = max(used[prompt] + holes[prompt] for prompt in used), max(holes.values())

    def compose(some: Sequence[str]) -> Canvas:
        rows: list[list[Any]] = [[*question, prompt, it.hole(holes[prompt])] for prompt in some]
        beside = asked.source is not None and not question
        canvas = it.lm.compose(rows, [asked.source or ""] * len(rows) if beside else None)
        canvas = with_stop_strings(canvas, asked.stop, it.tokenizer)
        return canvas if label is None else it.lm.labelled(canvas, label)

    fixed = isinstance(it.hole(0), int)
    order = TextRequest(prompts, compose, length if fixed else max(used.values()), most, room=0 if fixed else most)
    made = make_plan(it, order, asked, partial(with_guidance, it, asked))
    return made.with_notes(*length_warning(it, length))
