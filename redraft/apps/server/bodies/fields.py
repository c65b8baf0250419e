"""Parses request bodies; their fields are made from the settings of the tasks, with the same checks and errors."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    create_model,
)
from pydantic_core import CoreSchema, core_schema

from redraft.apps.server.errors import _ApiError, _bad_request
from redraft.tasks.arguments.aliases import ALIASES
from redraft.tasks.arguments.setting import Argument, ArgumentError, arguments_of
from redraft.tasks.arguments.settings import ControlSettings, GenerationSettings, InfillSettings, RewriteSettings

Body = TypeVar("Body", bound="StrictModel")
MAX_TEXT = 200_000  # characters of one text
_MOST = {"n": 128, "temperature": 2, "candidates": 64}  # limits of the server, below those of the settings
_MOST_ITEMS = {"stop": 16, "attributes": 16, "pinned": 1000, "keep": 1000}
_TOP = ("n", "max_new_tokens", "seed", "temperature", "top_p", "stop")  # at the top level, as in OpenAI's API
_FILES = ("lexicon", "classifier")  # they name files of the server
_JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


@dataclass(frozen=True)
class SettingField:
    """How pydantic validates and describes a field that is an argument of a task; null means the default."""

    argument: Argument
    items: int | None = None  # maximum number of items of a list

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return self.json_schema()

    def check(self, value: Any) -> Any:
        """Return the value if it is valid; raises the error that Python would raise."""
        if isinstance(value, str) and len(value) > MAX_TEXT:
            raise self.argument.error(value, f"the text is too long; use at most {MAX_TEXT:,} characters")
        if isinstance(value, list) and self.items is not None and len(value) > self.items:
            raise self.argument.error(value, f"the list has {len(value):,} items; give at most {self.items:,}")
        if value is not None:
            self.argument.check(value)
        return value

    def json_schema(self) -> dict[str, Any]:
        """The field in the OpenAPI document."""
        about, many = self.argument.setting, self.argument.count is not None
        bounds = {"minimum": about.least, "exclusiveMinimum": about.above, "maximum": about.most}
        item: dict[str, Any] = {"type": _JSON_TYPES[self.argument.kind]}
        item |= {name: bound for name, bound in bounds.items() if bound is not None}
        item |= {"enum": list(self.argument.choices)} if self.argument.choices else {}
        array = {"type": "array", "items": item} | ({} if self.items is None else {"maxItems": self.items})
        forms = [item, *([array] if many else []), *([{"type": "object"}] if self.argument.name == "schema" else [])]
        return {"anyOf": [*forms, {"type": "null"}], "description": about.about}


def setting_field(kind: type[Any], name: str, client_name: str = "", most: float | None = None) -> SettingField:
    """The field for an argument of a settings class, under the client's name for it and within the server's limits."""
    (argument,) = (argument for argument in arguments_of(kind) if argument.name == name)
    limit = _MOST.get(name, most)
    about = argument.setting if limit is None else replace(argument.setting, most=limit)
    return SettingField(replace(argument, name=client_name or name, setting=about), _MOST_ITEMS.get(name))


def setting_fields(*kinds: type[Any], without: Collection[str]) -> Mapping[str, Any]:
    """Definitions for `create_model`: the arguments of settings classes, and their names in other projects."""
    names = {argument.name: kind for kind in kinds for argument in arguments_of(kind) if argument.name not in without}
    own: dict[str, Any] = {name: (Annotated[Any, setting_field(kind, name)], None) for name, kind in names.items()}
    own["schema_"] = (own.pop("schema")[0], Field(None, alias="schema"))  # pydantic uses the name itself
    others = {alias: (Any, None) for alias, meaning in ALIASES.items() if meaning.name in names}
    return own | others


class StrictModel(BaseModel):
    """A body that rejects unknown keys and values of the wrong type."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _Choices(StrictModel):
    choices: list[str] | None = Field(None, max_length=256, description="The generated text is one of these.")


class _Editing(_Choices):
    start_text: str | None = Field(None, max_length=MAX_TEXT, description="A text to edit in place.")
    diffusion_seed_canvas: str | None = Field(None, max_length=MAX_TEXT, description="Name of start_text in vLLM.")
    diffusion_pinned: list[str] | None = Field(None, max_length=1000, description="Name of pinned in vLLM.")
    diffusion_read_only: bool | None = Field(None, description="vLLM: must be false; /v1/score scores a text.")
    diffusion_constrained: bool | None = Field(None, description="vLLM: ignored; constraints are always enforced.")


Extras = create_model(
    "Extras",
    __base__=_Editing,
    __doc__="Settings of generation, rewriting and control that OpenAI's arguments do not cover.",
    **setting_fields(RewriteSettings, ControlSettings, GenerationSettings, without=(*_TOP, *_FILES)),
)
InfillExtras = create_model(
    "InfillExtras",
    __base__=_Choices,
    __doc__="Settings of infilling.",
    **setting_fields(InfillSettings, without=_TOP),
)


def parse_body(kind: type[Body], raw: bytes) -> Body:
    """Parse and validate the body of a request; raises an error that names the parameter."""
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
    """Raise an error if a text has a lone surrogate, or if values are nested too deeply."""
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
    """Convert the first validation error, with the parameter as the client named it."""
    first = error.errors(include_url=False)[0]
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
    reason = first.get("ctx", {}).get("error")
    return _bad_request(param, str(reason) if isinstance(reason, ArgumentError) else f"{param}: {first['msg']}")
