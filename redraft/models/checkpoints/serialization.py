"""Configurations as JSON.

A frozen dataclass is written as `{"class": "redraft.decoding.Ancestral", "steps": 64}`, nested to any depth. Classes
are named by storey, not by file, so files may move within a storey. Tuples and lists become arrays; dictionaries with
string keys become objects. "class" cannot be the name of a field or a key of a dictionary, so two kinds of values that
JSON lacks use it too:

    inf, -inf, nan   {"class": "float", "value": "inf"}
    paths            {"class": "pathlib.Path", "value": "runs/tiny"}

Reading calls only the constructors of frozen dataclasses that core, models, decoding or training offers by name, or
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

JSON: TypeAlias = Any  # a value from json.loads; a recursive type would need a cast at every use
_STOREYS = ("core", "models", "decoding", "training")  # storeys whose classes a config may name


class ConfigError(ValueError):
    """Raised when a configuration cannot be written, or must not be read."""


def to_json(value: object) -> JSON:
    """Convert a value made of frozen dataclasses to JSON; `from_json` restores an equal value. Floats are exact."""
    return _encode(value, "config")


def from_json(data: JSON, trust: Sequence[str] = ()) -> Any:
    """Restore a value that `to_json` wrote. Arrays become lists where the annotation says list, otherwise tuples.

    `trust` lists further modules (with their submodules) whose frozen dataclasses may be built. Every field must fit
    its annotation. A missing field takes its default, so configs written before the field existed still load.
    """
    if isinstance(trust, str):
        raise ConfigError(f"trust={trust!r} is one string; give a list of module names: trust=[{trust!r}]")
    try:
        return _decode(data, Any, tuple(trust), "config")
    except RecursionError as error:
        raise ConfigError("this config is nested too deeply; to_json cannot have written it") from error


def read_bytes(file: Path, most: int = 2**28) -> bytes:
    """Read a regular file of at most `most` bytes. Others are refused: a pipe may block, and /dev/zero never ends."""
    with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError("it is not a regular file")
        if status.st_size > most:
            raise ConfigError(f"it has {status.st_size:,} bytes; the limit is {most:,}")
        return stream.read()


def read_json(file: Path) -> JSON:
    """Read a JSON file; raises OSError or ValueError if that fails."""
    return _parse_json(read_bytes(file))


def _parse_json(data: bytes) -> JSON:
    """Parse JSON; raises ValueError if it is invalid."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ConfigError("it is nested too deeply") from None


def digest(value: object, besides: Collection[str] = ()) -> str:
    """Return the first 12 hex digits of the SHA-256 of a value's canonical JSON.

    Fields equal to their defaults are left out, so the digest stays the same when a class gains a field. The value's
    own fields named in `besides` are left out too.
    """
    data = _encode(value, "config", brief=True)
    return _json_digest({key: item for key, item in data.items() if key not in besides} if besides else data)


def _json_digest(data: JSON) -> str:
    """Digest JSON data so that equal values have equal digests: keys are sorted, and 1.0 is written as 1."""
    canonical = json.loads(json.dumps(data), parse_float=_parse_number)
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def external_modules(data: JSON) -> list[str]:
    """List the modules outside this package whose classes a config names."""
    if isinstance(data, list):
        return [module for item in data for module in external_modules(item)]
    if not isinstance(data, dict):
        return []
    name = str(data.get("class", "redraft"))
    outside = [] if _is_within(name, ("redraft", "float", "pathlib")) else [name.rpartition(".")[0]]
    return outside + [module for item in data.values() for module in external_modules(item)]


def _encode(value: Any, where: str, brief: bool = False) -> JSON:
    """Convert a value to JSON; `where` locates it in error messages.

    brief: leave out fields that equal their defaults.
    """
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
        module = _public_module(_require_frozen(kind, where).__module__)
        if getattr(sys.modules[module], kind.__qualname__, None) is not kind:
            raise ConfigError(f"{where}: {kind.__qualname__} cannot be found by name; define it at the top of a module")
        written = [f for f in fields(value) if f.init and not (brief and getattr(value, f.name) == _default(f))]
        items = {f.name: _encode(getattr(value, f.name), f"{where}.{f.name}", brief) for f in written}
        return {"class": f"{module}.{kind.__qualname__}"} | items
    raise ConfigError(f"{where} is a {kind.__name__}; a config may hold only frozen dataclasses and plain values")


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _public_module(module: str) -> str:
    """Return the module that a config names for a class: the storey for ours, the defining module for others."""
    return ".".join(module.split(".")[:2]) if _is_within(module, ("redraft",)) else module


def _require_frozen(kind: type, where: str) -> type:
    if not is_dataclass(kind) or not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise ConfigError(f"{where}: {kind.__qualname__} is not a frozen dataclass; declare it @dataclass(frozen=True)")
    return kind


def _decode(data: JSON, hint: Any, trust: tuple[str, ...], where: str) -> Any:
    """Convert JSON to a value that fits the annotation `hint`, which also tells tuples from lists."""
    choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    value = data
    if isinstance(data, list):
        value = _decode_array(data, choices, trust, where)
    elif isinstance(data, dict) and "class" in data:
        value = _decode_object(data, trust, where)
    elif isinstance(data, dict):
        inner = next((get_args(c)[1] for c in choices if get_origin(c) in (dict, Mapping)), Any)
        value = {key: _decode(item, inner, trust, f"{where}.{key}") for key, item in data.items()}
    if not any(_fits(value, choice) for choice in choices):
        raise ConfigError(f"{where} is {value!r}; it must be {getattr(hint, '__name__', hint)}")
    return value


def _decode_array(data: list[JSON], choices: Sequence[Any], trust: tuple[str, ...], where: str) -> Any:
    """Decode an array to a list where the annotation says list, otherwise to a tuple, which stays hashable."""
    choice = next((c for c in choices if (get_origin(c) or c) in (tuple, list, Sequence)), tuple)
    kind, inner = get_origin(choice) or choice, get_args(choice)
    if kind is not tuple or not inner or inner[-1] is Ellipsis:
        inner = (inner or (Any,))[:1] * len(data)  # one annotation for all items
    if len(inner) != len(data):
        raise ConfigError(f"{where} has {len(data)} items; it must have {len(inner)}")
    items = [_decode(item, i, trust, f"{where}[{n}]") for n, (item, i) in enumerate(zip(data, inner, strict=True))]
    return items if kind is list else tuple(items)


def _decode_object(data: dict[str, JSON], trust: tuple[str, ...], where: str) -> Any:
    match data:
        case {"class": "float", "value": "inf" | "-inf" | "nan" as value} if len(data) == 2:
            return float(value)
        case {"class": "pathlib.Path", "value": str(value)} if len(data) == 2:
            return Path(value)
    kind = _require_frozen(_find_class(data["class"], trust, where), where)
    required = {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(kind) if f.init}
    if unknown := data.keys() - required.keys() - {"class"}:
        raise ConfigError(f"{where}: {kind.__name__} has no field {min(unknown)!r}; it has: {', '.join(required)}")
    if missing := [key for key in required if required[key] and key not in data]:
        raise ConfigError(f"{where}: {kind.__name__} needs the field {missing[0]!r}")
    try:
        hints = get_type_hints(kind)
        values = {key: _decode(data[key], hints[key], trust, f"{where}.{key}") for key in required if key in data}
        return kind(**values)
    except ConfigError:
        raise
    except (NameError, TypeError, ValueError, ArithmeticError) as error:  # unknown annotation, or refused by the class
        raise ConfigError(f"{where}: {kind.__name__}: {error}") from error


def _find_class(name: JSON, trust: tuple[str, ...], where: str) -> type:
    """Return the class of a dotted name; the named storey must offer it, or the named trusted module define it."""
    if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f'{where}: "class" is {name!r}; it must be a dotted name such as redraft.core.Linear')
    module, _, attribute = name.rpartition(".")
    if not _is_within(module, trust):
        _require_storey(module, attribute, where)
    if module.endswith(".__main__"):
        raise ConfigError(f"{where}: {module} is a program, and importing it would run it; move the class to a module")
    try:
        kind = getattr(importlib.import_module(module), attribute, None)
    except ImportError as error:
        raise ConfigError(f"{where}: there is no class {name}: {error}") from error
    if not isinstance(kind, type) or _public_module(kind.__module__) != module:
        raise ConfigError(f"{where}: {module} defines no class {attribute}")
    return kind


def _require_storey(module: str, attribute: str, where: str) -> None:
    """Refuse a class that is neither trusted nor in one of the storeys that a config may name."""
    if not _is_within(module, ("redraft",)):
        raise ConfigError(
            f"{where}: {module}.{attribute} is outside the package; to trust it, pass trust=[{module!r}], or --trust"
        )
    if module not in (f"redraft.{storey}" for storey in _STOREYS):
        raise ConfigError(
            f"{where}: {module}.{attribute} cannot be part of a config; use classes of {', '.join(_STOREYS)}, "
            "named as in redraft.core.Linear"
        )


def _is_within(module: str, roots: Sequence[str]) -> bool:
    return any(module == root or module.startswith(f"{root}.") for root in roots)


def _fits(value: object, hint: Any) -> bool:
    """Whether a value fits its annotation; its items were checked when they were decoded."""
    kind = get_origin(hint) or hint
    if kind is Literal:
        return any(value == choice and type(value) is type(choice) for choice in get_args(hint))
    if kind in (int, float):
        return type(value) in (int, kind)  # excludes True and False
    if kind is Any or not isinstance(kind, type):
        return True  # the annotation cannot be checked
    return _implements(value, kind) if getattr(kind, "_is_protocol", False) else isinstance(value, kind)


def _implements(value: object, protocol: Any) -> bool:
    """Whether a value has all members of a protocol, and methods with the same parameter names."""
    bases = [base for base in protocol.__mro__ if getattr(base, "_is_protocol", False)]
    members = {name: member for base in bases for name, member in vars(base).items() if name in _members(base)}
    return all(_same_parameters(getattr(type(value), name, None), member) for name, member in members.items())


def _members(protocol: type) -> set[str]:
    """Return the names that a protocol's own body defines."""
    own = {name for name in vars(protocol) if not name.startswith("_") or name == "__call__"}
    return own - {name for name in own if name.startswith("_abc_")}


def _same_parameters(member: object, required: object) -> bool:
    if not inspect.isfunction(required):
        return member is not None
    if not inspect.isfunction(member):
        return False
    return inspect.signature(member).parameters.keys() == inspect.signature(required).parameters.keys()


def _parse_number(number: str) -> int | float:
    value = float(number)
    return int(value) if value.is_integer() else value
