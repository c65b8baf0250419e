"""Known words: neighbors of a spelling, frequencies, and the probability of an unseen word."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

LETTERS = "abcdefghijklmnopqrstuvwxyz"
_LONGEST_WORD = 24  # longest word that can be corrected, in letters
_CODE = {letter: number for number, letter in enumerate(LETTERS)}
_OTHER_CHAR = len(LETTERS)  # code of any other letter
WORD = re.compile(r"[^\W\d_]+")  # letters only


@dataclass(frozen=True)
class Lexicon:
    """Word counts; case matters, so "May" and "may" are two words."""

    counts: Mapping[str, float]
    other_languages: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Function words of languages that the known words are not of, by language."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> Lexicon:
        """Counts the words of texts."""
        return cls(Counter(word for text in texts for word in WORD.findall(text)))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Words of at most _LONGEST_WORD letters."""
        return tuple(word for word in self.counts if len(word) <= _LONGEST_WORD)

    @cached_property
    def folded(self) -> frozenset[str]:
        """All words in lower case."""
        return frozenset(word.lower() for word in self.counts)

    @cached_property
    def frequent(self) -> frozenset[str]:
        """The most frequent words, one in 400: about 200 for a language, which make up half of any text in it."""
        ranked = sorted(self.counts, key=lambda word: -self.counts[word])
        return frozenset(word.lower() for word in ranked[: len(ranked) // 400])

    @cached_property
    def total(self) -> float:
        """The sum of all counts."""
        return sum(self.counts.values())

    def log_prob(self, word: str) -> float:
        """log p(word): by its count, or by its letters for an unseen word."""
        count = self.counts.get(word, 0.0)
        return math.log(count / (self.total + self.new_words)) if count else self.log_new_word(word)

    @cached_property
    def new_words(self) -> float:
        """Good–Turing count of unseen words: the number of words seen once, and at least 1."""
        return max(1.0, sum(1 for count in self.counts.values() if count == 1))

    def log_new_word(self, word: str) -> float:
        """log of the probability that an unseen word occurs and that it is this one, by its letter trigrams."""
        log_p = math.log(self.new_words / (self.total + self.new_words))
        padded = f"^^{word.lower()}$"
        for at in range(2, len(padded)):
            before, letter = padded[at - 2 : at], padded[at]
            log_p += math.log((self._triples[before + letter] + 0.1) / (self._pairs[before] + 0.1 * (_OTHER_CHAR + 2)))
        return log_p

    @cached_property
    def _triples(self) -> Counter[str]:
        """Letter trigrams, counting every word once."""
        marked = (f"^^{word.lower()}$" for word in self.counts)
        return Counter(word[i : i + 3] for word in marked for i in range(len(word) - 2))

    @cached_property
    def _pairs(self) -> Counter[str]:
        pairs: Counter[str] = Counter()
        for triple, count in self._triples.items():
            pairs[triple[:2]] += count
        return pairs

    # --- neighbors ---

    @cached_property
    def codes(self) -> NDArray[np.int64]:
        """(W, _LONGEST_WORD) letter codes of each word, −1 after its end."""
        text = np.array([word.lower()[:_LONGEST_WORD] for word in self.words], f"U{_LONGEST_WORD}")
        points = text.view(np.uint32).reshape(-1, _LONGEST_WORD).astype(np.int64)  # 0 after the end
        codes = points - ord(LETTERS[0])
        return np.where(points == 0, -1, np.where((codes >= 0) & (codes < _OTHER_CHAR), codes, _OTHER_CHAR))

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        return (self.codes >= 0).sum(1)

    @cached_property
    def _bags(self) -> NDArray[np.int8]:
        """(W, 27) counts of each letter in each word."""
        codes = self.codes.astype(np.int8)
        return np.stack([(codes == letter).sum(1, dtype=np.int8) for letter in range(_OTHER_CHAR + 1)], 1)

    def near(self, spelling: str, edits: int = 2) -> NDArray[np.int64]:
        """Indices of all words within `edits` edits of a spelling, and some that are further away.

        It compares lengths and letter counts only: an edit changes the length by at most 1 and the counts by at most 2.
        """
        code = np.array(encode_word(spelling))
        bag = np.array([(code == letter).sum() for letter in range(_OTHER_CHAR + 1)], np.int8)
        close = np.flatnonzero(np.abs(self.lengths - len(spelling)) <= edits)
        return close[np.abs(self._bags[close] - bag).sum(1) <= 2 * edits]

    def one_edit_from(self, spelling: str) -> list[str]:
        """Known words one edit from a spelling: a letter or apostrophe dropped, swapped, replaced or added."""
        return sorted(_one_edit_from(spelling) & self.counts.keys())


def encode_word(word: str) -> list[int]:
    """The _LONGEST_WORD codes of a word in lower case, −1 after its end."""
    codes = [_CODE.get(letter, _OTHER_CHAR) for letter in word.lower()[:_LONGEST_WORD]]
    return codes + [-1] * (_LONGEST_WORD - len(codes))


def _one_edit_from(word: str) -> set[str]:
    letters, halves = f"{LETTERS}'", [(word[:i], word[i:]) for i in range(len(word) + 1)]
    dropped = {a + b[1:] for a, b in halves if b}
    swapped = {a + b[1] + b[0] + b[2:] for a, b in halves if len(b) > 1}
    replaced = {a + c + b[1:] for a, b in halves if b for c in letters}
    return (dropped | swapped | replaced | {a + c + b for a, b in halves for c in letters}) - {word}
