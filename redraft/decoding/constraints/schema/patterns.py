"""Patterns of JSON schemas: regular expressions of ECMAScript that are searched for anywhere in a string.

`_pattern` makes a formula about the string: mostly that it belongs to one automaton; look-ahead at the beginning makes
two of it. Where ECMAScript and Python read an expression differently, the strings that tell them apart are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any

from redraft.decoding.constraints.dfa import AutomatonTooLarge
from redraft.decoding.constraints.schema.expressions import _Expression, _parsed, _Unreadable
from redraft.decoding.constraints.schema.formula import _all_of, _any_of, _Formula, _negated
from redraft.decoding.constraints.schema.words import _alphabet, _by_steps, _explored, _Ranges, _within, _Words

_MOST_STEPS = 20_000  # of the automaton that an expression spells out


@lru_cache(1024)
def _pattern(source: str) -> _Formula:
    """That a string has a match of the expression; an error that says why if it cannot be followed."""
    tree, disputed, ends = _parsed(source)
    universe = _undisputed(tuple(disputed), ends).all
    branches = list(tree.args) if tree.op == "or" else [tree]
    if not any(_looks(branch) for branch in branches):
        return _within(_searched(tree, source), universe).all
    return _any_of(_branch(branch, source, universe) for branch in branches)


def _looks(branch: _Expression) -> list[_Expression]:
    """The look-aheads directly behind a leading ^."""
    parts = branch.args if branch.op == "then" else ()
    if not parts or parts[0].op != "begin":
        return []
    count = next((i for i, part in enumerate(parts[1:]) if not part.op.startswith("look")), len(parts) - 1)
    return list(parts[1 : 1 + count])


def _branch(branch: _Expression, source: str, universe: _Formula) -> _Formula:
    looks, begin = _looks(branch), _Expression("begin")
    rest = _Expression("then", (begin, *branch.args[1 + len(looks) :])) if looks else branch
    found = [_within(_searched(rest, source), universe).all]
    for look in looks:
        ahead = _within(_searched(_Expression("then", (begin, look.args[0])), source), universe).all
        found.append(ahead if look.op == "look" else _negated(ahead))
    return _all_of(found)


@lru_cache(64)
def _undisputed(disputed: tuple[tuple[int, int], ...], ends: bool) -> _Words:
    """Strings without disputed characters; with a $, none that ends with a line break, which Python lets it precede."""

    def step(state: Any, which: int) -> Any | None:
        return None if which == 0 else which == 1 and ends

    return _by_steps([list(disputed), [(10, 10)], [(0, 9), (11, 0x10FFFF)]], False, step, lambda state: not state)


# --- automata ---


class _Steps:
    """An expression spelled out: numbered places with steps between them, some on a character and some on nothing."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.free: list[list[tuple[str, int]]] = []  # by place: (condition, next place)
        self.on: list[list[tuple[int, int]]] = []  # by place: (number of a set of characters, next place)
        self.sets: list[_Ranges] = []
        self._numbers: dict[tuple[tuple[int, int], ...], int] = {}

    def place(self) -> int:
        if len(self.free) >= _MOST_STEPS:
            raise AutomatonTooLarge(f"the pattern {self.source!r:.60} has too large counts {{m,n}}")
        self.free.append([])
        self.on.append([])
        return len(self.free) - 1

    def add(self, tree: _Expression, start: int) -> int:
        """Spells out a tree from a place on; the place behind it."""
        return getattr(self, f"_{tree.op}")(tree, start)

    def _set(self, tree: _Expression, start: int) -> int:
        ranges = tree.ranges
        number = self._numbers.setdefault(ranges, len(self.sets))
        if number == len(self.sets):
            self.sets.append(list(ranges))
        end = self.place()
        self.on[start].append((number, end))
        return end

    def _then(self, tree: _Expression, start: int) -> int:
        return reduce(lambda at, part: self.add(part, at), tree.args, start)

    def _or(self, tree: _Expression, start: int) -> int:
        end = self.place()
        for part in tree.args:
            begin = self.place()
            self.free[start].append(("", begin))
            self.free[self.add(part, begin)].append(("", end))
        return end

    def _repeat(self, tree: _Expression, start: int) -> int:
        (part,), (least, most) = tree.args, tree.counts
        at = reduce(lambda before, _: self.add(part, before), range(least), start)
        if most is None:
            loop, end = self.place(), self.place()
            self.free[at].append(("", loop))
            self.free[self.add(part, loop)].append(("", loop))
            self.free[loop].append(("", end))
            return end
        end = self.place()
        for _ in range(most - least):
            self.free[at].append(("", end))
            begin = self.place()
            self.free[at].append(("", begin))
            at = self.add(part, begin)
        self.free[at].append(("", end))
        return end

    def _begin(self, tree: _Expression, start: int) -> int:
        return self._when("begin", start)

    def _end(self, tree: _Expression, start: int) -> int:
        return self._when("end", start)

    def _when(self, condition: str, start: int) -> int:
        end = self.place()
        self.free[start].append((condition, end))
        return end

    def _look(self, tree: _Expression, start: int) -> int:
        raise _Unreadable("has look-ahead that does not stand directly behind a leading ^")

    _look_not = _look

    def closure(self, places: set[int], conditions: tuple[str, ...]) -> frozenset[int]:
        """All places that are reached without a character."""
        found, queue = set(places), list(places)
        while queue:
            for condition, after in self.free[queue.pop()]:
                if after not in found and (not condition or condition in conditions):
                    found.add(after)
                    queue.append(after)
        return frozenset(found)


_FOUND = frozenset({-1})


@lru_cache(1024)
def _searched(tree: _Expression, source: str) -> _Words:
    """Strings with a match of the expression anywhere."""
    steps = _Steps(source)
    start = steps.place()
    last = steps.add(tree, start)
    alphabet, member = _alphabet(steps.sets or [[]])
    again = steps.closure({start}, ())

    def step(kind: int) -> Callable[[Any], Any]:
        has, memo = member[kind], {}

        def one(state: Any) -> Any:
            if state is _FOUND:
                return _FOUND
            moved = frozenset(a for p in state[1] for number, a in steps.on[p] if has[number])
            if moved not in memo:
                memo[moved] = steps.closure(set(moved), ()) | again
            return _FOUND if last in memo[moved] else (False, memo[moved])

        return one

    def final(state: Any) -> int:
        if state is _FOUND:
            return 0
        first, places = state
        return 0 if last in steps.closure(set(places), ("end", "begin") if first else ("end",)) else -1

    begun = steps.closure({start}, ("begin",))
    what = f"the pattern {source!r:.60}"
    table, label = _explored(alphabet, _FOUND if last in begun else (True, begun), step, final, what)
    return _Words(alphabet, table, [found >= 0 for found in label])
