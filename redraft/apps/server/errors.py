"""Errors as OpenAI's clients expect them: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from redraft.tasks.arguments.setting import ArgumentError

_JsonObject = dict[str, Any]  # a JSON object
_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


@dataclass
class _ApiError(Exception):
    """A client or server error: HTTP status, code, offending parameter, and a one-line message."""

    status: int
    code: str
    param: str | None
    message: str
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def body(self) -> _JsonObject:
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def _bad_request(param: str | None, message: str, code: str = "invalid_value") -> _ApiError:
    """Returns a 400: the request is invalid."""
    return _ApiError(400, code, param, message)


def _too_large(param: str, message: str) -> _ApiError:
    """Returns a 413: the request exceeds a size limit of the server."""
    return _ApiError(413, "too_large", param, message)


def _unknown_model(name: str, known: list[str]) -> _ApiError:
    return _ApiError(
        404,
        "model_not_found",
        "model",
        f"{name[:80]!r} is not a model of this server; choose one of {', '.join(known)}",
    )


def _too_many_requests(seconds: float) -> _ApiError:
    """Returns a 429 with the retry delay in seconds (`Retry-After`) and in milliseconds, for OpenAI's clients."""
    wait = str(max(1, math.ceil(seconds)))
    headers = {"Retry-After": wait, "Retry-After-Ms": str(round(1000 * seconds))}
    return _ApiError(429, "queue_full", None, f"the queue is full; try again in {wait} seconds", headers)


def _unavailable(code: str, message: str) -> _ApiError:
    """Returns a 503 that asks the client to retry after a second."""
    return _ApiError(503, code, None, message, {"Retry-After": "1"})


def _from_validation_error(error: Mapping[str, Any], content: _JsonObject) -> _ApiError:
    """Converts the first error about a body, with the parameter as the client named it."""
    top, *inner = map(str, error["loc"])
    param = (".".join([top, *inner[:1]]) if isinstance(content.get(top), dict) else top) or "body"
    if error["type"] == "extra_forbidden":
        return _bad_request(param, f"{param} is not a parameter of this route (a typo?)", "unknown_parameter")
    if error["type"] == "missing":
        return _bad_request(param, f"{'.'.join([top, *inner])} is missing; add it", "missing_parameter")
    reason = error.get("ctx", {}).get("error")
    return _bad_request(param, str(reason) if isinstance(reason, ArgumentError) else f"{param}: {error['msg']}")


def _from_worker_error(event: _JsonObject, names: dict[str, str] | None = None) -> _ApiError:
    """Converts a failure event of the model process. `names` maps our arguments to the client's names."""
    kind, message = event["kind"], event.get("message") or ""
    if kind == "refused":
        param = event.get("param") or _guess_argument(message)
        return _bad_request((names or {}).get(param, param or "model"), message, "unsupported_value")
    if kind == "deadline":
        return _ApiError(
            408, "deadline_exceeded", "steps", "the request missed its deadline; request fewer tokens or steps"
        )
    if kind == "numerical_error":
        return _ApiError(
            500, "numerical_error", None, "the network returned NaN or infinity for this request; check the model"
        )
    if kind == "restarted":
        return _unavailable(
            "model_restarted", "the model process ended during this request and is being restarted; try again"
        )
    if kind == "cancelled":
        return _ApiError(499, "cancelled", None, "the request was cancelled")
    return _ApiError(500, "internal_error", None, f"internal error ({message}); see the log of the server")


def _guess_argument(message: str) -> str:
    """Guesses which argument an error message is about; "" means the input text."""
    prefixes = {"the pattern ": "pattern", "the JSON schema ": "schema"}
    if (argument := next((name for prefix, name in prefixes.items() if message.startswith(prefix)), None)) is not None:
        return argument
    sizes = ("too many", "memory", "there is room for")
    return "max_new_tokens" if "tokens" in message and any(size in message for size in sizes) else ""
