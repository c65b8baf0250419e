"""From the text of a JSON schema to the automaton of its texts: reads it, and tries tighter limits until it fits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np

from redraft.decoding.constraints.dfa import AutomatonTooLarge, _Dfa
from redraft.decoding.constraints.schema.arrays import _array
from redraft.decoding.constraints.schema.atoms import _obeys
from redraft.decoding.constraints.schema.document import _KNOWN, SchemaRefused, _Document, _Schema
from redraft.decoding.constraints.schema.formula import _all_of, _Formula
from redraft.decoding.constraints.schema.fragments import _Budget, _Fragment, _Machine
from redraft.decoding.constraints.schema.limits import _TIERS, _Limits
from redraft.decoding.constraints.schema.objects import _object
from redraft.decoding.constraints.schema.values import _Compiler

_DRAFTS = {"draft-04": 4, "draft-06": 6, "draft-07": 7, "2019-09": 2019, "2020-12": 2020}


@dataclass(frozen=True)
class CompiledSchema:
    """The automaton of a schema, and what it leaves out."""

    dfa: _Dfa
    limits: _Limits
    left_out: tuple[str, ...]  # names of optional properties that are not written everywhere


def compile_schema(text: str) -> CompiledSchema:
    """The texts of a JSON schema; an error names the keyword that cannot be obeyed exactly."""
    return _compiled(text)


@lru_cache(64)
def _compiled(text: str) -> CompiledSchema:
    schema = json.loads(text, parse_float=Decimal, parse_constant=_no_number)
    error: AutomatonTooLarge | None = None
    for limits in _TIERS:
        try:
            found = _with_limits(schema, limits)
        except AutomatonTooLarge as large:
            error = large
            continue
        if found is not None:
            return found
        if limits is _TIERS[0]:
            raise ValueError("no text that Redraft can write obeys the JSON schema; check what its keywords exclude")
    raise AutomatonTooLarge(f"{error}, even with few levels of recursion and without optional properties")


def _no_number(text: str) -> float:
    raise ValueError(f"the JSON schema has {text}, which is no number of JSON")


def _with_limits(schema: _Schema, limits: _Limits) -> CompiledSchema | None:
    """None if no text is left."""
    compiler = _Compiler(limits, _Budget(limits.work, limits.largest), {"array": _array, "object": _object})
    fragment = compiler.value(compiler.demand(_demanded(schema), (), None))
    if fragment.empty:
        return None
    return CompiledSchema(_automaton(fragment), limits, tuple(sorted(compiler.left_out)))


def _demanded(schema: _Schema) -> _Formula:
    """The schema as its draft reads it, and also with the keywords of other drafts, which users mean to be obeyed."""
    draft = _draft(schema)
    readings = [True, False] if _has_foreign(schema, draft) else [True]
    return _all_of(_obeys(_Document(schema, draft, strict).root) for strict in readings)


def _draft(schema: _Schema) -> int:
    named = schema.get("$schema") if isinstance(schema, dict) else None
    if isinstance(named, str):
        if "draft-03" in named:
            raise SchemaRefused("$schema", "#", "names draft 3")
        return next((draft for name, draft in _DRAFTS.items() if name in named), 2020)
    return 4 if _anywhere(schema, lambda part: isinstance(part.get("exclusiveMinimum"), bool)) else 2020


def _has_foreign(schema: _Schema, draft: int) -> bool:
    """Whether there are keywords that the draft does not know, or keywords that it ignores beside a reference."""

    def foreign(part: dict[str, Any]) -> bool:
        known = (_KNOWN[keyword] for keyword in part.keys() & _KNOWN.keys())
        ignored = draft <= 7 and isinstance(part.get("$ref"), str) and len(part) > 1
        return ignored or any(not first <= draft <= last for first, last in known)

    return _anywhere(schema, foreign)


def _anywhere(schema: Any, has: Any) -> bool:
    queue = [schema]
    for part in queue:  # grows while it is read
        if isinstance(part, dict) and has(part):
            return True
        queue += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return False


def _automaton(fragment: _Fragment) -> _Dfa:
    machine = _Machine(_Budget(np.inf, 10 * len(fragment.table) + 10))
    end = machine.reserve()
    start = machine.place(fragment, [end])
    final = np.zeros(machine.count, np.bool_)
    final[end] = True
    final[[start + state for state, _ in fragment.over]] = True
    order = np.array([start, *(state for state in range(machine.count) if state != start)])
    place = np.append(np.argsort(order), -1)
    table = place[machine.table[: machine.count][order]].astype(np.int32)
    return _Dfa(table, final[order])
