"""Objects: the place in the order of the names, and the formulas that remain, are the state.

Names that schemas mention come in one order, the others behind them. A state that reads a name is a trie of the names
that may still come; each place has the one of the next place with one name more, so all tries together have about as
many states as the names have letters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from redraft.decoding.constraints.schema.atoms import _Count, _counted, _Has, _Names, _Others, _Property
from redraft.decoding.constraints.schema.document import _Node
from redraft.decoding.constraints.schema.formula import (
    _FALSE,
    _TRUE,
    _constant,
    _Formula,
    _literals,
    _necessary,
    _substituted,
)
from redraft.decoding.constraints.schema.fragments import _NOWHERE, _exit, _Fragment, _Label, _Machine
from redraft.decoding.constraints.schema.spelling import _key_bytes
from redraft.decoding.constraints.schema.values import _Compiler, _Demand, _united_atoms
from redraft.decoding.constraints.schema.words import _holds

_Formulas = tuple[_Formula, ...]
_State = tuple[int, _Formulas]  # how many names have been passed, and what remains
_COMMA, _COLON, _SPACE, _QUOTE, _OPEN, _CLOSE = b',: "{}'
_OPENING = ("additionalProperties", "patternProperties", "propertyNames", "unevaluatedProperties")


def _object(compiler: _Compiler, demand: _Demand, formulas: _Formulas) -> _Fragment:
    """The texts of objects that obey the first formula, sorted by the others."""
    return _Object(compiler, demand, formulas, _Machine(compiler.budget)).built()


@dataclass
class _Object:
    compiler: _Compiler
    demand: _Demand
    formulas: _Formulas
    machine: _Machine
    labels: dict[_Label, int] = field(default_factory=dict)
    _behind: dict[_State, int] = field(default_factory=dict)  # the state behind a property
    _reading: dict[_State, int] = field(default_factory=dict)  # the state behind the quotation mark of a name
    _queue: list[tuple[_State, int]] = field(default_factory=list)

    @cached_property
    def names(self) -> list[str]:
        """The names that schemas mention, in order; required ones that nothing declares come last."""
        cluster = [node for top in self.demand.nodes for node in _behind_each_other(top)]
        declared = [name for node in cluster for name in _declared(node)]
        required = [name for node in cluster for name in node.get("required") or ()]
        atoms = [atom for formula in self.formulas for atom in formula.atoms]
        mentioned = [atom.name for atom in atoms if isinstance(atom, _Has | _Property)]
        others = [name for atom in atoms if isinstance(atom, _Others) for name in atom.names]
        known = {*mentioned, *others, *declared}
        return [*dict.fromkeys([*declared, *(name for name in required if name in known), *sorted(known)])]

    @cached_property
    def open(self) -> bool:
        """Whether names that no schema mentions may be written: closed unless some schema speaks of them."""
        cluster = [node for top in self.demand.nodes for node in top.cluster]
        spoken = any(node.get(keyword) is not None for node in cluster for keyword in _OPENING)
        return (spoken or not self.names) and not self.drops

    @property
    def drops(self) -> bool:
        """Whether optional properties are left out here."""
        limit = self.compiler.limits.optional_depth
        return limit is not None and self.demand.depth >= limit

    @cached_property
    def once(self) -> bool:
        """Whether at most one name that no schema mentions may come.

        Such names may repeat, and readers keep the last one. That is harmless where every value is simply demanded.
        """
        sure = _literals(self.formulas[0])
        plain = {lit.args[0] for lit in sure if lit.op == "fact" and not _counts(lit.args[0], distinct=False)}
        plain |= {
            lit.args[0].args[0] for lit in sure if lit.op == "not" and _counts(lit.args[0].args[0], distinct=False)
        }
        general = {atom for atom in _united_atoms(self.formulas) if isinstance(atom, _Others | _Count)}
        watched = {atom for formula in self.formulas[1:] for atom in formula.atoms}
        mixed = {atom for part in _parts(self.formulas[0]) if part not in sure for atom in part.atoms}
        return bool(general - plain) or bool(general & (watched | mixed))

    def built(self) -> _Fragment:
        machine = self.machine
        start, first = machine.reserve(2), machine.count - 1
        machine.table[start, _OPEN] = first
        name = self._name((0, self.formulas))
        machine.table[first, _QUOTE] = name
        machine.table[first, _CLOSE] = self._closed(self.formulas)
        while self._queue:
            state, comma = self._queue.pop()
            name = self._name(state)
            machine.table[comma, _SPACE] = machine.step((_QUOTE, name))
            machine.table[comma, _QUOTE] = name
        return machine.finished(start, list(self.labels))

    # --- names ---

    def _name(self, state: _State) -> int:
        """The state that reads a name, in which all that may still come are sorted."""
        place, formulas = state
        passed: list[_State] = []
        while (place, formulas) not in self._reading and place < len(self.names):
            passed.append((place, formulas))
            formulas = self._absent(formulas, self.names[place])
            place += 1
            if formulas[0] is _FALSE:
                break
        last = (place, formulas)
        if formulas[0] is _FALSE:
            found = _NOWHERE
        elif last in self._reading:
            found = self._reading[last]
        else:
            found = self._reading[last] = self._free(last)
        for place, formulas in reversed(passed):
            found = self._reading[place, formulas] = self._with_name(found, place, formulas)
        return found

    def _with_name(self, others: int, place: int, formulas: _Formulas) -> int:
        """The state that reads the name at a place, or one of the others."""
        name = self.names[place]
        spelled = _key_bytes(name)
        if spelled is None:
            return others
        if self.drops and self._absent(formulas, name)[0] is not _FALSE:
            self.compiler.left_out.add(name)
            return others
        colon = self._named(place, formulas)
        return others if colon == _NOWHERE else self.machine.insert(others, spelled + b'"', colon)

    def _absent(self, formulas: _Formulas, name: str) -> _Formulas:
        """What remains if a name does not come."""
        self.compiler.budget.step(sum(map(_size, formulas)))
        changes = {atom: _constant(isinstance(atom, _Property)) for atom in self._about(formulas, name)}
        return tuple(_substituted(formula, changes) for formula in formulas)

    def _about(self, formulas: _Formulas, name: str) -> list[Any]:
        return [atom for atom in self._by_name.get(name, ()) if any(atom in formula.atoms for formula in formulas)]

    @cached_property
    def _by_name(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for atom in _united_atoms(self.formulas):
            if isinstance(atom, _Has | _Property):
                found.setdefault(atom.name, []).append(atom)
        return found

    @cached_property
    def _general(self) -> list[Any]:
        """Atoms about all names."""
        found = [atom for formula in self.formulas for atom in _ordered(formula)]
        return [atom for atom in dict.fromkeys(found) if not isinstance(atom, _Has | _Property)]

    def _named(self, place: int, formulas: _Formulas) -> int:
        """The state behind the name at a place."""
        name = self.names[place]
        concerned = self._concerned(name)
        if concerned is None:
            return _NOWHERE
        own = [atom for atom in self._by_name.get(name, ()) if isinstance(atom, _Property)]
        names = {atom: _constant(bool(_holds(atom.name, name))) for atom in self._general if isinstance(atom, _Names)}
        formulas = tuple(
            _substituted(formula, {atom: _FALSE for atom, holds in names.items() if holds is _FALSE})
            for formula in formulas
        )
        return self._value(formulas, [*own, *concerned], place + 1, name)

    def _concerned(self, name: str) -> list[_Others] | None:
        """The atoms about other names that concern this one; None if readers disagree about it."""
        found = []
        for atom in self._general:
            if isinstance(atom, _Names) and _holds(atom.name, name) is None:
                return None
            if isinstance(atom, _Others):
                truth = [_holds(pattern, name) for pattern in (atom.like, *atom.unlike)]
                if None in truth:
                    return None
                if name not in atom.names and truth[0] and not any(truth[1:]):
                    found.append(atom)
        return found

    def _free(self, state: _State) -> int:
        """The state that reads a name that no schema mentions."""
        place, formulas = state
        if not self.open or (place > len(self.names) and self.once):
            return _NOWHERE
        atoms = [atom for atom in self._general if any(atom in formula.atoms for formula in formulas)]
        others = [atom for atom in atoms if isinstance(atom, _Others)]
        patterns = [pattern for atom in others for pattern in (atom.like, *atom.unlike)]
        names = [atom for atom in atoms if isinstance(atom, _Names)]
        watched = tuple(dict.fromkeys(p for p in [*patterns, *(atom.name for atom in names)] if p.atoms))
        wanted = _necessary(formulas[0], lambda atom: (atom.name, False) if isinstance(atom, _Names) else None)
        fragment = self.compiler.key(wanted, watched)
        nexts = []
        for label in fragment.labels:
            truth = {_TRUE: True, _FALSE: False, **dict(zip(watched, label, strict=True))}
            concerned = [a for a in others if truth[a.like] and not any(truth[pattern] for pattern in a.unlike)]
            wrong = {atom: _FALSE for atom in names if not truth[atom.name]}
            remaining = tuple(_substituted(formula, wrong) for formula in formulas)
            nexts.append(self._value(remaining, concerned, len(self.names) + 1, None, again=place > len(self.names)))
        found = self.machine.place(fragment, nexts)
        for name in self.names if found != _NOWHERE else ():
            spelled = _key_bytes(name)
            found = found if spelled is None else self.machine.insert(found, spelled + b'"', _NOWHERE)
        return found

    # --- values ---

    def _value(
        self, formulas: _Formulas, concerned: list[Any], place: int, name: str | None, again: bool = False
    ) -> int:
        """The state behind a name, before the colon; `concerned`: the atoms that its value decides.

        again: another free name came before, which may be the same.
        """
        if formulas[0] is _FALSE:
            return _NOWHERE
        about = set(concerned)
        concerned = [atom for atom in concerned if any(atom in formula.atoms for formula in formulas)]
        needed = _necessary(
            formulas[0], lambda atom: (atom.value, isinstance(atom, _Property)) if atom in about else None
        )
        sure = {lit.args[0] for lit in _literals(formulas[0]) if lit.op == "fact"} & about
        certain = {atom.value for atom in sure}
        asked = dict.fromkeys(atom.value for atom in concerned if atom.value not in certain)
        watched = tuple(value for value in asked if value.atoms)
        demand = self.compiler.demand(needed, watched, self.demand)
        if demand.first is _FALSE:
            return _NOWHERE
        fragment = self.compiler.value(demand)
        nexts = []
        for label in fragment.labels:
            truth = dict(zip(watched, label, strict=True)) | dict.fromkeys(certain, True)
            nexts.append(self._after(self._written(formulas, name, concerned, truth, again), place))
        begin = self.machine.place(fragment, nexts)
        if begin == _NOWHERE:
            return _NOWHERE
        row = self.machine.table[begin].copy()
        row[_SPACE] = begin
        return self.machine.step((_COLON, self.machine.shared(row)))

    def _written(
        self, formulas: _Formulas, name: str | None, concerned: list[Any], truth: dict[_Formula, bool], again: bool
    ) -> _Formulas:
        """What remains behind a property."""
        changes: dict[Any, _Formula] = {}
        if name is not None:
            changes = {atom: _TRUE for atom in self._by_name.get(name, ())}
        self.compiler.budget.step(sum(map(_size, formulas)))
        for atom in concerned:
            holds = truth.get(atom.value, atom.value is _TRUE)
            if isinstance(atom, _Property) or not holds:
                changes[atom] = _constant(holds)
        for atom in {atom for formula in formulas for atom in formula.atoms if isinstance(atom, _Count)}:
            changes[atom] = _counted(_Count(atom.least - (not (again and atom.distinct)), atom.distinct))
        return tuple(_substituted(formula, changes) for formula in formulas)

    def _after(self, formulas: _Formulas, place: int) -> int:
        """The state behind a property of which these formulas remain."""
        if formulas[0] is _FALSE:
            return _NOWHERE
        state = (place, formulas)
        if state not in self._behind:
            first, comma = self.machine.reserve(2), self.machine.count - 1
            self.machine.table[first, _COMMA] = comma
            self.machine.table[first, _CLOSE] = self._closed(formulas)
            self._behind[state] = first
            self._queue.append((state, comma))
        return self._behind[state]

    def _closed(self, formulas: _Formulas) -> int:
        """The way out if the object ends here."""
        ended = [
            _substituted(formula, {atom: _constant(not isinstance(atom, _Has | _Count)) for atom in formula.atoms})
            for formula in formulas
        ]
        if ended[0] is not _TRUE:
            return _NOWHERE
        return _exit(self.labels.setdefault(tuple(each is _TRUE for each in ended[1:]), len(self.labels)))


def _counts(atom: Any, distinct: bool) -> bool:
    return isinstance(atom, _Count) and atom.distinct == distinct


def _size(formula: _Formula) -> int:
    return 1 + len(formula.args)


def _parts(formula: _Formula) -> tuple[_Formula, ...]:
    return formula.args if formula.op == "and" else (formula,)


def _ordered(formula: _Formula) -> list[Any]:
    if formula.op == "fact":
        return [formula.args[0]]
    return [atom for arg in formula.args for atom in _ordered(arg)]


def _behind_each_other(node: _Node) -> list[_Node]:
    """A schema and those beside it, each before what it refers to."""
    found: dict[_Node, None] = {}

    def visit(one: _Node) -> None:
        if one not in found:
            found[one] = None
            for other in one.beside:
                visit(other)

    visit(node)
    return list(found)


def _declared(node: _Node) -> list[str]:
    values = [value for value in (node.get("enum") or [node.get("const")]) if isinstance(value, dict)]
    return [*node.named("properties"), *(name for value in values for name in value)]
