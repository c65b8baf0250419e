"""Automata on bytes: what a text of UTF-8 may be, as a table of states; sets of texts combine by products of tables."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_MOST_STATES = 20_000  # of any automaton, products included: beyond it, patterns are mistakes or attacks
_ASCII_WORD = frozenset((string.ascii_letters + string.digits + "_").encode())
_BEYOND_ASCII = frozenset(range(128, 256))


class AutomatonTooLarge(ValueError):
    """An automaton that would have too many states."""


@dataclass(frozen=True, eq=False)
class _Dfa:
    """A deterministic automaton on bytes that starts in state 0; a text belongs to it if it ends in a final state."""

    table: NDArray[np.int32]  # (S, 256): the next state, −1 if no text goes on so
    final: NDArray[np.bool_]  # (S,)

    def __len__(self) -> int:
        return len(self.final)

    def accepts(self, text: bytes) -> bool:
        """Whether a text belongs to it."""
        state = 0
        for byte in text:
            if (state := int(self.table[state, byte])) < 0:
                return False
        return bool(self.final[state])

    @property
    def empty(self) -> bool:
        """Whether no text belongs to it, if it is `minimal`."""
        return not self.final.any()


def _intersection(a: _Dfa, b: _Dfa) -> _Dfa:
    """Texts that belong to each of two automata."""
    return _product(a, b, np.logical_and)


def _union(a: _Dfa, b: _Dfa) -> _Dfa:
    """Texts that belong to one of two automata, or to both."""
    return _product(a, b, np.logical_or)


def _complement(a: _Dfa) -> _Dfa:
    """All strings of bytes that do not belong to it."""
    total = _total(a)
    return _minimize(_Dfa(total.table, ~total.final))


def _all_strings() -> _Dfa:
    """Every string of bytes."""
    return _Dfa(np.zeros((1, 256), np.int32), np.ones(1, np.bool_))


def _literals(texts: Iterable[str]) -> _Dfa:
    """Exactly these texts."""
    table, final = [[-1] * 256], [False]
    for text in texts:
        state = 0
        for byte in text.encode():
            if table[state][byte] < 0:
                if len(table) >= _MOST_STATES:
                    raise AutomatonTooLarge(f"a list of texts with more than {_MOST_STATES:,} different beginnings")
                table[state][byte] = len(table)
                table.append([-1] * 256)
                final.append(False)
            state = table[state][byte]
        final[state] = True
    return _minimize(_Dfa(np.array(table, np.int32), np.array(final)))


def _with_optional_space(dfa: _Dfa) -> _Dfa:
    """Its texts behind a space, and as they are unless they begin with white space."""
    first = np.where(np.isin(np.arange(256), list(b" \t\n\v\f\r\x1c\x1d\x1e\x1f")), -1, dfa.table[0])
    first[ord(" ")] = 0
    table = np.vstack([first, dfa.table])
    shifted = np.where(table < 0, -1, table + 1).astype(np.int32)
    return _minimize(_Dfa(shifted, np.concatenate([dfa.final[:1], dfa.final])))


def _containing_word(words: Sequence[str], *, accents_join: bool) -> _Dfa:
    """Texts in which one of these words occurs, not as a part of a longer word.

    Letters, digits and _ of ASCII continue a word. Other characters, which may be letters or quotation marks, do so
    if `accents_join`.
    """
    return _Search(
        tuple(word.encode() for word in words), _ASCII_WORD | (_BEYOND_ASCII if accents_join else frozenset())
    ).dfa()


_Partial = frozenset[tuple[int, int]]  # (word, how many of its bytes were read)
_FOUND = None


@dataclass(frozen=True)
class _Search:
    """Which words have been begun, byte by byte (the subset construction)."""

    words: tuple[bytes, ...]
    joins: frozenset[int]  # bytes that continue a word

    def dfa(self) -> _Dfa:
        queue: list[tuple[bool, _Partial] | None] = [(False, frozenset())]
        numbers, rows, final = {queue[0]: 0}, [], []
        for state in queue:  # grows while it is read
            after = [self._next(state, byte) for byte in range(256)]
            queue += [new for new in dict.fromkeys(after) if new not in numbers]
            numbers.update((new, number) for number, new in enumerate(queue[len(numbers) :], len(numbers)))
            rows.append([numbers[new] for new in after])
            final.append(state is _FOUND or any(read == len(self.words[word]) for word, read in state[1]))
            if len(numbers) > _MOST_STATES:
                raise AutomatonTooLarge(f"{len(self.words)} words need more than {_MOST_STATES:,} states")
        return _minimize(_Dfa(np.array(rows, np.int32), np.array(final)))

    def _next(self, state: tuple[bool, _Partial] | None, byte: int) -> tuple[bool, _Partial] | None:
        if state is _FOUND:
            return _FOUND
        inside, partial = state
        joins = byte in self.joins
        if any(read == len(self.words[word]) for word, read in partial) and not joins:
            return _FOUND
        begun = [(word, 0) for word, text in enumerate(self.words) if not (inside and text[0] in self.joins)]
        grown = frozenset(
            (word, read + 1)
            for word, read in [*partial, *begun]
            if read < len(self.words[word]) and self.words[word][read] == byte
        )
        closed = (word for word, read in grown if read == len(self.words[word]))
        if any(self.words[word][-1] not in self.joins for word in closed):
            return _FOUND
        return joins, grown


def _total(a: _Dfa) -> _Dfa:
    """The same with a state for texts that cannot go on."""
    sink = len(a)
    table = np.vstack([np.where(a.table < 0, sink, a.table), np.full((1, 256), sink)]).astype(np.int32)
    return _Dfa(table, np.append(a.final, False))


def _product(a: _Dfa, b: _Dfa, combine: Callable[..., NDArray[np.bool_]]) -> _Dfa:
    """The pairs of states that texts reach."""
    a, b = _total(a), _total(b)
    if len(a) * len(b) > 10**8:
        raise AutomatonTooLarge(f"combining patterns of {len(a):,} and {len(b):,} states takes too much memory")
    number = np.full(len(a) * len(b), -1, np.int64)
    number[0], frontier, found, tables = 0, np.zeros(1, np.int64), [np.zeros(1, np.int64)], []
    count = 1
    while len(frontier):
        after = a.table[frontier // len(b)].astype(np.int64) * len(b) + b.table[frontier % len(b)]
        tables.append(after)
        frontier = np.unique(after[number[after] < 0])
        number[frontier] = np.arange(count, count + len(frontier))
        count += len(frontier)
        found.append(frontier)
        if count > 4 * _MOST_STATES:
            raise AutomatonTooLarge(f"the patterns together have more than {_MOST_STATES:,} states")
    pairs, table = np.concatenate(found), number[np.concatenate(tables)]
    combined = combine(a.final[pairs // len(b)], b.final[pairs % len(b)])
    return _minimize(_Dfa(table.astype(np.int32), combined))


def _minimize(a: _Dfa) -> _Dfa:
    """The smallest automaton of the same texts: states that nothing reaches or that lead nowhere go, equal ones merge.

    Moore's refinement: states are apart if one is final and the other not, or if some byte leads them apart. Bytes
    that lead everywhere to the same are looked at once.
    """
    kind, first = _unique_columns(a.table)
    table, final = _useful(a.table[:, first], a.final)
    group, count = np.unique(final, return_inverse=True)[1], 0
    while group.max() >= count:  # as long as there are more groups than before
        count = int(group.max()) + 1
        group = _grouped(np.column_stack([group, np.append(group, -1)[table]]))  # −1 is the last one
    kept = np.unique(group, return_index=True)[1]
    order = np.argsort(kept)  # state 0 stays the first one
    place = np.append(np.argsort(order), -1)
    return _Dfa(place[np.append(group, -1)[table[kept[order]]]].astype(np.int32)[:, kind], final[kept[order]])


def _unique_columns(table: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(S, N) → (N,) the number of each column among those that differ, and (K,) where each of these stands first."""
    kind = _grouped(table.T)
    first = np.unique(kind, return_index=True)[1]
    return kind, first


def _grouped(rows: NDArray[np.integer]) -> NDArray[np.int64]:
    """(N, S) → (N,) equal numbers for equal rows, by hashes of 64 bits that are checked."""
    weights = np.asarray(np.random.Philox(0).random_raw(rows.shape[1])).astype(np.int64)
    hashes = np.zeros(len(rows), np.int64)
    for column, weight in zip(rows.T, weights, strict=True):
        hashes += (column + 2) * weight
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    for column in rows.T:
        if bool((column != column[first][group]).any()):
            raise RuntimeError("two columns had the same hash; this should never happen")
    return group


def _can_reach(table: NDArray[np.integer], final: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(S,) from which states a final one can be reached; a table (S, anything) of next states, −1 for none."""
    source, column = (table >= 0).nonzero()
    target = table[source, column]
    found, before = final.copy(), -1
    while (count := int(found.sum())) > before:
        before = count
        found[source[found[target]]] = True
    return found


def _useful(table: NDArray[np.integer], final: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Only states that can be reached and lead to a final one, and the first state, in the order they are found."""
    table = np.where(np.append(_can_reach(table, final), False)[table], table, -1)  # −1 is the last one
    number = np.full(len(table) + 1, -1, np.int64)
    number[0] = 0
    found: NDArray[np.int64] = np.zeros(1, np.int64)
    frontier = found
    while len(frontier):
        after = np.unique(table[frontier]).astype(np.int64)
        frontier = after[(after >= 0) & (number[after] < 0)]
        number[frontier] = np.arange(len(found), len(found) + len(frontier))
        found = np.concatenate([found, frontier])
    return number[table[found]], final[found]
