"""Pieces of an automaton on bytes with labelled ways out, and the machine that puts them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from redraft.decoding.constraints.dfa import AutomatonTooLarge

_Rows = NDArray[np.int32]
_Label = tuple[bool, ...]  # the truth of each watched formula
_NOWHERE = -1


def _exit(label: int) -> int:
    """How a table writes a way out."""
    return -2 - label


@dataclass(frozen=True, eq=False)
class _Fragment:
    """The texts of a value, sorted by labels; state 0 reads the beginning. Without states no text is left."""

    table: _Rows  # (S, 256): the next state, −1 none, −2 − l out with label l
    over: tuple[tuple[int, int], ...]  # states of numbers, which only end where something else begins, and their labels
    labels: tuple[_Label, ...]

    @property
    def empty(self) -> bool:
        return not self.labels


_EMPTY = _Fragment(np.zeros((0, 256), np.int32), (), ())


@dataclass
class _Budget:
    """How much work may still be done, and how many states one piece may have.

    The unit is a state of a piece; a step of a string's automaton, or a formula that is rewritten, is a part of it.
    """

    work: float
    largest: int

    def spend(self, count: float) -> None:
        self.work -= count
        if self.work < 0:
            raise AutomatonTooLarge("the JSON schema takes too long to compile")

    def step(self, count: int) -> None:
        self.spend(count / 2)

    def require(self, count: int) -> None:
        if count > self.largest:
            raise AutomatonTooLarge(f"the JSON schema needs more than {self.largest:,} states")


@dataclass
class _Machine:
    """A table that grows from the end of the text to its beginning: a row is written when all that follows is known."""

    budget: _Budget
    table: _Rows = field(default_factory=lambda: np.full((64, 256), _NOWHERE, np.int32))
    count: int = 0
    over: dict[int, int] = field(default_factory=dict)
    _rows: dict[bytes, int] = field(default_factory=dict)  # states that were made whole, by their rows
    _placed: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)

    def reserve(self, count: int = 1) -> int:
        """New states with empty rows; the first of them."""
        self.budget.spend(count)
        self.count += count
        self.budget.require(self.count)
        if self.count > len(self.table):
            more = np.full((max(self.count, 2 * len(self.table)) - len(self.table), 256), _NOWHERE, np.int32)
            self.table = np.vstack([self.table, more])
        return self.count - count

    def shared(self, row: _Rows) -> int:
        """A state with this row, the same one whenever it is asked for again."""
        key = row.tobytes()
        if key not in self._rows:
            self._rows[key] = state = self.reserve()
            self.table[state] = row
        return self._rows[key]

    def step(self, *steps: tuple[int, int]) -> int:
        """A state with these steps (byte, next state); "nowhere" if none leads anywhere."""
        row = np.full(256, _NOWHERE, np.int32)
        for byte, after in steps:
            row[byte] = after
        return self.shared(row) if (row != _NOWHERE).any() else _NOWHERE

    def spell(self, text: bytes, after: int) -> int:
        """The state that reads a text and goes on in another one."""
        for byte in reversed(text):
            after = self.step((byte, after)) if after != _NOWHERE else _NOWHERE
        return after

    def insert(self, root: int, text: bytes, after: int) -> int:
        """A state like `root` but for one text, which leads elsewhere; rows that change are copies."""
        rows, state = [], root
        for byte in text:
            rows.append(self.table[state].copy() if state >= 0 else np.full(256, _NOWHERE, np.int32))
            state = int(rows[-1][byte])
        for row, byte in zip(reversed(rows), reversed(text), strict=True):
            row[byte] = after
            after = self.shared(row) if (row != _NOWHERE).any() else _NOWHERE
        return after

    def place(self, fragment: _Fragment, nexts: Sequence[int]) -> int:
        """A copy of a fragment whose labels lead on to `nexts`; its first state.

        The rows of these must be complete: a number is over where its next state goes on.
        """
        if all(after == _NOWHERE for after in nexts):
            return _NOWHERE
        key = id(fragment), tuple(nexts)
        if key not in self._placed:
            self._placed[key] = self._copied(fragment, nexts)
        return self._placed[key]

    def _copied(self, fragment: _Fragment, nexts: Sequence[int]) -> int:
        size = len(fragment.table)
        first = self.reserve(size)
        look_up = np.array([*reversed(nexts), _NOWHERE, *range(first, first + size)], np.int32)
        rows = look_up[fragment.table + (len(nexts) + 1)]
        for state, label in fragment.over:
            after = nexts[label]
            if after >= 0:
                rows[state] = np.where(self.table[after] == _NOWHERE, rows[state], self.table[after])
            elif after != _NOWHERE:
                self.over[first + state] = -2 - after
        self.table[first : first + size] = rows
        return first

    def finished(self, start: int, labels: Sequence[_Label]) -> _Fragment:
        """The states between the start and the ways out, renumbered, and the labels that texts really have."""
        if start < 0:
            return _EMPTY
        table = self.table[: self.count]
        kept = _between(table, start, list(self.over))
        if not len(kept):
            return _EMPTY
        place = np.full(self.count, _NOWHERE, np.int32)
        place[kept] = np.arange(len(kept))
        rows = table[kept]
        rows = np.where(rows >= 0, place[np.maximum(rows, 0)], rows)
        over = [(int(place[state]), label) for state, label in self.over.items() if place[state] >= 0]
        used = sorted({*np.unique(-2 - rows[rows < -1]).tolist(), *(label for _, label in over)})
        renamed = np.full(len(labels), _NOWHERE, np.int32)
        renamed[used] = np.arange(len(used))
        rows = np.where(rows < -1, -2 - renamed[np.maximum(-2 - rows, 0)], rows).astype(np.int32)
        return _Fragment(
            rows, tuple((state, int(renamed[label])) for state, label in over), tuple(labels[i] for i in used)
        )


def _between(table: _Rows, start: int, over: list[int]) -> NDArray[np.int64]:
    """The states that can be reached from the start and lead to a way out, the start first."""
    source, byte = (table >= 0).nonzero()
    pairs = np.unique(source.astype(np.int64) * len(table) + table[source, byte])
    source, target = pairs // len(table), pairs % len(table)
    leads = np.zeros(len(table), np.bool_)
    leads[over] = True
    leads |= (table < -1).any(1)
    order = np.argsort(target, kind="stable")
    leads = _spread(leads.nonzero()[0], source[order], np.searchsorted(target[order], np.arange(len(table) + 1)))
    if not leads[start]:
        return np.zeros(0, np.int64)
    inside = leads[source] & leads[target]
    source, target = source[inside], target[inside]
    found = _spread(np.array([start]), target, np.searchsorted(source, np.arange(len(table) + 1)))
    found[start] = False
    return np.concatenate([[start], found.nonzero()[0]])


def _spread(first: NDArray[np.int64], after: NDArray[np.int64], begin: NDArray[np.int64]) -> NDArray[np.bool_]:
    """All states reached from the first ones; the steps of state s are after[begin[s] : begin[s + 1]]."""
    found = np.zeros(len(begin) - 1, np.bool_)
    found[first] = True
    queue = first.tolist()
    steps, starts = after.tolist(), begin.tolist()
    for state in queue:  # grows while it is read
        for one in steps[starts[state] : starts[state + 1]]:
            if not found[one]:
                found[one] = True
                queue.append(one)
    return found


def _united(fragments: Sequence[_Fragment]) -> _Fragment:
    """Texts of any of them; their first bytes differ."""
    fragments = [fragment for fragment in fragments if not fragment.empty]
    if len(fragments) < 2:
        return fragments[0] if fragments else _EMPTY
    labels = list(dict.fromkeys(label for fragment in fragments for label in fragment.labels))
    tables, over, offset = [np.full((1, 256), _NOWHERE, np.int32)], [], 1
    for fragment in fragments:
        size, known = len(fragment.table), [_exit(labels.index(label)) for label in fragment.labels]
        look_up = np.array([*reversed(known), _NOWHERE, *range(offset, offset + size)], np.int32)
        tables.append(look_up[fragment.table + (len(known) + 1)])
        over += [(offset + state, -2 - known[label]) for state, label in fragment.over]
        tables[0] = np.where(tables[-1][:1] == _NOWHERE, tables[0], tables[-1][:1])
        offset += size
    return _Fragment(np.concatenate(tables), tuple(over), tuple(labels))
