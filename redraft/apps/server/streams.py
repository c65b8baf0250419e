"""Streamed responses: from the events of a job to server-sent events or lines of JSON."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Literal

from redraft.apps.server.bodies.schemas import OpenAIBody
from redraft.apps.server.errors import _JsonObject
from redraft.apps.server.responses import (
    _cut_at_stop,
    _finish_reason,
    _logprobs_body,
    _reply_end,
    _ResponseHeader,
    _tool_call,
    _usage,
)


def _sse(body: _JsonObject) -> bytes:
    return f"data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def _ndjson(body: _JsonObject) -> bytes:
    return (json.dumps(body, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


_DONE = b"data: [DONE]\n\n"


class EventStream(ABC):
    """Converts the events of a job to the bytes of a streamed response."""

    frames: Literal["drafts", "trace"] = "drafts"  # drafts: new text that no longer changes; trace: whole canvases
    media_type = "text/event-stream"
    keep_alive = b": keep-alive\n\n"

    def start(self) -> Iterator[bytes]:
        """Yields what comes before the first event."""
        yield from ()

    @abstractmethod
    def frame(self, event: _JsonObject) -> Iterator[bytes]:
        """Yields what is new in a frame."""

    @abstractmethod
    def finish(self, record: _JsonObject) -> Iterator[bytes]:
        """Yields the end of a stream that succeeded."""

    @abstractmethod
    def fail(self, error: _JsonObject) -> Iterator[bytes]:
        """Yields the end of a stream that failed."""


class _CompletionStream(EventStream):
    """Chunks of a streamed completion. Each holds only new text that can no longer change.

    The last chunk of each text carries the log-probabilities of all its tokens.
    """

    def __init__(self, head: _ResponseHeader, body: OpenAIBody, *, echo: bool = False) -> None:
        """`echo`: whether the prompt comes before each text."""
        self.head, self.body, self.echo = head, body, echo
        self.sent: dict[int, str] = {}  # row → text that was sent

    def frame(self, event: _JsonObject) -> Iterator[bytes]:
        text, stopped = _cut_at_stop(event["new"], stops := self._stops(event))
        shown = text if stopped else text[: len(text) - _held_back_chars(text, stops)]
        yield from map(_sse, self._new_text(event["row"], shown, event))

    def finish(self, record: _JsonObject) -> Iterator[bytes]:
        yield from map(_sse, self._last(record))
        if self.body.stream_options is not None and self.body.stream_options.include_usage:
            yield _sse(self.head.body() | {"choices": [], "usage": _usage(record)})
        yield _DONE

    def fail(self, error: _JsonObject) -> Iterator[bytes]:
        yield _sse(error)
        yield _DONE

    def _stops(self, event: _JsonObject) -> Sequence[str]:
        return self.body.stop or ()

    def _new_text(self, row: int, text: str, event: _JsonObject) -> Iterator[_JsonObject]:
        """Yields the chunk of a text that has grown; nothing if it has not."""
        sent = self.sent.get(row, "")
        if not text.startswith(sent) or len(text) == len(sent):
            return
        first = row not in self.sent
        self.sent[row] = text
        yield self._chunk(row, text[len(sent) :], None, event, first=first)

    def _last(self, record: _JsonObject) -> Iterator[_JsonObject]:
        """Yields the last chunks: the remaining text of each row, then its finish reason."""
        for row, result in enumerate(record["texts"]):
            text, stopped = _cut_at_stop(result["new"], self._stops(result))
            if not text.startswith(self.sent.get(row, "")):
                raise RuntimeError("text that was already sent has changed; this should never happen")
            yield from self._new_text(row, text, result)
            log = _logprobs_body(result, len(text), self.body)
            yield self._chunk(row, "", self._end(result, stopped), result, first=row not in self.sent, log=log)

    def _chunk(
        self,
        row: int,
        text: str,
        end: str | None,
        event: _JsonObject,
        *,
        first: bool,
        log: _JsonObject | None = None,
    ) -> _JsonObject:
        choice = {"index": row, **self._content(row, text, end, event, first), "logprobs": log, "finish_reason": end}
        return self.head.body() | {"choices": [choice]}

    def _content(self, row: int, text: str, end: str | None, event: _JsonObject, first: bool) -> _JsonObject:
        """Returns the new text as this route sends it."""
        return {"text": event["echo"] + text if self.echo and first else text}

    def _end(self, result: _JsonObject, stopped: bool) -> str:
        return _finish_reason(result, stopped)


class _ChatStream(_CompletionStream):
    """Chunks of a streamed reply, which is a text or a tool call."""

    def _stops(self, event: _JsonObject) -> Sequence[str]:
        return super()._stops(event) if event["tool"] is None else ()

    def _content(self, row: int, text: str, end: str | None, event: _JsonObject, first: bool) -> _JsonObject:
        delta: _JsonObject = {"content": text} if first or text or not end else {}
        if event["tool"] is not None:
            call = _tool_call(self.head, row, event["tool"], text) if first else {"function": {"arguments": text}}
            delta = (
                {"tool_calls": [{"index": 0} | call]} | ({"content": None} if first else {}) if first or text else {}
            )
        return {"delta": {"role": "assistant"} | delta if first else delta}

    def _end(self, result: _JsonObject, stopped: bool) -> str:
        return _reply_end(result, stopped)


def _held_back_chars(text: str, stops: Sequence[str]) -> int:
    """Returns the number of trailing characters that could be the beginning of a stop string."""
    sizes = (n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n]))
    return max(sizes, default=0)
