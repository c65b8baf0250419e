"""Patterns of JSON schemas: ECMAScript regular expressions that may match anywhere in a string.

`_pattern_formula` returns a formula about the string, usually that one automaton accepts it; look-ahead after a leading
^ adds further automata. Strings on which ECMAScript and Python disagree are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any

from redraft.decoding.constraints.dfa import AutomatonTooLarge
from redraft.decoding.constraints.schema.formula import _all_of, _any_of, _Formula, _not
from redraft.decoding.constraints.schema.strings.expressions import _Expression, _parse_expression, _UnsupportedPattern
from redraft.decoding.constraints.schema.strings.words import (
    _alphabet,
    _explore_states,
    _Ranges,
    _strings_by_steps,
    _StringSet,
    _with_universe,
)

_MOST_STEPS = 20_000  # maximum number of states of the nondeterministic automaton


@lru_cache(1024)
def _pattern_formula(source: str) -> _Formula:
    """Return the formula that an expression matches somewhere in a string; raises if it is not supported."""
    tree, disputed, ends = _parse_expression(source)
    universe = _undisputed_strings(tuple(disputed), ends).all
    branches = list(tree.args) if tree.op == "or" else [tree]
    if not any(_leading_lookaheads(branch) for branch in branches):
        return _with_universe(_strings_with_match(tree, source), universe).all
    return _any_of(_branch_formula(branch, source, universe) for branch in branches)


def _leading_lookaheads(branch: _Expression) -> list[_Expression]:
    """Return the look-aheads right after a leading ^."""
    parts = branch.args if branch.op == "then" else ()
    if not parts or parts[0].op != "begin":
        return []
    count = next((i for i, part in enumerate(parts[1:]) if not part.op.startswith("look")), len(parts) - 1)
    return list(parts[1 : 1 + count])


def _branch_formula(branch: _Expression, source: str, universe: _Formula) -> _Formula:
    looks, begin = _leading_lookaheads(branch), _Expression("begin")
    rest = _Expression("then", (begin, *branch.args[1 + len(looks) :])) if looks else branch
    formulas = [_with_universe(_strings_with_match(rest, source), universe).all]
    for look in looks:
        ahead = _with_universe(_strings_with_match(_Expression("then", (begin, look.args[0])), source), universe).all
        formulas.append(ahead if look.op == "look" else _not(ahead))
    return _all_of(formulas)


@lru_cache(64)
def _undisputed_strings(disputed: tuple[tuple[int, int], ...], ends: bool) -> _StringSet:
    """Return the strings without disputed characters.

    With $, strings with a final line break are excluded too, since Python's $ also matches before it.
    """

    def step(state: Any, which: int) -> Any | None:
        return None if which == 0 else which == 1 and ends

    return _strings_by_steps(
        [list(disputed), [(10, 10)], [(0, 9), (11, 0x10FFFF)]], False, step, lambda state: not state
    )


# --- automata ---


class _ExpressionAutomaton:
    """The nondeterministic automaton of an expression, with transitions on a character and free ones (on nothing)."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.free: list[list[tuple[str, int]]] = []  # by state: (condition, next state)
        self.on: list[list[tuple[int, int]]] = []  # by state: (index into `sets`, next state)
        self.sets: list[_Ranges] = []
        self._numbers: dict[tuple[tuple[int, int], ...], int] = {}

    def new_state(self) -> int:
        if len(self.free) >= _MOST_STEPS:
            raise AutomatonTooLarge(f"the pattern {self.source!r:.60} has counts {{m,n}} that are too large")
        self.free.append([])
        self.on.append([])
        return len(self.free) - 1

    def add(self, tree: _Expression, start: int) -> int:
        """Add the states of a syntax tree after the state `start`; return its last state."""
        return getattr(self, f"_{tree.op}")(tree, start)

    def _set(self, tree: _Expression, start: int) -> int:
        ranges = tree.ranges
        number = self._numbers.setdefault(ranges, len(self.sets))
        if number == len(self.sets):
            self.sets.append(list(ranges))
        end = self.new_state()
        self.on[start].append((number, end))
        return end

    def _then(self, tree: _Expression, start: int) -> int:
        return reduce(lambda at, part: self.add(part, at), tree.args, start)

    def _or(self, tree: _Expression, start: int) -> int:
        end = self.new_state()
        for part in tree.args:
            begin = self.new_state()
            self.free[start].append(("", begin))
            self.free[self.add(part, begin)].append(("", end))
        return end

    def _repeat(self, tree: _Expression, start: int) -> int:
        (part,), (least, most) = tree.args, tree.counts
        at = reduce(lambda before, _: self.add(part, before), range(least), start)
        if most is None:
            loop, end = self.new_state(), self.new_state()
            self.free[at].append(("", loop))
            self.free[self.add(part, loop)].append(("", loop))
            self.free[loop].append(("", end))
            return end
        end = self.new_state()
        for _ in range(most - least):
            self.free[at].append(("", end))
            begin = self.new_state()
            self.free[at].append(("", begin))
            at = self.add(part, begin)
        self.free[at].append(("", end))
        return end

    def _begin(self, tree: _Expression, start: int) -> int:
        return self._when("begin", start)

    def _end(self, tree: _Expression, start: int) -> int:
        return self._when("end", start)

    def _when(self, condition: str, start: int) -> int:
        end = self.new_state()
        self.free[start].append((condition, end))
        return end

    def _look(self, tree: _Expression, start: int) -> int:
        raise _UnsupportedPattern("has look-ahead elsewhere than right after a leading ^")

    _look_not = _look

    def closure(self, places: set[int], conditions: tuple[str, ...]) -> frozenset[int]:
        """Return all states reachable without reading a character."""
        reached, queue = set(places), list(places)
        while queue:
            for condition, after in self.free[queue.pop()]:
                if after not in reached and (not condition or condition in conditions):
                    reached.add(after)
                    queue.append(after)
        return frozenset(reached)


_FOUND = frozenset({-1})


@lru_cache(1024)
def _strings_with_match(tree: _Expression, source: str) -> _StringSet:
    """Return the set of strings in which the expression matches somewhere."""
    steps = _ExpressionAutomaton(source)
    start = steps.new_state()
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
    table, labels = _explore_states(alphabet, _FOUND if last in begun else (True, begun), step, final, what)
    return _StringSet(alphabet, table, [label >= 0 for label in labels])
