"""Fields of request bodies, made from the settings of the tasks with the same checks and errors; parsing of bodies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, WithJsonSchema, create_model
from pydantic_core import from_json

from redraft.apps.server.errors import _bad_request, _from_validation_error
from redraft.tasks.arguments.setting import Argument, arguments_of

_Body = TypeVar("_Body", bound="StrictModel")
_MAX_TEXT = 200_000  # characters of one text


class StrictModel(BaseModel):
    """A body that rejects unknown keys and values of the wrong type."""

    model_config = ConfigDict(extra="forbid", strict=True)
    argument_names: ClassVar[dict[str, str]] = {}  # parameter of the request → argument of a task

    def settings(self) -> Iterator[tuple[str, str, Any]]:
        """The arguments of a task that the client gave: parameter of the request, argument, value."""
        for parameter, value in self.model_dump(exclude_unset=True, by_alias=True).items():
            if value is not None and parameter in self.argument_names:
                yield parameter, self.argument_names[parameter], value


def with_settings(
    *kinds: type[Any],
    only: Collection[str] | None = None,
    without: Collection[str] = (),
    aliases: Mapping[str, Any] = {},
    most: Mapping[str, float] = {},
    ignored: Collection[str] = (),
    **renamed: str,
) -> Callable[[type[_Body]], type[_Body]]:
    """Add the arguments of settings classes to a body; `most`: limits of the server, `renamed`: the client's names.

    `ignored`: parameters that are accepted and change nothing.
    """
    arguments = {argument.name: argument for kind in kinds for argument in arguments_of(kind)}
    names = {name: name for name in (arguments if only is None else only) if name not in without} | renamed
    fields = {name: _type(replace(arguments[own], name=name), most.get(own)) for name, own in names.items()}
    fields |= {alias: Any for alias, meaning in aliases.items() if meaning.name in names}
    optional: Any = {name + "_" * hasattr(BaseModel, name): (fields[name], Field(None, alias=name)) for name in fields}
    optional |= {name: (Any, Field(None, description="Changes nothing.")) for name in ignored}

    def add(body: type[_Body]) -> type[_Body]:
        model: type[_Body] = create_model(body.__name__, __base__=body, __doc__=body.__doc__, **optional)
        model.argument_names = body.argument_names | {name: name for name in fields} | names
        return model

    return add


def _type(argument: Argument, most: float | None) -> Any:
    """The type of plain values that Python would accept, within the limit of the server; null means the default."""
    most = argument.setting.most if most is None else most
    argument = replace(argument, setting=replace(argument.setting, most=most, objects=False))

    def check(value: Any) -> Any:
        if isinstance(value, str) and len(value) > _MAX_TEXT:
            raise argument.error(value, f"the text is too long; use at most {_MAX_TEXT:,} characters")
        return None if value is None else argument.check(value)

    return Annotated[Any, PlainValidator(check), WithJsonSchema(argument.json_schema())]


def parse_body(kind: type[_Body], raw: bytes) -> _Body:
    """Parse and validate the body of a request; raises an error that names the parameter."""
    try:
        content = from_json(raw, allow_inf_nan=False)  # also refuses lone surrogates and deep nesting
    except ValueError as error:
        raise _bad_request("body", f"the body is not JSON: {str(error)[:200]}", "invalid_json") from None
    if not isinstance(content, dict):
        raise _bad_request("body", "the body must be a JSON object", "invalid_json")
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise _from_validation_error(error.errors(include_url=False)[0], content) from None
