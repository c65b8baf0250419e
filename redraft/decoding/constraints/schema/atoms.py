"""Atoms: basic statements about objects and arrays, from which formulas are built."""

from __future__ import annotations

from dataclasses import dataclass

from redraft.decoding.constraints.schema.document import _Node
from redraft.decoding.constraints.schema.formula import _TRUE, _constant, _fact, _Formula


def _schema_formula(node: _Node) -> _Formula:
    """Return the formula that a value obeys a schema."""
    node = node.plain
    if isinstance(node.schema, bool):
        return _constant(node.schema)
    return _fact(node) if node.asserts else _TRUE


# --- objects ---


@dataclass(frozen=True)
class _HasProperty:
    """The object has a property with this name."""

    name: str


@dataclass(frozen=True)
class _PropertyObeys:
    """The property with this name, if present, obeys a formula about schemas."""

    name: str
    value: _Formula


@dataclass(frozen=True)
class _OtherProperties:
    """A property obeys `value` if its name is not in `names`, matches `like`, and matches none of `unlike`."""

    names: frozenset[str]
    like: _Formula
    unlike: tuple[_Formula, ...]
    value: _Formula


@dataclass(frozen=True)
class _AllNames:
    """Every property name obeys a formula about strings."""

    name: _Formula


@dataclass(frozen=True)
class _PropertyCount:
    """The object has at least `least` properties; with `distinct`, a repeated name counts once."""

    least: int
    distinct: bool


# --- arrays ---


@dataclass(frozen=True)
class _ItemAt:
    """The item at this index, if present, obeys a formula about schemas."""

    index: int
    value: _Formula


@dataclass(frozen=True)
class _ItemsFrom:
    """All items from this index on obey a formula about schemas."""

    index: int
    value: _Formula


@dataclass(frozen=True)
class _Contains:
    """At least `least` items obey a formula."""

    value: _Formula
    least: int


@dataclass(frozen=True)
class _ArrayLength:
    """The array has at least `least` items."""

    least: int


@dataclass(frozen=True)
class _UniqueItems:
    """No two items are equal; `seen` holds the indices of the possible values that were already read."""

    seen: frozenset[int] = frozenset()


def _count_formula(atom: _Contains | _ArrayLength | _PropertyCount) -> _Formula:
    return _TRUE if atom.least <= 0 else _fact(atom)
