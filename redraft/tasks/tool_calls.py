"""Tool calls: the reply to a conversation is a text, or the arguments of one of the given functions as JSON.

The tools are described in the conversation, and a call is the JSON {"name": …, "arguments": …}. Which tool is called is
a choice between names, with null for an answer in words; the arguments then obey the schema of the tool exactly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from redraft.tasks.arguments.setting import ArgumentError
from redraft.tasks.arguments.settings import GenerationSettings
from redraft.tasks.chat import _chat_prompt, plan_chat_reply
from redraft.tasks.choice.choice import choose_next
from redraft.tasks.engine.model import TextModel
from redraft.tasks.engine.plan import DecodingPlan

_PREAMBLE = """These tools are available, one per line:
{tools}
To use a tool, reply with a line of JSON: {{"name": …, "arguments": …}}. If no tool is needed, its name is null.
"""


@dataclass(frozen=True)
class Tool:
    """A function that a model may call."""

    name: str
    schema: str
    """JSON schema of the arguments."""
    description: str = ""


def plan_tool_reply(
    model: TextModel,
    messages: Sequence[Mapping[str, str]],
    settings: GenerationSettings,
    tools: Sequence[Tool],
    *,
    required: bool = False,
) -> tuple[DecodingPlan, str | None]:
    """Plans the next message of a conversation; also returns the name of the tool it calls, None if it calls none.

    The model chooses between the tools and an answer in words, or only between the tools if a call is `required`.
    Settings about the text, such as `stop`, `pattern` and `schema`, apply to answers in words.
    """
    with_tools = _with_preamble(messages, tools)
    tool = tools[0] if required and len(tools) == 1 else _chosen_tool(model, with_tools, tools, required)
    if tool is None:
        return plan_chat_reply(model, with_tools, settings), None
    ruled = replace(settings, schema=tool.schema, pattern=(), banned=(), required=(), stop=())
    begin = f'{{"name": {json.dumps(tool.name)}, "arguments": '
    return plan_chat_reply(model, with_tools, ruled, begin), tool.name


def _with_preamble(messages: Sequence[Mapping[str, str]], tools: Sequence[Tool]) -> list[Mapping[str, str]]:
    """The conversation with a description of the tools at the beginning of its first message."""
    lines = [
        json.dumps({"name": tool.name, "description": tool.description, "parameters": json.loads(tool.schema)})
        for tool in tools
    ]
    first, *rest = messages
    return [{**first, "content": _PREAMBLE.format(tools="\n".join(lines)) + first["content"]}, *rest]


def _chosen_tool(
    model: TextModel, messages: Sequence[Mapping[str, str]], tools: Sequence[Tool], required: bool
) -> Tool | None:
    """The most likely name of a tool at the beginning of the reply; None if that is null."""
    if not model.lm.process.base.fills_masks or model.needs_source:
        raise ArgumentError(
            "tool_choice", "this model cannot choose between tools; name one: tool_choice={'type': 'function', …}"
        )
    names = [*([] if required else ["null"]), *(json.dumps(tool.name) for tool in tools)]
    prompt = model.prompt_ids(_chat_prompt(model, messages))
    best = choose_next(model, prompt, '{"name": ', names, ",").best
    return None if best == "null" else next(tool for tool in tools if json.dumps(tool.name) == best)
