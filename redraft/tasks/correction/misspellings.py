"""Synthetic spelling errors of people and OCR, reproducible from text, rate and seed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from redraft.core import randomness

ErrorKind = Literal["keyboard", "phonetic", "swap", "drop", "double", "space", "ocr"]
ERROR_KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)
_KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")  # each row is shifted half a key to the right of the one above
_SOUNDS = {  # spellings that sound alike
    "tion": ("sion", "shun"),
    "ough": ("uff", "ow"),
    "ight": ("ite",),
    "ph": ("f",),
    "ck": ("k",),
    "qu": ("kw",),
    "wh": ("w",),
    "kn": ("n",),
    "wr": ("r",),
    "ie": ("ei",),
    "ei": ("ie",),
    "ee": ("ea",),
    "ea": ("ee",),
    "ou": ("u", "ow"),
    "ai": ("ay", "ei"),
    "ay": ("ai",),
    "oo": ("u",),
    "c": ("k", "s"),
    "s": ("c", "z"),
    "z": ("s",),
    "k": ("c",),
    "f": ("ph",),
    "j": ("g",),
    "g": ("j",),
    "a": ("e",),
    "e": ("a", "i"),
    "i": ("e", "y"),
    "o": ("u",),
    "u": ("o",),
    "y": ("i",),
}
_SHAPES = {  # characters that OCR confuses
    "rn": ("m",),
    "cl": ("d",),
    "vv": ("w",),
    "m": ("rn",),
    "d": ("cl",),
    "w": ("vv",),
    "e": ("c",),
    "c": ("e",),
    "h": ("b",),
    "b": ("h",),
    "i": ("l",),
    "l": ("i", "t"),
    "t": ("l", "f"),
    "f": ("t",),
    "n": ("u",),
    "u": ("n",),
    "a": ("o",),
    "o": ("a",),
    "s": ("a",),
    "v": ("y",),
    "y": ("v",),
    "g": ("q",),
    "q": ("g",),
}


@dataclass(frozen=True)
class CorruptedText:
    """A text with errors, and the kinds of errors in each of its words."""

    text: str
    given: str
    """The text without errors."""
    kinds: tuple[tuple[ErrorKind, ...], ...]
    """Errors in each word of the original text, split at white space. A lost space counts for both of its words."""
    error_count: int
    """Number of errors."""
    letter_count: int
    """Number of letters at which an error was possible."""


@dataclass(frozen=True)
class ErrorGenerator:
    """Makes an error at each letter with probability `rate`; digits and punctuation never change.

    The kind of an error is drawn uniformly from those possible at the letter. keyboard: a neighboring key; phonetic:
    another spelling of the sound; swap: exchanged with the next letter; drop: missing; double: written twice; space:
    the space after it is lost, or an extra one is inserted; ocr: confused by OCR.
    """

    rate: float = 0.02
    kinds: tuple[ErrorKind, ...] = ERROR_KINDS
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"rate={self.rate}; the fraction of wrong letters must be from 0 to 1")
        if not self.kinds or not set(self.kinds) <= set(ERROR_KINDS):
            raise ValueError(f"kinds={self.kinds}; choose from {', '.join(ERROR_KINDS)}")

    def __call__(self, text: str, index: int = 0) -> CorruptedText:
        """Makes errors in a text; another `index`, such as that of the text in a corpus, gives other errors."""
        draws = randomness.rng(self.seed).fold(index).uniform(len(text), 3)[0].tolist()
        pieces, errors, letters, at = [], [], 0, 0
        while at < len(text):
            possible = self.possible(text, at)
            letters += bool(possible)
            length, new = 1, text[at]
            for_error, for_kind, for_slip = draws[at]
            if possible and for_error < self.rate:
                kind = tuple(possible)[int(for_kind * len(possible))]
                length, new = possible[kind][int(for_slip * len(possible[kind]))]
                errors.append((at, at + length, kind))
            pieces.append(new)
            at += length
        return CorruptedText("".join(pieces), text, _by_word(text, errors), len(errors), letters)

    def possible(self, text: str, at: int) -> Mapping[ErrorKind, Sequence[_Slip]]:
        """The possible errors at a position, by kind."""
        possible = {kind: _MAKERS[kind](text, at) for kind in self.kinds}
        return {kind: slips for kind, slips in possible.items() if slips}


_Slip: TypeAlias = tuple[int, str]  # number of characters to replace, and their replacement


def _letter(text: str, at: int) -> bool:
    """Whether there is a letter at this position."""
    return 0 <= at < len(text) and text[at].isalpha()


def _alike(table: Mapping[str, Sequence[str]]) -> Callable[[str, int], list[_Slip]]:
    sizes = sorted({len(key) for key in table}, reverse=True)

    def slips(text: str, at: int) -> list[_Slip]:
        for size in sizes:
            old = text[at : at + size]
            if new := table.get(old.lower()):
                return [(size, _cased(old, spelling)) for spelling in new]
        return []

    return slips


def _swaps(text: str, at: int) -> list[_Slip]:
    a, b = text[at : at + 1], text[at + 1 : at + 2]
    if not (_letter(text, at) and _letter(text, at + 1)) or a.lower() == b.lower():
        return []
    return [(2, _cased(a + b, b + a))]


def _drops(text: str, at: int) -> list[_Slip]:
    """Drops a letter, unless it is the only one of its word."""
    alone = not _letter(text, at - 1) and not _letter(text, at + 1)
    return [(1, "")] if _letter(text, at) and not alone else []


def _doubles(text: str, at: int) -> list[_Slip]:
    return [(1, text[at] + text[at].lower())] if _letter(text, at) else []


def _spaces(text: str, at: int) -> list[_Slip]:
    """Drops the space after the last letter of a word, or inserts one within the word."""
    if not _letter(text, at):
        return []
    if text[at + 1 : at + 2] == " " and _letter(text, at + 2):
        return [(2, text[at])]
    return [(1, f"{text[at]} ")] if _letter(text, at + 1) else []


def _cased(old: str, new: str) -> str:
    """`new`, capitalized if `old` is."""
    new = new.lower()
    return new[:1].upper() + new[1:] if old[:1].isupper() else new


def _neighbors() -> dict[str, tuple[str, ...]]:
    """The neighboring letters of each key."""
    spots = {key: (column + row / 2, row) for row, keys in enumerate(_KEYS) for column, key in enumerate(keys)}
    return {
        key: tuple(other for other, (u, v) in spots.items() if other != key and abs(u - x) + abs(v - y) <= 1.5)
        for key, (x, y) in spots.items()
    }


_NEIGHBORS = _neighbors()
_MAKERS: dict[ErrorKind, Callable[[str, int], list[_Slip]]] = {
    "keyboard": _alike(_NEIGHBORS),
    "phonetic": _alike(_SOUNDS),
    "swap": _swaps,
    "drop": _drops,
    "double": _doubles,
    "space": _spaces,
    "ocr": _alike(_SHAPES),
}


def _by_word(text: str, errors: Sequence[tuple[int, int, ErrorKind]]) -> tuple[tuple[ErrorKind, ...], ...]:
    """The kinds of errors in each word; a lost space counts for the words on both sides."""
    words = re.finditer(r"\S+", text)
    return tuple(
        tuple(kind for start, end, kind in errors if word.start() <= start < word.end() or end == word.start())
        for word in words
    )
