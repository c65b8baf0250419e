"""Finite automata on the bytes of UTF-8 text, and the operations on them: intersection, union, complement."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_MAX_STATES = 20_000  # per automaton, products included; a pattern that needs more is a mistake or an attack
_ASCII_WORD = frozenset((string.ascii_letters + string.digits + "_").encode())
_BEYOND_ASCII = frozenset(range(128, 256))


class AutomatonTooLarge(ValueError):
    """Raised if an automaton would have too many states."""


@dataclass(frozen=True, eq=False)
class _Dfa:
    """A deterministic automaton on bytes, starting in state 0. It accepts texts that end in a final state."""

    table: NDArray[np.int32]  # (S, 256) next state; −1 if there is none
    final: NDArray[np.bool_]  # (S,) accepting states

    def __len__(self) -> int:
        return len(self.final)

    def accepts(self, text: bytes) -> bool:
        """Whether the text is accepted."""
        state = 0
        for byte in text:
            if (state := int(self.table[state, byte])) < 0:
                return False
        return bool(self.final[state])

    @property
    def empty(self) -> bool:
        """Whether no text is accepted; only valid for a minimal automaton (`_minimize`)."""
        return not self.final.any()

    @property
    def universal(self) -> bool:
        """Whether every text is accepted; only valid for a minimal automaton."""
        return len(self) == 1 and bool(self.final[0]) and bool((self.table == 0).all())


def _intersection(a: _Dfa, b: _Dfa) -> _Dfa:
    """Return an automaton that accepts the texts that both automata accept."""
    return a if b.universal else _product(a, b, np.logical_and)


def _union(a: _Dfa, b: _Dfa) -> _Dfa:
    """Return an automaton that accepts the texts that at least one of the automata accepts."""
    return _product(a, b, np.logical_or)


def _complement(a: _Dfa) -> _Dfa:
    """Return an automaton that accepts all byte strings that this one does not accept."""
    complete = _complete(a)
    return _minimize(_Dfa(complete.table, ~complete.final))


def _all_strings() -> _Dfa:
    """Return an automaton that accepts every byte string."""
    return _Dfa(np.zeros((1, 256), np.int32), np.ones(1, np.bool_))


def _literals(texts: Iterable[str]) -> _Dfa:
    """Return an automaton that accepts exactly these texts."""
    table, final = [[-1] * 256], [False]
    for text in texts:
        state = 0
        for byte in text.encode():
            if table[state][byte] < 0:
                if len(table) >= _MAX_STATES:
                    raise AutomatonTooLarge(
                        f"the texts have more than {_MAX_STATES:,} different prefixes; use fewer texts"
                    )
                table[state][byte] = len(table)
                table.append([-1] * 256)
                final.append(False)
            state = table[state][byte]
        final[state] = True
    return _minimize(_Dfa(np.array(table, np.int32), np.array(final)))


def _between(a: _Dfa, before: bytes, after: bytes) -> _Dfa:
    """Return an automaton that accepts the same texts, each with these bytes before and after it.

    A state is one of `a` (−1 if none) and the numbers of bytes of `after` that may have been read since `a` accepted.
    """
    queue: list[tuple[int, frozenset[int]]] = [(0, _may_follow(a, 0))]
    index_of, table, final = {queue[0]: 0}, [], []
    for state, read in queue:  # new states are appended during the loop
        row = np.full(256, -1) if state < 0 else a.table[state]
        plain = {target: (target, _may_follow(a, target)) for target in np.unique(row).tolist() if target >= 0}
        advancing = {}  # by byte: targets where some bytes of `after` have been read
        for byte in {after[count] for count in read if count < len(after)}:
            advanced = frozenset(count + 1 for count in read if after[count : count + 1] == bytes([byte]))
            advancing[byte] = int(row[byte]), advanced | _may_follow(a, int(row[byte]))
        for new in (*plain.values(), *advancing.values()):
            if new not in index_of:
                index_of[new] = len(queue)
                queue.append(new)
        column = np.full(256, -1, np.int32)
        for target, new in plain.items():
            column[row == target] = index_of[new]
        for byte, new in advancing.items():
            column[byte] = index_of[new]
        table.append(column)
        final.append(len(after) in read)
        if len(queue) > _MAX_STATES:
            raise AutomatonTooLarge(f"the rule and the text beside it need more than {_MAX_STATES:,} states")
    return _with_prefix(_Dfa(np.array(table), np.array(final)), before)


def _may_follow(a: _Dfa, state: int) -> frozenset[int]:
    """{0} if the text may end in this state of `a`, so that nothing of the text after it was read yet."""
    return frozenset([0]) if state >= 0 and a.final[state] else frozenset()


def _with_prefix(a: _Dfa, before: bytes) -> _Dfa:
    """Return an automaton that accepts the same texts, each with these bytes before it."""
    size = len(before)
    chain = np.full((size, 256), -1, np.int32)
    chain[np.arange(size), list(before)] = np.arange(1, size + 1)
    table = np.vstack([chain, np.where(a.table < 0, -1, a.table + size).astype(np.int32)])
    return _minimize(_Dfa(table, np.concatenate([np.zeros(size, np.bool_), a.final])))


def _containing_word(words: Sequence[str], *, accents_join: bool) -> _Dfa:
    """Return an automaton that accepts texts with one of these words in them, not as part of a longer word.

    ASCII letters, digits and _ continue a word. Characters beyond ASCII may be letters or quotation marks; they
    continue a word only if `accents_join`.
    """
    return _Search(
        tuple(word.encode() for word in words), _ASCII_WORD | (_BEYOND_ASCII if accents_join else frozenset())
    ).dfa()


_Partial = frozenset[tuple[int, int]]  # (word index, number of its bytes read so far)
_FOUND = None  # state after a word was found


@dataclass(frozen=True)
class _Search:
    """Builds the automaton of a word search by the subset construction: a state is a set of partially read words."""

    words: tuple[bytes, ...]
    joins: frozenset[int]  # bytes that continue a word

    def dfa(self) -> _Dfa:
        queue: list[tuple[bool, _Partial] | None] = [(False, frozenset())]
        index_of, rows, final = {queue[0]: 0}, [], []
        for state in queue:  # new states are appended during the loop
            after = [self._next(state, byte) for byte in range(256)]
            queue += [new for new in dict.fromkeys(after) if new not in index_of]
            index_of.update((new, index) for index, new in enumerate(queue[len(index_of) :], len(index_of)))
            rows.append([index_of[new] for new in after])
            final.append(state is _FOUND or any(read == len(self.words[word]) for word, read in state[1]))
            if len(index_of) > _MAX_STATES:
                raise AutomatonTooLarge(
                    f"{len(self.words)} words need more than {_MAX_STATES:,} states; use fewer words"
                )
        return _minimize(_Dfa(np.array(rows, np.int32), np.array(final)))

    def _next(self, state: tuple[bool, _Partial] | None, byte: int) -> tuple[bool, _Partial] | None:
        if state is _FOUND:
            return _FOUND
        inside, partial = state
        joins = byte in self.joins
        if any(read == len(self.words[word]) for word, read in partial) and not joins:
            return _FOUND
        starting = [(word, 0) for word, text in enumerate(self.words) if not (inside and text[0] in self.joins)]
        advanced = frozenset(
            (word, read + 1)
            for word, read in [*partial, *starting]
            if read < len(self.words[word]) and self.words[word][read] == byte
        )
        complete = (word for word, read in advanced if read == len(self.words[word]))
        if any(self.words[word][-1] not in self.joins for word in complete):
            return _FOUND
        return joins, advanced


def _complete(a: _Dfa) -> _Dfa:
    """Add a sink state, so that every state has a next state for every byte."""
    sink = len(a)
    table = np.vstack([np.where(a.table < 0, sink, a.table), np.full((1, 256), sink)]).astype(np.int32)
    return _Dfa(table, np.append(a.final, False))


def _product(a: _Dfa, b: _Dfa, combine: Callable[..., NDArray[np.bool_]]) -> _Dfa:
    """Build the product automaton from the reachable pairs of states; `combine` joins their final flags."""
    a, b = _complete(a), _complete(b)
    if len(a) * len(b) > 10**8:
        raise AutomatonTooLarge(
            f"combining patterns of {len(a):,} and {len(b):,} states takes too much memory; use simpler ones"
        )
    index = np.full(len(a) * len(b), -1, np.int64)  # new state of each reached pair; −1 if not reached
    index[0], frontier, reached, tables = 0, np.zeros(1, np.int64), [np.zeros(1, np.int64)], []
    count = 1
    while len(frontier):
        after = a.table[frontier // len(b)].astype(np.int64) * len(b) + b.table[frontier % len(b)]
        tables.append(after)
        frontier = np.unique(after[index[after] < 0])
        index[frontier] = np.arange(count, count + len(frontier))
        count += len(frontier)
        reached.append(frontier)
        if count > 4 * _MAX_STATES:
            raise AutomatonTooLarge(
                f"the combined patterns have more than {4 * _MAX_STATES:,} states; use simpler ones"
            )
    pairs, table = np.concatenate(reached), index[np.concatenate(tables)]
    combined = combine(a.final[pairs // len(b)], b.final[pairs % len(b)])
    return _minimize(_Dfa(table.astype(np.int32), combined))


def _minimize(a: _Dfa) -> _Dfa:
    """Return the minimal equivalent automaton: removes unreachable and dead states, and merges equivalent ones.

    Moore's algorithm: two states differ if only one is final, or if some byte leads them to states that differ. Bytes
    with equal columns of the table are handled as one.
    """
    byte_class, first = _unique_columns(a.table)
    table, final = _remove_useless(a.table[:, first], a.final)
    group, count = np.unique(final, return_inverse=True)[1], 0
    while group.max() >= count:  # until the number of groups stops growing
        count = int(group.max()) + 1
        group = _group_rows(np.column_stack([group, np.append(group, -1)[table]]))  # index −1 is the appended −1
    representative = np.unique(group, return_index=True)[1]
    order = np.argsort(representative)  # state 0 stays the start state
    rank = np.append(np.argsort(order), -1)
    table_of_groups = rank[np.append(group, -1)[table[representative[order]]]].astype(np.int32)
    return _Dfa(table_of_groups[:, byte_class], final[representative[order]])


def _unique_columns(table: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(S, N) → (N,) index of each column among the K distinct ones, and (K,) the first column of each kind."""
    group = _group_rows(table.T)
    first = np.unique(group, return_index=True)[1]
    return group, first


def _group_rows(rows: NDArray[np.integer]) -> NDArray[np.int64]:
    """(N, S) → (N,) group index, the same for equal rows; compares 64-bit hashes and checks for collisions."""
    weights = np.asarray(np.random.Philox(0).random_raw(rows.shape[1])).astype(np.int64)
    hashes = np.zeros(len(rows), np.int64)
    for column, weight in zip(rows.T, weights, strict=True):
        hashes += (column + 2) * weight
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    for column in rows.T:
        if bool((column != column[first][group]).any()):
            raise RuntimeError("two different rows have the same hash; this should never happen")
    return group


def _can_reach(table: NDArray[np.integer], final: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(S,) bool: states from which a final one can be reached; table: (S, N) next states, −1 for none."""
    source, column = (table >= 0).nonzero()
    target = table[source, column]
    reaches, previous = final.copy(), -1
    while (count := int(reaches.sum())) > previous:
        previous = count
        reaches[source[reaches[target]]] = True
    return reaches


def _remove_useless(
    table: NDArray[np.integer], final: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Keep only state 0 and reachable states that lead to a final one, in the order in which they are reached."""
    table = np.where(np.append(_can_reach(table, final), False)[table], table, -1)  # index −1 is the appended False
    index = np.full(len(table) + 1, -1, np.int64)
    index[0] = 0
    reached: NDArray[np.int64] = np.zeros(1, np.int64)
    frontier = reached
    while len(frontier):
        after = np.unique(table[frontier]).astype(np.int64)
        frontier = after[(after >= 0) & (index[after] < 0)]
        index[frontier] = np.arange(len(reached), len(reached) + len(frontier))
        reached = np.concatenate([reached, frontier])
    return index[table[reached]], final[reached]
