"""Automata of JSON objects; a state is a position in the order of property names, and the formulas that remain.

Names that schemas mention are written in a fixed order, all others after them. A state that reads a name is a trie of
the names that may still follow. The trie of a position extends that of the next position by one name, so all tries
together have about as many states as the names have characters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from redraft.decoding.constraints.schema.atoms import _Implied, _ObjectAtom
from redraft.decoding.constraints.schema.document import _kind_of, _Node
from redraft.decoding.constraints.schema.formula import (
    _FALSE,
    _TRUE,
    _constant,
    _Formula,
    _literals,
    _necessary_condition,
    _substitute,
)
from redraft.decoding.constraints.schema.fragments import _NOWHERE, _AutomatonBuilder, _exit_code, _Fragment, _Label
from redraft.decoding.constraints.schema.strings.patterns import _pattern_formula
from redraft.decoding.constraints.schema.strings.spelling import _key_bytes
from redraft.decoding.constraints.schema.strings.words import _holds
from redraft.decoding.constraints.schema.values import _all_atoms, _Demand, _ValueCompiler

_Formulas = tuple[_Formula, ...]
_State = tuple[int, _Formulas]  # number of names passed, remaining formulas; after all: 1 + the group of the last name
_COMMA, _COLON, _SPACE, _QUOTE, _OPEN, _CLOSE = b',: "{}'
_ENDS = "0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MOST_GROUPS = 6  # groups of free names, so at most this many of them are known to differ
_OPENING = ("additionalProperties", "patternProperties", "propertyNames", "unevaluatedProperties")


def _object_fragment(compiler: _ValueCompiler, demand: _Demand, formulas: _Formulas) -> _Fragment:
    """Build the automaton of objects that obey the first formula; labels say which of the other formulas hold."""
    return _Object(compiler, demand, formulas, _AutomatonBuilder(compiler.budget)).build()


@dataclass
class _Object:
    compiler: _ValueCompiler
    demand: _Demand
    formulas: _Formulas
    machine: _AutomatonBuilder
    labels: dict[_Label, int] = field(default_factory=dict)
    _state_after: dict[_State, int] = field(default_factory=dict)  # state after a property
    _reading: dict[_State, int] = field(default_factory=dict)  # state after the opening quote of a name
    _queue: list[tuple[_State, int]] = field(default_factory=list)

    @cached_property
    def names(self) -> list[str]:
        """The names that schemas mention, in order: declared ones first."""
        cluster = [node for top in self.demand.nodes for node in _applied_schemas(top)]
        declared = [name for node in cluster for name in _declared(node)]
        required = [name for node in cluster for name in node.get("required") or ()]
        mentioned = [name for formula in self.formulas for atom in formula.atoms for name in atom.mentions]
        known = {*mentioned, *declared}
        return [*dict.fromkeys([*declared, *(name for name in required if name in known), *sorted(known)])]

    @cached_property
    def open(self) -> bool:
        """Whether names that no schema mentions may be written; a keyword such as additionalProperties allows them."""
        cluster = [node for top in self.demand.nodes for node in top.cluster]
        spoken = any(node.get(keyword) is not None for node in cluster for keyword in _OPENING)
        return (spoken or not self.names) and not self.drops

    @property
    def drops(self) -> bool:
        """Whether optional properties are omitted here, to save states."""
        limit = self.compiler.limits.optional_depth
        return limit is not None and self.demand.depth >= limit

    @cached_property
    def once(self) -> bool:
        """Whether at most one name that no schema mentions may be written.

        Such names may repeat, and parsers keep only the last value. That is harmless if all values must obey the same
        formula.
        """
        sure = _literals(self.formulas[0])
        plain = {atom for lit in sure for atom in lit.atoms if atom.withstands_repeats(required=lit.op == "fact")}
        general = {atom for atom in _all_atoms(self.formulas) if atom.repeats}
        watched = {atom for formula in self.formulas[1:] for atom in formula.atoms}
        mixed = {atom for part in _parts(self.formulas[0]) if part not in sure for atom in part.atoms}
        return bool(general - plain) or bool(general & (watched | mixed))

    @cached_property
    def groups(self) -> tuple[_Formula, ...]:
        """Disjoint groups of names that no schema mentions; a name of a later group than all before differs from them.

        They are by the last character, or by the first one if all names end alike; only for objects that must have
        several different names.
        """
        count = min(_MOST_GROUPS, max((atom.distinct_names for atom in _all_atoms(self.formulas)), default=0))
        wanted = self._wanted_name(self.formulas)
        best: tuple[_Formula, ...] = ()
        for pattern in ("[{}]$", "^[{}]") if count > 1 else ():
            letters = ("".join(alphabet[i::count] for alphabet in _ENDS) for i in range(count))
            groups = tuple(_pattern_formula(pattern.format(each)) for each in letters)
            labels = self.compiler.key(wanted, groups).labels
            possible = tuple(group for i, group in enumerate(groups) if any(label[i] for label in labels))
            best = max(best, possible, key=len)
        return best

    def build(self) -> _Fragment:
        machine = self.machine
        start, first = machine.reserve(2), machine.count - 1
        machine.table[start, _OPEN] = first
        name = self._name((0, self.formulas))
        machine.table[first, _QUOTE] = name
        machine.table[first, _CLOSE] = self._close(self.formulas)
        while self._queue:
            state, comma = self._queue.pop()
            name = self._name(state)
            machine.table[comma, _SPACE] = machine.step((_QUOTE, name))
            machine.table[comma, _QUOTE] = name
        return machine.finish(start, list(self.labels))

    # --- names ---

    def _name(self, state: _State) -> int:
        """Return the state that reads the next name: a trie of all names that may still follow."""
        place, formulas = state
        passed: list[_State] = []
        while (place, formulas) not in self._reading and place < len(self.names):
            passed.append((place, formulas))
            formulas = self._without_name(formulas, self.names[place])
            place += 1
            if formulas[0] is _FALSE:
                break
        last = (place, formulas)
        if formulas[0] is _FALSE:
            reader = _NOWHERE
        elif last in self._reading:
            reader = self._reading[last]
        else:
            reader = self._reading[last] = self._read_free_name(last)
        for place, formulas in reversed(passed):
            reader = self._reading[place, formulas] = self._with_name(reader, place, formulas)
        return reader

    def _with_name(self, others: int, place: int, formulas: _Formulas) -> int:
        """Return a state that reads the name at this position, or any name that the state `others` reads."""
        name = self.names[place]
        spelled = _key_bytes(name)
        if spelled is None:
            return others
        if self.drops and self._without_name(formulas, name)[0] is not _FALSE:
            self.compiler.left_out.add(name)
            return others
        colon = self._after_name(place, formulas)
        return others if colon == _NOWHERE else self.machine.with_text(others, spelled + b'"', colon)

    def _without_name(self, formulas: _Formulas, name: str) -> _Formulas:
        """Return the formulas that remain if the object does not have this name."""
        self.compiler.budget.step(sum(map(_size, formulas)))
        changes = {atom: _constant(atom.vacuous) for atom in self._about(formulas, name)}
        return tuple(_substitute(formula, changes) for formula in formulas)

    def _about(self, formulas: _Formulas, name: str) -> list[_ObjectAtom]:
        return [atom for atom in self._by_name.get(name, ()) if any(atom in formula.atoms for formula in formulas)]

    @cached_property
    def _by_name(self) -> dict[str, list[_ObjectAtom]]:
        by_name: dict[str, list[_ObjectAtom]] = {}
        for atom in _all_atoms(self.formulas):
            if atom.own_name is not None:
                by_name.setdefault(atom.own_name, []).append(atom)
        return by_name

    @cached_property
    def _general(self) -> list[_ObjectAtom]:
        """Atoms that are not about one particular name."""
        atoms = [atom for formula in self.formulas for atom in _atoms_in_order(formula)]
        return [atom for atom in dict.fromkeys(atoms) if atom.own_name is None]

    def _after_name(self, place: int, formulas: _Formulas) -> int:
        """Return the state after the name at this position."""
        name = self.names[place]

        def holds(pattern: _Formula) -> bool | None:
            return _holds(pattern, name)

        applies = {atom: atom.applies(name, holds) for atom in self._general}
        forbids = {atom: atom.forbids(holds) for atom in self._general}
        if None in (*applies.values(), *forbids.values()):
            return _NOWHERE
        own = [atom for atom in self._by_name.get(name, ()) if atom.of_value()]
        wrong = {atom: _FALSE for atom, forbidden in forbids.items() if forbidden}
        formulas = tuple(_substitute(formula, wrong) for formula in formulas)
        return self._value(formulas, [*own, *(atom for atom, yes in applies.items() if yes)], place + 1, name)

    def _read_free_name(self, state: _State) -> int:
        """Return the state that reads a name which no schema mentions."""
        place, formulas = state
        if not self.open or (place > len(self.names) and self.once):
            return _NOWHERE
        atoms = [atom for atom in self._general if any(atom in formula.atoms for formula in formulas)]
        patterns = [pattern for atom in atoms for pattern in atom.patterns]
        every = [atom.every_name for atom in atoms if atom.every_name is not None]
        groups = self.groups if any(atom.distinct_names for atom in _all_atoms(formulas)) else ()
        watched = tuple(dict.fromkeys(pattern for pattern in [*patterns, *every, *groups] if pattern.atoms))
        fragment = self.compiler.key(self._wanted_name(formulas), watched)
        nexts = []
        for label in fragment.labels:
            truth = {_TRUE: True, _FALSE: False, **dict(zip(watched, label, strict=True))}
            concerned = [atom for atom in atoms if atom.applies(None, truth.get)]
            wrong = {atom: _FALSE for atom in atoms if atom.forbids(truth.get)}
            remaining = tuple(_substitute(formula, wrong) for formula in formulas)
            after = len(self.names) + 1 + next((i for i, group in enumerate(groups, 1) if truth[group]), 0)
            again, last = len(self.names) < place >= after, max(place, after) if groups else after
            nexts.append(self._value(remaining, concerned, last, None, again))
        reader = self.machine.insert_fragment(fragment, nexts)
        for name in self.names if reader != _NOWHERE else ():
            spelled = _key_bytes(name)
            reader = reader if spelled is None else self.machine.with_text(reader, spelled + b'"', _NOWHERE)
        return reader

    def _wanted_name(self, formulas: _Formulas) -> _Formula:
        """Return the formula that every name must obey."""
        return _necessary_condition(
            formulas[0], lambda atom: None if atom.every_name is None else (atom.every_name, False)
        )

    # --- values ---

    def _value(
        self, formulas: _Formulas, concerned: list[_ObjectAtom], place: int, name: str | None, again: bool = False
    ) -> int:
        """Return the state after a name, before the colon.

        concerned: the atoms that depend on the value.
        again: True if an earlier name was free too, since it may be the same.
        """
        if formulas[0] is _FALSE:
            return _NOWHERE
        conditions = {atom: implied for atom in concerned if (implied := atom.of_value())}
        needed = _necessary_condition(formulas[0], conditions.get)
        sure = {lit.args[0] for lit in _literals(formulas[0]) if lit.op == "fact"} & conditions.keys()
        certain = {conditions[atom][0] for atom in sure}
        present = [atom for atom in conditions if any(atom in formula.atoms for formula in formulas)]
        conditions = {atom: conditions[atom] for atom in present}
        uncertain = dict.fromkeys(value for value, _ in conditions.values() if value not in certain)
        watched = tuple(value for value in uncertain if value.atoms)
        demand = self.compiler.demand(needed, watched, self.demand)
        if demand.first is _FALSE:
            return _NOWHERE
        fragment = self.compiler.value(demand)
        nexts = []
        for label in fragment.labels:
            truth = dict(zip(watched, label, strict=True)) | dict.fromkeys(certain, True)
            nexts.append(self._after(self._after_property(formulas, name, conditions, truth, again), place))
        begin = self.machine.insert_fragment(fragment, nexts)
        if begin == _NOWHERE:
            return _NOWHERE
        row = self.machine.table[begin].copy()
        row[_SPACE] = begin
        return self.machine.step((_COLON, self.machine.state_with(row)))

    def _after_property(
        self,
        formulas: _Formulas,
        name: str | None,
        conditions: dict[_ObjectAtom, _Implied],
        truth: dict[_Formula, bool],
        again: bool,
    ) -> _Formulas:
        """Return the formulas that remain after a property, given which formulas its value satisfies."""
        changes: dict[Any, _Formula] = {}
        if name is not None:
            changes = {atom: _TRUE for atom in self._by_name.get(name, ())}
        self.compiler.budget.step(sum(map(_size, formulas)))
        for atom, (value, settles) in conditions.items():
            holds = truth.get(value, value is _TRUE)
            if settles or not holds:
                changes[atom] = _constant(holds)
        for atom in _all_atoms(formulas):
            if (rest := atom.after_property(again)) is not None:
                changes[atom] = rest
        return tuple(_substitute(formula, changes) for formula in formulas)

    def _after(self, formulas: _Formulas, place: int) -> int:
        """Return the state after a property, with these formulas remaining."""
        if formulas[0] is _FALSE:
            return _NOWHERE
        state = (place, formulas)
        if state not in self._state_after:
            first, comma = self.machine.reserve(2), self.machine.count - 1
            self.machine.table[first, _COMMA] = comma
            self.machine.table[first, _CLOSE] = self._close(formulas)
            self._state_after[state] = first
            self._queue.append((state, comma))
        return self._state_after[state]

    def _close(self, formulas: _Formulas) -> int:
        """Return the exit code if the object ends here; `_NOWHERE` if it may not."""
        ended = [
            _substitute(formula, {atom: _constant(atom.vacuous) for atom in formula.atoms}) for formula in formulas
        ]
        if ended[0] is not _TRUE:
            return _NOWHERE
        return _exit_code(self.labels.setdefault(tuple(each is _TRUE for each in ended[1:]), len(self.labels)))


def _size(formula: _Formula) -> int:
    return 1 + len(formula.args)


def _parts(formula: _Formula) -> tuple[_Formula, ...]:
    return formula.args if formula.op == "and" else (formula,)


def _atoms_in_order(formula: _Formula) -> list[Any]:
    if formula.op == "fact":
        return [formula.args[0]]
    return [atom for arg in formula.args for atom in _atoms_in_order(arg)]


def _applied_schemas(node: _Node) -> list[_Node]:
    """Return all schemas that apply to the same value, each before those it refers to."""
    schemas: dict[_Node, None] = {}

    def visit(one: _Node) -> None:
        if one not in schemas:
            schemas[one] = None
            for other in one.beside:
                visit(other)

    visit(node)
    return list(schemas)


def _declared(node: _Node) -> list[str]:
    values = [value for value in (node.get("enum") or [node.get("const")]) if _kind_of(value) == "object"]
    return [*node.map_of("properties"), *(name for value in values for name in value)]
