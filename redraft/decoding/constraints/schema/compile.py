"""Compiles a JSON schema to an automaton of its texts, with tighter and tighter limits until it is small enough."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np

from redraft.decoding.constraints.dfa import AutomatonTooLarge, _Dfa
from redraft.decoding.constraints.schema.arrays import _array_fragment
from redraft.decoding.constraints.schema.atoms import _schema_formula
from redraft.decoding.constraints.schema.decisive import _decisive_keyword
from redraft.decoding.constraints.schema.document import _KNOWN, _Document, _kind_of, _Schema, _SchemaRefused
from redraft.decoding.constraints.schema.formula import _all_of, _Formula
from redraft.decoding.constraints.schema.fragments import _AutomatonBuilder, _Budget, _Fragment
from redraft.decoding.constraints.schema.limits import _TIERS, _TRIAL, _Limits
from redraft.decoding.constraints.schema.objects import _object_fragment
from redraft.decoding.constraints.schema.values import _ValueCompiler

_DRAFTS = {"draft-04": 4, "draft-06": 6, "draft-07": 7, "2019-09": 2019, "2020-12": 2020}


@dataclass(frozen=True)
class _CompiledSchema:
    """The automaton of a schema, with the limits it was built under."""

    dfa: _Dfa
    limits: _Limits
    left_out: tuple[str, ...]  # optional properties that are omitted in some objects to save states


def compile_schema(text: str) -> _CompiledSchema:
    """Compile a JSON schema; raises `_SchemaRefused`, which names the keyword, if one cannot be obeyed exactly."""
    return _compile_cached(text)


@lru_cache(64)
def _compile_cached(text: str) -> _CompiledSchema:
    schema = json.loads(text, parse_float=Decimal, parse_constant=_refuse_nonfinite)
    error: AutomatonTooLarge | None = None
    for limits in _TIERS:
        try:
            compiled = _compile_within(schema, limits)
        except AutomatonTooLarge as large:
            error = large
            continue
        if compiled is not None:
            return compiled
        if limits is _TIERS[0]:
            decisive = _decisive_keyword(schema, _compiles_fast, 40)
            advice = f"without {decisive} some would" if decisive else "check what its keywords exclude"
            raise ValueError(f"no text that Redraft can write obeys the JSON schema; {advice}")
    decisive = _decisive_keyword(schema, _compiles_fast, 4)  # few, since each takes a while
    advice = f"; without {decisive} it would fit" if decisive else ""
    raise AutomatonTooLarge(f"{error}, even with few levels of recursion and without optional properties{advice}")


def _compiles_fast(schema: _Schema) -> bool:
    try:
        return _compile_within(schema, _TRIAL) is not None
    except ValueError:
        return False


def _refuse_nonfinite(text: str) -> float:
    raise ValueError(f"the JSON schema has {text}, which is not valid JSON; use a finite number")


def _compile_within(schema: _Schema, limits: _Limits) -> _CompiledSchema | None:
    """Compile a schema under these limits; None if they leave no valid text."""
    compiler = _ValueCompiler(
        limits, _Budget(limits.work, limits.largest), {"array": _array_fragment, "object": _object_fragment}
    )
    fragment = compiler.value(compiler.demand(_required_formula(schema), (), None))
    if fragment.empty:
        return None
    return _CompiledSchema(_automaton(fragment), limits, tuple(sorted(compiler.left_out)))


def _required_formula(schema: _Schema) -> _Formula:
    """Return the formula of a schema; keywords of other drafts are obeyed too, since users mean them."""
    draft = _draft(schema)
    readings = [True, False] if _has_foreign_keywords(schema, draft) else [True]
    return _all_of(_schema_formula(_Document(schema, draft, strict).root) for strict in readings)


def _draft(schema: _Schema) -> int:
    named: Any = None if schema is True or schema is False else schema.get("$schema")
    if _kind_of(named) == "string":
        if "draft-03" in named:
            raise _SchemaRefused("$schema", "#", "names draft 3, which is not supported; use a newer draft")
        return next((draft for name, draft in _DRAFTS.items() if name in named), 2020)
    return 4 if any(_kind_of(part.get("exclusiveMinimum")) == "boolean" for part in _objects(schema)) else 2020


def _has_foreign_keywords(schema: _Schema, draft: int) -> bool:
    """Whether a schema has keywords that its draft does not know, or that it ignores next to `$ref`."""

    def foreign(part: dict[str, Any]) -> bool:
        known = (_KNOWN[keyword] for keyword in part.keys() & _KNOWN.keys())
        ignored = draft <= 7 and _kind_of(part.get("$ref")) == "string" and len(part) > 1
        return ignored or any(not first <= draft <= last for first, last in known)

    return any(map(foreign, _objects(schema)))


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a schema, also those that are not schemas."""
    queue = [schema]
    for part in queue:  # grows during the loop
        kind = _kind_of(part)
        if kind == "object":
            yield part
            queue += part.values()
        elif kind == "array":
            queue += part


def _automaton(fragment: _Fragment) -> _Dfa:
    machine = _AutomatonBuilder(_Budget(np.inf, 10 * len(fragment.table) + 10))
    end = machine.reserve()
    start = machine.insert_fragment(fragment, [end])
    final = np.zeros(machine.count, np.bool_)
    final[end] = True
    final[[start + state for state, _ in fragment.over]] = True
    order = np.array([start, *(state for state in range(machine.count) if state != start)])
    place = np.append(np.argsort(order), -1)
    table = place[machine.table[: machine.count][order]].astype(np.int32)
    return _Dfa(table, final[order])
