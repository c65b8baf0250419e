"""Flags for the settings of a run, nested to any depth: --optimizer.lr 1e-3, --model.network.width 128."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from redraft.apps.cli.arguments import HELP
from redraft.apps.cli.help_text import _settings_help
from redraft.apps.cli.parsing import Option, _read_words_of, _UsageError
from redraft.models.checkpoints import serialization
from redraft.tasks.arguments.setting import Argument, ArgumentError, Setting, argument_of

_PLAIN = (bool, int, float, str)
_UNIONS = (Union, UnionType)


def parse_settings(value: Any, words: Sequence[str], prog: str, about: str, whole: tuple[type, ...]) -> Any:
    """Replace the fields of a frozen dataclass, at any depth, that a command line names.

    A field whose value is a dataclass gets the flags of that value, and one for the whole object as JSON. Values of the
    types `whole` get no flags, because changing one of their fields alone would make them inconsistent.
    """
    options = [Option.of(argument) for argument in _settings_of(value, whole)]
    if any(word in HELP for word in words):
        print(_settings_help(prog, about, options, everything="--help-all" in words), end="", flush=True)
        raise SystemExit(0)
    arguments = {option.argument.name: option.argument for option in options}
    try:
        values = {name: arguments[name].check(given) for name, given in _read_words_of(options, words).items()}
    except ArgumentError as error:
        argument = arguments[error.argument]
        raise _UsageError(
            f"{argument.flag} {str(error).removeprefix(f'{argument.name}=')} (see {prog} --help)"
        ) from None
    except _UsageError as error:
        raise _UsageError(f"{error} (see {prog} --help)") from None
    try:
        return _replaced(value, {tuple(name.split(".")): given for name, given in values.items()})
    except ValueError as error:
        raise type(error)(_with_flag(str(error), [arguments[name] for name in values])) from None


def _with_flag(message: str, changed: Sequence[Argument]) -> str:
    """Name the flag in the message about a setting that a command line has changed: batch=0; … → --batch 0: …"""
    for argument in changed:
        field = argument.name.rpartition(".")[2]
        message = re.sub(rf"^{field}=([^;\s]+); ", rf"{argument.flag} \1: ", message)
    return message


def _replaced(value: Any, changes: Mapping[tuple[str, ...], Any]) -> Any:
    """A dataclass with changed fields; a change from JSON is read together with the other fields of its object."""
    if () in changes:
        value = changes[()]
    if isinstance(value, tuple):  # the parts of a model, by name
        return tuple(
            _replaced(part, {p[1:]: given for p, given in changes.items() if p[0] == part.name}) for part in value
        )
    names = dict.fromkeys(path[0] for path in changes if path)
    own, objects = {}, {}
    for name in names:
        inner = {path[1:]: given for path, given in changes.items() if path and path[0] == name}
        if isinstance(inner.get(()), _Json):
            objects[name] = inner.pop(()).data
        elif len(inner) == 1 and () in inner:
            own[name] = inner.pop(())
        if inner:
            own[name] = _replaced(getattr(value, name), inner)
    if objects:
        data = serialization.to_json(value) | objects
        value = serialization.from_json(data, serialization.external_modules(data))
    return replace(value, **own) if own else value


class _Json:
    """A value given as JSON."""

    def __init__(self, data: Any) -> None:
        self.data = data


def _read_json(name: str, given: Any) -> Any:
    try:
        return _Json(None if given == "None" else json.loads(given))
    except (TypeError, ValueError) as error:
        raise ArgumentError(name, f"{name}={given!r:.60}: it must be a JSON object, or None ({error})") from None


def _settings_of(value: Any, whole: tuple[type, ...], path: str = "") -> Iterator[Argument]:
    """Yield an argument for each setting below a dataclass; its name is the path to the field."""
    try:
        hints = get_type_hints(type(value))
    except NameError:  # an annotation of the user's class that cannot be resolved
        return
    docs = _field_docs(type(value))
    for item in fields(value):
        current, name = getattr(value, item.name), f"{path}{item.name}"
        if not item.init or isinstance(current, whole):
            continue
        group = path.partition(".")[0].replace("_", " ").capitalize() or "Run"
        about = docs.get(item.name, "")
        if _is_plain(hints[item.name]):
            yield argument_of(name, Setting(about, group=group), hints[item.name], current)
            continue
        yield argument_of(
            name, Setting(about, metavar="JSON", objects=True, read=_read_json, rare=True, group=group), str, ""
        )
        if is_dataclass(current):
            yield from _settings_of(current, whole, f"{name}.")
        elif isinstance(current, tuple):  # the parts of a model, by name
            for part in filter(is_dataclass, current):
                yield from _settings_of(part, whole, f"{name}.{getattr(part, 'name', '')}.")


def _is_plain(hint: Any) -> bool:
    """Whether a field holds a number, a text, a choice, or a tuple of them; None may be possible too."""
    choices = [choice for choice in get_args(hint) if choice is not NoneType] if get_origin(hint) in _UNIONS else [hint]
    if len(choices) != 1:
        return False
    (choice,) = choices
    if get_origin(choice) is tuple:
        items = {item for item in get_args(choice) if item is not Ellipsis}
        return len(items) == 1 and items <= set(_PLAIN)
    return choice in _PLAIN or (get_origin(choice) is Literal and all(isinstance(c, str) for c in get_args(choice)))


def _field_docs(kind: type[Any]) -> dict[str, str]:
    """The docstring below each field, or the comment beside it, in the source of a dataclass and of its bases."""
    docs: dict[str, str] = {}
    for part in reversed([k for k in kind.__mro__ if is_dataclass(k)]):
        try:
            source = textwrap.dedent(inspect.getsource(part))
        except (OSError, TypeError):
            continue
        lines, body = source.splitlines(), ast.parse(source).body[0]
        assert isinstance(body, ast.ClassDef)
        for node, below in zip(body.body, [*body.body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                doc = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
                comment = lines[(node.end_lineno or 1) - 1][node.end_col_offset or 0 :].strip().lstrip("# ")
                docs[node.target.id] = " ".join(str(doc).split()) or comment
    return docs
