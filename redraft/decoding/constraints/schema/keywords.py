"""Translates each keyword of a schema to a formula about values of one kind (string, array, …)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import partial
from typing import Any

from redraft.decoding.constraints.dfa import AutomatonTooLarge
from redraft.decoding.constraints.schema.atoms import (
    _AllNames,
    _ArrayLength,
    _Contains,
    _count_formula,
    _HasProperty,
    _ItemAt,
    _ItemsFrom,
    _OtherProperties,
    _PropertyCount,
    _PropertyObeys,
    _schema_formula,
    _UniqueItems,
)
from redraft.decoding.constraints.schema.document import _kind_of, _Node
from redraft.decoding.constraints.schema.formula import (
    _FALSE,
    _TRUE,
    _all_of,
    _any_of,
    _constant,
    _exactly_one,
    _fact,
    _Formula,
    _not,
    _substitute,
)
from redraft.decoding.constraints.schema.strings.expressions import _UnsupportedPattern
from redraft.decoding.constraints.schema.strings.formats import _format_formula
from redraft.decoding.constraints.schema.strings.numbers import _integers, _less_than, _multiple_of, _number_among
from redraft.decoding.constraints.schema.strings.patterns import _pattern_formula
from redraft.decoding.constraints.schema.strings.words import _exactly_strings, _longer_strings
from redraft.decoding.constraints.schema.unevaluated import _unevaluated_items, _unevaluated_properties

_KINDS = ("null", "true", "false", "number", "string", "array", "object")
_KINDS_OF = {"boolean": ("true", "false"), "integer": ("number",)} | {kind: (kind,) for kind in _KINDS}
_MOST_COUNT = 3_000


def _formula_for_kind(formula: _Formula, kind: str) -> _Formula:
    """Turn a formula over schemas into a formula over atoms of one kind of value."""
    return _substitute(formula, {node: _schema_for_kind(node, kind) for node in formula.atoms})


def _schema_for_kind(node: _Node, kind: str) -> _Formula:
    """Return the formula that a value of this kind must satisfy to obey a schema; cached."""
    known = node.meanings
    if kind not in known:
        known[kind] = None  # while it is computed, to detect cycles
        known[kind] = _read_keywords(node, kind)
    formula = known[kind]
    if formula is None:
        raise node.refused("$ref", "refers to itself")
    return formula


def _read_keywords(node: _Node, kind: str) -> _Formula:
    if node.truth is not None:
        return _constant(node.truth)
    parts = [_read_type(node, kind)]
    for keyword, read in (*_OF_KIND.get(kind, {}).items(), *_OF_ALL.items()):
        if parts[-1] is _FALSE:
            return _FALSE
        if node.has(keyword):
            parts.append(_read_keyword(read, node, keyword, node.get(keyword), kind))
    return _all_of(parts)


def _read_keyword(read: Callable[..., _Formula], node: _Node, keyword: str, value: Any, kind: str) -> _Formula:
    try:
        return read(node, value, kind)
    except _UnsupportedPattern as error:
        raise node.refused(keyword, f"{error}: {value!r:.80}") from None
    except AutomatonTooLarge as error:
        raise node.refused(keyword, f"is too large: {error}") from None


# --- all kinds ---


def _read_type(node: _Node, kind: str) -> _Formula:
    names = node.get("type")
    if names is None:
        return _TRUE
    names = names if _kind_of(names) == "array" else [names]
    for name in names:
        if _kind_of(name) != "string" or name not in (*_KINDS_OF, "any") or name in ("true", "false"):
            raise node.refused("type", f"is {name!r:.40}, which is not a JSON type")
    if any(name == "any" for name in names):
        raise node.refused("type", "is 'any', which belongs to draft 3")
    if kind == "number":
        return _TRUE if "number" in names else _integers() if "integer" in names else _FALSE
    return _constant(any(kind in _KINDS_OF[name] for name in names))


def _value_kind(value: Any) -> str:
    kind = _kind_of(value)
    return str(value).lower() if kind == "boolean" else kind


def _read_enum(node: _Node, value: Any, kind: str) -> _Formula:
    return _among_values(node, node.get("enum", "array", "must be a list"), kind)


def _read_const(node: _Node, value: Any, kind: str) -> _Formula:
    return _among_values(node, [value], kind)


def _among_values(node: _Node, values: list[Any], kind: str) -> _Formula:
    mine = [value for value in values if _value_kind(value) == kind]
    if not mine or kind in ("null", "true", "false"):
        return _constant(bool(mine))
    if kind == "number":
        return _number_among(mine)
    if kind == "string":
        return _exactly_strings(tuple(dict.fromkeys(mine))).all
    equal = _equal_array if kind == "array" else _equal_object
    return _any_of(equal(node, value) for value in mine)


def _equals(node: _Node, value: Any) -> _Formula:
    return _schema_formula(node.child({"enum": [value]}, "enum"))


def _equal_array(node: _Node, values: list[Any]) -> _Formula:
    items = [_fact(_ItemAt(i, _equals(node, value))) for i, value in enumerate(values)]
    return _all_of(
        [*items, _count_formula(_ArrayLength(len(values))), _not(_count_formula(_ArrayLength(len(values) + 1)))]
    )


def _equal_object(node: _Node, values: dict[str, Any]) -> _Formula:
    parts = [part for name, value in values.items() for part in (_property(name, _equals(node, value)), _has(name))]
    return _all_of([*parts, _others(frozenset(values), _TRUE, (), _FALSE)])


def _read_ref(node: _Node, value: Any, kind: str) -> _Formula:
    if node.target is None:
        raise node.refused("$ref", "must be a string")
    return _schema_for_kind(node.target.plain, kind)


def _read_all_of(node: _Node, value: Any, kind: str) -> _Formula:
    return _all_of(_schema_for_kind(each.plain, kind) for each in node.list_of("allOf"))


def _read_any_of(node: _Node, value: Any, kind: str) -> _Formula:
    return _any_of(_schema_for_kind(each.plain, kind) for each in node.list_of("anyOf"))


def _read_one_of(node: _Node, value: Any, kind: str) -> _Formula:
    return _exactly_one([_schema_for_kind(each.plain, kind) for each in node.list_of("oneOf")])


def _read_not(node: _Node, value: Any, kind: str) -> _Formula:
    return _not(_schema_for_kind(node.child(value, "not").plain, kind))


def _read_if(node: _Node, value: Any, kind: str) -> _Formula:
    condition = _schema_for_kind(node.child(value, "if").plain, kind)
    branches = [node.at(keyword) for keyword in ("then", "else")]
    yes, no = (_TRUE if branch is None else _schema_for_kind(branch.plain, kind) for branch in branches)
    return _all_of([_any_of([_not(condition), yes]), _any_of([condition, no])])


# --- numbers ---


def _number(node: _Node, keyword: str, value: Any) -> Decimal:
    if _kind_of(value) != "number":
        raise node.refused(keyword, f"is {value!r:.40}; it must be a number")
    return Decimal(value)


def _read_bound(keyword: str, node: _Node, value: Any, kind: str) -> _Formula:
    """Read minimum, maximum and their exclusive forms, which are booleans in draft 4."""
    if _kind_of(value) == "boolean":
        return _TRUE  # read together with minimum or maximum
    below = keyword in ("maximum", "exclusiveMaximum")
    exclusive = keyword.startswith("exclusive") or node.get(f"exclusive{keyword.capitalize()}") is True
    formula = _less_than(_number(node, keyword, value), below != exclusive)
    return formula if below else _not(formula)


def _read_multiple_of(node: _Node, value: Any, kind: str) -> _Formula:
    divisor = _number(node, "multipleOf", value)
    if divisor <= 0:
        raise node.refused("multipleOf", "must be above 0")
    return _multiple_of(divisor)


# --- strings ---


def _size(node: _Node, keyword: str, value: Any) -> int:
    if _kind_of(value) != "number" or value != int(value) or value < 0:
        raise node.refused(keyword, f"is {value!r:.40}; it must be a whole number, 0 or more")
    return int(value)


def _read_min_length(node: _Node, value: Any, kind: str) -> _Formula:
    least = _size(node, "minLength", value)
    if least > _MOST_COUNT:
        raise AutomatonTooLarge(f"at most {_MOST_COUNT:,} characters can be required")
    return _longer_strings(least).all


def _read_max_length(node: _Node, value: Any, kind: str) -> _Formula:
    return _not(_longer_strings(min(_size(node, "maxLength", value), _MOST_COUNT) + 1).all)


def _read_pattern(node: _Node, value: Any, kind: str) -> _Formula:
    return _pattern_formula(node.get("pattern", "string", "must be a string"))


def _read_format(node: _Node, value: Any, kind: str) -> _Formula:
    return _format_formula(value) if _kind_of(value) == "string" else _TRUE


# --- arrays ---


def _item(index: int, value: _Formula) -> _Formula:
    return _TRUE if value is _TRUE else _fact(_ItemAt(index, value))


def _items(index: int, value: _Formula) -> _Formula:
    if value is _FALSE:
        return _not(_count_formula(_ArrayLength(index + 1)))
    return _TRUE if value is _TRUE else _fact(_ItemsFrom(index, value))


def _tuple(nodes: Iterable[_Node]) -> _Formula:
    return _all_of(_item(i, _schema_formula(each)) for i, each in enumerate(nodes))


def _read_prefix_items(node: _Node, value: Any, kind: str) -> _Formula:
    return _tuple(node.list_of("prefixItems"))


def _read_items(node: _Node, value: Any, kind: str) -> _Formula:
    if _kind_of(value) == "array":  # drafts before 2020-12
        rest = node.at("additionalItems") if node.get("additionalItems") is not None else None
        others = _TRUE if rest is None else _items(len(value), _schema_formula(rest))
        return _all_of([_tuple(node.list_of("items")), others])
    return _items(len(node.list_of("prefixItems")), _schema_formula(node.child(value, "items")))


def _read_min_items(node: _Node, value: Any, kind: str) -> _Formula:
    return _count_formula(_ArrayLength(_size(node, "minItems", value)))


def _read_max_items(node: _Node, value: Any, kind: str) -> _Formula:
    return _not(_count_formula(_ArrayLength(_size(node, "maxItems", value) + 1)))


def _read_contains(node: _Node, value: Any, kind: str) -> _Formula:
    wanted = _schema_formula(node.child(value, "contains"))
    least, most = node.get("minContains"), node.get("maxContains")
    low = 1 if least is None else _size(node, "minContains", least)
    enough = _contains_at_least(wanted, low)
    return (
        enough
        if most is None
        else _all_of([enough, _not(_contains_at_least(wanted, _size(node, "maxContains", most) + 1))])
    )


def _contains_at_least(wanted: _Formula, least: int) -> _Formula:
    """Return the formula that at least `least` items obey."""
    if wanted is _TRUE or least == 0:
        return _count_formula(_ArrayLength(least))
    return _FALSE if wanted is _FALSE else _count_formula(_Contains(wanted, least))


def _read_unique_items(node: _Node, value: Any, kind: str) -> _Formula:
    return _fact(_UniqueItems()) if value is True else _TRUE


# --- objects ---


def _has(name: str) -> _Formula:
    return _fact(_HasProperty(name))


def _property(name: str, value: _Formula) -> _Formula:
    if value is _FALSE:
        return _not(_has(name))
    return _TRUE if value is _TRUE else _fact(_PropertyObeys(name, value))


def _others(names: frozenset[str], like: _Formula, unlike: tuple[_Formula, ...], value: _Formula) -> _Formula:
    return _TRUE if value is _TRUE or like is _FALSE else _fact(_OtherProperties(names, like, unlike, value))


def _read_properties(node: _Node, value: Any, kind: str) -> _Formula:
    return _all_of(_property(name, _schema_formula(each)) for name, each in node.map_of("properties").items())


def _read_pattern_properties(node: _Node, value: Any, kind: str) -> _Formula:
    each = node.map_of("patternProperties").items()
    return _all_of(
        _others(frozenset(), _key_pattern(node, source), (), _schema_formula(below)) for source, below in each
    )


def _key_pattern(node: _Node, source: str) -> _Formula:
    return _read_keyword(lambda *_: _pattern_formula(source), node, "patternProperties", source, "string")


def _read_additional_properties(node: _Node, value: Any, kind: str) -> _Formula:
    patterns = tuple(_key_pattern(node, source) for source in node.map_of("patternProperties"))
    names = frozenset(node.map_of("properties"))
    return _others(names, _TRUE, patterns, _schema_formula(node.child(value, "additionalProperties")))


def _strings(node: _Node, keyword: str, value: Any) -> list[str]:
    if _kind_of(value) != "array" or any(_kind_of(name) != "string" for name in value):
        raise node.refused(keyword, "must be a list of strings")
    return value


def _read_required(node: _Node, value: Any, kind: str) -> _Formula:
    return _all_of(map(_has, _strings(node, "required", value)))


def _read_min_properties(node: _Node, value: Any, kind: str) -> _Formula:
    return _count_formula(_PropertyCount(_size(node, "minProperties", value), True))


def _read_max_properties(node: _Node, value: Any, kind: str) -> _Formula:
    return _not(_count_formula(_PropertyCount(_size(node, "maxProperties", value) + 1, False)))


def _if_present(name: str, formula: _Formula) -> _Formula:
    return _any_of([_not(_has(name)), formula])


def _read_dependencies(keyword: str, node: _Node, value: Any, kind: str) -> _Formula:
    """Read dependentRequired, dependentSchemas, and dependencies, which combines both."""
    formulas = []
    for name, below in node.get(keyword, "object", "must be an object").items():
        if _kind_of(below) == "array" and keyword != "dependentSchemas":
            formulas.append(_if_present(name, _all_of(map(_has, _strings(node, keyword, below)))))
        elif keyword == "dependencies" and _kind_of(below) == "string":
            formulas.append(_if_present(name, _has(below)))
        else:
            formulas.append(_if_present(name, _schema_for_kind(node.child(below, keyword, name).plain, kind)))
    return _all_of(formulas)


def _read_property_names(node: _Node, value: Any, kind: str) -> _Formula:
    formula = _formula_for_kind(_schema_formula(node.child(value, "propertyNames")), "string")
    return _TRUE if formula is _TRUE else _fact(_AllNames(formula))


_Reader = Callable[[_Node, Any, str], _Formula]
_OF_ALL: dict[str, _Reader] = {
    "enum": _read_enum,
    "const": _read_const,
    "$ref": _read_ref,
    "allOf": _read_all_of,
    "anyOf": _read_any_of,
    "oneOf": _read_one_of,
    "not": _read_not,
    "if": _read_if,
}
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_OF_KIND: dict[str, dict[str, _Reader]] = {
    "number": {**{name: partial(_read_bound, name) for name in _BOUNDS}, "multipleOf": _read_multiple_of},
    "string": {
        "minLength": _read_min_length,
        "maxLength": _read_max_length,
        "pattern": _read_pattern,
        "format": _read_format,
    },
    "array": {
        "prefixItems": _read_prefix_items,
        "items": _read_items,
        "minItems": _read_min_items,
        "maxItems": _read_max_items,
        "contains": _read_contains,
        "uniqueItems": _read_unique_items,
        "unevaluatedItems": lambda node, value, kind: _unevaluated_items(node, _schema_for_kind),
    },
    "object": {
        "properties": _read_properties,
        "patternProperties": _read_pattern_properties,
        "additionalProperties": _read_additional_properties,
        "propertyNames": _read_property_names,
        "required": _read_required,
        "minProperties": _read_min_properties,
        "maxProperties": _read_max_properties,
        **{
            name: partial(_read_dependencies, name)
            for name in ("dependentRequired", "dependentSchemas", "dependencies")
        },
        "unevaluatedProperties": lambda node, value, kind: _unevaluated_properties(node, _schema_for_kind),
    },
}
