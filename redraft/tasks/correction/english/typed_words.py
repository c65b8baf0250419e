"""The words of a text that may be misspelled: not names, not code, not numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from redraft.tasks.correction.lexicon import _LONGEST_WORD
from redraft.tasks.correction.suspects import _SENTENCE

_CODE = re.compile(r"```.*?(```|$)|`[^`\n]*`", re.DOTALL)
_CHUNK = re.compile(r"[^\s—–]+")
_AROUND = "()[]{}\"'“”‘’«»…,;:!?.*"  # punctuation before and after a word
_WORDS = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*['’]?")  # words joined by hyphens; a chunk with other marks is code
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


class _TypedWord(NamedTuple):
    """A word of a text."""

    start: int
    text: str
    is_name: bool  # capitalized within a sentence

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def _typed_words(text: str) -> Iterator[_TypedWord]:
    """Yields the words of a text, with their apostrophes; parts of hyphenated words one by one.

    Left out: code in backticks, and everything joined to digits or other marks, such as addresses, paths, flags and
    calls; words in capitals or with capitals inside.
    """
    code = [span.span() for span in _CODE.finditer(text)]
    for chunk in _CHUNK.finditer(text):
        core = chunk.group().strip(_AROUND)
        is_code = any(start <= chunk.start() < end for start, end in code)
        if is_code or chunk.group().startswith("-") or not _WORDS.fullmatch(core):
            continue
        first = chunk.start() + chunk.group().index(core)
        for word in _WORD.finditer(core):
            start, letters = first + word.start(), word.group()
            if len(letters) <= _LONGEST_WORD and (len(letters) == 1 or letters[1:].islower()):
                yield _TypedWord(start, letters, _is_name(text, start, letters))


def _is_name(text: str, start: int, word: str) -> bool:
    capital = word[0].isupper() and word != "I" and not word.startswith(("I'", "I’"))
    return capital and not _SENTENCE.search(text[max(0, start - 12) : start])
