"""`unevaluatedProperties` and `unevaluatedItems`: constrain what no other keyword of the schema has evaluated.

Keywords in subschemas such as `anyOf` count only if the subschema holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from redraft.decoding.constraints.schema.atoms import (
    _ArrayLength,
    _count_formula,
    _HasProperty,
    _ItemAt,
    _ItemsFrom,
    _OtherProperties,
    _PropertyObeys,
    _schema_formula,
)
from redraft.decoding.constraints.schema.document import _SCHEMA_KINDS, _kind_of, _Node
from redraft.decoding.constraints.schema.formula import _FALSE, _TRUE, _all_of, _any_of, _fact, _Formula, _not
from redraft.decoding.constraints.schema.strings.expressions import _UnsupportedPattern
from redraft.decoding.constraints.schema.strings.patterns import _pattern_formula
from redraft.decoding.constraints.schema.strings.words import _holds

_Meaning = Callable[[_Node, str], _Formula]


@dataclass(frozen=True)
class _EvaluatedParts:
    """The properties and items that one schema evaluates if a condition holds."""

    condition: _Formula
    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    prefix: int = 0
    everything: bool = False
    contains: bool = False

    def sees(self, name: str) -> bool:
        if self.everything or name in self.names:
            return True
        matches = [_holds(_pattern_formula(source), name) for source in self.patterns]
        if None in matches:
            raise _UnsupportedPattern(f"has patterns that engines read differently for {name!r:.60}")
        return any(matches)


def _unevaluated_properties(node: _Node, meaning: _Meaning) -> _Formula:
    seen = list(_evaluated_parts(node, _TRUE, "object", meaning))
    others = _schema_formula(node.child(node.get("unevaluatedProperties"), "unevaluatedProperties"))
    if any(one.patterns and one.condition is not _TRUE for one in seen):
        raise node.refused(
            "unevaluatedProperties", "cannot be combined with patternProperties in a conditional subschema"
        )
    names = list(dict.fromkeys(name for one in seen for name in one.names))
    parts = []
    for name in names:
        alone = _not(_fact(_HasProperty(name))) if others is _FALSE else _TRUE
        alone = alone if others in (_TRUE, _FALSE) else _fact(_PropertyObeys(name, others))
        parts.append(_any_of([*(one.condition for one in seen if one.sees(name)), alone]))
    unlike = tuple(_pattern_formula(source) for one in seen for source in one.patterns)
    rest = _TRUE if others is _TRUE else _fact(_OtherProperties(frozenset(names), _TRUE, unlike, others))
    return _all_of([*parts, _any_of([*(one.condition for one in seen if one.everything), rest])])


def _unevaluated_items(node: _Node, meaning: _Meaning) -> _Formula:
    seen = list(_evaluated_parts(node, _TRUE, "array", meaning))
    others = _schema_formula(node.child(node.get("unevaluatedItems"), "unevaluatedItems"))
    if any(one.contains for one in seen):
        raise node.refused("unevaluatedItems", "cannot be combined with 'contains'")
    parts, longest = [], max(one.prefix for one in seen)
    for index in range(0 if others is _TRUE else longest):
        conditions = [one.condition for one in seen if one.everything or one.prefix > index]
        parts.append(_any_of([*conditions, _fact(_ItemAt(index, others))]))
    rest = _not(_count_formula(_ArrayLength(longest + 1))) if others is _FALSE else _fact(_ItemsFrom(longest, others))
    rest = _TRUE if others is _TRUE else rest
    return _all_of([*parts, _any_of([*(one.condition for one in seen if one.everything), rest])])


def _evaluated_parts(
    node: _Node, condition: _Formula, kind: str, meaning: _Meaning, top: bool = True
) -> Iterator[_EvaluatedParts]:
    """Yield the parts that a schema and its subschemas about the same value evaluate."""
    if node.truth is not None:
        return
    items, prefix = node.get("items"), len(node.list_of("prefixItems"))
    open_ended = _OPEN_ENDED[kind][:1] if top else _OPEN_ENDED[kind]
    everything = any(node.get(keyword) is not None for keyword in open_ended)
    everything |= kind == "array" and _kind_of(items) in _SCHEMA_KINDS
    prefix = len(items) if _kind_of(items) == "array" else prefix
    contains = node.get("contains") is not None and node.document.draft >= 2020
    names, patterns = tuple(node.map_of("properties")), tuple(node.map_of("patternProperties"))
    yield _EvaluatedParts(condition, names, patterns, prefix, everything, contains)
    for each, holding in _conditional_subschemas(node, lambda branch: meaning(branch, kind)):
        yield from _evaluated_parts(each.plain, _all_of([condition, holding]), kind, meaning, top=False)


_OPEN_ENDED = {
    "object": ("additionalProperties", "unevaluatedProperties"),
    "array": ("additionalItems", "unevaluatedItems"),
}


def _conditional_subschemas(node: _Node, holds: Callable[[_Node], _Formula]) -> Iterator[tuple[_Node, _Formula]]:
    """Yield the subschemas about the same value, each with the condition under which it counts."""
    for each in [*node.list_of("allOf"), *([] if node.target is None else [node.target])]:
        yield each, _TRUE
    for each in [*node.list_of("anyOf"), *node.list_of("oneOf")]:
        yield each, holds(each.plain)
    condition = node.at("if")
    if condition is not None:
        truth = holds(condition.plain)
        yield condition, truth
        for keyword, when in (("then", truth), ("else", _not(truth))):
            branch = node.at(keyword)
            if branch is not None:
                yield branch, when
    for name, each in node.map_of("dependentSchemas").items():
        yield each, _fact(_HasProperty(name))
