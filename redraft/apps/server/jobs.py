"""Jobs for the model process, and the limits of a request; everything that needs no model is checked here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redraft.apps.server.bodies.schemas import CommonBody
from redraft.apps.server.errors import _ApiError, _bad_request, _JsonObject, _unknown_model
from redraft.tasks.arguments.aliases import settings_from
from redraft.tasks.arguments.setting import ArgumentError, changed_settings
from redraft.tasks.arguments.settings import DecodingSettings, Prompt


@dataclass(frozen=True)
class RequestLimits:
    """Limits of a single request."""

    tokens: int = 8192
    """Maximum number of tokens to generate in one text."""
    steps: int = 10_000
    """Maximum number of sampling steps."""
    cost: float = 2e7
    """Maximum of tokens × steps × texts, the number of tokens that the network processes."""
    pattern: int = 2000
    """Maximum length of a pattern in characters; a schema may be ten times as long."""
    repeats: int = 20_000
    """Maximum length of a pattern in characters once its counts {m,n} are expanded."""
    depth: int = 24
    """Maximum nesting depth of a JSON schema."""


@dataclass(frozen=True)
class _Job:
    """A request to the model process."""

    model: _JsonObject
    action: str  # "module:function"; the function gets the model and the arguments
    arguments: _JsonObject
    cost: float = 0.0  # tokens that the network will process
    patterns: Sequence[str] = ()  # constraints to compile
    schemas: Sequence[str] = ()
    names: Mapping[str, str] = field(default_factory=dict)  # our argument → parameter of the request

    @property
    def message(self) -> _JsonObject:
        return {
            "model": self.model["id"],
            "action": self.action,
            "arguments": self.arguments,
            "patterns": [*self.patterns],
            "schemas": [*self.schemas],
        }


def _chosen_model(models: Sequence[_JsonObject], name: str | None) -> _JsonObject:
    """Returns the model of this name, or the first one if name is None."""
    model = models[0] if name is None else next((info for info in models if info["id"] == name), None)
    if model is None:
        raise _unknown_model(name or "", [info["id"] for info in models])
    return model


def _spelled_out(prompts: Sequence[Prompt]) -> list[str]:
    """Returns texts of about the size of prompts, which are texts or ids, to estimate what they cost."""
    return [prompt if isinstance(prompt, str) else "   " * len(prompt) for prompt in prompts]


def _text_job(
    models: Sequence[_JsonObject],
    body: CommonBody,
    action: str,
    arguments: _JsonObject,
    kind: type[Any],
    names: Mapping[str, str],
    limits: RequestLimits,
    texts: Sequence[str],
    holes: int | None = None,
) -> _Job:
    """Builds a job that writes texts, after checking its options against `kind`, a settings class, and the limits."""
    model, options = _chosen_model(models, body.model), arguments["options"]
    try:
        settings = settings_from(kind, options)
    except ArgumentError as error:
        raise _as_api_error(error, names) from None
    arguments |= {"options": changed_settings(settings)}
    _require_rules(settings, names, limits)
    new = holes or options.get("max_new_tokens") or model["length"] or 256
    _require_size(names["max_new_tokens"], new, limits)
    if (settings.steps or 0) > limits.steps:
        raise _bad_request(names["steps"], f"{settings.steps:.3g} steps are too many; use at most {limits.steps:,}")
    steps = settings.steps or model["steps"] or 128
    tokens = sum(new + (0 if model["block"] else len(text) / 3) for text in texts)
    cost = tokens * min(steps, new if model["block"] is None else steps) * (body.n or 1)
    _require_cost(cost, limits, names["max_new_tokens"])
    schemas = () if settings.schema is None else (settings.schema,)
    return _Job(model, action, arguments, cost, settings.every_pattern, schemas, names)


def _as_api_error(error: ArgumentError, names: Mapping[str, str]) -> _ApiError:
    """Converts an error about one of our arguments to one about the parameter of the request."""
    return _bad_request(names.get(error.argument, error.argument), str(error))


def _require_size(param: str, tokens: int, limits: RequestLimits) -> None:
    if tokens > limits.tokens:
        raise _bad_request(param, f"{tokens:.9g} tokens are too many; request at most {limits.tokens:,}", "too_large")


def _require_cost(cost: float, limits: RequestLimits, param: str) -> None:
    if cost > limits.cost:
        raise _bad_request(
            param,
            f"tokens × steps × texts is {cost:.3g}; the limit of this server is {limits.cost:.3g}, so request less",
            "too_large",
        )


def _require_rules(settings: DecodingSettings, names: Mapping[str, str], limits: RequestLimits) -> None:
    """Raises if a constraint would take too long to compile."""
    for pattern in settings.every_pattern:
        _require_pattern(pattern, names["pattern"], limits)
    if settings.schema is not None:
        _require_schema(settings.schema, names["schema"], limits)


def _require_pattern(pattern: str, param: str, limits: RequestLimits) -> None:
    if len(pattern) > limits.pattern:
        raise _bad_request(
            param, f"a pattern of {len(pattern):,} characters is too long; use at most {limits.pattern:,}", "too_large"
        )
    if (size := _expanded_length(pattern)) > limits.repeats:
        raise _bad_request(
            param,
            f"the pattern has {size:.3g} characters once its counts are expanded; use smaller counts",
            "too_large",
        )


def _expanded_length(pattern: str) -> float:
    """Estimates the length of a pattern once its counts {m,n} are expanded; nested counts multiply."""
    sizes, last = [0.0], 1.0  # expanded lengths of the open groups and of the last item
    for token in re.finditer(r"\\.|\[(?:\\.|[^\]\\])*\]|\{(\d{1,9})(?:,(\d{0,9}))?\}|.", pattern, re.DOTALL):
        text = token[0]
        if text == "(":
            sizes.append(0.0)
        elif text == ")" and len(sizes) > 1:
            last = max(1.0, sizes.pop())
            sizes[-1] += last
        elif token[1] is not None:
            more = last * (max(int(token[1]), int(token[2] or 0)) - 1)
            sizes[-1] += max(0.0, more)
            last += max(0.0, more)
        elif text not in "*+?|":
            last = 1.0
            sizes[-1] += 1
    return sum(sizes)


def _require_schema(schema: str, param: str, limits: RequestLimits) -> None:
    try:
        value = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise _bad_request(param, f"the schema is not JSON: {str(error)[:100]}") from None
    if (size := len(json.dumps(value))) > 10 * limits.pattern:
        raise _bad_request(
            param, f"a schema of {size:,} characters is too long; use at most {10 * limits.pattern:,}", "too_large"
        )
    if (depth := _depth(value)) > limits.depth:
        raise _bad_request(param, f"a schema of {depth} levels is too deep; use at most {limits.depth}", "too_large")


def _depth(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if parts is None else 1 + max(map(_depth, parts), default=0)
