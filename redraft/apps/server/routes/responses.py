"""POST /v1/responses: a reply to a text or a conversation, as a chat completion in another form. Nothing is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from redraft.apps.server.bodies.fields import StrictModel, with_settings
from redraft.apps.server.bodies.schemas import _IGNORED, Extras, StreamOptions, _Name, _Text
from redraft.apps.server.errors import _ApiError, _bad_request, _from_validation_error, _JsonObject
from redraft.apps.server.jobs import RequestLimits, _Job
from redraft.apps.server.responses import _diffusion_info, _ResponseHeader, _tool_call, _usage
from redraft.apps.server.routes.chat import ChatBody, Function
from redraft.apps.server.routes.route import Route
from redraft.apps.server.streams import EventStream, _sse
from redraft.tasks.arguments.settings import GenerationSettings

_SAME = ("model", "temperature", "top_p", "seed", "stream", "diffusion")  # have the same names in a chat completion
_NAMES = {  # parameter of a chat completion → of this route
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "response_format": "text",
}
_NO_CACHE = {"cached_tokens": 0, "cache_write_tokens": 0}


class InputPart(StrictModel):
    """A part of the content of an item."""

    type: Literal["input_text", "output_text"]
    text: _Text
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


_Content = _Text | Annotated[list[InputPart], Field(max_length=256)]


class InputItem(StrictModel):
    """A message, an earlier call of a function, or its result."""

    type: Literal["message", "function_call", "function_call_output"] = "message"
    role: Literal["system", "developer", "user", "assistant"] = "user"
    content: _Content = ""
    call_id: _Name | None = None
    name: _Name | None = None
    arguments: _Text = ""
    output: _Content = ""
    id: _Name | None = None
    status: _Name | None = None
    phase: _Name | None = None

    @property
    def message(self) -> _JsonObject:
        """The item as a message of a chat completion."""
        if self.type == "function_call":
            function = {"name": self.name or "", "arguments": self.arguments}
            call = {"id": self.call_id or "", "type": "function", "function": function}
            return {"role": "assistant", "tool_calls": [call]}
        if self.type == "function_call_output":
            return {"role": "tool", "tool_call_id": self.call_id, "content": _joined(self.output)}
        return {"role": self.role, "content": _joined(self.content)}


class ResponseTool(Function):
    """A function that the model may call."""

    type: Literal["function"]


class TextFormat(StrictModel):
    """The format of the text, as in `response_format` of a chat completion."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: _Name | None = None
    description: _Text | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class TextConfig(StrictModel):
    """The format of the text; `verbosity` changes nothing."""

    format: TextFormat = TextFormat(schema=None)
    verbosity: _Name | None = None


@with_settings(
    GenerationSettings,
    only=("seed", "temperature", "top_p"),
    most={"temperature": 2},
    ignored=(*_IGNORED, "reasoning", "include"),
    max_output_tokens="max_new_tokens",
)
class ResponseBody(Route):
    """POST /v1/responses: a reply to a text or to a conversation."""

    path = "/v1/responses"
    kind = "response"
    model: _Name | None = None
    input: _Text | Annotated[list[InputItem], Field(min_length=1, max_length=1024)]
    instructions: _Text | None = None
    tools: Annotated[list[ResponseTool], Field(max_length=128)] | None = None
    tool_choice: Any = None
    text: TextConfig = TextConfig()
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    background: Literal[False] | None = None
    truncation: Literal["disabled"] | None = None
    previous_response_id: _Name | None = Field(None, description="Not supported, since nothing is stored.")
    diffusion: Extras | None = None

    def job(self, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
        if self.previous_response_id is not None:
            message = "previous_response_id is not supported, as nothing is stored; send the whole conversation"
            raise _bad_request("previous_response_id", message, "unsupported_parameter")
        content = self._chat_content()
        try:
            job = ChatBody.model_validate(content).job(models, limits)
        except ValidationError as error:
            raise _renamed(_from_validation_error(error.errors(include_url=False)[0], content)) from None
        except _ApiError as error:
            raise _renamed(error) from None
        return replace(job, names={own: _NAMES.get(name, name) for own, name in job.names.items()})

    def _chat_content(self) -> _JsonObject:
        """Returns the body of a chat completion."""
        given = self.model_dump(exclude_none=True, exclude_unset=True, by_alias=True)
        content = {name: given[name] for name in _SAME if name in given}
        if "max_output_tokens" in given:
            content["max_completion_tokens"] = given["max_output_tokens"]
        first = [{"role": "system", "content": self.instructions}] if self.instructions else []
        items = [InputItem(content=self.input)] if isinstance(self.input, str) else self.input
        content["messages"] = [*first, *(item.message for item in items)]
        functions = [{key: tool[key] for key in tool if key != "type"} for tool in given.get("tools", [])]
        content["tools"] = [{"type": "function", "function": function} for function in functions]
        choice = self.tool_choice
        if isinstance(choice, dict) and choice.get("type") == "function":
            choice = {"type": "function", "function": {"name": choice.get("name")}}
        shape = self.text.format.model_dump(exclude_none=True, by_alias=True)
        kind = shape.pop("type")
        content["response_format"] = {"type": kind} | ({"json_schema": shape} if kind == "json_schema" else {})
        return content | {"tool_choice": choice}

    def event_stream(self, job: _Job, accept: str) -> EventStream | None:
        return _ResponseStream(self, job) if self.stream else None

    def header(self, job: _Job) -> _ResponseHeader:
        return _ResponseHeader("resp", self.kind, job.model["id"])

    def response(self, job: _Job, record: _JsonObject) -> _JsonObject:
        return self.body(self.header(job), record)

    def body(self, head: _ResponseHeader, record: _JsonObject | None) -> _JsonObject:
        """Returns the response; without a record the one at the beginning of a stream."""
        given = self.model_dump(by_alias=True)
        body = {
            "id": f"{head.prefix}-{head.id}",
            "object": "response",
            "created_at": head.created,
            "model": head.model,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "output": [],
            "parallel_tool_calls": True,
            "tool_choice": self.tool_choice or "auto",
            "tools": given["tools"] or [],
            "text": {"format": self.text.format.model_dump(exclude_none=True, by_alias=True)},
            "truncation": "disabled",
            "service_tier": "default",
            "store": False,
        }
        body |= {
            name: given[name] for name in ("instructions", "metadata", "temperature", "top_p", "max_output_tokens")
        }
        if record is None:
            return body
        counts, short = _usage(record), _is_short(record)
        usage = {
            "input_tokens": counts["prompt_tokens"],
            "input_tokens_details": _NO_CACHE,
            "output_tokens": counts["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counts["total_tokens"],
        }
        result = record["texts"][0]
        return body | {
            "status": "incomplete" if short else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if short else None,
            "output": [_item(head, result["tool"], result["new"], "incomplete" if short else "completed")],
            "usage": usage,
            "diffusion": _diffusion_info(record),
        }


def _joined(content: str | Sequence[InputPart]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def _renamed(error: _ApiError) -> _ApiError:
    """Returns the error about a chat completion as one about this route."""
    top, dot, rest = (error.param or "").partition(".")
    return replace(error, param=f"{_NAMES.get(top, top)}{dot}{rest}" or None)


def _is_short(record: _JsonObject) -> bool:
    """Whether the text ended only because there was no room for more."""
    result = record["texts"][0]
    return result["tool"] is None and result["stop"] == "length"


def _item(head: _ResponseHeader, tool: str | None, text: str, status: str) -> _JsonObject:
    """Returns the message or the call of a function."""
    if tool is None:
        item = {"type": "message", "id": f"msg_{head.id}", "role": "assistant", "status": status}
        return item | {"content": [] if status == "in_progress" else [_part(text)]}
    call = _tool_call(head, 0, tool, text)
    return {"type": "function_call", "id": f"fc_{head.id}", "call_id": call["id"], "status": status} | call["function"]


def _part(text: str) -> _JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


class _ResponseStream(EventStream):
    """Named events: the response begins, an item begins, its text grows, and all of them end."""

    def __init__(self, body: ResponseBody, job: _Job) -> None:
        self.body, self.head = body, body.header(job)
        self.count = 0  # of events
        self.sent: str | None = None  # the text so far; None before the first part of it

    def start(self) -> Iterator[bytes]:
        for name in ("created", "in_progress"):
            yield self._event(name, response=self.body.body(self.head, None))

    def frame(self, event: _JsonObject) -> Iterator[bytes]:
        yield from self._grow(event["tool"], event["new"])

    def finish(self, record: _JsonObject) -> Iterator[bytes]:
        result = record["texts"][0]
        tool, text = result["tool"], result["new"]
        yield from self._grow(tool, text)
        whole = self.body.body(self.head, record)
        at = self._at(tool)
        if tool is None:
            yield self._event("output_text.done", **at, text=text, logprobs=[])
            yield self._event("content_part.done", **at, part=_part(text))
        else:
            yield self._event("function_call_arguments.done", **at, arguments=text, name=tool)
        yield self._event("output_item.done", output_index=0, item=whole["output"][0])
        yield self._event(whole["status"], response=whole)

    def fail(self, error: _JsonObject) -> Iterator[bytes]:
        failure = {"code": "server_error", "message": error["error"]["message"]}
        yield self._event("failed", response=self.body.body(self.head, None) | {"status": "failed", "error": failure})

    def _grow(self, tool: str | None, text: str) -> Iterator[bytes]:
        """Yields the events of text that is new; before the first one those of the beginning of its item."""
        if self.sent is None:
            item = _item(self.head, tool, "", "in_progress")
            yield self._event("output_item.added", output_index=0, item=item)
            if tool is None:
                yield self._event("content_part.added", **self._at(tool), part=_part(""))
        new, self.sent = text[len(self.sent or "") :], text
        if new and tool is None:
            yield self._event("output_text.delta", **self._at(tool), delta=new, logprobs=[])
        elif new:
            yield self._event("function_call_arguments.delta", **self._at(tool), delta=new)

    def _at(self, tool: str | None) -> _JsonObject:
        """Returns what an event is about."""
        if tool is not None:
            return {"item_id": f"fc_{self.head.id}", "output_index": 0}
        return {"item_id": f"msg_{self.head.id}", "output_index": 0, "content_index": 0}

    def _event(self, event: str, /, **content: Any) -> bytes:
        number, self.count = self.count, self.count + 1
        kind = f"response.{event}"
        return f"event: {kind}\n".encode() + _sse({"type": kind, "sequence_number": number} | content)
