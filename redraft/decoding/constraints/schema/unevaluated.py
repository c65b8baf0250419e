"""`unevaluatedProperties` and `unevaluatedItems`: for what no other keyword, and no branch that holds, sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from redraft.decoding.constraints.schema.atoms import _counted, _Has, _Item, _Items, _Length, _obeys, _Others, _Property
from redraft.decoding.constraints.schema.document import _Node
from redraft.decoding.constraints.schema.expressions import _Unreadable
from redraft.decoding.constraints.schema.formula import _FALSE, _TRUE, _all_of, _any_of, _fact, _Formula, _negated
from redraft.decoding.constraints.schema.patterns import _pattern
from redraft.decoding.constraints.schema.words import _holds

_Meaning = Callable[[_Node, str], _Formula]


@dataclass(frozen=True)
class _Seen:
    """What one schema evaluates, if a condition holds."""

    condition: _Formula
    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    prefix: int = 0
    everything: bool = False
    contains: bool = False

    def sees(self, name: str) -> bool:
        if self.everything or name in self.names:
            return True
        found = [_holds(_pattern(source), name) for source in self.patterns]
        if None in found:
            raise _Unreadable(f"has patterns that engines read differently for {name!r:.60}")
        return any(found)


def _unevaluated_properties(node: _Node, meaning: _Meaning) -> _Formula:
    seen = list(_evaluated(node, _TRUE, "object", meaning))
    others = _obeys(node.child(node.get("unevaluatedProperties"), "unevaluatedProperties"))
    if any(one.patterns and one.condition is not _TRUE for one in seen):
        raise node.refused("unevaluatedProperties", "stands beside a condition with patternProperties")
    names = list(dict.fromkeys(name for one in seen for name in one.names))
    parts = []
    for name in names:
        alone = _negated(_fact(_Has(name))) if others is _FALSE else _TRUE
        alone = alone if others in (_TRUE, _FALSE) else _fact(_Property(name, others))
        parts.append(_any_of([*(one.condition for one in seen if one.sees(name)), alone]))
    unlike = tuple(_pattern(source) for one in seen for source in one.patterns)
    rest = _TRUE if others is _TRUE else _fact(_Others(frozenset(names), _TRUE, unlike, others))
    return _all_of([*parts, _any_of([*(one.condition for one in seen if one.everything), rest])])


def _unevaluated_items(node: _Node, meaning: _Meaning) -> _Formula:
    seen = list(_evaluated(node, _TRUE, "array", meaning))
    others = _obeys(node.child(node.get("unevaluatedItems"), "unevaluatedItems"))
    if any(one.contains for one in seen):
        raise node.refused("unevaluatedItems", "stands beside 'contains'")
    parts, longest = [], max(one.prefix for one in seen)
    for index in range(0 if others is _TRUE else longest):
        conditions = [one.condition for one in seen if one.everything or one.prefix > index]
        parts.append(_any_of([*conditions, _fact(_Item(index, others))]))
    rest = _negated(_counted(_Length(longest + 1))) if others is _FALSE else _fact(_Items(longest, others))
    rest = _TRUE if others is _TRUE else rest
    return _all_of([*parts, _any_of([*(one.condition for one in seen if one.everything), rest])])


def _evaluated(node: _Node, condition: _Formula, kind: str, meaning: _Meaning, top: bool = True) -> Iterator[_Seen]:
    """What a schema and those beside it evaluate."""
    if isinstance(node.schema, bool):
        return
    items, prefix = node.get("items"), len(node.several("prefixItems"))
    open_ended = _OPEN_ENDED[kind][:1] if top else _OPEN_ENDED[kind]
    everything = any(node.get(keyword) is not None for keyword in open_ended)
    everything |= kind == "array" and isinstance(items, dict | bool)
    prefix = len(items) if isinstance(items, list) else prefix
    contains = node.get("contains") is not None and node.document.draft >= 2020
    names, patterns = tuple(node.named("properties")), tuple(node.named("patternProperties"))
    yield _Seen(condition, names, patterns, prefix, everything, contains)
    for each, holding in _branches(node, lambda branch: meaning(branch, kind)):
        yield from _evaluated(each.plain, _all_of([condition, holding]), kind, meaning, top=False)


_OPEN_ENDED = {
    "object": ("additionalProperties", "unevaluatedProperties"),
    "array": ("additionalItems", "unevaluatedItems"),
}


def _branches(node: _Node, holds: Callable[[_Node], _Formula]) -> Iterator[tuple[_Node, _Formula]]:
    """Schemas beside a node, and when they count."""
    for each in [*node.several("allOf"), *([] if node.target is None else [node.target])]:
        yield each, _TRUE
    for each in [*node.several("anyOf"), *node.several("oneOf")]:
        yield each, holds(each.plain)
    condition = node.at("if")
    if condition is not None:
        truth = holds(condition.plain)
        yield condition, truth
        for keyword, when in (("then", truth), ("else", _negated(truth))):
            branch = node.at(keyword)
            if branch is not None:
                yield branch, when
    for name, each in node.named("dependentSchemas").items():
        yield each, _fact(_Has(name))
