"""Finds the keyword without which a schema could be obeyed, or would be small enough: an error names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from redraft.decoding.constraints.schema.document import _ASSERTIONS, _schema_places, _SchemaPlace

_LIMITED = ("uniqueItems", "minProperties", "multipleOf")  # keywords of which Redraft writes least
_STRUCTURE = ("type", "properties", "$ref", "allOf", "anyOf", "oneOf", "if")  # without these, most schemas are another


class _Decisive(NamedTuple):
    """A keyword that decides whether a schema compiles."""

    keyword: str
    pointer: str

    def __str__(self) -> str:
        return f"{self.keyword!r} at {self.pointer}"


def _decisive_keyword(schema: Any, compiles: Callable[[Any], bool], most: int) -> _Decisive | None:
    """Return the first keyword without which the schema compiles: limits come before types, deep ones first."""
    if schema is True or schema is False:
        return None
    for place, keyword in islice(sorted(_candidates(schema), key=_suspicion), most):
        if compiles(_without(schema, place, keyword)):
            return _Decisive(keyword, place.pointer)
    return None


def _suspicion(candidate: tuple[_SchemaPlace, str]) -> tuple[bool, bool, int]:
    place, keyword = candidate
    return keyword in _STRUCTURE, keyword not in _LIMITED, -len(place.steps)


def _candidates(schema: Any) -> Iterator[tuple[_SchemaPlace, str]]:
    for place in _schema_places(schema):
        yield from ((place, keyword) for keyword in place.schema if keyword in _ASSERTIONS)


def _without(schema: Any, place: _SchemaPlace, keyword: str) -> Any:
    """Return a copy of the schema in which one place lacks one keyword; what does not change is shared."""
    root = at = dict(schema)
    for step in place.steps:
        at[step] = at = at[step].copy()
    del at[keyword]
    return root
