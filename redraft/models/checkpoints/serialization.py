"""Configuration as JSON.

The object is its configuration: a frozen dataclass is written as `{"class": "redraft.decoding.Ancestral", "steps": 64}`
(its storey and its name, so that files may move inside a storey), nested to any depth. Tuples and lists become arrays,
dictionaries with string keys stay themselves. Two kinds of value that JSON lacks borrow the key "class", which no field
can have as its name and no dictionary may contain:

    inf, -inf, nan   {"class": "float", "value": "inf"}
    paths            {"class": "pathlib.Path", "value": "runs/tiny"}

Reading calls nothing but constructors of frozen dataclasses that one of the four storeys of a run offers by name, or
that a module trusted by the caller defines.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import json
import math
import os
import stat
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

JSON: TypeAlias = Any  # what json.loads gives; a recursive type would ask for a cast at every use
_STOREYS = ("core", "models", "decoding", "training")  # a config may name their classes, not those of tasks or laws


class ConfigError(ValueError):
    """A configuration that cannot be written or must not be read."""


def to_json(value: object) -> JSON:
    """A value made of frozen dataclasses as JSON; `from_json` gives back an equal one. Floats are exact."""
    return _encode(value, "config")


def from_json(data: JSON, trust: Sequence[str] = ()) -> Any:
    """The value that `to_json` wrote. An array becomes a list where the annotation says so, otherwise a tuple.

    `trust` names further modules (with their submodules) whose frozen dataclasses may be built. Every field must fit
    its annotation. A field that is absent takes its default, so that configs written before it existed still load.
    """
    if isinstance(trust, str):
        raise ConfigError(f"trust={trust!r} is one string; give a list of module names: trust=[{trust!r}]")
    try:
        return _decode(data, Any, tuple(trust), "config")
    except RecursionError as error:
        raise ConfigError("this config is nested too deeply to be one that to_json wrote") from error


def read_bytes(file: Path, most: int = 2**28) -> bytes:
    """The bytes of a regular file of a sane size: a pipe might block forever, and /dev/zero has no end."""
    with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError("it is not a regular file")
        if found.st_size > most:
            raise ConfigError(f"it has {found.st_size:,} bytes, more than {most:,}")
        return stream.read()


def read_json(file: Path) -> JSON:
    """The value in a JSON file; OSError or ValueError if it cannot be read."""
    return _parse_json(read_bytes(file))


def _parse_json(data: bytes) -> JSON:
    """The value of a JSON text; ValueError if it is not JSON."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ConfigError("it is nested too deeply") from None


def digest(value: object, besides: Collection[str] = ()) -> str:
    """Twelve hexadecimal digits of the SHA-256 of the canonical JSON: the name of a value.

    Fields that have their defaults do not count, so that a value keeps its name when its class gets a new field; nor do
    the fields `besides` of the value itself.
    """
    described = _encode(value, "config", brief=True)
    return _json_digest({key: item for key, item in described.items() if key not in besides} if besides else described)


def _json_digest(data: JSON) -> str:
    """The digest of what `to_json` wrote. Equal values have equal ones: keys are sorted, and 1.0 counts as 1."""
    plain = json.loads(json.dumps(data), parse_float=_whole)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def external_modules(data: JSON) -> list[str]:
    """The modules outside this package whose classes a config names."""
    if isinstance(data, list):
        return [module for item in data for module in external_modules(item)]
    if not isinstance(data, dict):
        return []
    name = str(data.get("class", "redraft"))
    own = [] if _inside(name, ("redraft", "float", "pathlib")) else [name.rpartition(".")[0]]
    return own + [module for item in data.values() for module in external_modules(item)]


def _encode(value: Any, where: str, brief: bool = False) -> JSON:
    """brief: without fields that have their defaults."""
    if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
        return value
    if type(value) is float:
        return {"class": "float", "value": repr(value)}
    if isinstance(value, Path):
        return {"class": "pathlib.Path", "value": value.as_posix()}
    if type(value) in (tuple, list):
        return [_encode(item, f"{where}[{n}]", brief) for n, item in enumerate(value)]
    if type(value) is dict:
        if wrong := [key for key in value if type(key) is not str or key == "class"]:
            raise ConfigError(f'{where} has the key {wrong[0]!r}; keys must be strings other than "class"')
        return {key: _encode(item, f"{where}.{key}", brief) for key, item in value.items()}
    if is_dataclass(kind := type(value)):
        home = _home(_frozen(kind, where).__module__)
        if getattr(sys.modules[home], kind.__qualname__, None) is not kind:
            raise ConfigError(f"{where}: {kind.__qualname__} cannot be found by name; define it at the top of a module")
        kept = [f for f in fields(value) if f.init and not (brief and getattr(value, f.name) == _default(f))]
        items = {f.name: _encode(getattr(value, f.name), f"{where}.{f.name}", brief) for f in kept}
        return {"class": f"{home}.{kind.__qualname__}"} | items
    raise ConfigError(f"{where} is a {kind.__name__}; a config holds frozen dataclasses and plain values only")


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _home(module: str) -> str:
    """The module under which a class is named: its storey, whichever file it is in; outside the package its module."""
    return ".".join(module.split(".")[:2]) if _inside(module, ("redraft",)) else module


def _frozen(kind: type, where: str) -> type:
    if not is_dataclass(kind) or not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise ConfigError(f"{where}: {kind.__qualname__} is not a frozen dataclass; declare it @dataclass(frozen=True)")
    return kind


def _decode(data: JSON, hint: Any, trust: tuple[str, ...], where: str) -> Any:
    """JSON → value; the annotation `hint` distinguishes tuples from lists and limits what is allowed."""
    choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    value = data
    if isinstance(data, list):
        value = _sequence(data, choices, trust, where)
    elif isinstance(data, dict) and "class" in data:
        value = _object(data, trust, where)
    elif isinstance(data, dict):
        inner = next((get_args(c)[1] for c in choices if get_origin(c) in (dict, Mapping)), Any)
        value = {key: _decode(item, inner, trust, f"{where}.{key}") for key, item in data.items()}
    if not any(_fits(value, choice) for choice in choices):
        raise ConfigError(f"{where} is {value!r}; it must be {getattr(hint, '__name__', hint)}")
    return value


def _sequence(data: list[JSON], choices: Sequence[Any], trust: tuple[str, ...], where: str) -> Any:
    """A list where the annotation says list, otherwise a tuple: a frozen value stays hashable."""
    choice = next((c for c in choices if (get_origin(c) or c) in (tuple, list, Sequence)), tuple)
    kind, inner = get_origin(choice) or choice, get_args(choice)
    if kind is not tuple or not inner or inner[-1] is Ellipsis:
        inner = (inner or (Any,))[:1] * len(data)  # all items alike
    if len(inner) != len(data):
        raise ConfigError(f"{where} has {len(data)} items; it must have {len(inner)}")
    items = [_decode(item, i, trust, f"{where}[{n}]") for n, (item, i) in enumerate(zip(data, inner, strict=True))]
    return items if kind is list else tuple(items)


def _object(data: dict[str, JSON], trust: tuple[str, ...], where: str) -> Any:
    match data:
        case {"class": "float", "value": "inf" | "-inf" | "nan" as value} if len(data) == 2:
            return float(value)
        case {"class": "pathlib.Path", "value": str(value)} if len(data) == 2:
            return Path(value)
    kind = _frozen(_find(data["class"], trust, where), where)
    needed = {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(kind) if f.init}
    if unknown := data.keys() - needed.keys() - {"class"}:
        raise ConfigError(f"{where}: {kind.__name__} has no field {min(unknown)!r}; it has: {', '.join(needed)}")
    if missing := [key for key in needed if needed[key] and key not in data]:
        raise ConfigError(f"{where}: {kind.__name__} needs the field {missing[0]!r}")
    try:
        hints = get_type_hints(kind)
        parts = {key: _decode(data[key], hints[key], trust, f"{where}.{key}") for key in needed if key in data}
        return kind(**parts)
    except ConfigError:
        raise
    except (NameError, TypeError, ValueError, ArithmeticError) as error:  # an unknown annotation; the class refuses
        raise ConfigError(f"{where}: {kind.__name__}: {error}") from error


def _find(name: JSON, trust: tuple[str, ...], where: str) -> type:
    """The class of that name; it must be offered by the named storey, or defined in the named module."""
    if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f'{where}: "class" is {name!r}; it must be a dotted name such as redraft.core.Linear')
    module, _, attribute = name.rpartition(".")
    if not _inside(module, trust):
        _require_storey(module, attribute, where)
    if module.endswith(".__main__"):
        raise ConfigError(f"{where}: {module} is a program; importing it would run it")
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError as error:
        raise ConfigError(f"{where}: there is no class {name}: {error}") from error
    if not isinstance(found, type) or _home(found.__module__) != module:
        raise ConfigError(f"{where}: {module} defines no class {attribute}")
    return found


def _require_storey(module: str, attribute: str, where: str) -> None:
    """Refuses a class that no storey of a run offers."""
    if not _inside(module, ("redraft",)):
        raise ConfigError(
            f"{where}: {module}.{attribute} is outside the package; to trust it, pass trust=[{module!r}], or --trust"
        )
    if module not in (f"redraft.{storey}" for storey in _STOREYS):
        raise ConfigError(
            f"{where}: {module}.{attribute} is not a piece of a run; those are in redraft.{', '.join(_STOREYS)}"
        )


def _inside(module: str, roots: Sequence[str]) -> bool:
    return any(module == root or module.startswith(f"{root}.") for root in roots)


def _fits(value: object, hint: Any) -> bool:
    """Whether a value fits its annotation, apart from its items, which were checked when they were read."""
    kind = get_origin(hint) or hint
    if kind is Literal:
        return any(value == choice and type(value) is type(choice) for choice in get_args(hint))
    if kind in (int, float):
        return type(value) in (int, kind)  # True is not a number here
    if kind is Any or not isinstance(kind, type):
        return True  # the annotation cannot be tested
    return _behaves(value, kind) if getattr(kind, "_is_protocol", False) else isinstance(value, kind)


def _behaves(value: object, protocol: Any) -> bool:
    """Whether a value has all members of a protocol, functions with parameters of the same names."""
    bases = [base for base in protocol.__mro__ if getattr(base, "_is_protocol", False)]
    asked = {name: part for base in bases for name, part in vars(base).items() if name in _members(base)}
    return all(_alike(getattr(type(value), name, None), part) for name, part in asked.items())


def _members(protocol: type) -> set[str]:
    """The names that a protocol's own body defines."""
    own = {name for name in vars(protocol) if not name.startswith("_") or name == "__call__"}
    return own - {name for name in own if name.startswith("_abc_")}


def _alike(found: object, asked: object) -> bool:
    if not inspect.isfunction(asked):
        return found is not None
    if not inspect.isfunction(found):
        return False
    return inspect.signature(found).parameters.keys() == inspect.signature(asked).parameters.keys()


def _whole(number: str) -> int | float:
    value = float(number)
    return int(value) if value.is_integer() else value
