"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from redraft.apps.server.bodies.fields import StrictModel, with_settings
from redraft.apps.server.bodies.schemas import OpenAIBody, _Name, _Text
from redraft.apps.server.errors import _bad_request, _JsonObject
from redraft.apps.server.jobs import RequestLimits, _Job, _text_job
from redraft.apps.server.options import _keep_alternatives, _options
from redraft.apps.server.responses import (
    EventStream,
    _chat_choices,
    _CompletionStream,
    _ResponseHeader,
    _texts_body,
)
from redraft.apps.server.routes.route import Route
from redraft.tasks.arguments.settings import GenerationSettings

if TYPE_CHECKING:
    from redraft.apps.server.records import _Work
    from redraft.tasks.engine.model import TextModel


class TextPart(StrictModel):
    """A part of the content of a message."""

    type: Literal["text"]
    text: _Text


class Message(StrictModel):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: _Text | Annotated[list[TextPart], Field(max_length=256)]
    name: _Name | None = None

    @property
    def plain(self) -> dict[str, str]:
        """Role and text, with the role developer replaced by system."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


_Messages = Annotated[list[Message], Field(min_length=1, max_length=1024)]


@with_settings(GenerationSettings, only=(), max_completion_tokens="max_new_tokens")
class ChatBody(Route, OpenAIBody):
    """POST /v1/chat/completions"""

    path = "/v1/chat/completions"
    kind = "chat.completion"
    messages: _Messages
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: list[Any] | None = None
    tool_choice: Any = None

    def job(self, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
        self._require_supported()
        options, names = _options(self)
        if self.max_completion_tokens is not None:
            names["max_new_tokens"] = "max_completion_tokens"
        _keep_alternatives("top_logprobs", self.top_logprobs or 0, options, names)
        messages = [message.plain for message in self.messages]
        names |= {"": "messages", "prompts": "messages", "source": "messages"}
        arguments = {"messages": messages, "options": options}
        texts = ["\n".join(message["content"] for message in messages)]
        return _text_job(models, self, f"{__name__}:_reply", arguments, GenerationSettings, names, limits, texts)

    def _require_supported(self) -> None:
        for name in ("tools", "tool_choice"):
            if getattr(self, name) not in (None, [], "none"):
                raise _bad_request(
                    name,
                    f"{name} is not supported, as these models cannot call tools; leave it out",
                    "unsupported_parameter",
                )
        if self.top_logprobs and not self.logprobs:
            raise _bad_request("top_logprobs", "top_logprobs needs logprobs=true; set it, too")
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise _bad_request(
                "max_completion_tokens", "max_tokens and max_completion_tokens mean the same; use only one of them"
            )

    def event_stream(self, job: _Job, accept: str) -> EventStream | None:
        return _CompletionStream(self.header(job), True, self) if self.stream else None

    def header(self, job: _Job) -> _ResponseHeader:
        return _ResponseHeader("chatcmpl", f"{self.kind}.chunk" if self.stream else self.kind, job.model["id"])

    def response(self, job: _Job, record: _JsonObject) -> _JsonObject:
        return _texts_body(self.header(job), record, _chat_choices(record, self))


def _reply(model: TextModel, arguments: _JsonObject) -> _Work:
    """Generates the next message of a conversation."""
    from redraft.apps.server.records import _greedy_sampler, _run_plans
    from redraft.tasks.chat import plan_chat_reply

    settings = GenerationSettings(**_greedy_sampler(model, arguments["options"]))
    plan = plan_chat_reply(model, arguments["messages"], settings)
    return lambda send: _run_plans(model, [plan], arguments, send)
