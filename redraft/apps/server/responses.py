"""From a record to the body of a response, as OpenAI's clients expect it; what is ours stands under `diffusion`."""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from redraft.apps.server.errors import JsonObject


@dataclass(frozen=True)
class ResponseHeader:
    """What every part of one response says."""

    prefix: str
    kind: str
    model: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def body(self, kind: str | None = None) -> JsonObject:
        return {
            "id": f"{self.prefix}-{self.id}",
            "object": kind or self.kind,
            "created": self.created,
            "model": self.model,
        }


def usage(record: JsonObject) -> JsonObject:
    """Prompts count once, however many texts are written for each."""
    prompts = {each["prompt"]: each["given_tokens"] for each in record["texts"]}
    given, new = sum(prompts.values()), sum(each["new_tokens"] for each in record["texts"])
    return {"prompt_tokens": given, "completion_tokens": new, "total_tokens": given + new}


def diffusion_info(record: JsonObject) -> JsonObject:
    """What a text cost and how it was written."""
    names = ("nfe", "seconds", "seed", "sampler", "cache", "exactness", "notes", "run")
    return {name: record[name] for name in names} | {
        "steps": [max([0, *(s for s in each["steps"] if s)]) for each in record["texts"]]
    }


def cut_at_stop(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The text before the first of some strings, and whether there was one."""
    places = [place for stop in stops if stop and (place := text.find(stop)) >= 0]
    return (text[: min(places)], True) if places else (text, False)


def held_back_chars(text: str, stops: Sequence[str]) -> int:
    """How many characters at the end may be the beginning of one of the strings."""
    sizes = (n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n]))
    return max(sizes, default=0)


def finish_reason(each: JsonObject, stopped: bool) -> str:
    return "stop" if stopped or each["stop"] != "length" else "length"


def completion_body(
    head: ResponseHeader, record: JsonObject, body: Any, stops: Sequence[str], echo: Sequence[str] = ()
) -> JsonObject:
    """echo: what each text begins with, if that is to be shown too."""
    choices = []
    for index, each in enumerate(record["texts"]):
        text, stopped = cut_at_stop(each["new"], stops)
        shown, log = echo[index] + text if echo else text, logprobs_body(each, len(text), body)
        choices.append({"index": index, "text": shown, "logprobs": log, "finish_reason": finish_reason(each, stopped)})
    return head.body() | {"choices": choices, "usage": usage(record), "diffusion": diffusion_info(record)}


def logprobs_body(each: JsonObject, size: int, body: Any) -> JsonObject | None:
    """The log-probabilities of the first `size` characters of a text, as its route has them; None: not asked for."""
    asked = getattr(body, "logprobs", None)
    if asked is None or asked is False:
        return None
    return _chat_logprobs(each, size, body.top_logprobs or 0) if asked is True else _logprobs(each, size, asked)


def _logprobs(each: JsonObject, size: int, top: int) -> JsonObject:
    """Of the tokens that stand in the text; these are the probabilities of the moment at which each was written."""
    offsets, place = [], 0
    for piece in each["pieces"]:
        offsets.append(place)
        place += len(piece)
    kept = [i for i, offset in enumerate(offsets) if offset < size or not each["pieces"]]
    tokens, values = [each["pieces"][i] for i in kept], [each["logprobs"][i] for i in kept]
    tops = [{token: value} | _others(each, i, top) for i, token, value in zip(kept, tokens, values, strict=True)]
    own = {"tokens": tokens, "token_logprobs": values, "text_offset": [offsets[i] for i in kept]}
    return own | {"top_logprobs": tops if top else None, "logprob_kind": "commit"}


def _others(each: JsonObject, i: int, count: int) -> dict[str, float]:
    """Log-probabilities of what else might have stood there, at most `count`; nothing if it was not kept."""
    own, top = each["pieces"][i], (each.get("alternatives") or {i: None})[i]
    return {t: round(math.log(p), 6) for t, p in (top or ())[:count] if p and t != own and (not t or t != own.lstrip())}


def chat_body(head: ResponseHeader, record: JsonObject, body: Any, stops: Sequence[str]) -> JsonObject:
    choices = []
    for index, each in enumerate(record["texts"]):
        text, stopped = cut_at_stop(each["new"], stops)
        message = {"role": "assistant", "content": text, "refusal": None}
        end = finish_reason(each, stopped)
        choices.append(
            {"index": index, "message": message, "logprobs": logprobs_body(each, len(text), body), "finish_reason": end}
        )
    return head.body() | {"choices": choices, "usage": usage(record), "diffusion": diffusion_info(record)}


def _chat_logprobs(each: JsonObject, size: int, top: int) -> JsonObject:
    found = _logprobs(each, size, max(1, top))
    triples = zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True)
    content = [
        _chat_token(token, value) | {"top_logprobs": [_chat_token(*other) for other in likely.items()] if top else []}
        for token, value, likely in triples
    ]
    return {"content": content, "refusal": None, "logprob_kind": "commit"}


def _chat_token(token: str, value: float | None) -> JsonObject:
    return {"token": token, "logprob": -9999.0 if value is None else value, "bytes": list(token.encode())}


def infill_body(head: ResponseHeader, record: JsonObject) -> JsonObject:
    """Texts with their holes filled; given parts are those of the request, character for character."""
    choices = [
        {
            "index": index,
            "text": each["text"],
            "holes": each["fills"],
            "finish_reason": finish_reason(each, False),
            "tokens": [
                {"text": text, "step": step, "logprob": log}
                for text, step, log in zip(each["pieces"], each["steps"], each["logprobs"], strict=True)
            ],
        }
        for index, each in enumerate(record["texts"])
    ]
    return head.body() | {"choices": choices, "usage": usage(record), "diffusion": diffusion_info(record)}


def sse(body: JsonObject) -> bytes:
    return f"data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def ndjson(body: JsonObject) -> bytes:
    return (json.dumps(body, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"


class CompletionStream:
    """A stream of one completion: of each text, what is new since the last part; only what can no longer change.

    Log-probabilities come with the last part of each text, those of all its tokens.
    """

    def __init__(
        self, head: ResponseHeader, chat: bool, stops: Sequence[str], body: Any, echo: Sequence[str] = ()
    ) -> None:
        """echo: what each text begins with, if that is to be sent too."""
        self.head, self.chat, self.stops, self.body, self.echo = head, chat, stops, body, echo
        self.sent: dict[int, str] = {}

    def frame(self, event: JsonObject) -> JsonObject | None:
        """The part that a frame brings; None: nothing new."""
        text, stopped = cut_at_stop(event["new"], self.stops)
        return self._more(event["row"], text if stopped else text[: len(text) - held_back_chars(text, self.stops)])

    def _more(self, row: int, text: str) -> JsonObject | None:
        before = self.sent.get(row, "")
        if not text.startswith(before) or len(text) == len(before):
            return None
        first = row not in self.sent
        self.sent[row] = text
        return self._part(row, (self.echo[row] if self.echo and first else "") + text[len(before) :], None, first)

    def last(self, record: JsonObject) -> list[JsonObject]:
        """The rest of each text, and how it ended."""
        parts: list[JsonObject] = []
        for row, each in enumerate(record["texts"]):
            text, stopped = cut_at_stop(each["new"], self.stops)
            if not text.startswith(self.sent.get(row, "")):
                raise RuntimeError("a text that was sent has changed")
            if (more := self._more(row, text)) is not None:
                parts.append(more)
            log = logprobs_body(each, len(text), self.body)
            parts.append(self._part(row, "", finish_reason(each, stopped), row not in self.sent, log))
        return parts

    def _part(self, row: int, text: str, end: str | None, first: bool, log: JsonObject | None = None) -> JsonObject:
        if not self.chat:
            return self.head.body() | {"choices": [{"index": row, "text": text, "logprobs": log, "finish_reason": end}]}
        delta = {"role": "assistant", "content": text} if first else {"content": text} if text or not end else {}
        choice = {"index": row, "delta": delta, "logprobs": log, "finish_reason": end}
        return self.head.body() | {"choices": [choice]}
