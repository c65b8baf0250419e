"""The structure of a text, by the names of OpenAI (`response_format`) and vLLM (`structured_outputs`, `guided_*`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from redraft.apps.server.bodies.fields import MAX_TEXT, StrictModel
from redraft.apps.server.errors import _bad_request

_Structure = tuple[str, Any, str]  # our argument (schema, pattern or choices), its value, and the client's name for it
_ANY_OBJECT = json.dumps({"type": "object"})


class JsonSchema(StrictModel):
    """The JSON schema of a structured output."""

    name: str | None = Field(None, max_length=200)
    description: str | None = Field(None, max_length=10_000)
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(StrictModel):
    """The format of the text: free, any JSON object, or JSON that matches a schema exactly."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(StrictModel):
    """The structure of the text in vLLM's API; exactly one of them."""

    json_: str | dict[str, Any] | None = Field(None, alias="json", description="A JSON schema.")
    regex: str | None = Field(None, max_length=MAX_TEXT, description="The whole text matches it.")
    choice: list[str] | None = Field(None, max_length=256, description="The text is one of these.")
    json_object: bool | None = Field(None, description="Any JSON object.")


class StructuredBody(StrictModel):
    """Parameters that ask for a structured text."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: str | dict[str, Any] | None = Field(None, description="Name of structured_outputs.json in older vLLM.")
    guided_regex: str | None = Field(None, max_length=MAX_TEXT, description="Name of structured_outputs.regex.")
    guided_choice: list[str] | None = Field(None, max_length=256, description="Name of structured_outputs.choice.")


def _structure(body: StructuredBody) -> _Structure | None:
    """Return the structure that a request asks for; None if the text is free. Two structures are an error."""
    structures = [*_of_format(body.response_format), *_of_vllm("structured_outputs.", body.structured_outputs)]
    guided = StructuredOutputs(
        json=body.guided_json, regex=body.guided_regex, choice=body.guided_choice, json_object=None
    )
    structures += _of_vllm("guided_", guided)
    if len(structures) > 1:
        names = " and ".join(name for _, _, name in structures)
        raise _bad_request(structures[1][2].partition(".")[0], f"{names} cannot be combined; use only one of them")
    return structures[0] if structures else None


def _of_format(wanted: ResponseFormat | None) -> Sequence[_Structure]:
    """Return the structure that `response_format` asks for; a schema is obeyed exactly even without `strict`."""
    if wanted is None or wanted.type == "text":
        return []
    if wanted.type == "json_object":
        return [("schema", _ANY_OBJECT, "response_format")]
    if wanted.json_schema is None:
        raise _bad_request("response_format", "type json_schema needs a schema; add json_schema: {schema: {...}}")
    return [("schema", json.dumps(wanted.json_schema.schema_), "response_format")]


def _of_vllm(prefix: str, wanted: StructuredOutputs | None) -> Sequence[_Structure]:
    if wanted is None:
        return []
    schema = wanted.json_ if isinstance(wanted.json_, str | None) else json.dumps(wanted.json_)
    schema = _ANY_OBJECT if wanted.json_object else schema
    given = [
        ("schema", schema, f"{prefix}json"),
        ("pattern", wanted.regex, f"{prefix}regex"),
        ("choices", wanted.choice, f"{prefix}choice"),
    ]
    return [structure for structure in given if structure[1] is not None]
