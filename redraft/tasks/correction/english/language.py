"""Refuses texts whose language the known words are not of: correction would replace right words by known ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import shorten

from redraft.tasks.arguments.setting import ArgumentError
from redraft.tasks.correction.english.typed_words import _typed_words
from redraft.tasks.correction.lexicon import Lexicon

# chosen on sentences other than those of the tests
_LEAST_FUNCTION_WORDS = 2  # different ones of another language
_LEAST_FOREIGN = 3
_MOST_FOREIGN = 1 / 4  # share of foreign words in a text of this language with many errors
_NEAR = 2e-6  # least frequency of a word that an unknown one may be a misspelling of
_LEAST_FREQUENT = 1 / 4  # share of the most frequent words in a text of this language


def require_language(lexicon: Lexicon, texts: Iterable[str], model: str) -> None:
    """Raises if a text is of another language: by its function words, or because too many of its words are foreign.

    A foreign word is a function word of another language, or unknown and not even one edit from a frequent known word;
    a text with enough of the most frequent words may have many of them: names, or jargon.
    """
    for text in texts:
        typed = [word.text.replace("’", "'") for word in _typed_words(text) if not word.is_name]
        words = [word.lower() for word in typed]
        if seems := _other_language(lexicon, words):
            language, shown = seems
            raise _refusal(text, model, f"which seems to be {language}", shown)
        foreign = [word for word in typed if word.islower() and _is_foreign(lexicon, word)]
        if len(foreign) < _LEAST_FOREIGN or len(foreign) <= _MOST_FOREIGN * len(words):
            continue
        if sum(word in lexicon.frequent for word in words) < _LEAST_FREQUENT * len(words):
            raise _refusal(text, model, "at least not its words", foreign)


def _other_language(lexicon: Lexicon, words: Sequence[str]) -> tuple[str, list[str]] | None:
    """A language that these words are more likely of, and its function words among them; None if there is none.

    At least two different function words of it occur, more often than the most frequent known words. Words of both
    kinds, such as "in", count for neither.
    """
    likely = list[tuple[str, list[str]]]()
    for language, function_words in lexicon.other_languages.items():
        others, own = function_words - lexicon.frequent, lexicon.frequent - function_words
        shown, known = [word for word in words if word in others], [word for word in words if word in own]
        if len(set(shown)) >= _LEAST_FUNCTION_WORDS and len(shown) > len(known):
            likely.append((language, shown))
    return max(likely, key=lambda pair: len(pair[1]), default=None)


def _refusal(text: str, model: str, why: str, words: Sequence[str]) -> ArgumentError:
    start = shorten(text, 50, placeholder=" …")
    return ArgumentError(
        "texts",
        f"{model} does not know the language of {start!r}, {why} ({', '.join(dict.fromkeys(words[:4]))}); use a "
        "model that does, or give words of that language by words=…",
    )


def _is_foreign(lexicon: Lexicon, word: str) -> bool:
    is_function_word = any(word in function_words for function_words in lexicon.other_languages.values())
    if is_function_word and word not in lexicon.frequent:
        return True
    return not _is_known(lexicon, word) and not _is_near(lexicon, word)


def _is_near(lexicon: Lexicon, word: str) -> bool:
    return any(lexicon.counts[other] >= _NEAR * lexicon.total for other in lexicon.one_edit_from(word))


def _is_known(lexicon: Lexicon, word: str) -> bool:
    return word in lexicon.folded or word.partition("'")[0] in lexicon.folded
