"""What each keyword says about values of one kind, as a formula."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import partial
from typing import Any

from redraft.decoding.constraints.dfa import AutomatonTooLarge
from redraft.decoding.constraints.schema.atoms import (
    _Contains,
    _Count,
    _counted,
    _Has,
    _Item,
    _Items,
    _Length,
    _Names,
    _obeys,
    _Others,
    _Property,
    _Unique,
)
from redraft.decoding.constraints.schema.document import _Node
from redraft.decoding.constraints.schema.expressions import _Unreadable
from redraft.decoding.constraints.schema.formats import _format
from redraft.decoding.constraints.schema.formula import (
    _FALSE,
    _TRUE,
    _all_of,
    _any_of,
    _constant,
    _exactly_one,
    _fact,
    _Formula,
    _negated,
    _substituted,
)
from redraft.decoding.constraints.schema.numbers import _below, _integer, _multiple_of, _number_among
from redraft.decoding.constraints.schema.patterns import _pattern
from redraft.decoding.constraints.schema.unevaluated import _unevaluated_items, _unevaluated_properties
from redraft.decoding.constraints.schema.words import _among, _at_least

_KINDS = ("null", "true", "false", "number", "string", "array", "object")
_KINDS_OF = {"boolean": ("true", "false"), "integer": ("number",)} | {kind: (kind,) for kind in _KINDS}
_MOST_COUNT = 3_000


def _expanded(formula: _Formula, kind: str) -> _Formula:
    """A formula about schemas as one about a value of a kind."""
    return _substituted(formula, {node: _meaning(node, kind) for node in formula.atoms})


def _meaning(node: _Node, kind: str) -> _Formula:
    """What a schema says about a value of a kind."""
    known = node.meanings
    if kind not in known:
        known[kind] = None  # while it is made
        known[kind] = _made(node, kind)
    found = known[kind]
    if found is None:
        raise node.refused("$ref", "refers to itself")
    return found


def _made(node: _Node, kind: str) -> _Formula:
    if isinstance(node.schema, bool):
        return _constant(node.schema)
    parts = [_typed(node, kind)]
    for keyword, read in (*_OF_KIND.get(kind, {}).items(), *_OF_ALL.items()):
        if parts[-1] is _FALSE:
            return _FALSE
        if node.has(keyword):
            parts.append(_reading(read, node, keyword, node.get(keyword), kind))
    return _all_of(parts)


def _reading(read: Callable[..., _Formula], node: _Node, keyword: str, value: Any, kind: str) -> _Formula:
    try:
        return read(node, value, kind)
    except _Unreadable as error:
        raise node.refused(keyword, f"{error}: {value!r:.80}") from None
    except AutomatonTooLarge as error:
        raise node.refused(keyword, f"is too large: {error}") from None


# --- all kinds ---


def _typed(node: _Node, kind: str) -> _Formula:
    names = node.get("type")
    if names is None:
        return _TRUE
    names = names if isinstance(names, list) else [names]
    for name in names:
        if not isinstance(name, str) or (name not in _KINDS_OF and name != "any") or name in ("true", "false"):
            raise node.refused("type", f"is {name!r:.40}, which is no type of JSON")
    if any(name == "any" for name in names):
        raise node.refused("type", "is 'any', which belongs to draft 3")
    if kind == "number":
        return _TRUE if "number" in names else _integer() if "integer" in names else _FALSE
    return _constant(any(kind in _KINDS_OF[name] for name in names))


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    kinds = {type(None): "null", int: "number", Decimal: "number", str: "string", list: "array", dict: "object"}
    return kinds[type(value)]


def _enumerated(node: _Node, values: Any, kind: str) -> _Formula:
    if not isinstance(values, list):
        raise node.refused("enum", "must be a list")
    return _among_values(node, "enum", values, kind)


def _constant_value(node: _Node, value: Any, kind: str) -> _Formula:
    return _among_values(node, "const", [value], kind)


def _among_values(node: _Node, keyword: str, values: list[Any], kind: str) -> _Formula:
    mine = [value for value in values if _kind_of(value) == kind]
    if not mine or kind in ("null", "true", "false"):
        return _constant(bool(mine))
    if kind == "number":
        return _number_among(mine)
    if kind == "string":
        return _among(tuple(dict.fromkeys(mine))).all
    equal = _equal_array if kind == "array" else _equal_object
    return _any_of(equal(node, value) for value in mine)


def _equals(node: _Node, value: Any) -> _Formula:
    return _obeys(node.child({"enum": [value]}, "enum"))


def _equal_array(node: _Node, values: list[Any]) -> _Formula:
    items = [_fact(_Item(i, _equals(node, value))) for i, value in enumerate(values)]
    return _all_of([*items, _counted(_Length(len(values))), _negated(_counted(_Length(len(values) + 1)))])


def _equal_object(node: _Node, values: dict[str, Any]) -> _Formula:
    parts = [part for name, value in values.items() for part in (_property(name, _equals(node, value)), _has(name))]
    return _all_of([*parts, _others(frozenset(values), _TRUE, (), _FALSE)])


def _reference(node: _Node, value: Any, kind: str) -> _Formula:
    if node.target is None:
        raise node.refused("$ref", "must be a string")
    return _meaning(node.target.plain, kind)


def _every(node: _Node, value: Any, kind: str) -> _Formula:
    return _all_of(_meaning(each.plain, kind) for each in node.several("allOf"))


def _some(node: _Node, value: Any, kind: str) -> _Formula:
    return _any_of(_meaning(each.plain, kind) for each in node.several("anyOf"))


def _single(node: _Node, value: Any, kind: str) -> _Formula:
    return _exactly_one([_meaning(each.plain, kind) for each in node.several("oneOf")])


def _no(node: _Node, value: Any, kind: str) -> _Formula:
    return _negated(_meaning(node.child(value, "not").plain, kind))


def _conditional(node: _Node, value: Any, kind: str) -> _Formula:
    condition = _meaning(node.child(value, "if").plain, kind)
    branches = [node.at(keyword) for keyword in ("then", "else")]
    yes, no = (_TRUE if branch is None else _meaning(branch.plain, kind) for branch in branches)
    return _all_of([_any_of([_negated(condition), yes]), _any_of([condition, no])])


# --- numbers ---


def _number(node: _Node, keyword: str, value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise node.refused(keyword, f"is {value!r:.40}; it must be a number")
    return Decimal(value)


def _bounded(keyword: str, node: _Node, value: Any, kind: str) -> _Formula:
    """minimum, maximum and their exclusive kinds, which draft 4 writes as booleans beside them."""
    if isinstance(value, bool):
        return _TRUE  # read together with its neighbor
    below = keyword in ("maximum", "exclusiveMaximum")
    exclusive = keyword.startswith("exclusive") or node.get(f"exclusive{keyword.capitalize()}") is True
    found = _below(_number(node, keyword, value), below != exclusive)
    return found if below else _negated(found)


def _multiple(node: _Node, value: Any, kind: str) -> _Formula:
    divisor = _number(node, "multipleOf", value)
    if divisor <= 0:
        raise node.refused("multipleOf", "must be above 0")
    return _multiple_of(divisor)


# --- strings ---


def _size(node: _Node, keyword: str, value: Any) -> int:
    whole = isinstance(value, Decimal) and value == value.to_integral_value()
    if isinstance(value, bool) or not (isinstance(value, int) or whole) or value < 0:
        raise node.refused(keyword, f"is {value!r:.40}; it must be a whole number from 0 on")
    return int(value)


def _shortest(node: _Node, value: Any, kind: str) -> _Formula:
    least = _size(node, "minLength", value)
    if least > _MOST_COUNT:
        raise AutomatonTooLarge(f"at most {_MOST_COUNT:,} characters can be required")
    return _at_least(least).all


def _longest(node: _Node, value: Any, kind: str) -> _Formula:
    return _negated(_at_least(min(_size(node, "maxLength", value), _MOST_COUNT) + 1).all)


def _matches(node: _Node, value: Any, kind: str) -> _Formula:
    if not isinstance(value, str):
        raise node.refused("pattern", "must be a string")
    return _pattern(value)


def _formatted(node: _Node, value: Any, kind: str) -> _Formula:
    return _format(value) if isinstance(value, str) else _TRUE


# --- arrays ---


def _item(index: int, value: _Formula) -> _Formula:
    return _TRUE if value is _TRUE else _fact(_Item(index, value))


def _items(index: int, value: _Formula) -> _Formula:
    if value is _FALSE:
        return _negated(_counted(_Length(index + 1)))
    return _TRUE if value is _TRUE else _fact(_Items(index, value))


def _tuple(nodes: Iterable[_Node]) -> _Formula:
    return _all_of(_item(i, _obeys(each)) for i, each in enumerate(nodes))


def _prefix(node: _Node, value: Any, kind: str) -> _Formula:
    return _tuple(node.several("prefixItems"))


def _all_items(node: _Node, value: Any, kind: str) -> _Formula:
    if isinstance(value, list):  # drafts before 2020-12
        rest = node.at("additionalItems") if node.get("additionalItems") is not None else None
        others = _TRUE if rest is None else _items(len(value), _obeys(rest))
        return _all_of([_tuple(node.several("items")), others])
    return _items(len(node.several("prefixItems")), _obeys(node.child(value, "items")))


def _fewest(node: _Node, value: Any, kind: str) -> _Formula:
    return _counted(_Length(_size(node, "minItems", value)))


def _most(node: _Node, value: Any, kind: str) -> _Formula:
    return _negated(_counted(_Length(_size(node, "maxItems", value) + 1)))


def _containing(node: _Node, value: Any, kind: str) -> _Formula:
    wanted = _obeys(node.child(value, "contains"))
    least, most = node.get("minContains"), node.get("maxContains")
    low = 1 if least is None else _size(node, "minContains", least)
    found = _many(wanted, low)
    return found if most is None else _all_of([found, _negated(_many(wanted, _size(node, "maxContains", most) + 1))])


def _many(wanted: _Formula, least: int) -> _Formula:
    """That so many items obey, or more."""
    if wanted is _TRUE or least == 0:
        return _counted(_Length(least))
    return _FALSE if wanted is _FALSE else _counted(_Contains(wanted, least))


def _distinct(node: _Node, value: Any, kind: str) -> _Formula:
    return _fact(_Unique()) if value is True else _TRUE


# --- objects ---


def _has(name: str) -> _Formula:
    return _fact(_Has(name))


def _property(name: str, value: _Formula) -> _Formula:
    if value is _FALSE:
        return _negated(_has(name))
    return _TRUE if value is _TRUE else _fact(_Property(name, value))


def _others(names: frozenset[str], like: _Formula, unlike: tuple[_Formula, ...], value: _Formula) -> _Formula:
    return _TRUE if value is _TRUE or like is _FALSE else _fact(_Others(names, like, unlike, value))


def _properties(node: _Node, value: Any, kind: str) -> _Formula:
    return _all_of(_property(name, _obeys(each)) for name, each in node.named("properties").items())


def _by_pattern(node: _Node, value: Any, kind: str) -> _Formula:
    each = node.named("patternProperties").items()
    return _all_of(_others(frozenset(), _key_pattern(node, source), (), _obeys(below)) for source, below in each)


def _key_pattern(node: _Node, source: str) -> _Formula:
    return _reading(lambda *_: _pattern(source), node, "patternProperties", source, "string")


def _additional(node: _Node, value: Any, kind: str) -> _Formula:
    patterns = tuple(_key_pattern(node, source) for source in node.named("patternProperties"))
    names = frozenset(node.named("properties"))
    return _others(names, _TRUE, patterns, _obeys(node.child(value, "additionalProperties")))


def _strings(node: _Node, keyword: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise node.refused(keyword, "must be a list of strings")
    return value


def _required(node: _Node, value: Any, kind: str) -> _Formula:
    return _all_of(map(_has, _strings(node, "required", value)))


def _least_properties(node: _Node, value: Any, kind: str) -> _Formula:
    return _counted(_Count(_size(node, "minProperties", value), True))


def _most_properties(node: _Node, value: Any, kind: str) -> _Formula:
    return _negated(_counted(_Count(_size(node, "maxProperties", value) + 1, False)))


def _if_present(name: str, formula: _Formula) -> _Formula:
    return _any_of([_negated(_has(name)), formula])


def _dependent(keyword: str, node: _Node, value: Any, kind: str) -> _Formula:
    """dependentRequired, dependentSchemas, and dependencies, which is both."""
    if not isinstance(value, dict):
        raise node.refused(keyword, "must be an object")
    found = []
    for name, below in value.items():
        if isinstance(below, list) and keyword != "dependentSchemas":
            found.append(_if_present(name, _all_of(map(_has, _strings(node, keyword, below)))))
        elif keyword == "dependencies" and isinstance(below, str):
            found.append(_if_present(name, _has(below)))
        else:
            found.append(_if_present(name, _meaning(node.child(below, keyword, name).plain, kind)))
    return _all_of(found)


def _named(node: _Node, value: Any, kind: str) -> _Formula:
    formula = _expanded(_obeys(node.child(value, "propertyNames")), "string")
    return _TRUE if formula is _TRUE else _fact(_Names(formula))


_Reader = Callable[[_Node, Any, str], _Formula]
_OF_ALL: dict[str, _Reader] = {
    "enum": _enumerated,
    "const": _constant_value,
    "$ref": _reference,
    "allOf": _every,
    "anyOf": _some,
    "oneOf": _single,
    "not": _no,
    "if": _conditional,
}
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_OF_KIND: dict[str, dict[str, _Reader]] = {
    "number": {**{name: partial(_bounded, name) for name in _BOUNDS}, "multipleOf": _multiple},
    "string": {"minLength": _shortest, "maxLength": _longest, "pattern": _matches, "format": _formatted},
    "array": {
        "prefixItems": _prefix,
        "items": _all_items,
        "minItems": _fewest,
        "maxItems": _most,
        "contains": _containing,
        "uniqueItems": _distinct,
        "unevaluatedItems": lambda node, value, kind: _unevaluated_items(node, _meaning),
    },
    "object": {
        "properties": _properties,
        "patternProperties": _by_pattern,
        "additionalProperties": _additional,
        "propertyNames": _named,
        "required": _required,
        "minProperties": _least_properties,
        "maxProperties": _most_properties,
        **{name: partial(_dependent, name) for name in ("dependentRequired", "dependentSchemas", "dependencies")},
        "unevaluatedProperties": lambda node, value, kind: _unevaluated_properties(node, _meaning),
    },
}
