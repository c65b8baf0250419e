"""POST /v1/chat/completions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from redraft.apps.server.bodies.fields import StrictModel, with_settings
from redraft.apps.server.bodies.schemas import OpenAIBody, _Name, _Text
from redraft.apps.server.errors import _bad_request, _JsonObject
from redraft.apps.server.jobs import RequestLimits, _Job, _require_schema, _text_job
from redraft.apps.server.options import _keep_alternatives, _options
from redraft.apps.server.responses import _chat_choices, _ResponseHeader, _texts_body
from redraft.apps.server.routes.route import Route
from redraft.apps.server.streams import EventStream, _ChatStream
from redraft.tasks.arguments.settings import GenerationSettings

if TYPE_CHECKING:
    from redraft.apps.server.records import _SendFrame, _Work
    from redraft.tasks.engine.model import TextModel

_NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}


class TextPart(StrictModel):
    """A part of the content of a message."""

    type: Literal["text"]
    text: _Text


class FunctionCall(StrictModel):
    """The name of a function and its arguments as JSON."""

    name: _Name
    arguments: _Text


class ToolCall(StrictModel):
    """A call that the assistant made earlier in the conversation."""

    id: _Name
    type: Literal["function"]
    function: FunctionCall


class Message(StrictModel):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: _Text | Annotated[list[TextPart], Field(max_length=256)] | None = None
    name: _Name | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=128)] | None = None
    tool_call_id: _Name | None = None
    refusal: _Text | None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None

    @property
    def text(self) -> str:
        """The content with the tool calls, one JSON object per line."""
        parts = [self.content] if isinstance(self.content, str) else [part.text for part in self.content or []]
        calls = [f'{{"name": {json.dumps(c.function.name)}, "arguments": {c.function.arguments}}}' for c in self.calls]
        return "\n".join(["".join(parts), *calls] if "".join(parts) else calls)

    @property
    def calls(self) -> Sequence[ToolCall]:
        return self.tool_calls or ()


_Messages = Annotated[list[Message], Field(min_length=1, max_length=1024)]


class Function(StrictModel):
    """A function that the model may call; its arguments obey the schema exactly, even without `strict`."""

    name: Annotated[str, Field(min_length=1, max_length=128)]
    description: _Text | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(StrictModel):
    """A tool of type "function", the only supported type."""

    type: Literal["function"]
    function: Function


@with_settings(GenerationSettings, only=(), max_completion_tokens="max_new_tokens")
class ChatBody(Route, OpenAIBody):
    """POST /v1/chat/completions"""

    path = "/v1/chat/completions"
    kind = "chat.completion"
    messages: _Messages
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: Annotated[list[FunctionTool], Field(max_length=128)] | None = None
    tool_choice: Any = Field(None, description="none, auto, required, or the name of a function.")

    def job(self, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
        self._require_agreement()
        options, names = _options(self)
        if self.max_completion_tokens is not None:
            names["max_new_tokens"] = "max_completion_tokens"
        _keep_alternatives("top_logprobs", self.top_logprobs or 0, options, names)
        messages, tools = _plain_messages(self.messages), self._callable_tools()
        names |= {"": "messages", "prompts": "messages", "source": "messages"}
        if tools and "schema" not in options:
            names["schema"] = "tools"
        arguments = {"messages": messages, "options": options, "tools": tools, "required": self._requires_call}
        texts = ["\n".join([*(message["content"] for message in messages), *(tool["schema"] for tool in tools)])]
        job = _text_job(models, self, f"{__name__}:_reply", arguments, GenerationSettings, names, limits, texts)
        for tool in tools:
            _require_schema(tool["schema"], "tools", limits)
        return replace(job, schemas=(*job.schemas, *(tool["schema"] for tool in tools)))

    def _require_agreement(self) -> None:
        if self.top_logprobs and not self.logprobs:
            raise _bad_request("top_logprobs", "top_logprobs needs logprobs=true; set it, too")
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise _bad_request(
                "max_completion_tokens", "max_tokens and max_completion_tokens mean the same; use only one of them"
            )

    @property
    def _requires_call(self) -> bool:
        return self.tool_choice not in (None, "auto", "none")

    def _callable_tools(self) -> list[_JsonObject]:
        """Returns the tools that the reply may call, each with its name, schema and description."""
        functions, choice = [tool.function for tool in self.tools or []], self.tool_choice
        names = [function.name for function in functions]
        if len(set(names)) < len(names):
            raise _bad_request("tools", "two tools have the same name; give each its own")
        if isinstance(choice, dict):
            function = choice.get("function")
            chosen = function.get("name") if isinstance(function, dict) else None
            if choice.get("type") != "function" or chosen not in names:
                message = f"tool_choice={choice!r:.80}: name one of the tools: {', '.join(names) or 'there are none'}"
                raise _bad_request("tool_choice", message)
            functions = [function for function in functions if function.name == chosen]
        elif choice not in (None, "none", "auto", "required"):
            raise _bad_request("tool_choice", "tool_choice must be none, auto, required, or name a function")
        elif choice == "required" and not functions:
            raise _bad_request("tool_choice", "tool_choice='required' needs tools; give at least one")
        if choice == "none":
            return []
        return [
            {
                "name": each.name,
                "schema": json.dumps(_NO_ARGUMENTS if each.parameters is None else each.parameters),
                "description": each.description or "",
            }
            for each in functions
        ]

    def event_stream(self, job: _Job, accept: str) -> EventStream | None:
        return _ChatStream(self.header(job), self) if self.stream else None

    def header(self, job: _Job) -> _ResponseHeader:
        return _ResponseHeader("chatcmpl", f"{self.kind}.chunk" if self.stream else self.kind, job.model["id"])

    def response(self, job: _Job, record: _JsonObject) -> _JsonObject:
        head = self.header(job)
        return _texts_body(head, record, _chat_choices(head, record, self))


def _plain_messages(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Returns role and text of each message, in the roles that chat templates know; results of tools are the user's."""
    plain: list[dict[str, str]] = []
    names = {call.id: call.function.name for message in messages for call in message.calls}
    for message, last in zip(messages, [None, *messages], strict=False):
        role, text = {"developer": "system", "tool": "user"}.get(message.role, message.role), message.text
        if message.role == "tool":
            text = f"Result of {names.get(message.tool_call_id or '', message.name or 'the tool')}: {text}"
        if message.role == "tool" and last is not None and last.role == "tool":
            plain[-1]["content"] += f"\n{text}"
        else:
            plain.append({"role": role, "content": text})
    return plain


def _reply(model: TextModel, arguments: _JsonObject) -> _Work:
    """Generates the next message of a conversation, which may be a tool call."""
    from redraft.apps.server.records import _greedy_sampler, _run_plans
    from redraft.tasks.chat import plan_chat_reply
    from redraft.tasks.tool_calls import Tool, plan_tool_reply

    settings = GenerationSettings(**_greedy_sampler(model, arguments["options"]))
    messages, tool = arguments["messages"], None
    if tools := [Tool(**given) for given in arguments["tools"]]:
        plan, tool = plan_tool_reply(model, messages, settings, tools, required=arguments["required"])
    else:
        plan = plan_chat_reply(model, messages, settings)

    def run(send: _SendFrame) -> _JsonObject:
        record = _run_plans(model, [plan], arguments, lambda frame: send(frame | {"tool": tool}))
        return record | {"texts": [text | {"tool": tool} for text in record["texts"]]}

    return run
