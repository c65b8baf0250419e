"""Refuses texts whose language the known words are not of: correction would replace right words by known ones."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import shorten

from redraft.tasks.arguments.setting import ArgumentError
from redraft.tasks.correction.english.typed_words import _typed_words
from redraft.tasks.correction.lexicon import Lexicon

_LEAST_FOREIGN = 2
_MOST_FOREIGN = 1 / 6  # share of foreign words in a text of this language with many errors
_NEAR = 2e-6  # least frequency of a word that an unknown one may be a misspelling of
_LEAST_FREQUENT = 1 / 4  # share of the most frequent words in a text of this language


def require_language(lexicon: Lexicon, texts: Iterable[str], model: str) -> None:
    """Raises if a text has too many foreign words: unknown, and not even one edit from a frequent known word.

    A text with enough of the most frequent words is of this language, whatever other words it has: names, or jargon.
    """
    for text in texts:
        words = [word.text.lower().replace("’", "'") for word in _typed_words(text) if not word.is_name]
        foreign = [word for word in words if not _is_known(lexicon, word) and not _is_near(lexicon, word)]
        if len(foreign) < _LEAST_FOREIGN or len(foreign) <= _MOST_FOREIGN * len(words):
            continue
        if sum(word in lexicon.frequent for word in words) < _LEAST_FREQUENT * len(words):
            shown, start = ", ".join(dict.fromkeys(foreign[:4])), shorten(text, 50, placeholder=" …")
            raise ArgumentError(
                "texts",
                f"{model} does not know the language of {start!r}, at least not its words {shown}; use a model that "
                "does, or give words of that language by words=…",
            )


def _is_near(lexicon: Lexicon, word: str) -> bool:
    return any(lexicon.counts[other] >= _NEAR * lexicon.total for other in lexicon.one_edit_from(word))


def _is_known(lexicon: Lexicon, word: str) -> bool:
    return word in lexicon.folded or word.partition("'")[0] in lexicon.folded
