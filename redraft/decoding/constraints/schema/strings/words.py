"""Sets of strings as automata on characters, such as those that match a pattern or have a given length."""

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
    _not,
    _substitute,
)

_Ints = NDArray[np.int64]
_BEYOND = 0x110000  # one more than the largest code point
_MOST_WORD_STATES = 20_000
_Ranges = list[tuple[int, int]]  # (first, last) code points


@dataclass(frozen=True, eq=False)
class _Alphabet:
    """Classes of code points: those in [bounds[i], bounds[i + 1]) have the class kind[i]; −1 for excluded ones."""

    bounds: _Ints
    kind: _Ints

    @property
    def size(self) -> int:
        return int(self.kind.max()) + 1

    def at(self, points: _Ints) -> _Ints:
        """Return the class of each code point."""
        return self.kind[np.searchsorted(self.bounds, points, "right") - 1]


def _alphabet(sets: Sequence[_Ranges], only: _Alphabet | None = None) -> tuple[_Alphabet, list[list[bool]]]:
    """Return the fewest classes that distinguish these sets of characters, and which sets contain each class."""
    edges = [0, *(edge for ranges in sets for first, last in ranges for edge in (first, last + 1) if edge < _BEYOND)]
    bounds = np.unique(np.array(edges, np.int64))
    member = np.zeros((len(sets), len(bounds)), np.bool_)
    for row, ranges in zip(member, sets, strict=True):
        for first, last in ranges:
            row[np.searchsorted(bounds, first) : np.searchsorted(bounds, last + 1)] = True
    return _group_classes(bounds, member)


def _group_classes(bounds: _Ints, member: NDArray) -> tuple[_Alphabet, list[list]]:
    columns, kind = np.unique(member, axis=1, return_inverse=True)
    return _Alphabet(bounds, kind.reshape(-1).astype(np.int64)), columns.T.tolist()


@dataclass(frozen=True, eq=False)
class _StringSet:
    """A set of strings, as a minimal deterministic automaton on classes of characters; state 0 is the start."""

    alphabet: _Alphabet
    table: list[list[int]]  # next state by state and class; −1 if there is none
    final: list[bool]
    universe: _Formula = _TRUE  # strings on which all parsers agree about membership
    counts: bool = False  # True if the set only demands a minimum length

    @cached_property
    def facts(self) -> list[_Formula]:
        """For each state the formula that the rest of the text is accepted from there; the last entry is for −1."""
        rows = zip(self.table, self.final, strict=True)
        full = [final and set(row) == {state} for state, (row, final) in enumerate(rows)]
        return [*(_TRUE if all_of else _fact(_RestAccepted(self, state)) for state, all_of in enumerate(full)), _FALSE]

    @property
    def all(self) -> _Formula:
        """The formula that a string belongs to the set."""
        return self.facts[0] if self.table else _FALSE

    def has(self, text: str) -> bool:
        state = 0 if self.table else -1
        for kind in self.alphabet.at(np.array([*map(ord, text)], np.int64)).tolist():
            state = self.table[state][kind] if state >= 0 and kind >= 0 else -1
        return state >= 0 and self.final[state]


class _RestAccepted(NamedTuple):
    """The statement that the rest of a text is accepted from a state."""

    words: _StringSet
    state: int


def _explore_states(
    alphabet: _Alphabet,
    start: Any,
    step: Callable[[int], Callable[[Any], Any | None]],
    final: Callable[[Any], int],
    what: str = "a set of strings",
    spend: Callable[[int], None] = lambda count: None,
) -> tuple[list[list[int]], list[int]]:
    """Explore the states reachable from `start`; return the minimized table and the label (`final`) of each state."""
    number, states, rows = {start: 0}, [start], []
    steps = [step(kind) for kind in range(alphabet.size)]
    for state in states:  # grows during the loop
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
    return _minimize_table(table, np.array([final(state) for state in states]))


def _minimize_table(table: _Ints, label: _Ints) -> tuple[list[list[int]], list[int]]:
    """Minimize a table (S, C) of next states by Moore's algorithm; states with different labels stay apart."""
    table, label = (
        np.vstack([table, np.full((1, table.shape[1]), -1)]),
        np.append(label, -1),
    )  # index −1 is the last state
    group, count = np.unique(label, return_inverse=True)[1], 0
    while int(group.max()) >= count:
        count = int(group.max()) + 1
        group = _numbered(np.column_stack([group, group[table]]))
    first = np.unique(group, return_index=True)[1]
    first = np.sort(first[group[first] != group[-1]])  # without dead states; state 0 stays first
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


def _strings_by_steps(
    sets: Sequence[_Ranges],
    start: Any,
    step: Callable[[Any, int], Any | None],
    final: Callable[[Any], bool],
) -> _StringSet:
    """Build a set of strings from a step function of a state and the index of a character set."""
    alphabet, member = _alphabet(sets)
    number = [row.index(True) if True in row else -1 for row in member]
    take = lambda kind: lambda state: None if number[kind] < 0 else step(state, number[kind])  # noqa: E731
    table, labels = _explore_states(alphabet, start, take, lambda state: 0 if final(state) else -1)
    return _StringSet(alphabet, table, [label >= 0 for label in labels])


def _single_characters(text: str) -> list[_Ranges]:
    return [[(ord(letter), ord(letter))] for letter in text]


@lru_cache(1024)
def _exactly_strings(texts: tuple[str, ...]) -> _StringSet:
    """Return the set of exactly these strings."""
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

    return _strings_by_steps(_single_characters(letters) or [[]], id(node), step, lambda state: "" in nodes[state])


@lru_cache(256)
def _longer_strings(count: int) -> _StringSet:
    """Return the set of strings of at least `count` characters."""
    alphabet = _Alphabet(np.zeros(1, np.int64), np.zeros(1, np.int64))
    table = [[min(state + 1, count)] for state in range(count + 1)]
    return _StringSet(alphabet, table, [state == count for state in range(count + 1)], counts=True)


def _with_universe(words: _StringSet, universe: _Formula) -> _StringSet:
    """Return the same set, on which parsers agree only within `universe`."""
    return replace(words, universe=universe)


def _cap_length(first: _Formula, watched: tuple[_Formula, ...], most: int) -> _Formula:
    """Limit the length of strings if the formulas would otherwise have to count more than `most` characters."""
    lengths = {
        len(atom.words.table) - 1 for formula in (first, *watched) for atom in formula.atoms if atom.words.counts
    }
    needed = [
        len(lit.args[0].words.table) - 1 for lit in _literals(first) if lit.op == "fact" and lit.args[0].words.counts
    ]
    most = max(most, *needed, 0) + 1
    return _all_of([first, _not(_longer_strings(most).all)]) if lengths and max(lengths) > most else first


# --- several sets at once ---


@dataclass(frozen=True, eq=False)
class _LabeledStrings:
    """A set of strings as an automaton; the label of a final state says which formulas hold."""

    alphabet: _Alphabet
    table: list[list[int]]
    label: list[int]  # label of each state; −1 if no string ends there
    labels: tuple[tuple[bool, ...], ...]  # the truth of each watched formula


def _label_strings(
    first: _Formula, watched: tuple[_Formula, ...], letters: _Alphabet, spend: Callable[[int], None]
) -> _LabeledStrings:
    """Return the strings for which the first formula holds, labeled by the truth of the watched ones.

    The atoms of the formulas are `_RestAccepted`. Strings on which parsers disagree are left out.
    spend: called with the number of steps made.
    """
    formulas = (_all_of([first, *_universes((first, *watched))]), *watched)
    sets = list(dict.fromkeys(atom.words for formula in formulas for atom in _atoms_in_order(formula)))
    alphabet, kinds = _common_alphabet(sets, letters)
    numbers: dict[tuple[bool, ...], int] = {}

    def step(kind: int) -> Callable[[Any], Any | None]:
        return lambda state: _next_formulas(state, memo[kind], place, kinds[kind])

    def label(state: Any) -> int:
        ended = [_holds_at_end(formula) for formula in state]
        return numbers.setdefault(tuple(ended[1:]), len(numbers)) if ended[0] else -1

    place = {words: i for i, words in enumerate(sets)}
    memo: list[dict[_Formula, _Formula]] = [{} for _ in kinds]
    if formulas[0] is _FALSE:
        return _LabeledStrings(alphabet, [], [], ())
    table, labels = _explore_states(alphabet, formulas, step, label, "a string with all of its patterns", spend)
    return _LabeledStrings(alphabet, table, labels, tuple(numbers))


def _atoms_in_order(formula: _Formula) -> list[_RestAccepted]:
    if formula.op == "fact":
        return [formula.args[0]]
    return [atom for arg in formula.args for atom in _atoms_in_order(arg)]


def _universes(formulas: Iterable[_Formula]) -> list[_Formula]:
    atoms = [atom for formula in formulas for atom in _atoms_in_order(formula)]
    return list(dict.fromkeys(atom.words.universe for atom in atoms))


def _common_alphabet(sets: list[_StringSet], letters: _Alphabet) -> tuple[_Alphabet, list[list[int]]]:
    """Return classes that refine those of all automata, and the class of each automaton for each of them."""
    parts = [words.alphabet for words in sets]
    bounds = np.unique(np.concatenate([part.bounds for part in (letters, *parts)]))
    kinds = np.stack([part.at(bounds) for part in (letters, *parts)])
    kinds[:, kinds[0] < 0] = -1
    alphabet, columns = _group_classes(bounds, kinds)
    if columns[0][0] < 0:  # excluded characters come first
        return _Alphabet(bounds, alphabet.kind - 1), [column[1:] for column in columns[1:]]
    return alphabet, [column[1:] for column in columns]


def _next_formulas(
    state: tuple[_Formula, ...], memo: dict[_Formula, _Formula], place: dict[_StringSet, int], kinds: list[int]
) -> tuple[_Formula, ...] | None:
    """Return the formulas after one more character; None if the first one became false."""
    formulas = []
    for formula in state:
        if formula not in memo:
            changes = {
                atom: atom.words.facts[atom.words.table[atom.state][kinds[place[atom.words]]]] for atom in formula.atoms
            }
            memo[formula] = _substitute(formula, changes)
        formulas.append(memo[formula])
        if formulas[0] is _FALSE:
            return None
    return tuple(formulas)


def _holds_at_end(formula: _Formula) -> bool:
    """Whether a formula holds for the text if it ends here."""
    final = {atom: _TRUE if atom.words.final[atom.state] else _FALSE for atom in formula.atoms}
    return _substitute(formula, final) is _TRUE


def _holds(formula: _Formula, text: str) -> bool | None:
    """Whether a formula holds for a string; None if parsers disagree."""
    belongs = {atom: _TRUE if atom.words.has(text) else _FALSE for atom in formula.atoms}
    for universe in _universes([formula]):
        inside = {atom: _TRUE if atom.words.has(text) else _FALSE for atom in universe.atoms}
        if _substitute(universe, inside) is not _TRUE:
            return None
    return _substitute(formula, belongs) is _TRUE
