"""Request bodies: what each route accepts, validated in one place. OpenAPI is generated from the same classes.

Arguments of OpenAI are at the top level; our own are under `diffusion`, with the field names of `GenerationSettings`.
Unsupported arguments are rejected by name; none is silently ignored.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from redraft.apps.server.errors import _ApiError, _bad_request
from redraft.tasks.arguments.aliases import ALIASES
from redraft.tasks.arguments.settings import ControlSettings, GenerationSettings, InfillSettings, RewriteSettings

_Body = TypeVar("_Body", bound="StrictModel")
_MAX_TEXT = 200_000  # characters of one text
_TOP = {  # our argument → OpenAI's, at the top level
    "n": "n",
    "max_new_tokens": "max_tokens",
    "seed": "seed",
    "temperature": "temperature",
    "top_p": "top_p",
    "stop": "stop",
}


class StrictModel(BaseModel):
    """A body that rejects unknown keys and values of the wrong type."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _plain_type(hint: Any) -> Any:
    """Returns the type of a field without its annotations for the command line."""
    if get_origin(hint) is Annotated:
        return _plain_type(get_args(hint)[0])
    if hint == tuple[str, ...]:
        return str | list[str]
    return hint


def _extras(name: str, kind: type[Any], doc: str, more: Mapping[str, Any]) -> type[StrictModel]:
    """Creates a body class with the fields of a dataclass, all optional, and their aliases in other libraries."""
    hints, descriptions = get_type_hints(kind, include_extras=True), _descriptions(kind)
    definitions: dict[str, Any] = {}
    for item in fields(kind):
        if item.name in _TOP:
            continue
        hint, description = _plain_type(hints[item.name]), descriptions.get(item.name)
        if item.name == "schema":  # pydantic uses this name itself
            definition = Field(None, alias="schema", description=description)
            definitions["schema_"] = (str | dict[str, Any] | None, definition)
        else:
            definitions[item.name] = (hint | None, Field(None, description=description))
    for alias, meaning in ALIASES.items():
        if meaning.name in definitions or f"{meaning.name}_" in definitions:
            definitions[alias] = (Any, Field(None, description=f"Name of {meaning.name} in {meaning.project}."))
    return create_model(name, __base__=StrictModel, __doc__=doc, **(definitions | dict(more)))


def _descriptions(kind: type[Any]) -> dict[str, str]:
    """Returns the docstring below each field in the source."""
    descriptions: dict[str, str] = {}
    for part in reversed([k for k in kind.__mro__ if k is not object]):
        body = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]
        assert isinstance(body, ast.ClassDef)
        for before, after in zip(body.body, body.body[1:], strict=False):
            doc = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
            if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(doc, str):
                descriptions[before.target.id] = " ".join(doc.split())
    return descriptions


_CHOICES = {
    "choices": (list[str] | None, Field(None, max_length=256, description="The generated text is one of these.")),
}
_rewriting, _controls = _descriptions(RewriteSettings), _descriptions(ControlSettings)
_CANVAS = _CHOICES | {
    "start_text": (str | None, Field(None, max_length=_MAX_TEXT, description="A text to edit in place.")),
    "strength": (float | None, Field(None, description=_rewriting["strength"])),
    "pinned": (list[str] | None, Field(None, max_length=1000, description=_rewriting["pinned"])),
    "candidates": (int | None, Field(None, ge=1, le=64, description=_rewriting["candidates"])),
    "attributes": (list[str] | None, Field(None, max_length=16, description=_controls["attributes"])),
    "length": (int | None, Field(None, ge=1, description=_controls["length"])),
    "pos": (str | None, Field(None, max_length=_MAX_TEXT, description=_controls["pos"])),
    "scale": (float | None, Field(None, description=_controls["scale"])),
    "diffusion_seed_canvas": (str | None, Field(None, max_length=_MAX_TEXT, description="Name of start_text in vLLM.")),
    "diffusion_pinned": (list[str] | None, Field(None, max_length=1000, description="Name of pinned in vLLM.")),
    "diffusion_read_only": (
        bool | None,
        Field(None, description="vLLM: must be false; use /v1/score to score a text."),
    ),
    "diffusion_constrained": (
        bool | None,
        Field(None, description="vLLM: ignored, as constraints are always enforced."),
    ),
}
Extras = _extras("Extras", GenerationSettings, "Settings of generation that OpenAI's arguments do not cover.", _CANVAS)
InfillExtras = _extras("InfillExtras", InfillSettings, "Settings of infilling.", _CHOICES)


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
    regex: str | None = Field(None, max_length=_MAX_TEXT, description="The whole text matches it.")
    choice: list[str] | None = Field(None, max_length=256, description="The text is one of these.")
    json_object: bool | None = Field(None, description="Any JSON object.")


class StreamOptions(StrictModel):
    """Options of a streamed response."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class CommonBody(StrictModel):
    """Parameters of all routes that generate text."""

    model: str | None = Field(None, max_length=500, description="Name of a model; the first one by default.")
    max_tokens: int | None = Field(None, ge=1, description="Maximum number of tokens to generate.")
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=0, le=2**63 - 1, description="The same seed gives the same text.")
    n: int | None = Field(None, ge=1, le=128, description="Number of texts.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = Field(None, max_length=1000, description="Not used.")


class OpenAIBody(CommonBody):
    """Parameters of OpenAI's routes; the penalties and logit_bias only accept their neutral values."""

    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: str | dict[str, Any] | None = Field(None, description="Name of structured_outputs.json in older vLLM.")
    guided_regex: str | None = Field(None, max_length=_MAX_TEXT, description="Name of structured_outputs.regex.")
    guided_choice: list[str] | None = Field(None, max_length=256, description="Name of structured_outputs.choice.")
    diffusion: Extras | None = None  # type: ignore[valid-type]


class CompletionBody(OpenAIBody):
    """POST /v1/completions"""

    prompt: Annotated[str, Field(max_length=_MAX_TEXT)] | Annotated[list[str], Field(min_length=1, max_length=64)] = ""
    suffix: str | None = Field(None, max_length=_MAX_TEXT, description="Text after the part to generate.")
    echo: bool | None = None
    best_of: int | None = Field(None, ge=1, le=128)
    logprobs: int | None = Field(
        None, ge=0, le=5, description="Log-probability of each token when it was written, plus this many alternatives."
    )


class TextPart(StrictModel):
    """A part of the content of a message."""

    type: Literal["text"]
    text: str = Field(max_length=_MAX_TEXT)


class Message(StrictModel):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, Field(max_length=_MAX_TEXT)] | Annotated[list[TextPart], Field(max_length=256)]
    name: str | None = Field(None, max_length=200)

    @property
    def plain(self) -> dict[str, str]:
        """Role and text, with the role developer replaced by system."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ChatBody(OpenAIBody):
    """POST /v1/chat/completions"""

    messages: Annotated[list[Message], Field(min_length=1, max_length=1024)]
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None


class FimBody(OpenAIBody):
    """POST /v1/fim/completions, as in Mistral's API: the text between a prompt and a suffix."""

    prompt: str = Field(max_length=_MAX_TEXT)
    suffix: str | None = Field(None, max_length=_MAX_TEXT)


class InfillBody(CommonBody):
    """POST /v1/infill: fill the holes of a template such as "She opened the [[6]] and left.", or of pieces."""

    template: str | None = Field(None, max_length=_MAX_TEXT, description="Text with holes, such as [[6]] for 6 tokens.")
    pieces: Annotated[list[str | int | None], Field(min_length=1, max_length=256)] | None = Field(
        None, description="Texts, numbers (holes with that many tokens) and null (a hole of any length)."
    )
    diffusion: InfillExtras | None = None  # type: ignore[valid-type]


class ChooseBody(StrictModel):
    """POST /v1/choose: the probability of each answer in the holes [[?]] of a text."""

    model: str | None = Field(None, max_length=500)
    template: str = Field(max_length=_MAX_TEXT)
    answers: (
        Annotated[list[str], Field(min_length=2, max_length=256)]
        | Annotated[list[list[str]], Field(min_length=1, max_length=64)]
    )


class ScoreBody(StrictModel):
    """POST /v1/score: the bits of each text."""

    model: str | None = Field(None, max_length=500)
    texts: Annotated[str, Field(max_length=_MAX_TEXT)] | Annotated[list[str], Field(min_length=1, max_length=64)]
    draws: int | None = Field(None, ge=1, le=64)
    seed: int | None = Field(None, ge=0, le=2**63 - 1)


class CorrectBody(StrictModel):
    """POST /v1/correct: texts with their spelling corrected."""

    model: str | None = Field(None, max_length=500)
    texts: Annotated[str, Field(max_length=_MAX_TEXT)] | Annotated[list[str], Field(min_length=1, max_length=64)]
    words: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=50_000)] | None = Field(
        None, description="Known words; by default those stored with the model, else those of its training data."
    )
    noise: float | None = Field(None, description="Expected fraction of wrong characters.")
    keep: list[str] | None = Field(None, max_length=1000, description="Words that must not be changed.")
    names: bool | None = Field(None, description="Also correct names.")
    confidence: float | None = Field(
        None, description="Change a word only if the new one has at least this probability."
    )


class TraceBody(CompletionBody):
    """POST /v1/diffusion/trace: every canvas of a completion, a chat or an infilling."""

    template: str | None = Field(None, max_length=_MAX_TEXT)
    pieces: Annotated[list[str | int | None], Field(min_length=1, max_length=256)] | None = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=1024)] | None = None
    format: Literal["ndjson", "sse"] | None = None


def _parse_body(kind: type[_Body], raw: bytes) -> _Body:
    """Parses and validates the body of a request; raises an error that names the parameter."""
    try:
        content = json.loads(raw, parse_constant=_no_constant)
    except RecursionError:
        raise _bad_request("body", "the JSON is nested too deeply; use at most 100 levels", "invalid_json") from None
    except ValueError as error:
        raise _bad_request("body", f"the body is not JSON: {str(error)[:200]}", "invalid_json") from None
    if not isinstance(content, dict):
        raise _bad_request("body", "the body must be a JSON object", "invalid_json")
    _require_unicode(content)
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise _first_error(error, content) from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")


def _require_unicode(value: Any, depth: int = 0) -> None:
    """Raises if a text has a lone surrogate, or if values are nested too deeply."""
    if depth > 100:
        raise _bad_request("body", "the JSON is nested too deeply; use at most 100 levels", "invalid_json")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _bad_request(
                "body", "a text has a lone surrogate, which is not a valid character", "invalid_unicode"
            ) from None
    parts: Iterable[Any] = (
        [*value.keys(), *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    for part in parts:
        _require_unicode(part, depth + 1)


def _first_error(error: ValidationError, content: dict[str, Any]) -> _ApiError:
    """Converts the first validation error, with the parameter as the client named it."""
    first = error.errors(include_url=False, include_context=False)[0]
    path = [str(part) for part in first["loc"]]
    names = [part for part in path if part in content or not path.index(part)]
    inside = [part for part in path[1:2] if isinstance(content.get(path[0]), dict)]
    param = ".".join([*names[:1], *inside]) or "body"
    if first["type"] == "extra_forbidden":
        return _bad_request(param, f"{param} is not a parameter of this route (a typo?)", "unknown_parameter")
    if first["type"] == "missing":
        return _bad_request(
            path[-1] if len(path) == 1 else param, f"{'.'.join(path)} is missing; add it", "missing_parameter"
        )
    return _bad_request(param, f"{param}: {first['msg']}")
