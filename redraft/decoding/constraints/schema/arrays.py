"""Arrays: the formulas that remain after each item are the state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from redraft.decoding.constraints.schema.atoms import _Contains, _counted, _Item, _Items, _Length, _Unique
from redraft.decoding.constraints.schema.constants import _constants
from redraft.decoding.constraints.schema.formula import (
    _FALSE,
    _TRUE,
    _all_of,
    _constant,
    _fact,
    _Formula,
    _literals,
    _necessary,
    _negated,
    _substituted,
)
from redraft.decoding.constraints.schema.fragments import _NOWHERE, _exit, _Fragment, _Label, _Machine
from redraft.decoding.constraints.schema.values import _Compiler, _Demand, _united_atoms

_Formulas = tuple[_Formula, ...]
_COMMA, _SPACE, _OPEN, _CLOSE = b", []"


def _array(compiler: _Compiler, demand: _Demand, formulas: _Formulas) -> _Fragment:
    """The texts of arrays that obey the first formula, sorted by the others."""
    return _Array(compiler, demand, _Machine(compiler.budget)).built(formulas)


@dataclass
class _Array:
    compiler: _Compiler
    demand: _Demand
    machine: _Machine
    labels: dict[_Label, int] = field(default_factory=dict)
    values: list[_Formula] = field(default_factory=list)  # the constants of which items that must differ are some
    in_order: bool = False  # constants come in their order
    _behind: dict[_Formulas, int] = field(default_factory=dict)  # the state behind an item, by what remains
    _queue: list[tuple[_Formulas, int]] = field(default_factory=list)

    def built(self, formulas: _Formulas) -> _Fragment:
        formulas = self._limited(formulas)
        machine = self.machine
        start, first = machine.reserve(2), machine.count - 1
        machine.table[start, _OPEN] = first
        self._item(formulas, first)
        machine.table[first, _CLOSE] = self._closed(formulas)
        while self._queue:
            remaining, comma = self._queue.pop()
            space = machine.reserve()
            self._item(remaining, space)
            machine.table[comma] = machine.table[space]
            machine.table[comma, _SPACE] = space
        return machine.finished(start, list(self.labels))

    def _limited(self, formulas: _Formulas) -> _Formulas:
        """Counted arrays end at a limit; items that must differ are constants, or there is one at most."""
        atoms = _united_atoms(formulas)
        counts = [atom.least for atom in atoms if isinstance(atom, _Length | _Contains)]
        first = formulas[0]
        if counts:
            needed = [
                lit.args[0].least for lit in _literals(first) if lit.op == "fact" and hasattr(lit.args[0], "least")
            ]
            prefix = [atom.index for atom in atoms if isinstance(atom, _Item | _Items)]
            most = max(self.compiler.limits.items, *needed, *prefix, 0)
            if max(counts) > most:
                first = _all_of([first, _negated(_counted(_Length(most + 1)))])
        unique = _fact(_Unique())
        if unique.args[0] in atoms:
            found = _constants(self._items_of(formulas)) if unique in _literals(first) else None
            if found is None:
                first = _all_of([first, _negated(_counted(_Length(2)))])
                return tuple(_substituted(formula, {_Unique(): _TRUE}) for formula in (first, *formulas[1:]))
            self.values, self.in_order = found, len(found) > _MOST_SUBSETS
        return first, *formulas[1:]

    def _items_of(self, formulas: _Formulas) -> list[_Formula]:
        """What is demanded of all items."""
        parts = [lit.args[0] for lit in _literals(formulas[0]) if lit.op == "fact"]
        return [part.value for part in parts if isinstance(part, _Items) and part.index == 0]

    # --- one item ---

    def _item(self, formulas: _Formulas, state: int) -> None:
        """Writes the row of a state in which an item begins."""
        needed = [_necessary(formulas[0], _said), *self._fresh(formulas)]
        sure = {lit.args[0].value for lit in _literals(formulas[0]) if lit.op == "fact" and _said(lit.args[0])}
        asked = [atom.value for formula in formulas for atom in _ordered(formula) if _about_next(atom)]
        watched = [value for value in asked if value not in sure]
        watched += self.values if any(isinstance(atom, _Unique) for atom in _united_atoms(formulas)) else []
        watched = [value for value in dict.fromkeys(watched) if value.atoms]
        wanted = self.compiler.demand(_all_of(needed), tuple(watched), self.demand)
        if wanted.first is _FALSE:
            return
        fragment = self.compiler.value(wanted)
        if fragment.empty:
            return
        nexts = [self._after(formulas, dict(zip(watched, label, strict=True))) for label in fragment.labels]
        begin = self.machine.place(fragment, nexts)
        if begin != _NOWHERE:
            self.machine.table[state] = self.machine.table[begin]

    def _fresh(self, formulas: _Formulas) -> list[_Formula]:
        """That an item is none of the constants that were read before."""
        seen = {number for atom in _united_atoms(formulas) if isinstance(atom, _Unique) for number in atom.seen}
        if self.in_order and seen:
            seen = set(range(max(seen) + 1))
        return [_negated(self.values[number]) for number in sorted(seen)]

    def _after(self, formulas: _Formulas, truth: dict[_Formula, bool]) -> int:
        """The state behind an item of which these formulas are true or false."""
        changes = {atom: self._changed(atom, truth) for atom in _united_atoms(formulas)}
        remaining = tuple(_substituted(formula, changes) for formula in formulas)
        if remaining[0] is _FALSE:
            return _NOWHERE
        if remaining not in self._behind:
            state, comma = self.machine.reserve(2), self.machine.count - 1
            self.machine.table[state, _COMMA] = comma
            self.machine.table[state, _CLOSE] = self._closed(remaining)
            self._behind[remaining] = state
            self._queue.append((remaining, comma))
        return self._behind[remaining]

    def _changed(self, atom: Any, truth: dict[_Formula, bool]) -> _Formula:
        """What an atom says behind an item."""
        if isinstance(atom, _Length):
            return _counted(_Length(atom.least - 1))
        if isinstance(atom, _Unique):
            found = [number for number, value in enumerate(self.values) if truth.get(value)]
            if self.in_order:
                found = found[-1:]
                return _fact(_Unique(frozenset(found)))
            return _fact(_Unique(atom.seen | frozenset(found)))
        holds = truth.get(atom.value, atom.value is not _FALSE)  # those that are sure are not watched
        if isinstance(atom, _Contains):
            return _counted(_Contains(atom.value, atom.least - holds))
        if atom.index:
            return _fact(type(atom)(atom.index - 1, atom.value))
        if isinstance(atom, _Item):
            return _constant(holds)
        return _fact(atom) if holds else _FALSE

    def _closed(self, formulas: _Formulas) -> int:
        """The way out if the array ends here."""
        ended = [
            _substituted(
                formula, {atom: _constant(not isinstance(atom, _Length | _Contains)) for atom in formula.atoms}
            )
            for formula in formulas
        ]
        if ended[0] is not _TRUE:
            return _NOWHERE
        return _exit(self.labels.setdefault(tuple(each is _TRUE for each in ended[1:]), len(self.labels)))


_MOST_SUBSETS = 6  # of constants of which any may come next; more of them come in their order


def _about_next(atom: Any) -> bool:
    return isinstance(atom, _Contains) or (isinstance(atom, _Item | _Items) and atom.index == 0)


def _said(atom: Any) -> tuple[_Formula, bool] | None:
    """What an atom demands of the next item, and whether its negation demands the opposite."""
    if not isinstance(atom, _Item | _Items) or atom.index:
        return None
    return atom.value, isinstance(atom, _Item)


def _ordered(formula: _Formula) -> list[Any]:
    if formula.op == "fact":
        return [formula.args[0]]
    return [atom for arg in formula.args for atom in _ordered(arg)]
