"""Boolean formulas over atoms, statements about one JSON value; simplified when built, and equal ones are shared."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any
from weakref import WeakValueDictionary


class _Formula:
    """A fact (one atom), or `and`, `or`, `not`, `one` (exactly one) of formulas. Equal formulas are the same object."""

    __slots__ = ("__weakref__", "args", "atoms", "op")

    def __init__(self, op: str, args: tuple[Any, ...], atoms: frozenset[Any]) -> None:
        self.op, self.args, self.atoms = op, args, atoms

    def __repr__(self) -> str:
        return repr(self.args[0]) if self.op == "fact" else f"{self.op}({', '.join(map(repr, self.args))})"


_table: WeakValueDictionary[tuple[Any, ...], _Formula] = WeakValueDictionary()


def _intern(op: str, args: tuple[Any, ...]) -> _Formula:
    formula = _table.get((op, args))
    if formula is None:
        atoms = frozenset(args) if op == "fact" else frozenset().union(*(arg.atoms for arg in args))
        formula = _table[op, args] = _Formula(op, args, atoms)
    return formula


_TRUE, _FALSE = _intern("and", ()), _intern("or", ())


def _fact(atom: Hashable) -> _Formula:
    return _intern("fact", (atom,))


def _constant(value: bool) -> _Formula:
    return _TRUE if value else _FALSE


def _not(formula: _Formula) -> _Formula:
    if formula is _TRUE:
        return _FALSE
    if formula is _FALSE:
        return _TRUE
    return formula.args[0] if formula.op == "not" else _intern("not", (formula,))


def _all_of(parts: Iterable[_Formula]) -> _Formula:
    return _join("and", parts, _TRUE, _FALSE)


def _any_of(parts: Iterable[_Formula]) -> _Formula:
    return _join("or", parts, _FALSE, _TRUE)


def _join(op: str, parts: Iterable[_Formula], neutral: _Formula, decisive: _Formula) -> _Formula:
    """Join formulas by `and` or `or`: flattened, without duplicates; a formula and its negation together decide it."""
    kept: dict[_Formula, None] = {}
    denied: set[_Formula] = set()
    for part in parts:
        for one in part.args if part.op == op else (part,):
            if one is neutral or one in kept:
                continue
            if one is decisive or one in denied or (one.op == "not" and one.args[0] in kept):
                return decisive
            kept[one] = None
            if one.op == "not":
                denied.add(one.args[0])
    return next(iter(kept)) if len(kept) == 1 else _intern(op, tuple(kept))


def _exactly_one(parts: Iterable[_Formula]) -> _Formula:
    possible = [part for part in parts if part is not _FALSE]
    certain = [part for part in possible if part is _TRUE]
    if certain:
        others = [_not(part) for part in possible if part is not _TRUE]
        return _all_of(others) if len(certain) == 1 else _FALSE
    twice = {part for part in possible if possible.count(part) > 1} if len(set(possible)) < len(possible) else set()
    once = [part for part in possible if part not in twice]
    one = once[0] if len(once) == 1 else _intern("one", tuple(once)) if once else _FALSE
    return _all_of([one, *map(_not, twice)])


_JOINS: dict[str, Callable[[Iterable[_Formula]], _Formula]] = {"and": _all_of, "or": _any_of, "one": _exactly_one}


def _substitute(formula: _Formula, changes: Mapping[Any, _Formula]) -> _Formula:
    """Replace some atoms of a formula by formulas."""
    return _replace(formula, changes, frozenset(changes), {}) if changes else formula


def _replace(
    formula: _Formula, changes: Mapping[Any, _Formula], changed: frozenset[Any], memo: dict[_Formula, _Formula]
) -> _Formula:
    if formula.atoms.isdisjoint(changed):
        return formula
    if formula.op == "fact":
        return changes[formula.args[0]]
    if formula not in memo:
        args = [_replace(arg, changes, changed, memo) for arg in formula.args]
        memo[formula] = _not(args[0]) if formula.op == "not" else _JOINS[formula.op](args)
    return memo[formula]


def _evaluate(formula: _Formula, truth: Callable[[Any], bool]) -> bool:
    """Return whether a formula is true, given the truth of its atoms."""
    value = _substitute(formula, {atom: _constant(truth(atom)) for atom in formula.atoms})
    return value is _TRUE


def _literals(formula: _Formula) -> set[_Formula]:
    """Return the facts and negated facts of a conjunction; all of them must hold."""
    parts = formula.args if formula.op == "and" else (formula,)
    return {part for part in parts if part.op == "fact" or (part.op == "not" and part.args[0].op == "fact")}


_Translation = Callable[[Any], "tuple[_Formula, bool] | None"]


def _necessary_condition(formula: _Formula, translate: _Translation, positive: bool = True) -> _Formula:
    """Return a condition that follows from the formula, over other atoms.

    translate: maps an atom to what it implies, and whether its negation implies the opposite; None if nothing follows.
    """
    if formula.op == "fact":
        implied = translate(formula.args[0])
        if implied is None or not (positive or implied[1]):
            return _TRUE
        return implied[0] if positive else _not(implied[0])
    if formula.op == "not":
        return _necessary_condition(formula.args[0], translate, not positive)
    if formula.op == "one" and not positive:
        return _TRUE
    join = _all_of if (formula.op == "and") == positive else _any_of
    return join(_necessary_condition(arg, translate, positive) for arg in formula.args)
