"""Fragments of an automaton on bytes, with labeled exits, and the builder that puts them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from redraft.decoding.constraints.dfa import AutomatonTooLarge

_Rows = NDArray[np.int32]
_Label = tuple[bool, ...]  # the truth of each watched formula
_NOWHERE = -1


def _exit_code(label: int) -> int:
    """Return the table entry of an exit with this label."""
    return -2 - label


@dataclass(frozen=True, eq=False)
class _Fragment:
    """An automaton of the texts of a value. State 0 is the start, and the label of an exit says which formulas hold."""

    table: _Rows  # (S, 256) next state; −1 if there is none, −2 − l for an exit with label l
    over: tuple[tuple[int, int], ...]  # (state, label) where a number may end: it has no closing byte
    labels: tuple[_Label, ...]

    @property
    def empty(self) -> bool:
        return not self.labels


_EMPTY = _Fragment(np.zeros((0, 256), np.int32), (), ())


@dataclass
class _Budget:
    """The work that may still be done, and the maximum number of states of a fragment.

    The unit of work is a state of a fragment; a step of a string's automaton or a rewritten formula costs less.
    """

    work: float
    largest: int

    def spend(self, count: float) -> None:
        self.work -= count
        if self.work < 0:
            raise AutomatonTooLarge("the JSON schema takes too much work to compile")

    def step(self, count: int) -> None:
        self.spend(count / 2)

    def require(self, count: int) -> None:
        if count > self.largest:
            raise AutomatonTooLarge(f"the JSON schema needs more than {self.largest:,} states")


@dataclass
class _AutomatonBuilder:
    """Builds a transition table from the end of the text to its beginning; a row follows its successors."""

    budget: _Budget
    table: _Rows = field(default_factory=lambda: np.full((64, 256), _NOWHERE, np.int32))
    count: int = 0
    over: dict[int, int] = field(default_factory=dict)
    _rows: dict[bytes, int] = field(default_factory=dict)  # complete states by the bytes of their rows
    _placed: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)

    def reserve(self, count: int = 1) -> int:
        """Add states with empty rows; return the first of them."""
        self.budget.spend(count)
        self.count += count
        self.budget.require(self.count)
        if self.count > len(self.table):
            more = np.full((max(self.count, 2 * len(self.table)) - len(self.table), 256), _NOWHERE, np.int32)
            self.table = np.vstack([self.table, more])
        return self.count - count

    def state_with(self, row: _Rows) -> int:
        """Return a state with this row; equal rows share a state."""
        key = row.tobytes()
        if key not in self._rows:
            self._rows[key] = state = self.reserve()
            self.table[state] = row
        return self._rows[key]

    def step(self, *steps: tuple[int, int]) -> int:
        """Return a state with these transitions (byte, next state); `_NOWHERE` if all of them lead nowhere."""
        row = np.full(256, _NOWHERE, np.int32)
        for byte, after in steps:
            row[byte] = after
        return self.state_with(row) if (row != _NOWHERE).any() else _NOWHERE

    def spell(self, text: bytes, after: int) -> int:
        """Return the state from which a text leads to the state `after`."""
        for byte in reversed(text):
            after = self.step((byte, after)) if after != _NOWHERE else _NOWHERE
        return after

    def with_text(self, root: int, text: bytes, after: int) -> int:
        """Return a state like `root`, except that `text` leads to `after`; changed rows are copied."""
        rows, state = [], root
        for byte in text:
            rows.append(self.table[state].copy() if state >= 0 else np.full(256, _NOWHERE, np.int32))
            state = int(rows[-1][byte])
        for row, byte in zip(reversed(rows), reversed(text), strict=True):
            row[byte] = after
            after = self.state_with(row) if (row != _NOWHERE).any() else _NOWHERE
        return after

    def insert_fragment(self, fragment: _Fragment, nexts: Sequence[int]) -> int:
        """Copy a fragment into the table, its exit with label l leading to nexts[l]; return its first state.

        The rows of `nexts` must be complete: a number ends where the next state has a transition.
        """
        if all(after == _NOWHERE for after in nexts):
            return _NOWHERE
        key = id(fragment), tuple(nexts)
        if key not in self._placed:
            self._placed[key] = self._copy(fragment, nexts)
        return self._placed[key]

    def _copy(self, fragment: _Fragment, nexts: Sequence[int]) -> int:
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

    def finish(self, start: int, labels: Sequence[_Label]) -> _Fragment:
        """Build the fragment: keeps states between the start and the exits, and labels that occur."""
        if start < 0:
            return _EMPTY
        table = self.table[: self.count]
        kept = _useful_states(table, start, list(self.over))
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


def _useful_states(table: _Rows, start: int, over: list[int]) -> NDArray[np.int64]:
    """Return the states that are reachable from the start and lead to an exit, the start first."""
    source, byte = (table >= 0).nonzero()
    pairs = np.unique(source.astype(np.int64) * len(table) + table[source, byte])
    source, target = pairs // len(table), pairs % len(table)
    leads = np.zeros(len(table), np.bool_)
    leads[over] = True
    leads |= (table < -1).any(1)
    order = np.argsort(target, kind="stable")
    leads = _reachable_states(
        leads.nonzero()[0], source[order], np.searchsorted(target[order], np.arange(len(table) + 1))
    )
    if not leads[start]:
        return np.zeros(0, np.int64)
    inside = leads[source] & leads[target]
    source, target = source[inside], target[inside]
    reachable = _reachable_states(np.array([start]), target, np.searchsorted(source, np.arange(len(table) + 1)))
    reachable[start] = False
    return np.concatenate([[start], reachable.nonzero()[0]])


def _reachable_states(
    first: NDArray[np.int64], after: NDArray[np.int64], begin: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return all states reachable from the first ones; the successors of s are after[begin[s] : begin[s + 1]]."""
    reachable = np.zeros(len(begin) - 1, np.bool_)
    reachable[first] = True
    queue = first.tolist()
    steps, starts = after.tolist(), begin.tolist()
    for state in queue:  # grows during the loop
        for one in steps[starts[state] : starts[state + 1]]:
            if not reachable[one]:
                reachable[one] = True
                queue.append(one)
    return reachable


def _unite(fragments: Sequence[_Fragment]) -> _Fragment:
    """Return the union of fragments whose first bytes differ."""
    fragments = [fragment for fragment in fragments if not fragment.empty]
    if len(fragments) < 2:
        return fragments[0] if fragments else _EMPTY
    labels = list(dict.fromkeys(label for fragment in fragments for label in fragment.labels))
    tables, over, offset = [np.full((1, 256), _NOWHERE, np.int32)], [], 1
    for fragment in fragments:
        size, known = len(fragment.table), [_exit_code(labels.index(label)) for label in fragment.labels]
        look_up = np.array([*reversed(known), _NOWHERE, *range(offset, offset + size)], np.int32)
        tables.append(look_up[fragment.table + (len(known) + 1)])
        over += [(offset + state, -2 - known[label]) for state, label in fragment.over]
        tables[0] = np.where(tables[-1][:1] == _NOWHERE, tables[0], tables[-1][:1])
        offset += size
    return _Fragment(np.concatenate(tables), tuple(over), tuple(labels))
