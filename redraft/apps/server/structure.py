"""The structure of a text, by the names of OpenAI (`response_format`) and vLLM (`structured_outputs`, `guided_*`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from redraft.apps.server.errors import _bad_request
from redraft.apps.server.schemas import OpenAIBody, ResponseFormat, StructuredOutputs

_Structure = tuple[str, Any, str]  # our argument (schema, pattern or choices), its value, and the client's name for it
_ANY_OBJECT = json.dumps({"type": "object"})


def _structure(body: OpenAIBody) -> _Structure | None:
    """Returns what a request asks of its text; None if the text is free. Two demands are an error."""
    found = [*_of_format(body.response_format), *_of_vllm("structured_outputs.", body.structured_outputs)]
    guided = StructuredOutputs(
        json=body.guided_json, regex=body.guided_regex, choice=body.guided_choice, json_object=None
    )
    found += _of_vllm("guided_", guided)
    if len(found) > 1:
        names = " and ".join(name for _, _, name in found)
        raise _bad_request(found[1][2].partition(".")[0], f"{names} cannot be combined; use only one of them")
    return found[0] if found else None


def _of_format(wanted: ResponseFormat | None) -> Sequence[_Structure]:
    """`json_object` is any object; the schema of `json_schema` is obeyed exactly, `strict` or not."""
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
