"""The answer to a conversation: its ids come from a chat template, so they are given as ids, not as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from redraft.core.canvas import Canvas
from redraft.core.text.chat_template import prompt_ids
from redraft.core.text.tokenizers import Hub
from redraft.tasks.arguments.settings import Generation
from redraft.tasks.engine.conditions import longer_than_learnt, new_tokens
from redraft.tasks.engine.model import Opened
from redraft.tasks.engine.plan import Order, Plan, plan
from redraft.tasks.engine.stop_strings import with_stops
from redraft.tasks.generation import generation


def answering(it: Opened, messages: Sequence[Mapping[str, str]], asked: Generation) -> Plan:
    """How to write the next message of a conversation, each {"role": "user", "content": "…"}.

    By the chat template of the model; models trained on pairs answer the last message; others go on with the text of
    all messages.
    """
    if isinstance(it.tokenizer, Hub) and it.tokenizer.template is not None:
        return _by_template(it, tuple(prompt_ids(it.tokenizer, messages)), asked)
    if it.answers:
        return generation(it, "", replace(asked, source=messages[-1]["content"]))
    return generation(it, "\n".join(message["content"] for message in messages), asked)


def _by_template(it: Opened, ids: tuple[int, ...], asked: Generation) -> Plan:
    size = new_tokens(it, asked, len(ids))

    def compose(some: Sequence[str]) -> Canvas:
        canvas = it.model.compose([[ids, it.hole(size)]] * len(some))
        return with_stops(canvas, asked.stop, it.tokenizer)

    made = plan(it, Order([""], compose, len(ids) + size, size), asked)
    return made.noting(*longer_than_learnt(it, len(ids) + size))
