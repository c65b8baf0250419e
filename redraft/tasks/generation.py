"""`generate`: texts that begin with a prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, overload

from redraft.core.canvas import Canvas
from redraft.core.text.chat_template import question_encoder
from redraft.tasks.arguments.aliases import settings_from
from redraft.tasks.arguments.setting import ArgumentError
from redraft.tasks.arguments.settings import GenerationSettings, Prompt, require_prompts
from redraft.tasks.causal_writing import _DIFFUSION_NOTE, _as_causal, _with_sane_sampling, _writes_causally
from redraft.tasks.engine.conditions import (
    label_id,
    length_warning,
    new_token_count,
    require_beginning,
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
    model: ModelOrPath, prompts: str | Sequence[Any] = ..., *, stream: Literal[False] = ..., **options: Any
) -> TextResults: ...


@overload
def generate(
    model: ModelOrPath, prompts: str | Sequence[Any] = ..., *, stream: Literal[True], **options: Any
) -> Iterator[PartialText]: ...


def generate(
    model: ModelOrPath, prompts: str | Sequence[Any] = "", *, stream: bool = False, **options: Any
) -> TextResults | Iterator[PartialText]:
    """Generate `n` texts for each prompt, in the order of the prompts.

    A text depends on its prompt, the seed and its index among the texts of that prompt, but not on other prompts, the
    batch size, or whether it is streamed.

    Args:
        model: a trained model, or its directory, which also provides the sampler, length and classes of its run
        prompts: the beginning of a text, or a list of beginnings of any lengths; each a text or a list of token ids
        stream: return an iterator of partial texts after each step instead of the results
        options: the fields of `GenerationSettings`, by name: max_new_tokens, steps, seed, temperature, …; the names
            that other projects use also work (gen_length, num_return_sequences, …)
    """
    plan = plan_generation(as_text_model(model), prompts, settings_from(GenerationSettings, options))
    return plan.stream() if stream else plan.results()


def plan_generation(model: TextModel, prompts: str | Sequence[Any], settings: GenerationSettings) -> DecodingPlan:
    """Plans generation. Raises here, before decoding, if the model does not support a setting."""
    prompts = [p if isinstance(p, str) else model.prompt_ids(p) for p in require_prompts("prompts", prompts)]
    return (
        _plan_replies(model, _conversations(model, prompts), settings)
        if settings.chat
        else _plan(model, prompts, settings)
    )


def _plan_replies(
    model: TextModel, conversations: Sequence[tuple[int, ...]], settings: GenerationSettings
) -> DecodingPlan:
    """Plans the next message of each conversation, given as tokens."""
    return _plan(model, [model.prompt_ids(ids) for ids in conversations], settings, reply=True)


def _plan(
    model: TextModel, prompts: Sequence[Prompt], settings: GenerationSettings, reply: bool = False
) -> DecodingPlan:
    notes: tuple[str, ...] = ()
    if _writes_causally(model, settings):
        model, notes = _as_causal(model, settings), (_DIFFUSION_NOTE,)
    settings = _with_sane_sampling(model, settings, settings.n * len(prompts))
    if settings.draft is not None:
        settings = replace(settings, sampler=speculative_sampler(model, settings), draft=None)  # type: ignore[arg-type]
    require_source(model, settings)
    require_beginning(model, prompts)
    label = label_id(model, settings)
    require_guidable(model, settings, label, prompts)
    source_tokens, source_turn = source_token_count(model, settings), model.source_turn(settings.source)
    used = {prompt: len(model.prompt_ids(prompt)) + source_tokens for prompt in prompts}
    holes = {prompt: new_token_count(model, settings, used[prompt], reply=reply) for prompt in used}
    length, most = max(used[prompt] + holes[prompt] for prompt in used), max(holes.values())

    def compose(batch: Sequence[Prompt]) -> Canvas:
        rows: list[list[Any]] = [[*source_turn, prompt, model.hole(holes[prompt])] for prompt in batch]
        has_sources = settings.source is not None and not source_turn
        canvas = model.lm.compose(rows, [settings.source or ""] * len(rows) if has_sources else None, label)
        return with_stop_strings(canvas, settings.stop, model.tokenizer)

    fixed = not model.lm.process.grows
    request = TextRequest(prompts, compose, length if fixed else max(used.values()), most, room=0 if fixed else most)
    plan = make_plan(model, request, settings, partial(with_guidance, model, settings))
    return plan.with_notes(*notes, *length_warning(model, length))


def _conversations(model: TextModel, prompts: Sequence[Prompt]) -> list[tuple[int, ...]]:
    """The tokens of conversations in which each prompt is the first message."""
    if model.tokenizer.template is None:
        raise ArgumentError("chat", "chat=True: this model has no chat template; leave it out")
    encode = question_encoder(model.tokenizer)
    return [tuple(encode(prompt)) if isinstance(prompt, str) else prompt for prompt in prompts]
