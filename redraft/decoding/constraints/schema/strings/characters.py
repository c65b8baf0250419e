"""Sets of characters as ranges of code points, and the characters about which regular expression engines disagree."""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import lru_cache

_LAST = sys.maxunicode
_Ranges = list[tuple[int, int]]

_DIGITS: _Ranges = [(48, 57)]
_WORD: _Ranges = [(48, 57), (65, 90), (95, 95), (97, 122)]
_SPACES: _Ranges = [(9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
                   (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)]  # fmt: skip
_LINE_ENDS: _Ranges = [(10, 10), (13, 13), (0x2028, 0x2029)]
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACES}


def _complement(ranges: _Ranges) -> _Ranges:
    gaps, begin = [], 0
    for first, last in sorted(ranges):
        if first > begin:
            gaps.append((begin, first - 1))
        begin = max(begin, last + 1)
    return [*gaps, (begin, _LAST)] if begin <= _LAST else gaps


def _escape_class(letter: str) -> _Ranges:
    r"""Return the characters of \d, \w, \s or one of their complements \D, \W, \S, as ECMAScript defines them."""
    ranges = _CLASSES[letter.lower()]
    return ranges if letter.islower() else _complement(ranges)


@lru_cache(8)
def _disputed_characters(letter: str) -> tuple[tuple[int, int], ...]:
    r"""Return the characters on which engines disagree about \d, \w, \s or the dot."""
    if letter == ".":
        return ((13, 13), (0x85, 0x85), (0x2028, 0x2029))
    unicode = {point for first, last in _matches(rf"\{letter}+") for point in range(first, last + 1)}
    ascii_only = {point for first, last in _CLASSES[letter] for point in range(first, last + 1)}
    return _runs(unicode ^ ascii_only)


def _runs(points: set[int]) -> tuple[tuple[int, int], ...]:
    runs: list[tuple[int, int]] = []
    for point in sorted(points):
        if runs and runs[-1][1] == point - 1:
            runs[-1] = (runs[-1][0], point)
        else:
            runs.append((point, point))
    return tuple(runs)


@lru_cache(1)
def _all_characters() -> str:
    return "".join(map(chr, range(_LAST + 1)))


def _matches(pattern: str) -> list[tuple[int, int]]:
    return [(match.start(), match.end() - 1) for match in re.finditer(pattern, _all_characters())]


@lru_cache(32)
def _unicode_category(name: str) -> tuple[tuple[int, int], ...] | None:
    r"""Return the characters of \p{name} for a general category such as L or Lu; None if there is no such category."""
    short = _LONG_NAMES.get(name, name)
    ranges = _runs({point for point in range(_LAST + 1) if unicodedata.category(chr(point)).startswith(short)})
    return ranges or None


_LONG_NAMES = {
    "Letter": "L", "Lowercase_Letter": "Ll", "Uppercase_Letter": "Lu", "Mark": "M",
    "Number": "N", "Decimal_Number": "Nd", "Punctuation": "P", "Symbol": "S", "Separator": "Z", "Space_Separator": "Zs",
}  # fmt: skip
