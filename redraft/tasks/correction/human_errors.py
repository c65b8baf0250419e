"""Human misspellings from nlpaug: 53,334 of 13,551 words (MIT license; `redraft[spelling]`)."""

from __future__ import annotations

import importlib.util
from hashlib import blake2b
from pathlib import Path
from typing import Literal


def human_errors(half: Literal["train", "test"]) -> dict[str, tuple[str, ...]]:
    """Maps each word of one half to its misspellings, all in lower case and letters only.

    The table is read from the installed package without importing nlpaug, which would need pandas.
    """
    package = importlib.util.find_spec("nlpaug")
    if package is None or package.origin is None:
        raise ValueError("the table of misspellings is not installed: pip install --no-deps nlpaug")
    lines = (Path(package.origin).parent / "res/word/spelling/spelling_en.txt").read_text("utf-8").splitlines()
    misspellings: dict[str, tuple[str, ...]] = {}
    for word, *wrong in (line.lower().split() for line in lines if line.strip()):
        accepted = tuple(
            dict.fromkeys(
                candidate for candidate in wrong if candidate.isalpha() and candidate.isascii() and candidate != word
            )
        )
        if accepted and word.isalpha() and word.isascii() and split_half(word) == half:
            misspellings[word] = misspellings.get(word, ()) + accepted
    return misspellings


def split_half(word: str) -> Literal["train", "test"]:
    """The half a word belongs to, by a hash that is the same on every machine."""
    return "train" if blake2b(word.encode(), digest_size=1).digest()[0] % 2 else "test"
