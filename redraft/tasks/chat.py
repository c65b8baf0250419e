"""Chat: replies to a conversation. The prompt is given as ids, because a chat template makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from redraft.core.canvas import Canvas
from redraft.core.text.chat_template import prompt_ids
from redraft.tasks.arguments.settings import GenerationSettings
from redraft.tasks.engine.conditions import length_warning, new_token_count
from redraft.tasks.engine.model import TextModel
from redraft.tasks.engine.plan import DecodingPlan, TextRequest, make_plan
from redraft.tasks.engine.stop_strings import with_stop_strings
from redraft.tasks.generation import plan_generation


def plan_chat_reply(
    model: TextModel, messages: Sequence[Mapping[str, str]], settings: GenerationSettings
) -> DecodingPlan:
    """Plans the next message of a conversation, given as messages {"role": "user", "content": "…"}.

    With a chat template, the whole conversation is the prompt. Without one, models trained on pairs answer the last
    message, and other models continue the text of all messages.
    """
    if model.tokenizer.template is not None:
        return _by_template(model, tuple(prompt_ids(model.tokenizer, messages)), settings)
    if model.needs_source:
        return plan_generation(model, "", replace(settings, source=messages[-1]["content"]))
    return plan_generation(model, "\n".join(message["content"] for message in messages), settings)


def _by_template(model: TextModel, ids: tuple[int, ...], settings: GenerationSettings) -> DecodingPlan:
    size = new_token_count(model, settings, len(ids))

    def compose(prompts: Sequence[str]) -> Canvas:
        canvas = model.lm.compose([[ids, model.hole(size)]] * len(prompts))
        return with_stop_strings(canvas, settings.stop, model.tokenizer)

    plan = make_plan(model, TextRequest([""], compose, len(ids) + size, size), settings)
    return plan.with_notes(*length_warning(model, len(ids) + size))
