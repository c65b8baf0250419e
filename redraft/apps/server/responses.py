"""Converts result records to OpenAI-compatible response bodies; our own fields are under `diffusion`."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

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


def _finish_reason(result: _JsonObject, stopped: bool) -> str:
    return "stop" if stopped or result["stop"] != "length" else "length"


def _texts_body(head: _ResponseHeader, record: _JsonObject, choices: Iterable[_JsonObject]) -> _JsonObject:
    """Returns the body of a response with one choice per text."""
    return head.body() | {"choices": [*choices], "usage": _usage(record), "diffusion": _diffusion_info(record)}


def _completion_choices(record: _JsonObject, body: OpenAIBody, *, echo: bool = False) -> Iterator[_JsonObject]:
    """Yields the choices of a completion; `echo`: with the prompt before each text."""
    for index, result in enumerate(record["texts"]):
        text, stopped = _cut_at_stop(result["new"], body.stop or ())
        shown, log = result["echo"] + text if echo else text, _logprobs_body(result, len(text), body)
        yield {"index": index, "text": shown, "logprobs": log, "finish_reason": _finish_reason(result, stopped)}


def _logprobs_body(result: _JsonObject, size: int, body: Any) -> _JsonObject | None:
    """Returns log-probabilities of the first `size` characters in the format of the route; None if not requested."""
    count = getattr(body, "logprobs", None)
    if count is None or count is False:
        return None
    return _chat_logprobs(result, size, body.top_logprobs or 0) if count is True else _logprobs(result, size, count)


def _logprobs(result: _JsonObject, size: int, top: int) -> _JsonObject:
    """Returns log-probabilities of the tokens in the first `size` characters, each from the step that wrote it.

    If the prompt was scored, its tokens come first, each given those before it; the end of the text then comes last.
    """
    pieces, values = result["pieces"], result["logprobs"]
    starts = _offsets(pieces)
    shown = [i for i, piece in enumerate(pieces) if starts[i] < size or (starts[i] == size and not piece)]
    tops: list[_JsonObject | None] = [{pieces[i]: values[i]} | _others(result, i, top) for i in shown]
    tokens, logprobs = [pieces[i] for i in shown], [values[i] for i in shown]
    if (scores := result.get("prompt_scores")) is not None:
        ended = [None] if result["stop"] == "end" else []
        tokens, logprobs = scores["pieces"] + tokens + ["" for _ in ended], scores["log_probs"] + logprobs + ended
        tops = [*map(_prompt_top, scores["pieces"], scores["log_probs"], scores["top"]), *tops, *ended]
    own = {"tokens": tokens, "token_logprobs": logprobs, "text_offset": _offsets(tokens)}
    return own | {"top_logprobs": tops if top else None, "logprob_kind": "commit"}


def _offsets(pieces: Sequence[str]) -> list[int]:
    """Returns the character at which each token begins."""
    return [*accumulate(map(len, pieces), initial=0)][: len(pieces)]


def _prompt_top(piece: str, value: float | None, top: Sequence[tuple[str, float]]) -> _JsonObject | None:
    """Returns the likely tokens at a token of the prompt and the token itself; None at the first token."""
    if value is None:
        return None
    likely = dict(reversed(top))  # of several tokens with the same text the most likely one counts
    return likely | {piece: max(value, likely.get(piece, value))}


def _others(result: _JsonObject, i: int, count: int) -> dict[str, float]:
    """Returns log-probabilities of up to `count` alternatives to token i; empty if they were not recorded."""
    own, top = result["pieces"][i], (result.get("alternatives") or {i: None})[i]
    return {t: round(math.log(p), 6) for t, p in (top or ())[:count] if p and t != own and (not t or t != own.lstrip())}


def _chat_choices(head: _ResponseHeader, record: _JsonObject, body: OpenAIBody) -> Iterator[_JsonObject]:
    for index, result in enumerate(record["texts"]):
        text, stopped = _reply_text(result, body)
        message: _JsonObject = {"role": "assistant", "content": text, "refusal": None}
        if result["tool"] is not None:
            message |= {"content": None, "tool_calls": [_tool_call(head, index, result["tool"], text)]}
        log, end = _logprobs_body(result, len(text), body), _reply_end(result, stopped)
        yield {"index": index, "message": message, "logprobs": log, "finish_reason": end}


def _reply_text(result: _JsonObject, body: OpenAIBody) -> tuple[str, bool]:
    """Returns the text of a reply, and whether it ended at a stop string; arguments of tools have none."""
    return (result["new"], False) if result["tool"] is not None else _cut_at_stop(result["new"], body.stop or ())


def _reply_end(result: _JsonObject, stopped: bool) -> str:
    return _finish_reason(result, stopped) if result["tool"] is None else "tool_calls"


def _tool_call(head: _ResponseHeader, index: int, name: str, arguments: str) -> _JsonObject:
    function = {"name": name, "arguments": arguments}
    return {"id": f"call_{head.id}_{index}", "type": "function", "function": function}


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
