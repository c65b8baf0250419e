"""Request bodies: what each route accepts, validated in one place. OpenAPI is generated from the same classes.

OpenAI's arguments are at the top level, ours under one key, `diffusion`, whose names are the fields of
`GenerationSettings`. Unsupported arguments are rejected by name; none is silently ignored.
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

from redraft.apps.server.errors import ApiError, _bad_request
from redraft.tasks.arguments.aliases import ALIASES
from redraft.tasks.arguments.settings import ControlSettings, GenerationSettings, InfillSettings, RewriteSettings

Body = TypeVar("Body", bound="StrictModel")
MOST_TEXT = 200_000  # characters of one text
_TOP = {
    "n": "n",
    "max_new_tokens": "max_tokens",
    "seed": "seed",
    "temperature": "temperature",
    "top_p": "top_p",
    "stop": "stop",
}


class StrictModel(BaseModel):
    """Every key is known, and has its type."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _plain_type(hint: Any) -> Any:
    """The type of a field without what the command line wants to know."""
    if get_origin(hint) is Annotated:
        return _plain_type(get_args(hint)[0])
    if hint == tuple[str, ...]:
        return str | list[str]
    return hint


def _extras(name: str, kind: type[Any], doc: str, more: Mapping[str, Any]) -> type[StrictModel]:
    """A class with the fields of a dataclass, all of them optional, and the names that others use for them."""
    hints, about = get_type_hints(kind, include_extras=True), _sentences(kind)
    given: dict[str, Any] = {}
    for each in fields(kind):
        if each.name in _TOP:
            continue
        hint, said = _plain_type(hints[each.name]), about.get(each.name)
        if each.name == "schema":  # a name that pydantic has itself
            given["schema_"] = (str | dict[str, Any] | None, Field(None, alias="schema", description=said))
        else:
            given[each.name] = (hint | None, Field(None, description=said))
    for alias, meaning in ALIASES.items():
        if meaning.name in given or f"{meaning.name}_" in given:
            given[alias] = (Any, Field(None, description=f"The name that {meaning.of} has for {meaning.name}."))
    return create_model(name, __base__=StrictModel, __doc__=doc, **(given | dict(more)))


def _sentences(kind: type[Any]) -> dict[str, str]:
    """What the source says below each field."""
    found: dict[str, str] = {}
    for part in reversed([k for k in kind.__mro__ if k is not object]):
        body = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]
        assert isinstance(body, ast.ClassDef)
        for before, after in zip(body.body, body.body[1:], strict=False):
            said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
            if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(said, str):
                found[before.target.id] = " ".join(said.split())
    return found


_CHOICES = {
    "choices": (list[str] | None, Field(None, max_length=256, description="The text is one of these.")),
}
_rewriting, _wishes = _sentences(RewriteSettings), _sentences(ControlSettings)
_CANVAS = _CHOICES | {
    "start_text": (str | None, Field(None, max_length=MOST_TEXT, description="A text to edit in place.")),
    "strength": (float | None, Field(None, description=_rewriting["strength"])),
    "pinned": (list[str] | None, Field(None, max_length=1000, description=_rewriting["pinned"])),
    "candidates": (int | None, Field(None, ge=1, le=64, description=_rewriting["candidates"])),
    "attributes": (list[str] | None, Field(None, max_length=16, description=_wishes["attributes"])),
    "length": (int | None, Field(None, ge=1, description=_wishes["length"])),
    "pos": (str | None, Field(None, max_length=MOST_TEXT, description=_wishes["pos"])),
    "scale": (float | None, Field(None, description=_wishes["scale"])),
    "diffusion_seed_canvas": (str | None, Field(None, max_length=MOST_TEXT, description="vLLM: start_text.")),
    "diffusion_pinned": (list[str] | None, Field(None, max_length=1000, description="vLLM: pinned.")),
    "diffusion_read_only": (bool | None, Field(None, description="vLLM: only false; /v1/score reads a text.")),
    "diffusion_constrained": (bool | None, Field(None, description="vLLM: rules are always obeyed here.")),
}
Extras = _extras("Extras", GenerationSettings, "How the text is written: what OpenAI's arguments do not say.", _CANVAS)
InfillExtras = _extras("InfillExtras", InfillSettings, "How the holes are filled.", _CHOICES)


class JsonSchema(StrictModel):
    name: str | None = Field(None, max_length=200)
    description: str | None = Field(None, max_length=10_000)
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(StrictModel):
    """What the text must be: free, any JSON object of a schema."""

    type: Literal["text", "json_schema"]
    json_schema: JsonSchema | None = None


class StreamOptions(StrictModel):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class CommonBody(StrictModel):
    """What all routes that write take."""

    model: str | None = Field(None, max_length=500, description="The name of a model; left out: the first one.")
    max_tokens: int | None = Field(None, ge=1, description="Number of tokens to write; the text may end before.")
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=0, le=2**63 - 1, description="The same seed gives the same text.")
    n: int | None = Field(None, ge=1, le=128, description="Number of texts.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = Field(None, max_length=1000, description="Not used.")


class OpenAIBody(CommonBody):
    """OpenAI's arguments that have no meaning here: only their neutral values pass."""

    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    response_format: ResponseFormat | None = None
    diffusion: Extras | None = None  # type: ignore[valid-type]


class CompletionBody(OpenAIBody):
    """POST /v1/completions"""

    prompt: Annotated[str, Field(max_length=MOST_TEXT)] | Annotated[list[str], Field(min_length=1, max_length=64)] = ""
    suffix: str | None = Field(None, max_length=MOST_TEXT, description="Text that follows: what is between is written.")
    echo: bool | None = None
    best_of: int | None = Field(None, ge=1, le=128)
    logprobs: int | None = Field(
        None, ge=0, le=5, description="The log-probability each token had when written, and those of so many others."
    )


class TextPart(StrictModel):
    type: Literal["text"]
    text: str = Field(max_length=MOST_TEXT)


class Message(StrictModel):
    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, Field(max_length=MOST_TEXT)] | Annotated[list[TextPart], Field(max_length=256)]
    name: str | None = Field(None, max_length=200)

    @property
    def said(self) -> dict[str, str]:
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
    """POST /v1/fim/completions, as Mistral has it: the text between a prompt and a suffix."""

    prompt: str = Field(max_length=MOST_TEXT)
    suffix: str | None = Field(None, max_length=MOST_TEXT)


class InfillBody(CommonBody):
    """POST /v1/infill: a template "She opened the [[6]] and left.", or the same as pieces."""

    template: str | None = Field(None, max_length=MOST_TEXT, description="A text with holes [[n]] of n tokens.")
    pieces: Annotated[list[str | int | None], Field(min_length=1, max_length=256)] | None = Field(
        None, description="Texts, numbers (holes of so many tokens) and null (of any length); texts have no holes."
    )
    diffusion: InfillExtras | None = None  # type: ignore[valid-type]


class ChooseBody(StrictModel):
    """POST /v1/choose: how likely each answer is in the holes [[?]] of a text."""

    model: str | None = Field(None, max_length=500)
    template: str = Field(max_length=MOST_TEXT)
    answers: (
        Annotated[list[str], Field(min_length=2, max_length=256)]
        | Annotated[list[list[str]], Field(min_length=1, max_length=64)]
    )


class ScoreBody(StrictModel):
    """POST /v1/score: how many bits each text has."""

    model: str | None = Field(None, max_length=500)
    texts: Annotated[str, Field(max_length=MOST_TEXT)] | Annotated[list[str], Field(min_length=1, max_length=64)]
    draws: int | None = Field(None, ge=1, le=64)
    seed: int | None = Field(None, ge=0, le=2**63 - 1)


class CorrectBody(StrictModel):
    """POST /v1/correct: what was meant by texts with errors."""

    model: str | None = Field(None, max_length=500)
    texts: Annotated[str, Field(max_length=MOST_TEXT)] | Annotated[list[str], Field(min_length=1, max_length=64)]
    words: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=50_000)] | None = Field(
        None, description="Known words; left out: the model's own, else those of its training data."
    )
    noise: float | None = Field(None, description="The share of letters that are expected to be wrong.")
    keep: list[str] | None = Field(None, max_length=1000, description="Words that are never changed.")
    names: bool | None = Field(None, description="Change names, too.")
    confidence: float | None = Field(None, description="Change a word only if the new one is at least this likely.")


class TraceBody(CompletionBody):
    """POST /v1/diffusion/trace: every canvas on the way, of a completion or of an infilling."""

    template: str | None = Field(None, max_length=MOST_TEXT)
    pieces: Annotated[list[str | int | None], Field(min_length=1, max_length=256)] | None = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=1024)] | None = None
    format: Literal["ndjson", "sse"] | None = None


def parse_body(kind: type[Body], raw: bytes) -> Body:
    """The body of a request, or an error that names the parameter."""
    try:
        given = json.loads(raw, parse_constant=_no_constant)
    except RecursionError:
        raise _bad_request("body", "the JSON is nested too deeply", "invalid_json") from None
    except ValueError as error:
        raise _bad_request("body", f"the body is not JSON: {str(error)[:200]}", "invalid_json") from None
    if not isinstance(given, dict):
        raise _bad_request("body", "the body must be a JSON object", "invalid_json")
    _require_unicode(given)
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise _first_of(error, given) from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number in JSON")


def _require_unicode(given: Any, depth: int = 0) -> None:
    """Raises if a text has half a character, or if values are nested too deeply."""
    if depth > 100:
        raise _bad_request("body", "the JSON is nested too deeply", "invalid_json")
    if isinstance(given, str):
        try:
            given.encode()
        except UnicodeEncodeError:
            raise _bad_request(
                "body", "a text holds half of a surrogate pair, which is no character", "invalid_unicode"
            ) from None
    parts: Iterable[Any] = (
        [*given.keys(), *given.values()] if isinstance(given, dict) else given if isinstance(given, list) else ()
    )
    for part in parts:
        _require_unicode(part, depth + 1)


def _first_of(error: ValidationError, given: dict[str, Any]) -> ApiError:
    """The first thing that is wrong, by the name that the client used."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = [str(part) for part in first["loc"]]
    names = [part for part in place if part in given or not place.index(part)]
    inside = [part for part in place[1:2] if isinstance(given.get(place[0]), dict)]
    param = ".".join([*names[:1], *inside]) or "body"
    if first["type"] == "extra_forbidden":
        return _bad_request(param, f"{param} is not a parameter of this route", "unknown_parameter")
    if first["type"] == "missing":
        return _bad_request(
            place[-1] if len(place) == 1 else param, f"{'.'.join(place)} is missing", "missing_parameter"
        )
    return _bad_request(param, f"{param}: {first['msg']}")
