"""Translates the parameters of a request to arguments of a task, and remembers the client's name of each."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

from redraft.apps.server.bodies.fields import StrictModel
from redraft.apps.server.bodies.schemas import (
    _SAME,
    CommonBody,
    OpenAIBody,
    ResponseFormat,
    StructuredOutputs,
)
from redraft.apps.server.errors import _bad_request, _JsonObject
from redraft.tasks.arguments.aliases import ALIASES
from redraft.tasks.arguments.settings import GenerationSettings

_Structure = tuple[str, Any, str]  # our argument (schema, pattern or choices), its value, and the client's name for it
_ANY_OBJECT = json.dumps({"type": "object"})
_META = re.compile(r"([.^$*+?{}\[\]\\|()&~#-])")
_CLIENT_NAMES = {  # our argument → parameter of the request
    "": "prompt",  # the input text
    "max_new_tokens": "max_tokens",
    "prompts": "prompt",
    "templates": "template",
    **{name: name for name in (*_SAME, "texts", "draws", "answers", "stop")},
}


def _options(body: CommonBody) -> tuple[_JsonObject, dict[str, str]]:
    """Returns the keyword arguments for `redraft.generate` or `infill`, and the request parameter of each."""
    options: _JsonObject = {"seed": secrets.randbits(31)} | {name: value for _, name, value in body.settings()}
    names = {name: f"diffusion.{name}" for name in GenerationSettings.__dataclass_fields__} | _CLIENT_NAMES
    extras: StrictModel | None = getattr(body, "diffusion", None)
    own = {} if extras is None else extras.model_dump(exclude_none=True, by_alias=True)
    names |= {name: f"diffusion.{name}" for name in own} | {"room": "diffusion.room"}
    names |= {ALIASES[name].name: f"diffusion.{name}" for name in own if name in ALIASES}
    names["choices"] = "diffusion.choices"
    if isinstance(body, OpenAIBody) and (structure := _structure(body)) is not None:
        name, own[name], names[name] = structure
    if (choices := own.pop("choices", None)) is not None:
        own["pattern"] = _one_of(choices, own, names["choices"])
        names["pattern"] = names["choices"]
    _rename_vllm_parameters(own, names)
    if own.get("draft") not in (None, "lookup"):
        raise _bad_request("diffusion.draft", "clients cannot name directories of the server; use draft='lookup'")
    return options | own, names


def _keep_alternatives(param: str, count: int, options: _JsonObject, names: dict[str, str]) -> None:
    """Requests the alternatives of each token if log-probabilities of other tokens are wanted."""
    if count > 1 or (count and param == "top_logprobs"):
        options["alternatives"] = max(count, options.get("alternatives", 0))
        names["alternatives"] = param


def _structure(body: OpenAIBody) -> _Structure | None:
    """Returns the structure that a request asks for; None if the text is free. Two structures are an error."""
    guided = StructuredOutputs(json=body.guided_json, regex=body.guided_regex, choice=body.guided_choice)
    structures = [
        *_format_structure(body.response_format or ResponseFormat(type="text")),
        *_vllm_structures("structured_outputs.", body.structured_outputs or StructuredOutputs(json=None)),
        *_vllm_structures("guided_", guided),
    ]
    if len(structures) > 1:
        names = " and ".join(name for _, _, name in structures)
        raise _bad_request(structures[1][2].partition(".")[0], f"{names} cannot be combined; use only one of them")
    return structures[0] if structures else None


def _format_structure(wanted: ResponseFormat) -> Iterator[_Structure]:
    """Yields the structure that `response_format` asks for; a schema is obeyed exactly even without `strict`."""
    if wanted.type == "json_object":
        yield "schema", _ANY_OBJECT, "response_format"
    elif wanted.type == "json_schema":
        if wanted.json_schema is None:
            raise _bad_request("response_format", "type json_schema needs a schema; add json_schema: {schema: {...}}")
        yield "schema", json.dumps(wanted.json_schema.schema_), "response_format"


def _vllm_structures(prefix: str, wanted: StructuredOutputs) -> Iterator[_Structure]:
    """Yields the structures that vLLM's parameters ask for."""
    if (schema := _ANY_OBJECT if wanted.json_object else wanted.json_) is not None:
        yield "schema", schema if isinstance(schema, str) else json.dumps(schema), f"{prefix}json"
    if wanted.regex is not None:
        yield "pattern", wanted.regex, f"{prefix}regex"
    if wanted.choice is not None:
        yield "choices", wanted.choice, f"{prefix}choice"


def _rename_vllm_parameters(own: _JsonObject, names: dict[str, str]) -> None:
    """Renames vLLM's parameters for editing a text to ours; raises if both are given."""
    for vllm_name, name in (("diffusion_seed_canvas", "start_text"), ("diffusion_pinned", "pinned")):
        if vllm_name in own:
            if name in own:
                message = f"{vllm_name} and {name} mean the same; use only one of them"
                raise _bad_request(f"diffusion.{vllm_name}", message)
            own[name], names[name] = own.pop(vllm_name), f"diffusion.{vllm_name}"
    if own.pop("diffusion_read_only", False):
        raise _bad_request(
            "diffusion.diffusion_read_only",
            "diffusion_read_only must be false; use /v1/score to score a text without changing it",
            "unsupported_value",
        )
    own.pop("diffusion_constrained", None)  # constraints are always enforced
    for name in ("strength", "pinned", "candidates"):
        if name in own and "start_text" not in own:
            raise _bad_request(names[name], f"{name} needs a text to edit; give it as diffusion.start_text")


def _one_of(choices: Sequence[str], own: _JsonObject, name: str) -> str:
    """Returns a regular expression that matches exactly these texts."""
    if "pattern" in own:
        raise _bad_request(name, "choices and pattern cannot be combined; use only one of them")
    if not choices or not all(choices):
        raise _bad_request(name, "choices must not be empty or contain an empty text; give at least one")
    return "|".join(_META.sub(r"\\\1", choice) for choice in choices)
