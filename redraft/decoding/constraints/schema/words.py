"""Sets of strings as automata on characters: what patterns, constants, lengths and numbers say about a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from redraft.decoding.constraints.dfa import AutomatonTooLarge
from redraft.decoding.constraints.schema.formula import (
    _FALSE,
    _TRUE,
    _all_of,
    _fact,
    _Formula,
    _literals,
    _negated,
    _substituted,
)

_Ints = NDArray[np.int64]
_BEYOND = 0x110000  # the first number that is no code point
_MOST_WORD_STATES = 20_000
_Ranges = list[tuple[int, int]]  # (first, last) code points


@dataclass(frozen=True, eq=False)
class _Alphabet:
    """Code points in classes: each range [bounds[i], bounds[i + 1]) belongs to one; −1 is that of excluded ones."""

    bounds: _Ints
    kind: _Ints

    @property
    def size(self) -> int:
        return int(self.kind.max()) + 1

    def at(self, points: _Ints) -> _Ints:
        """The class of each code point."""
        return self.kind[np.searchsorted(self.bounds, points, "right") - 1]


def _alphabet(sets: Sequence[_Ranges], only: _Alphabet | None = None) -> tuple[_Alphabet, list[list[bool]]]:
    """The coarsest classes that tell sets of characters apart, and for each class which sets have it."""
    edges = [0, *(edge for ranges in sets for first, last in ranges for edge in (first, last + 1) if edge < _BEYOND)]
    bounds = np.unique(np.array(edges, np.int64))
    member = np.zeros((len(sets), len(bounds)), np.bool_)
    for row, ranges in zip(member, sets, strict=True):
        for first, last in ranges:
            row[np.searchsorted(bounds, first) : np.searchsorted(bounds, last + 1)] = True
    return _grouped(bounds, member)


def _grouped(bounds: _Ints, member: NDArray) -> tuple[_Alphabet, list[list]]:
    columns, kind = np.unique(member, axis=1, return_inverse=True)
    return _Alphabet(bounds, kind.reshape(-1).astype(np.int64)), columns.T.tolist()


@dataclass(frozen=True, eq=False)
class _Words:
    """A deterministic automaton on classes of characters, the smallest one; state 0 reads the beginning."""

    alphabet: _Alphabet
    table: list[list[int]]  # by state and class; −1: no string goes on so
    final: list[bool]
    universe: _Formula = _TRUE  # only of these strings is it certain, for every reader, whether they belong to it
    counts: bool = False  # strings of some number of characters, or more

    @cached_property
    def facts(self) -> list[_Formula]:
        """For each state, that what is still to be read is accepted; the last one is for "nowhere"."""
        rows = zip(self.table, self.final, strict=True)
        full = [final and set(row) == {state} for state, (row, final) in enumerate(rows)]
        return [*(_TRUE if all_of else _fact(_Rest(self, state)) for state, all_of in enumerate(full)), _FALSE]

    @property
    def all(self) -> _Formula:
        """That a string belongs to it."""
        return self.facts[0] if self.table else _FALSE

    def has(self, text: str) -> bool:
        state = 0 if self.table else -1
        for kind in self.alphabet.at(np.array([*map(ord, text)], np.int64)).tolist():
            state = self.table[state][kind] if state >= 0 and kind >= 0 else -1
        return state >= 0 and self.final[state]


class _Rest(NamedTuple):
    """The fact that the rest of a text is accepted from a state."""

    words: _Words
    state: int


def _explored(
    alphabet: _Alphabet,
    start: Any,
    step: Callable[[int], Callable[[Any], Any | None]],
    final: Callable[[Any], int],
    what: str = "a set of strings",
    spend: Callable[[int], None] = lambda count: None,
) -> tuple[list[list[int]], list[int]]:
    """The table of the states that can be reached, and what `final` says of each; equal states are one."""
    number, states, rows = {start: 0}, [start], []
    steps = [step(kind) for kind in range(alphabet.size)]
    for state in states:  # grows while it is read
        row = []
        for one in steps:
            after = one(state)
            if after is not None and after not in number:
                number[after] = len(states)
                states.append(after)
            row.append(-1 if after is None else number[after])
        rows.append(row)
        spend(len(row))
        if len(states) > _MOST_WORD_STATES:
            raise AutomatonTooLarge(f"{what} needs more than {_MOST_WORD_STATES:,} states")
    table = np.array(rows, np.int64).reshape(len(states), -1)
    return _smallest(table, np.array([final(state) for state in states]))


def _smallest(table: _Ints, label: _Ints) -> tuple[list[list[int]], list[int]]:
    """Moore's refinement of a table (S, C) of next states; states have labels, −1 (not final) or more."""
    table, label = np.vstack([table, np.full((1, table.shape[1]), -1)]), np.append(label, -1)  # −1 is the last state
    group, count = np.unique(label, return_inverse=True)[1], 0
    while int(group.max()) >= count:
        count = int(group.max()) + 1
        group = _numbered(np.column_stack([group, group[table]]))
    first = np.unique(group, return_index=True)[1]
    first = np.sort(first[group[first] != group[-1]])  # all but those that accept nothing; state 0 stays the first
    place = np.full(count, -1)
    place[group[first]] = np.arange(len(first))
    return place[group[table[first]]].tolist(), label[first].tolist()


def _numbered(rows: _Ints) -> _Ints:
    """(n, k) → (n,) equal numbers for equal rows, by hashes of 64 bits that are checked."""
    weights = np.asarray(np.random.Philox(0).random_raw(rows.shape[1])).astype(np.int64)
    _, first, group = np.unique((rows + 2) @ weights, return_index=True, return_inverse=True)
    if bool((rows != rows[first][group]).any()):
        raise RuntimeError("two rows had the same hash; this should never happen")
    return group


def _by_steps(
    sets: Sequence[_Ranges],
    start: Any,
    step: Callable[[Any, int], Any | None],
    final: Callable[[Any], bool],
) -> _Words:
    """An automaton from a function of a state and the number of a set of characters; other characters lead nowhere."""
    alphabet, member = _alphabet(sets)
    number = [row.index(True) if True in row else -1 for row in member]
    take = lambda kind: lambda state: None if number[kind] < 0 else step(state, number[kind])  # noqa: E731
    table, label = _explored(alphabet, start, take, lambda state: 0 if final(state) else -1)
    return _Words(alphabet, table, [found >= 0 for found in label])


def _characters(text: str) -> list[_Ranges]:
    return [[(ord(letter), ord(letter))] for letter in text]


@lru_cache(1024)
def _among(texts: tuple[str, ...]) -> _Words:
    """Exactly these strings."""
    letters = "".join(sorted(set("".join(texts))))
    node: dict[str, dict] = {}
    for text in texts:
        at = node
        for letter in text:
            at = at.setdefault(letter, {})
        at[""] = {}
    nodes = {id(node): node}

    def step(state: Any, letter: int) -> Any | None:
        after = nodes[state].get(letters[letter])
        if after is not None:
            nodes[id(after)] = after
        return None if after is None else id(after)

    return _by_steps(_characters(letters) or [[]], id(node), step, lambda state: "" in nodes[state])


@lru_cache(256)
def _at_least(count: int) -> _Words:
    """Strings of so many characters, or more."""
    alphabet = _Alphabet(np.zeros(1, np.int64), np.zeros(1, np.int64))
    table = [[min(state + 1, count)] for state in range(count + 1)]
    return _Words(alphabet, table, [state == count for state in range(count + 1)], counts=True)


def _within(words: _Words, universe: _Formula) -> _Words:
    """The same set, certain only inside a universe."""
    return replace(words, universe=universe)


def _capped(first: _Formula, watched: tuple[_Formula, ...], most: int) -> _Formula:
    """The first formula, and no more than so many characters if longer ones would have to be counted."""
    lengths = {
        len(atom.words.table) - 1 for formula in (first, *watched) for atom in formula.atoms if atom.words.counts
    }
    needed = [
        len(lit.args[0].words.table) - 1 for lit in _literals(first) if lit.op == "fact" and lit.args[0].words.counts
    ]
    most = max(most, *needed, 0) + 1
    return _all_of([first, _negated(_at_least(most).all)]) if lengths and max(lengths) > most else first


# --- several sets at once ---


@dataclass(frozen=True, eq=False)
class _Sorted:
    """Strings by what is true of them: an automaton whose final states have labels."""

    alphabet: _Alphabet
    table: list[list[int]]
    label: list[int]  # of each state; −1: no string ends there
    labels: tuple[tuple[bool, ...], ...]  # the truth of each watched formula


def _sorted(
    first: _Formula, watched: tuple[_Formula, ...], letters: _Alphabet, spend: Callable[[int], None]
) -> _Sorted:
    """The strings of which the first formula is true, by the truth of the watched ones.

    Formulas are about `_Rest`. Strings about which readers disagree are left out. spend: is told of steps made.
    """
    formulas = (_all_of([first, *_universes((first, *watched))]), *watched)
    sets = list(dict.fromkeys(atom.words for formula in formulas for atom in _in_order(formula)))
    alphabet, kinds = _common(sets, letters)
    found: dict[tuple[bool, ...], int] = {}

    def step(kind: int) -> Callable[[Any], Any | None]:
        return lambda state: _read(state, memo[kind], place, kinds[kind])

    def label(state: Any) -> int:
        ended = [_ended(formula) for formula in state]
        return found.setdefault(tuple(ended[1:]), len(found)) if ended[0] else -1

    place = {words: i for i, words in enumerate(sets)}
    memo: list[dict[_Formula, _Formula]] = [{} for _ in kinds]
    if formulas[0] is _FALSE:
        return _Sorted(alphabet, [], [], ())
    table, labels = _explored(alphabet, formulas, step, label, "a string with all of its patterns", spend)
    return _Sorted(alphabet, table, labels, tuple(found))


def _in_order(formula: _Formula) -> list[_Rest]:
    if formula.op == "fact":
        return [formula.args[0]]
    return [atom for arg in formula.args for atom in _in_order(arg)]


def _universes(formulas: Iterable[_Formula]) -> list[_Formula]:
    atoms = [atom for formula in formulas for atom in _in_order(formula)]
    return list(dict.fromkeys(atom.words.universe for atom in atoms))


def _common(sets: list[_Words], letters: _Alphabet) -> tuple[_Alphabet, list[list[int]]]:
    """Classes that all automata agree with, and the class of each automaton in them."""
    parts = [words.alphabet for words in sets]
    bounds = np.unique(np.concatenate([part.bounds for part in (letters, *parts)]))
    kinds = np.stack([part.at(bounds) for part in (letters, *parts)])
    kinds[:, kinds[0] < 0] = -1
    alphabet, columns = _grouped(bounds, kinds)
    if columns[0][0] < 0:  # the excluded characters come first
        return _Alphabet(bounds, alphabet.kind - 1), [column[1:] for column in columns[1:]]
    return alphabet, [column[1:] for column in columns]


def _read(
    state: tuple[_Formula, ...], memo: dict[_Formula, _Formula], place: dict[_Words, int], kinds: list[int]
) -> tuple[_Formula, ...] | None:
    """The formulas behind one more character, None if the first one has become false."""
    found = []
    for formula in state:
        if formula not in memo:
            changes = {
                atom: atom.words.facts[atom.words.table[atom.state][kinds[place[atom.words]]]] for atom in formula.atoms
            }
            memo[formula] = _substituted(formula, changes)
        found.append(memo[formula])
        if found[0] is _FALSE:
            return None
    return tuple(found)


def _ended(formula: _Formula) -> bool:
    """Whether a formula holds if the text ends here."""
    final = {atom: _TRUE if atom.words.final[atom.state] else _FALSE for atom in formula.atoms}
    return _substituted(formula, final) is _TRUE


def _holds(formula: _Formula, text: str) -> bool | None:
    """The truth of a formula about a string; None if readers disagree."""
    belongs = {atom: _TRUE if atom.words.has(text) else _FALSE for atom in formula.atoms}
    for universe in _universes([formula]):
        inside = {atom: _TRUE if atom.words.has(text) else _FALSE for atom in universe.atoms}
        if _substituted(universe, inside) is not _TRUE:
            return None
    return _substituted(formula, belongs) is _TRUE
