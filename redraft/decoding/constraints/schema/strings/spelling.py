"""Converts automata on characters to automata on bytes: UTF-8, with JSON's quotes and escapes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from redraft.decoding.constraints.schema.fragments import (
    _EMPTY,
    _NOWHERE,
    _AutomatonBuilder,
    _Budget,
    _exit_code,
    _Fragment,
    _Rows,
)
from redraft.decoding.constraints.schema.strings.words import _Alphabet, _LabeledStrings

_QUOTE, _BACKSLASH = 0x22, 0x5C
_ESCAPES = {
    0x22: b'"',
    0x5C: b"\\",
    8: b"b",
    9: b"t",
    10: b"n",
    12: b"f",
    13: b"r",
}  # other characters are written without escapes
_LAST = 0x110000


def _alphabet_of_ranges(*parts: tuple[int, int]) -> _Alphabet:
    """Return an alphabet with one class: the characters in these ranges."""
    bounds, kind = [0], [-1]
    for first, last in parts:
        bounds += [first, last + 1]
        kind += [0, -1]
    return _Alphabet(np.array(bounds, np.int64), np.array(kind, np.int64))


_TEXT = _alphabet_of_ranges(
    (8, 10), (12, 13), (0x20, 0xD7FF), (0xE000, _LAST - 1)
)  # characters that strings may contain
_NUMERALS = _alphabet_of_ranges((45, 46), (48, 57))  # - . and digits


def _key_bytes(text: str) -> bytes | None:
    """Encode a string as JSON, without its quotes; None if it has a character that is never written."""
    if any(_TEXT.at(np.array([ord(letter)]))[0] < 0 for letter in text):
        return None
    return b"".join(b"\\" + _ESCAPES[ord(letter)] if ord(letter) in _ESCAPES else letter.encode() for letter in text)


def _string_fragment(words: _LabeledStrings, budget: _Budget) -> _Fragment:
    """Return the fragment of strings after their opening quote, including the closing one."""
    if not words.table:
        return _EMPTY
    machine = _AutomatonBuilder(budget)
    shape = _utf8_layout(words.alphabet.bounds.tobytes(), words.alphabet.kind.tobytes())
    escaped = words.alphabet.at(np.array(list(_ESCAPES), np.int64)).tolist()
    machine.reserve(len(words.table))
    for state, (after, label) in enumerate(zip(words.table, words.label, strict=True)):
        row = shape.row(np.array([*after, _NOWHERE], np.int32), machine)
        row[_QUOTE] = _exit_code(label) if label >= 0 else _NOWHERE
        steps = [(_ESCAPES[code][0], after[kind]) for code, kind in zip(_ESCAPES, escaped, strict=True) if kind >= 0]
        row[_BACKSLASH] = machine.step(*steps)
        machine.table[state] = row
    return machine.finish(0, words.labels)


def _number_fragment(words: _LabeledStrings, budget: _Budget) -> _Fragment:
    """Return the fragment of numbers, which have no closing byte."""
    if not words.table:
        return _EMPTY
    machine = _AutomatonBuilder(budget)
    machine.reserve(len(words.table))
    kinds = words.alphabet.at(np.arange(48, 58))
    others = words.alphabet.at(np.array([45, 46]))
    for state, after in enumerate(words.table):
        padded = np.array([*after, _NOWHERE], np.int32)
        machine.table[state, 48:58], machine.table[state, 45:47] = padded[kinds], padded[others]
        if words.label[state] >= 0:
            machine.over[state] = words.label[state]
    return machine.finish(0, words.labels)


@dataclass(frozen=True)
class _Utf8Layout:
    """Lookup tables from the UTF-8 bytes of a character to its class in the alphabet, starting at the last byte."""

    ascii: NDArray[np.int64]  # (128,) class of each ASCII character, −1 for none
    last: NDArray[np.int64]  # (n, 64) classes by the last byte
    third: NDArray[np.int64]  # (m, 64) rows of `last` by the byte before it
    lead: NDArray[np.int64]  # (30,) rows of `last` for the leads C2 …
    lead3: NDArray[np.int64]  # (16,) rows of `third` for E0 …; overlong encodings are excluded
    lead4: NDArray[np.int64]  # (5, 64) rows of `third` for F0 …

    def row(self, after: _Rows, machine: _AutomatonBuilder) -> _Rows:
        """Return the table row of a state whose class c leads to after[c]; the last entry of `after` is `_NOWHERE`."""
        row = np.full(256, _NOWHERE, np.int32)
        row[0x20:128] = after[self.ascii[0x20:]]  # control characters are written as escapes
        last = self._states(after[self.last], machine)
        third = self._states(last[self.third], machine)
        row[0xC2:0xE0] = last[self.lead]
        row[0xE0:0xF0] = third[self.lead3]
        row[0xF0:0xF5] = self._states(third[self.lead4], machine)[:-1]
        return row

    def _states(self, rows: _Rows, machine: _AutomatonBuilder) -> _Rows:
        """(n, 64) → (n + 1,) a state for each row of continuation bytes, then `_NOWHERE`."""
        states = np.full(len(rows) + 1, _NOWHERE, np.int32)
        whole = np.full(256, _NOWHERE, np.int32)
        for i, row in enumerate(rows):
            if (row != _NOWHERE).any():
                whole[128:192] = row
                states[i] = machine.state_with(whole)
        return states


@lru_cache(256)
def _utf8_layout(bounds: bytes, kind: bytes) -> _Utf8Layout:
    alphabet = _Alphabet(np.frombuffer(bounds, np.int64), np.frombuffer(kind, np.int64))
    width = np.diff(np.append(alphabet.bounds, _LAST))
    of_point = np.repeat(alphabet.kind.astype(np.int16), width)
    last, last_of = _distinct_rows(of_point.reshape(-1, 64))
    third, third_of = _distinct_rows(last_of.reshape(-1, 64))
    short = last_of[:32].copy()  # below U+0800, spelled with two bytes
    below, _ = _distinct_rows(np.where(np.arange(64) < 32, -1, last_of[:64])[None])
    third = np.vstack([third, below])  # after E0 comes A0 or higher; lower bytes would be overlong
    lead3 = third_of[:16].copy()
    lead3[0] = len(third) - 1
    lead4 = np.full(5 * 64, -1)
    lead4[16 : len(third_of)] = third_of[16:]
    return _Utf8Layout(
        of_point[:128].astype(np.int64), last.astype(np.int64), third, short[2:], lead3, lead4.reshape(5, 64)
    )


def _distinct_rows(rows: NDArray) -> tuple[NDArray, NDArray[np.int64]]:
    """(n, 64) → the distinct rows, and (n,) the index of each row among them; −1 for rows that are all −1."""
    weights = np.asarray(np.random.Philox(0).random_raw(64)).astype(np.int64)
    hashes = ((rows.astype(np.int64) + 2) * weights).sum(1)
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    if bool((rows != rows[first][group]).any()):
        raise RuntimeError("two rows had the same hash; this should never happen")
    distinct = rows[first]
    empty = (distinct == -1).all(1)
    number = np.where(empty, -1, np.cumsum(~empty) - 1)
    return distinct[~empty], number[group]
