"""English words: frequencies from symspellpy's list, contractions, and words that are mistaken for one another."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from redraft.tasks.arguments.setting import ArgumentError
from redraft.tasks.correction.lexicon import Lexicon

_FILE = "frequency_dictionary_en_82_765.txt"  # Google's n-grams, restricted to the words of SCOWL
_MOST_FREQUENT = 3e8  # count of the first contraction; that of number n is n times smaller
_RECENT_COUNT = 2e6  # count of words that are newer than the list


@cache
def _additions() -> dict[str, list[str]]:
    """What the list lacks.

    contractions (frequent ones first), American spellings (British part, American part), recent words, and groups of
    words that writers confuse.
    """
    return _read("additions.json")


def _read(name: str) -> dict[str, list[str]]:
    content: dict[str, list[str]] = json.loads(
        (resources.files("redraft.tasks.correction.english") / name).read_text("utf-8")
    )
    return content


def _other_languages() -> dict[str, frozenset[str]]:
    """Function words of each other language ; those that are frequent in English too count for neither."""
    return {name: frozenset(" ".join(lines).split()) for name, lines in _read("other_languages.json").items()}


@cache
def english_lexicon() -> Lexicon:
    """The 82,765 English words of symspellpy's list with their frequencies, American spellings and contractions."""
    package = find_spec("symspellpy")
    if package is None or package.origin is None:
        raise ArgumentError(
            "words", "words=…: English words come with symspellpy: pip install symspellpy; or give a list of words"
        )
    text, additions = (Path(package.origin).parent / _FILE).read_text("utf-8-sig"), _additions()
    counts = {word: float(count) for word, count in map(str.split, text.splitlines())}
    american = dict(pair.split() for pair in additions["american"])
    british = re.compile("|".join(american))
    for word in re.findall(rf"^\S*(?:{british.pattern})\S*", text, re.MULTILINE):
        counts.setdefault(british.sub(lambda part: american[part[0]], word), counts[word])
    counts |= dict.fromkeys(additions["recent"], _RECENT_COUNT)
    counts |= {word: _MOST_FREQUENT / n for n, word in enumerate(additions["contractions"], 1)}
    return Lexicon(counts, _other_languages())


@cache
def confused_words() -> dict[str, frozenset[str]]:
    """Word → the words that writers type instead of it."""
    others: dict[str, set[str]] = {}
    for group in map(str.split, _additions()["confused"]):
        for word in group:
            others.setdefault(word, set()).update(group)
    return {word: frozenset(group - {word}) for word, group in others.items()}
