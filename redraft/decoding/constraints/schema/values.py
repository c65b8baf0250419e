"""Compiles what is demanded of a value, kind by kind, to the automaton of its texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from redraft.decoding.constraints.schema.document import _Node
from redraft.decoding.constraints.schema.formula import _FALSE, _TRUE, _all_of, _Formula
from redraft.decoding.constraints.schema.fragments import _EMPTY, _NOWHERE, _Budget, _exit, _Fragment, _united
from redraft.decoding.constraints.schema.keywords import _KINDS, _expanded
from redraft.decoding.constraints.schema.limits import _Limits
from redraft.decoding.constraints.schema.numbers import _any_number
from redraft.decoding.constraints.schema.spelling import _NUMERALS, _TEXT, _number, _string
from redraft.decoding.constraints.schema.words import _capped, _Sorted, _sorted

_Formulas = tuple[_Formula, ...]


@dataclass(frozen=True)
class _Demand:
    """What a value must obey, and what else is watched while it is read; formulas about schemas."""

    first: _Formula
    watched: _Formulas = ()
    levels: int = 0  # how many objects and arrays may still stand inside each other, where schemas contain themselves
    depth: int = 0  # of the place, where it matters

    @property
    def formulas(self) -> _Formulas:
        return self.first, *self.watched

    @property
    def nodes(self) -> list[_Node]:
        """The schemas that it is about, in order."""
        return list(dict.fromkeys(node for formula in self.formulas for node in _nodes(formula)))

    @property
    def untyped(self) -> bool:
        """Whether nothing is said of the value."""
        return not any(formula.atoms for formula in self.formulas)

    @property
    def loops(self) -> set[int]:
        """The groups of schemas that contain each other and have a say here."""
        found = {other.loop for node in self.nodes for other in node.cluster}
        return {loop for loop in found if loop is not None}

    @property
    def nested(self) -> bool:
        return self.untyped or bool(self.loops)


def _nodes(formula: _Formula) -> list[_Node]:
    if formula.op == "fact":
        return [formula.args[0]]
    return [node for arg in formula.args for node in _nodes(arg)]


@dataclass
class _Compiler:
    """Makes each value's automaton once."""

    limits: _Limits
    budget: _Budget
    structures: Mapping[str, Callable[[_Compiler, _Demand, _Formulas], _Fragment]]  # arrays and objects
    _made: dict[_Demand, _Fragment] = field(default_factory=dict)
    _words: dict[tuple[_Formula, _Formulas, bool], _Fragment] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)  # optional properties that found no room

    def demand(self, first: _Formula, watched: _Formulas, parent: _Demand | None) -> _Demand:
        """A demand on a value inside of another one."""
        found = _Demand(first, watched)
        depth = min(parent.depth + 1 if parent else 0, self.limits.optional_depth or 0)
        if found.untyped:
            levels = parent.levels - 1 if parent and parent.untyped else self.limits.untyped
        elif not found.loops:
            levels = 0
        else:
            inherits = parent is not None and bool(parent.loops & found.loops)
            levels = parent.levels - 1 if parent is not None and inherits else self.limits.recursion
        return _Demand(first, watched, levels, depth)

    def value(self, demand: _Demand) -> _Fragment:
        """The texts of a value, from its first byte on."""
        if demand not in self._made:
            self._made[demand] = _united([self._of_kind(kind, demand) for kind in _KINDS])
        return self._made[demand]

    def _of_kind(self, kind: str, demand: _Demand) -> _Fragment:
        first = _expanded(demand.first, kind)
        if first is _FALSE:
            return _EMPTY
        watched = tuple(_expanded(formula, kind) for formula in demand.watched)
        if kind in ("null", "true", "false"):
            return _word(kind, tuple(formula is _TRUE for formula in watched))
        if kind == "number":
            return self._scalar(_all_of([first, _any_number()]), watched, False)
        if kind == "string":
            return _quoted(self._scalar(first, watched, True))
        if demand.nested and demand.levels < 1:
            return _EMPTY
        return self.structures[kind](self, demand, (first, *watched))

    def _scalar(self, first: _Formula, watched: _Formulas, text: bool) -> _Fragment:
        key = first, watched, text
        if key not in self._words:
            make = _string if text else _number
            self._words[key] = make(self.words(first, watched, text), self.budget)
        return self._words[key]

    def words(self, first: _Formula, watched: _Formulas, text: bool = True) -> _Sorted:
        """Strings or numbers that obey the first formula, sorted by the watched ones."""
        if text:
            first = _capped(first, watched, self.limits.characters)
        return _sorted(first, watched, _TEXT if text else _NUMERALS, self.budget.step)

    def key(self, first: _Formula, watched: _Formulas) -> _Fragment:
        """Names of properties, behind the opening quotation mark."""
        return self._scalar(first, watched, True)


def _word(text: str, label: tuple[bool, ...]) -> _Fragment:
    table = np.full((len(text), 256), _NOWHERE, np.int32)
    for state, byte in enumerate(text.encode()):
        table[state, byte] = state + 1 if state + 1 < len(text) else _exit(0)
    return _Fragment(table, (), (label,))


def _quoted(string: _Fragment) -> _Fragment:
    """A string with its opening quotation mark."""
    if string.empty:
        return string
    table = np.vstack(
        [np.full((1, 256), _NOWHERE, np.int32), np.where(string.table >= 0, string.table + 1, string.table)]
    )
    table[0, ord('"')] = 1
    return _Fragment(table.astype(np.int32), (), string.labels)


def _united_atoms(formulas: Iterable[_Formula]) -> set:
    return {atom for formula in formulas for atom in formula.atoms}
