"""Facts about objects and arrays, and how they change while the value is read."""

from __future__ import annotations

from dataclasses import dataclass

from redraft.decoding.constraints.schema.document import _Node
from redraft.decoding.constraints.schema.formula import _TRUE, _constant, _fact, _Formula


def _obeys(node: _Node) -> _Formula:
    """That a value obeys a schema."""
    node = node.plain
    if isinstance(node.schema, bool):
        return _constant(node.schema)
    return _fact(node) if node.asserts else _TRUE


# --- objects ---


@dataclass(frozen=True)
class _Has:
    """There is a property of this name."""

    name: str


@dataclass(frozen=True)
class _Property:
    """The property of this name, if there is one, obeys a formula about schemas."""

    name: str
    value: _Formula


@dataclass(frozen=True)
class _Others:
    """Every property whose name is none of these, matches `like` and none of `unlike` obeys a formula about schemas."""

    names: frozenset[str]
    like: _Formula
    unlike: tuple[_Formula, ...]
    value: _Formula


@dataclass(frozen=True)
class _Names:
    """Every property name obeys a formula about strings."""

    name: _Formula


@dataclass(frozen=True)
class _Count:
    """There are so many properties or more; `distinct` names are counted, or all that are written."""

    least: int
    distinct: bool


# --- arrays ---


@dataclass(frozen=True)
class _Item:
    """The item of this index, if there is one, obeys a formula about schemas."""

    index: int
    value: _Formula


@dataclass(frozen=True)
class _Items:
    """All items from this index on obey a formula."""

    index: int
    value: _Formula


@dataclass(frozen=True)
class _Contains:
    """So many items obey a formula, or more."""

    value: _Formula
    least: int


@dataclass(frozen=True)
class _Length:
    """There are so many items or more."""

    least: int


@dataclass(frozen=True)
class _Unique:
    """No two items are equal; those of these numbers among the constants of the items were read before."""

    seen: frozenset[int] = frozenset()


def _counted(atom: _Contains | _Length | _Count) -> _Formula:
    return _TRUE if atom.least <= 0 else _fact(atom)
