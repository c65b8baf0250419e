"""Chat: replies to a conversation. With a chat template the prompt is given as ids, because the template makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from redraft.core.text.chat_template import prompt_ids
from redraft.tasks.arguments.settings import GenerationSettings, Prompt
from redraft.tasks.engine.model import TextModel
from redraft.tasks.engine.plan import DecodingPlan
from redraft.tasks.generation import _plan_replies, plan_generation


def plan_chat_reply(
    model: TextModel, messages: Sequence[Mapping[str, str]], settings: GenerationSettings, begin: str = ""
) -> DecodingPlan:
    """Plans the next message of a conversation, given as messages {"role": "user", "content": "…"}.

    With a chat template, the whole conversation is the prompt. Without one, models trained on pairs answer the last
    message, and other models continue the text of all messages. `begin` is the beginning of the reply.
    """
    if model.tokenizer.template is None and model.needs_source:
        return plan_generation(model, begin, replace(settings, source=messages[-1]["content"]))
    prompt = _chat_prompt(model, messages, begin)
    return (
        plan_generation(model, prompt, settings)
        if isinstance(prompt, str)
        else _plan_replies(model, [prompt], settings)
    )


def _chat_prompt(model: TextModel, messages: Sequence[Mapping[str, str]], begin: str = "") -> Prompt:
    """The conversation up to the reply, and the beginning of the reply: as ids if there is a chat template."""
    tokenizer = model.tokenizer
    if tokenizer.template is None:
        return "\n".join([*(message["content"] for message in messages), *([begin] if begin else [])])
    ids = prompt_ids(tokenizer, messages)
    return (*ids, *(tokenizer.encode_inside(begin) if begin else ()))
