"""Compiles the formula that a value must obey to the automaton of its texts, one kind of value at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from redraft.decoding.constraints.schema.document import _Node
from redraft.decoding.constraints.schema.formula import _FALSE, _TRUE, _all_of, _Formula
from redraft.decoding.constraints.schema.fragments import _EMPTY, _NOWHERE, _Budget, _exit_code, _Fragment, _unite
from redraft.decoding.constraints.schema.keywords import _KINDS, _formula_for_kind
from redraft.decoding.constraints.schema.limits import _Limits
from redraft.decoding.constraints.schema.strings.numbers import _canonical_numbers
from redraft.decoding.constraints.schema.strings.spelling import _NUMERALS, _TEXT, _number_fragment, _string_fragment
from redraft.decoding.constraints.schema.strings.words import _cap_length, _label_strings, _LabeledStrings

_Formulas = tuple[_Formula, ...]


@dataclass(frozen=True)
class _Demand:
    """The formula that a value must obey, and further formulas whose truth is tracked; all are about schemas."""

    first: _Formula
    watched: _Formulas = ()
    levels: int = 0  # remaining levels of nesting, for recursive schemas
    depth: int = 0  # depth of the value, up to the limit on optional properties

    @property
    def formulas(self) -> _Formulas:
        return self.first, *self.watched

    @property
    def nodes(self) -> list[_Node]:
        """The schemas in its formulas, in order."""
        return list(dict.fromkeys(node for formula in self.formulas for node in _nodes(formula)))

    @property
    def untyped(self) -> bool:
        """Whether the value may be anything."""
        return not any(formula.atoms for formula in self.formulas)

    @property
    def loops(self) -> set[int]:
        """The groups of mutually recursive schemas that apply to the value."""
        loops = {other.loop for node in self.nodes for other in node.cluster}
        return {loop for loop in loops if loop is not None}

    @property
    def nested(self) -> bool:
        return self.untyped or bool(self.loops)


def _nodes(formula: _Formula) -> list[_Node]:
    if formula.op == "fact":
        return [formula.args[0]]
    return [node for arg in formula.args for node in _nodes(arg)]


@dataclass
class _ValueCompiler:
    """Builds the automata of values, each only once."""

    limits: _Limits
    budget: _Budget
    structures: Mapping[
        str, Callable[[_ValueCompiler, _Demand, _Formulas], _Fragment]
    ]  # builders for "array" and "object"
    _fragments: dict[_Demand, _Fragment] = field(default_factory=dict)
    _words: dict[tuple[_Formula, _Formulas, bool], _Fragment] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)  # optional properties that were omitted

    def demand(self, first: _Formula, watched: _Formulas, parent: _Demand | None) -> _Demand:
        """Return the demand on a value inside the value of `parent`."""
        demand = _Demand(first, watched)
        depth = min(parent.depth + 1 if parent else 0, self.limits.optional_depth or 0)
        if demand.untyped:
            levels = parent.levels - 1 if parent and parent.untyped else self.limits.untyped
        elif not demand.loops:
            levels = 0
        else:
            inherits = parent is not None and bool(parent.loops & demand.loops)
            levels = parent.levels - 1 if parent is not None and inherits else self.limits.recursion
        return _Demand(first, watched, levels, depth)

    def value(self, demand: _Demand) -> _Fragment:
        """Return the fragment of a value's texts."""
        if demand not in self._fragments:
            self._fragments[demand] = _unite([self._of_kind(kind, demand) for kind in _KINDS])
        return self._fragments[demand]

    def _of_kind(self, kind: str, demand: _Demand) -> _Fragment:
        first = _formula_for_kind(demand.first, kind)
        if first is _FALSE:
            return _EMPTY
        watched = tuple(_formula_for_kind(formula, kind) for formula in demand.watched)
        if kind in ("null", "true", "false"):
            return _word_fragment(kind, tuple(formula is _TRUE for formula in watched))
        if kind == "number":
            return self._scalar(_all_of([first, _canonical_numbers()]), watched, False)
        if kind == "string":
            return _with_opening_quote(self._scalar(first, watched, True))
        if demand.nested and demand.levels < 1:
            return _EMPTY
        return self.structures[kind](self, demand, (first, *watched))

    def _scalar(self, first: _Formula, watched: _Formulas, text: bool) -> _Fragment:
        key = first, watched, text
        if key not in self._words:
            make = _string_fragment if text else _number_fragment
            self._words[key] = make(self.words(first, watched, text), self.budget)
        return self._words[key]

    def words(self, first: _Formula, watched: _Formulas, text: bool = True) -> _LabeledStrings:
        """Return the strings (or numbers) that obey the first formula, labeled by the truth of the watched ones."""
        if text:
            first = _cap_length(first, watched, self.limits.characters)
        return _label_strings(first, watched, _TEXT if text else _NUMERALS, self.budget.step)

    def key(self, first: _Formula, watched: _Formulas) -> _Fragment:
        """Return the fragment of property names, after the opening quote."""
        return self._scalar(first, watched, True)


def _word_fragment(text: str, label: tuple[bool, ...]) -> _Fragment:
    table = np.full((len(text), 256), _NOWHERE, np.int32)
    for state, byte in enumerate(text.encode()):
        table[state, byte] = state + 1 if state + 1 < len(text) else _exit_code(0)
    return _Fragment(table, (), (label,))


def _with_opening_quote(string: _Fragment) -> _Fragment:
    """Add the opening quote to the fragment of a string."""
    if string.empty:
        return string
    table = np.vstack(
        [np.full((1, 256), _NOWHERE, np.int32), np.where(string.table >= 0, string.table + 1, string.table)]
    )
    table[0, ord('"')] = 1
    return _Fragment(table.astype(np.int32), (), string.labels)


def _all_atoms(formulas: Iterable[_Formula]) -> set:
    return {atom for formula in formulas for atom in formula.atoms}
