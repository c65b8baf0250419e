"""Settings declared once. The check, the flag, the request field and the docs of an argument are made from its field.

A field of a frozen dataclass is declared with `setting(default, "what it does", least=1, …)`. A class that inherits
from `Checked` checks all its settings when it is created. `arguments_of` lists the arguments of such a class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

MOST_SEED = 2**63 - 1  # random keys are int64; larger seeds would repeat
REQUIRED: Any = MISSING  # the default of an argument that must be given
_NOUNS: Mapping[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
}
_JSON_TYPES: Mapping[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
_ARGUMENTS: dict[type[Any], tuple[Argument, ...]] = {}  # settings class → its arguments


class ArgumentError(ValueError):
    """An invalid argument: its name, which a server can report, and a one-line reason that says what to do."""

    def __init__(self, argument: str, reason: str) -> None:
        super().__init__(reason)
        self.argument = argument


@dataclass(frozen=True)
class Setting:
    """What a field says about itself besides its type and its default."""

    about: str  # one or more sentences for --help, OpenAPI and the docs
    least: float | None = None  # smallest valid number
    most: float | None = None  # largest valid number; for a list of texts, their largest number
    above: float | None = None  # the number must be larger than this
    otherwise: str = ""  # what is used by default, in words; "" to show the default itself
    choices: tuple[str, ...] = ()  # the valid texts, if the type does not list them
    hints: Mapping[str, str] = field(default_factory=dict)  # what to give instead of other texts that people try
    metavar: str = ""  # the value in --help; "" to derive it from the type
    flag: str = ""  # "" for the field's name with dashes
    aliases: tuple[str, ...] = ()  # other names of the flag
    group: str = "Options"  # heading in --help
    rare: bool = False  # shown only by --help-all
    positional: bool = False  # an argument without a flag
    repeats: bool = False  # the flag takes one value and may be given several times
    objects: bool = False  # in Python also an object that is not plain data; on the command line file.py:NAME
    mapping: bool = False  # also a mapping, which `read` converts to a text of JSON
    read: Callable[[str, Any], Any] | None = None  # converts further forms of the value; gets the argument's name


def setting(default: Any, about: str, **more: Any) -> Any:
    """A dataclass field with a `Setting`. Use `REQUIRED` as the default of an argument that must be given."""
    metadata = {"setting": Setting(about, **more)}
    return field(metadata=metadata) if default is REQUIRED else field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Argument:
    """An argument: a field of a settings class with its type, taken apart, and its `Setting`."""

    name: str
    setting: Setting
    kind: Any  # bool, int, float, str or Path: the type of the value, or of each item of a list
    choices: tuple[Any, ...]  # the valid values; empty if any value of the type is valid
    optional: bool  # None is valid
    count: int | None  # None for a single value, 0 for any number of them, n for exactly n
    default: Any

    @property
    def flag(self) -> str:
        """The flag on the command line; for a positional argument, its metavar."""
        if self.setting.positional:
            return self.setting.metavar.strip("[]") or self.name.upper()
        return self.setting.flag or f"--{self.name.replace('_', '-')}"

    def check(self, value: Any) -> Any:
        """Return a valid value, converted if `read` does so; raise `ArgumentError` for any other."""
        if self.setting.read is not None:
            value = self.setting.read(self.name, value)
        if (value is None and self.optional) or (
            self.setting.objects and not isinstance(value, str | int | float | None)
        ):
            return value
        if self.count is None:
            return self._checked(value)
        if not isinstance(value, tuple | list) or self.count not in (0, len(value)):
            raise self.error(value, f"it must be {f'{self.count} values' if self.count else 'a list'}")
        if self.kind is str and self.setting.most is not None and len(value) > self.setting.most:
            raise self.error(value, f"the list has {len(value):,} items; give at most {self.setting.most:,}")
        if self.setting.read is not None:  # it has checked the items
            return value
        return tuple(self._checked(item) for item in value)

    def json_schema(self) -> dict[str, Any]:
        """What JSON may hold: one value, a list if there may be many, or null for the default."""
        about, is_number = self.setting, self.kind in (int, float)
        item: dict[str, Any] = {"type": _JSON_TYPES[self.kind], "enum": [*self.choices] or None}
        if is_number:
            item |= {"minimum": about.least, "exclusiveMinimum": about.above, "maximum": about.most}
        forms = [item]
        if self.count is not None:
            forms.append({"type": "array", "items": _known(item), "maxItems": None if is_number else about.most})
        if about.mapping:
            forms.append({"type": "object"})
        return {"anyOf": [*map(_known, forms), {"type": "null"}], "description": about.about}

    def error(self, value: Any, reason: str) -> ArgumentError:
        """The error for an invalid value."""
        return ArgumentError(self.name, f"{self.name}={_show_value(value)}: {reason}")

    def _advice(self, value: Any) -> str:
        """Which choice a wrong value may stand for, or all choices."""
        meant = self.setting.hints.get(str(value).lower())
        close = [meant] if meant else get_close_matches(str(value), map(str, self.choices), n=1, cutoff=0.7)
        hint = f"did you mean {close[0]}? Or " if close else ""
        return f"{hint}choose from {', '.join(map(repr, self.choices))}"

    def _checked(self, value: Any) -> Any:
        if self.choices:
            if value not in self.choices:
                raise self.error(value, self._advice(value))
        elif not _is_a(value, self.kind):
            raise self.error(value, f"it must be {_NOUNS[self.kind]}")
        elif self.kind in (int, float):
            about = self.setting
            if reason := _range_error(value, about.least, about.most, about.above):
                raise self.error(value, reason)
        return value


def _known(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if value is not None}


class Checked:
    """Base of frozen dataclasses that check their settings when they are created."""

    def __post_init__(self) -> None:
        for argument in arguments_of(type(self)):
            value = getattr(self, argument.name)
            if (checked := argument.check(value)) is not value:
                object.__setattr__(self, argument.name, checked)
        self._require_agreement()

    def _require_agreement(self) -> None:
        """Raise if the settings contradict each other."""


def arguments_of(kind: type[Any]) -> tuple[Argument, ...]:
    """The arguments of a settings class, without those of settings classes nested in it."""
    if kind not in _ARGUMENTS:
        _ARGUMENTS[kind] = tuple(_find_arguments(kind))
    return _ARGUMENTS[kind]


def _find_arguments(kind: type[Any]) -> Iterator[Argument]:
    hints = get_type_hints(kind)
    settings = [item for item in fields(kind) if "setting" in item.metadata]
    yield from (argument_of(item.name, item.metadata["setting"], hints[item.name], item.default) for item in settings)


def _texts_of(given: Any) -> tuple[str, ...] | None:
    """One text, a list of texts or None as a tuple; None if it is anything else."""
    texts = (given,) if isinstance(given, str) else given or ()
    is_list = isinstance(texts, tuple | list) and all(isinstance(text, str) for text in texts)
    return tuple(texts) if is_list else None


def changed_settings(settings: Any) -> dict[str, Any]:
    """The values that differ from their defaults, by name; they build equal settings again, without a message."""
    arguments = arguments_of(type(settings))
    values = {argument.name: getattr(settings, argument.name) for argument in arguments}
    return {argument.name: values[argument.name] for argument in arguments if values[argument.name] != argument.default}


def nested_settings(kind: type[Any]) -> Mapping[str, type[Any]]:
    """The fields of a settings class that are settings classes themselves."""
    hints = get_type_hints(kind)
    return {item.name: hints[item.name] for item in fields(kind) if is_dataclass(hints[item.name])}


def argument_of(name: str, about: Setting, hint: Any, default: Any) -> Argument:
    """Build the argument for a field: analyze its type into kind, choices and number of values."""
    choices = get_args(hint)
    optional = NoneType in choices
    if optional:
        (hint,) = (choice for choice in choices if choice is not NoneType)
    count: int | None = None
    if get_origin(hint) is tuple:
        items = get_args(hint)
        hint, count = items[0], 0 if items[-1] is Ellipsis else len(items)
    names = get_args(hint) if get_origin(hint) is Literal else about.choices
    return Argument(name, about, str if names else hint, names, optional, count, default)


def _is_a(value: Any, kind: Any) -> bool:
    """Whether a value has a type; an int is a float, but True and False are no numbers."""
    return isinstance(value, int | float if kind is float else kind) and (kind is bool or type(value) is not bool)


def _range_error(value: float, least: float | None, most: float | None, above: float | None = None) -> str | None:
    """Why a number is outside a range; None if it is inside."""
    if not -math.inf < value < math.inf:
        return "it must be a finite number"
    if (least is None or value >= least) and (most is None or value <= most) and (above is None or value > above):
        return None
    if least is not None and most is not None:
        return f"it must be from {_bound(least)} to {_bound(most)}"
    lower = f"at least {_bound(least)}" if least is not None else f"above {_bound(above)}" if above is not None else ""
    upper = "" if most is None else f"at most {_bound(most)}"
    return f"it must be {' and '.join(filter(None, (lower, upper)))}"


def _bound(number: float) -> str:
    ends: dict[float, str] = {MOST_SEED: "2^63 − 1", -MOST_SEED: "1 − 2^63"}
    return ends.get(number, f"{number:,}")


def _show_value(value: Any) -> str:
    """A value as a message shows it, shortened if it is long; tuples as lists, which they are on the command line."""
    if type(value) is tuple:
        return f"{[*value]!r:.60}"
    if isinstance(value, int | float):
        return "of more than 30 digits" if 1e30 <= abs(value) < math.inf else repr(value)
    return f"{value!s:.80}" if isinstance(value, Path) else f"{value!r:.60}"
