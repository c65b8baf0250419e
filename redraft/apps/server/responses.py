"""Converts result records to OpenAI-compatible response bodies; our own fields are under `diffusion`."""

from __future__ import annotations

import json
import math
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from redraft.apps.server.bodies.schemas import OpenAIBody
from redraft.apps.server.errors import _JsonObject


@dataclass(frozen=True)
class _ResponseHeader:
    """Fields that all chunks of one response share."""

    prefix: str
    kind: str
    model: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def body(self, kind: str | None = None) -> _JsonObject:
        return {
            "id": f"{self.prefix}-{self.id}",
            "object": kind or self.kind,
            "created": self.created,
            "model": self.model,
        }


def _usage(record: _JsonObject) -> _JsonObject:
    """Returns the token usage. A prompt counts once, even if n texts are generated for it."""
    prompts = {text["prompt"]: text["given_tokens"] for text in record["texts"]}
    given, new = sum(prompts.values()), sum(text["new_tokens"] for text in record["texts"])
    return {"prompt_tokens": given, "completion_tokens": new, "total_tokens": given + new}


def _diffusion_info(record: _JsonObject) -> _JsonObject:
    """Returns the `diffusion` field: cost, sampler and settings."""
    names = ("nfe", "seconds", "seed", "sampler", "cache", "exactness", "notes", "run_digest")
    return {name: record[name] for name in names} | {
        "steps": [max([0, *(s for s in text["steps"] if s)]) for text in record["texts"]]
    }


def _cut_at_stop(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """Cuts the text before the first stop string; also returns whether there was one."""
    positions = [position for stop in stops if stop and (position := text.find(stop)) >= 0]
    return (text[: min(positions)], True) if positions else (text, False)


def _held_back_chars(text: str, stops: Sequence[str]) -> int:
    """Returns the number of trailing characters that could be the beginning of a stop string."""
    sizes = (n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n]))
    return max(sizes, default=0)


def _finish_reason(result: _JsonObject, stopped: bool) -> str:
    return "stop" if stopped or result["stop"] != "length" else "length"


def _texts_body(head: _ResponseHeader, record: _JsonObject, choices: Iterable[_JsonObject]) -> _JsonObject:
    """Returns the body of a response with one choice per text."""
    return head.body() | {"choices": [*choices], "usage": _usage(record), "diffusion": _diffusion_info(record)}


def _completion_choices(record: _JsonObject, body: OpenAIBody, echo: Sequence[str] = ()) -> Iterator[_JsonObject]:
    """Yields the choices of a completion; `echo` holds the prompt of each text if prompts are to be included."""
    for index, result in enumerate(record["texts"]):
        text, stopped = _cut_at_stop(result["new"], body.stop or ())
        shown, log = echo[index] + text if echo else text, _logprobs_body(result, len(text), body)
        yield {"index": index, "text": shown, "logprobs": log, "finish_reason": _finish_reason(result, stopped)}


def _logprobs_body(result: _JsonObject, size: int, body: Any) -> _JsonObject | None:
    """Returns log-probabilities of the first `size` characters in the format of the route; None if not requested."""
    count = getattr(body, "logprobs", None)
    if count is None or count is False:
        return None
    return _chat_logprobs(result, size, body.top_logprobs or 0) if count is True else _logprobs(result, size, count)


def _logprobs(result: _JsonObject, size: int, top: int) -> _JsonObject:
    """Returns log-probabilities of the tokens in the first `size` characters, each from the step that wrote it."""
    offsets, offset = [], 0
    for piece in result["pieces"]:
        offsets.append(offset)
        offset += len(piece)
    shown = [i for i, offset in enumerate(offsets) if offset < size or not result["pieces"]]
    tokens, values = [result["pieces"][i] for i in shown], [result["logprobs"][i] for i in shown]
    tops = [{token: value} | _others(result, i, top) for i, token, value in zip(shown, tokens, values, strict=True)]
    own = {"tokens": tokens, "token_logprobs": values, "text_offset": [offsets[i] for i in shown]}
    return own | {"top_logprobs": tops if top else None, "logprob_kind": "commit"}


def _others(result: _JsonObject, i: int, count: int) -> dict[str, float]:
    """Returns log-probabilities of up to `count` alternatives to token i; empty if they were not recorded."""
    own, top = result["pieces"][i], (result.get("alternatives") or {i: None})[i]
    return {t: round(math.log(p), 6) for t, p in (top or ())[:count] if p and t != own and (not t or t != own.lstrip())}


def _chat_choices(record: _JsonObject, body: OpenAIBody) -> Iterator[_JsonObject]:
    for index, result in enumerate(record["texts"]):
        text, stopped = _cut_at_stop(result["new"], body.stop or ())
        message = {"role": "assistant", "content": text, "refusal": None}
        log, end = _logprobs_body(result, len(text), body), _finish_reason(result, stopped)
        yield {"index": index, "message": message, "logprobs": log, "finish_reason": end}


def _chat_logprobs(result: _JsonObject, size: int, top: int) -> _JsonObject:
    logprobs = _logprobs(result, size, max(1, top))
    triples = zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True)
    content = [
        _chat_token(token, value) | {"top_logprobs": [_chat_token(*other) for other in likely.items()] if top else []}
        for token, value, likely in triples
    ]
    return {"content": content, "refusal": None, "logprob_kind": "commit"}


def _chat_token(token: str, value: float | None) -> _JsonObject:
    return {"token": token, "logprob": -9999.0 if value is None else value, "bytes": list(token.encode())}


def _infill_choices(record: _JsonObject) -> Iterator[_JsonObject]:
    """Yields the choices of an infilling; given parts come back character for character."""
    for index, result in enumerate(record["texts"]):
        tokens = zip(result["pieces"], result["steps"], result["logprobs"], strict=True)
        yield {
            "index": index,
            "text": result["text"],
            "holes": result["fills"],
            "finish_reason": _finish_reason(result, False),
            "tokens": [{"text": text, "step": step, "logprob": log} for text, step, log in tokens],
        }


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
        """Yields the news of a frame."""

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

    def __init__(self, head: _ResponseHeader, chat: bool, body: OpenAIBody, echo: Sequence[str] = ()) -> None:
        """`echo` holds the prompt of each text if prompts are to be sent; else it is empty."""
        self.head, self.chat, self.stops, self.body, self.echo = head, chat, body.stop or (), body, echo
        self.sent: dict[int, str] = {}

    def frame(self, event: _JsonObject) -> Iterator[bytes]:
        text, stopped = _cut_at_stop(event["new"], self.stops)
        shown = text if stopped else text[: len(text) - _held_back_chars(text, self.stops)]
        yield from map(_sse, self._new_text(event["row"], shown))

    def finish(self, record: _JsonObject) -> Iterator[bytes]:
        yield from map(_sse, self._last(record))
        if self.body.stream_options is not None and self.body.stream_options.include_usage:
            yield _sse(self.head.body() | {"choices": [], "usage": _usage(record)})
        yield _DONE

    def fail(self, error: _JsonObject) -> Iterator[bytes]:
        yield _sse(error)
        yield _DONE

    def _new_text(self, row: int, text: str) -> Iterator[_JsonObject]:
        """Yields the chunk of a text that has grown; nothing if it has not."""
        sent = self.sent.get(row, "")
        if not text.startswith(sent) or len(text) == len(sent):
            return
        first = row not in self.sent
        self.sent[row] = text
        yield self._chunk(row, (self.echo[row] if self.echo and first else "") + text[len(sent) :], None, first)

    def _last(self, record: _JsonObject) -> Iterator[_JsonObject]:
        """Yields the last chunks: the remaining text of each row, then its finish reason."""
        for row, result in enumerate(record["texts"]):
            text, stopped = _cut_at_stop(result["new"], self.stops)
            if not text.startswith(self.sent.get(row, "")):
                raise RuntimeError("text that was already sent has changed; this should never happen")
            yield from self._new_text(row, text)
            log = _logprobs_body(result, len(text), self.body)
            yield self._chunk(row, "", _finish_reason(result, stopped), row not in self.sent, log)

    def _chunk(self, row: int, text: str, end: str | None, first: bool, log: _JsonObject | None = None) -> _JsonObject:
        if not self.chat:
            return self.head.body() | {"choices": [{"index": row, "text": text, "logprobs": log, "finish_reason": end}]}
        delta = {"role": "assistant", "content": text} if first else {"content": text} if text or not end else {}
        choice = {"index": row, "delta": delta, "logprobs": log, "finish_reason": end}
        return self.head.body() | {"choices": [choice]}
