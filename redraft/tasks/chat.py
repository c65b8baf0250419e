"""The answer to a conversation: its ids come from a chat template, so they are given as ids, not as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from redraft.core.canvas import Canvas
from redraft.core.text.chat_template import prompt_ids
from redraft.core.text.tokenizers import HubTokenizer
from redraft.tasks.arguments.settings import GenerationSettings
from redraft.tasks.engine.conditions import length_warning, new_token_count
from redraft.tasks.engine.model import TextModel
from redraft.tasks.engine.plan import DecodingPlan, TextRequest, make_plan
from redraft.tasks.engine.stop_strings import with_stop_strings
from redraft.tasks.generation import plan_generation


def plan_chat_reply(it: TextModel, messages: Sequence[Mapping[str, str]], asked: GenerationSettings) -> DecodingPlan:
    """How to write the next message of a conversation, each {"role": "user", "content": "…"}.

    By the chat template of the model; models trained on pairs answer the last message; others go on with the text of
    all messages.
    """
    if isinstance(it.tokenizer, HubTokenizer) and it.tokenizer.template is not None:
        return _by_template(it, tuple(prompt_ids(it.tokenizer, messages)), asked)
    if it.needs_source:
        return plan_generation(it, "", replace(asked, source=messages[-1]["content"]))
    return plan_generation(it, "\n".join(message["content"] for message in messages), asked)


def _by_template(it: TextModel, ids: tuple[int, ...], asked: GenerationSettings) -> DecodingPlan:
    size = new_token_count(it, asked, len(ids))

    def compose(some: Sequence[str]) -> Canvas:
        canvas = it.lm.compose([[ids, it.hole(size)]] * len(some))
        return with_stop_strings(canvas, asked.stop, it.tokenizer)

    made = make_plan(it, TextRequest([""], compose, len(ids) + size, size), asked)
    return made.with_notes(*length_warning(it, len(ids) + size))
