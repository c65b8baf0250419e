"""Automata of JSON arrays; a state is the formulas that the rest of the array must still obey."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from redraft.decoding.constraints.schema.atoms import _ArrayLength, _count_formula, _Item, _UniqueItems
from redraft.decoding.constraints.schema.constants import _possible_values
from redraft.decoding.constraints.schema.formula import (
    _FALSE,
    _TRUE,
    _all_of,
    _constant,
    _fact,
    _Formula,
    _literals,
    _necessary_condition,
    _not,
    _substitute,
)
from redraft.decoding.constraints.schema.fragments import _NOWHERE, _AutomatonBuilder, _exit_code, _Fragment, _Label
from redraft.decoding.constraints.schema.values import _all_atoms, _Demand, _ValueCompiler

_Formulas = tuple[_Formula, ...]
_COMMA, _SPACE, _OPEN, _CLOSE = b", []"


def _array_fragment(compiler: _ValueCompiler, demand: _Demand, formulas: _Formulas) -> _Fragment:
    """Build the automaton of arrays that obey the first formula; labels say which of the other formulas hold."""
    return _Array(compiler, demand, _AutomatonBuilder(compiler.budget)).build(formulas)


@dataclass
class _Array:
    compiler: _ValueCompiler
    demand: _Demand
    machine: _AutomatonBuilder
    labels: dict[_Label, int] = field(default_factory=dict)
    values: list[_Formula] = field(default_factory=list)  # possible values of the items if these must differ
    in_order: bool = False  # items that must differ are written in the order of `values`
    _state_after: dict[_Formulas, int] = field(default_factory=dict)  # state after an item, by remaining formulas
    _queue: list[tuple[_Formulas, int]] = field(default_factory=list)

    def build(self, formulas: _Formulas) -> _Fragment:
        formulas = self._limit(formulas)
        machine = self.machine
        start, first = machine.reserve(2), machine.count - 1
        machine.table[start, _OPEN] = first
        self._read_item(formulas, first)
        machine.table[first, _CLOSE] = self._close(formulas)
        while self._queue:
            remaining, comma = self._queue.pop()
            space = machine.reserve()
            self._read_item(remaining, space)
            machine.table[comma] = machine.table[space]
            machine.table[comma, _SPACE] = space
        return machine.finish(start, list(self.labels))

    def _limit(self, formulas: _Formulas) -> _Formulas:
        """Limit the length of counted arrays; list the values of unique items, or allow only one item."""
        atoms = _all_atoms(formulas)
        counts = [atom.reach for atom in atoms if not atom.vacuous]
        first = formulas[0]
        if counts:
            needed = [literal.args[0].reach for literal in _literals(first) if literal.op == "fact"]
            prefix = [atom.reach for atom in atoms if atom.vacuous]
            most = max(self.compiler.limits.items, *needed, *prefix, 0)
            if max(counts) > most:
                first = _all_of([first, _not(_count_formula(_ArrayLength(most + 1)))])
        unique = _fact(_UniqueItems())
        if unique.args[0] in atoms:
            values = _possible_values(self._items_of(formulas)) if unique in _literals(first) else None
            if values is None:
                first = _all_of([first, _not(_count_formula(_ArrayLength(2)))])
                return tuple(_substitute(formula, {_UniqueItems(): _TRUE}) for formula in (first, *formulas[1:]))
            self.values, self.in_order = values, len(values) > _MOST_SUBSETS
        return first, *formulas[1:]

    def _items_of(self, formulas: _Formulas) -> list[_Formula]:
        """Return the formulas that every item must obey."""
        parts = [literal.args[0].every_item for literal in _literals(formulas[0]) if literal.op == "fact"]
        return [value for value in parts if value is not None]

    # --- one item ---

    def _read_item(self, formulas: _Formulas, state: int) -> None:
        """Fill the table row of a state at which an item begins."""
        needed = [
            _necessary_condition(formulas[0], lambda atom: atom.of_value()),
            *self._excluded_values(formulas),
        ]
        sure = {lit.args[0].about_next for lit in _literals(formulas[0]) if lit.op == "fact" and lit.args[0].of_value()}
        conditions = [atom.about_next for formula in formulas for atom in _atoms_in_order(formula)]
        watched = [value for value in conditions if value is not None and value not in sure]
        watched += self.values
        watched = [value for value in dict.fromkeys(watched) if value.atoms]
        wanted = self.compiler.demand(_all_of(needed), tuple(watched), self.demand)
        if wanted.first is _FALSE:
            return
        fragment = self.compiler.value(wanted)
        if fragment.empty:
            return
        nexts = [self._after_item(formulas, dict(zip(watched, label, strict=True))) for label in fragment.labels]
        begin = self.machine.insert_fragment(fragment, nexts)
        if begin != _NOWHERE:
            self.machine.table[state] = self.machine.table[begin]

    def _excluded_values(self, formulas: _Formulas) -> list[_Formula]:
        """Return the formulas that exclude values which earlier items already have."""
        seen = {number for atom in _all_atoms(formulas) for number in atom.seen}
        if self.in_order and seen:
            seen = set(range(max(seen) + 1))
        return [_not(self.values[number]) for number in sorted(seen)]

    def _after_item(self, formulas: _Formulas, truth: dict[_Formula, bool]) -> int:
        """Return the state after an item, given which formulas it satisfies."""
        matches = [number for number, value in enumerate(self.values) if truth.get(value)]
        item = _Item(truth, frozenset(matches[-1:] if self.in_order else matches), self.in_order)
        changes = {atom: atom.after_item(item) for atom in _all_atoms(formulas)}
        remaining = tuple(_substitute(formula, changes) for formula in formulas)
        if remaining[0] is _FALSE:
            return _NOWHERE
        if remaining not in self._state_after:
            state, comma = self.machine.reserve(2), self.machine.count - 1
            self.machine.table[state, _COMMA] = comma
            self.machine.table[state, _CLOSE] = self._close(remaining)
            self._state_after[remaining] = state
            self._queue.append((remaining, comma))
        return self._state_after[remaining]

    def _close(self, formulas: _Formulas) -> int:
        """Return the exit code if the array ends here; `_NOWHERE` if it may not."""
        ended = [
            _substitute(formula, {atom: _constant(atom.vacuous) for atom in formula.atoms}) for formula in formulas
        ]
        if ended[0] is not _TRUE:
            return _NOWHERE
        return _exit_code(self.labels.setdefault(tuple(each is _TRUE for each in ended[1:]), len(self.labels)))


_MOST_SUBSETS = 6  # up to this many unique values in any order; more of them in listed order, to save states


def _atoms_in_order(formula: _Formula) -> list[Any]:
    if formula.op == "fact":
        return [formula.args[0]]
    return [atom for arg in formula.args for atom in _atoms_in_order(arg)]
