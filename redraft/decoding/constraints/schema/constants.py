"""Lists the values that a schema allows, if it has `const`, `enum` or a type with few values."""

from __future__ import annotations

from typing import Any

from redraft.decoding.constraints.schema.document import _kind_of, _Node
from redraft.decoding.constraints.schema.formula import _Formula, _literals
from redraft.decoding.constraints.schema.keywords import _equals

_MOST_VALUES = 100


def _possible_values(demands: list[_Formula]) -> list[_Formula] | None:
    """Return a formula "equals v" for every value v that may obey all these formulas; None if they cannot be listed."""
    nodes = [literal.args[0] for demand in demands for literal in _literals(demand) if literal.op == "fact"]
    for node in nodes:
        values = _listed_values(node)
        if values is not None and len(values) <= _MOST_VALUES:
            return list(dict.fromkeys(_equals(node, value) for value in values))
    return None


def _listed_values(node: _Node) -> list[Any] | None:
    if node.has("const"):
        return [node.get("const")]
    if _kind_of(node.get("enum")) == "array":
        return node.get("enum")
    if node.get("type") in ("boolean", "null"):
        return [True, False] if node.get("type") == "boolean" else [None]
    others = [*([] if node.target is None else [node.target]), *node.list_of("allOf")]
    return next((values for other in others if (values := _listed_values(other.plain)) is not None), None)
