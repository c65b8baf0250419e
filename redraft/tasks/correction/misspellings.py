"""Errors as people and machines make them: a text, a rate and a seed give the same errors every time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from redraft.core import randomness

ErrorKind = Literal["keyboard", "phonetic", "swap", "drop", "double", "space", "ocr"]
ERROR_KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)
_KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")  # each row half a key to the right of the one above
_SOUNDS = {  # spellings that sound alike, longest first where they begin alike
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
_SHAPES = {  # what a reading machine mixes up
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
    """A text with errors, and what became of each of its words."""

    text: str
    given: str
    """The text without errors."""
    kinds: tuple[tuple[ErrorKind, ...], ...]
    """For each word of the given text, as white space separates them, the errors in it. A lost space is one of both
    words beside it."""
    error_count: int
    """How many errors there are."""
    letter_count: int
    """Letters at which one could have been."""


@dataclass(frozen=True)
class ErrorGenerator:
    """Each letter is the place of an error with the probability `rate`.

    The kind of an error is drawn evenly from those that are possible there. keyboard: a neighbouring key; phonetic:
    another spelling of the sound; swap: with the next letter; drop: missing; double: twice; space: the one behind it is
    lost, or there is one too many; ocr: mixed up by a reading machine. Digits and punctuation stay.
    """

    rate: float = 0.02
    kinds: tuple[ErrorKind, ...] = ERROR_KINDS
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"rate={self.rate}; the share of wrong letters must be from 0 to 1")
        if not self.kinds or not set(self.kinds) <= set(ERROR_KINDS):
            raise ValueError(f"kinds={self.kinds}; choose from {', '.join(ERROR_KINDS)}")

    def __call__(self, text: str, index: int = 0) -> CorruptedText:
        """The text number `index` of a corpus with errors: another number, other errors."""
        draws = randomness.rng(self.seed).fold(index).uniform(len(text), 3)[0].tolist()
        pieces, hits, chances, place = [], [], 0, 0
        while place < len(text):
            possible = self.possible(text, place)
            chances += bool(possible)
            length, new = 1, text[place]
            whether, which, how = draws[place]
            if possible and whether < self.rate:
                kind = tuple(possible)[int(which * len(possible))]
                length, new = possible[kind][int(how * len(possible[kind]))]
                hits.append((place, place + length, kind))
            pieces.append(new)
            place += length
        return CorruptedText("".join(pieces), text, _by_word(text, hits), len(hits), chances)

    def possible(self, text: str, place: int) -> Mapping[ErrorKind, Sequence[_Slip]]:
        """The errors that can happen at a place, by kind."""
        found = {kind: _MAKERS[kind](text, place) for kind in self.kinds}
        return {kind: slips for kind, slips in found.items() if slips}


_Slip: TypeAlias = tuple[int, str]  # how many characters are replaced, and by what


def _letter(text: str, place: int) -> bool:
    """Whether there is a letter at a place."""
    return 0 <= place < len(text) and text[place].isalpha()


def _alike(table: Mapping[str, Sequence[str]]) -> Callable[[str, int], list[_Slip]]:
    sizes = sorted({len(key) for key in table}, reverse=True)

    def slips(text: str, place: int) -> list[_Slip]:
        for size in sizes:
            was = text[place : place + size]
            if new := table.get(was.lower()):
                return [(size, _cased(was, each)) for each in new]
        return []

    return slips


def _swaps(text: str, place: int) -> list[_Slip]:
    a, b = text[place : place + 1], text[place + 1 : place + 2]
    if not (_letter(text, place) and _letter(text, place + 1)) or a.lower() == b.lower():
        return []
    return [(2, _cased(a + b, b + a))]


def _drops(text: str, place: int) -> list[_Slip]:
    """Never the only letter of a word."""
    alone = not _letter(text, place - 1) and not _letter(text, place + 1)
    return [(1, "")] if _letter(text, place) and not alone else []


def _doubles(text: str, place: int) -> list[_Slip]:
    return [(1, text[place] + text[place].lower())] if _letter(text, place) else []


def _spaces(text: str, place: int) -> list[_Slip]:
    """The space after the last letter of a word is lost, or there is one too many inside of it."""
    if not _letter(text, place):
        return []
    if text[place + 1 : place + 2] == " " and _letter(text, place + 2):
        return [(2, text[place])]
    return [(1, f"{text[place]} ")] if _letter(text, place + 1) else []


def _cased(was: str, new: str) -> str:
    """As `was` is written: a capital first, or none."""
    new = new.lower()
    return new[:1].upper() + new[1:] if was[:1].isupper() else new


def _neighbors() -> dict[str, tuple[str, ...]]:
    """The letters beside each key."""
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


def _by_word(text: str, hits: Sequence[tuple[int, int, ErrorKind]]) -> tuple[tuple[ErrorKind, ...], ...]:
    """The errors of each word; a lost space belongs to the words on both sides."""
    words = re.finditer(r"\S+", text)
    return tuple(
        tuple(kind for start, end, kind in hits if word.start() <= start < word.end() or end == word.start())
        for word in words
    )
