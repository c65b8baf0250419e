"""Misspellings that people made: the table of nlpaug, 53,334 of 13,551 words (MIT licence; `redraft[spelling]`)."""

from __future__ import annotations

import importlib.util
from hashlib import blake2b
from pathlib import Path
from typing import Literal


def human_errors(half: Literal["train", "test"]) -> dict[str, tuple[str, ...]]:
    """Each word of one half and its misspellings, lower case, letters alone; a word is in one half only.

    The package is found, not imported: importing it would need pandas.
    """
    package = importlib.util.find_spec("nlpaug")
    if package is None or package.origin is None:
        raise ValueError("the table of misspellings is not installed: pip install --no-deps nlpaug")
    lines = (Path(package.origin).parent / "res/word/spelling/spelling_en.txt").read_text("utf-8").splitlines()
    found: dict[str, tuple[str, ...]] = {}
    for word, *wrong in (line.lower().split() for line in lines if line.strip()):
        kept = tuple(dict.fromkeys(each for each in wrong if each.isalpha() and each.isascii() and each != word))
        if kept and word.isalpha() and word.isascii() and split_half(word) == half:
            found[word] = found.get(word, ()) + kept
    return found


def split_half(word: str) -> Literal["train", "test"]:
    """Which half a word belongs to, by a hash: the same on every machine."""
    return "train" if blake2b(word.encode(), digest_size=1).digest()[0] % 2 else "test"
