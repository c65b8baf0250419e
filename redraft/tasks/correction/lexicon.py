"""Known words: which are near a spelling, how frequent they are, and how likely a word is that nobody has seen."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LONGEST_WORD = 24  # letters of a word that can be corrected
_CODE = {letter: number for number, letter in enumerate(LETTERS)}
_OTHER_CHAR = len(LETTERS)  # the code of any other letter
WORD = re.compile(r"[^\W\d_]+")  # letters alone


@dataclass(frozen=True)
class Lexicon:
    """Words and how often each was seen; the same word in lower case and with a capital are two."""

    counts: Mapping[str, float]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Lexicon:
        """The words of some texts."""
        return cls(Counter(word for text in texts for word in WORD.findall(text)))

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(word for word in self.counts if len(word) <= LONGEST_WORD)

    @cached_property
    def folded(self) -> frozenset[str]:
        """All words in lower case."""
        return frozenset(word.lower() for word in self.counts)

    @cached_property
    def total(self) -> float:
        return sum(self.counts.values())

    def log_prob(self, word: str) -> float:
        """log of how frequent a word is; for one that was never seen, of how likely its letters are for a new word."""
        seen = self.counts.get(word, 0.0)
        return math.log(seen / (self.total + self.new_words)) if seen else self.log_new_word(word)

    @cached_property
    def new_words(self) -> float:
        """How often the next word is a new one: as often as words were seen once (Good and Turing)."""
        return max(1.0, sum(1 for count in self.counts.values() if count == 1))

    def log_new_word(self, word: str) -> float:
        """log of the probability that a new word comes, and that it is this one."""
        log_p = math.log(self.new_words / (self.total + self.new_words))
        letters = f"^^{word.lower()}$"
        for place in range(2, len(letters)):
            before, letter = letters[place - 2 : place], letters[place]
            log_p += math.log((self._triples[before + letter] + 0.1) / (self._pairs[before] + 0.1 * (_OTHER_CHAR + 2)))
        return log_p

    @cached_property
    def _triples(self) -> Counter[str]:
        """Three letters in a row, of every word once."""
        marked = (f"^^{word.lower()}$" for word in self.counts)
        return Counter(word[i : i + 3] for word in marked for i in range(len(word) - 2))

    @cached_property
    def _pairs(self) -> Counter[str]:
        pairs: Counter[str] = Counter()
        for triple, count in self._triples.items():
            pairs[triple[:2]] += count
        return pairs

    # --- neighbours ---

    @cached_property
    def codes(self) -> NDArray[np.int64]:
        """(W, LONGEST_WORD) the letters of each word as numbers, −1 behind its end."""
        return np.array([encode_word(word) for word in self.words], np.int64).reshape(-1, LONGEST_WORD)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        return (self.codes >= 0).sum(1)

    @cached_property
    def _bags(self) -> NDArray[np.int8]:
        """(W, 27) how often each letter occurs in each word."""
        return np.stack([(self.codes == letter).sum(1) for letter in range(_OTHER_CHAR + 1)], 1).astype(np.int8)

    def near(self, spelling: str, edits: int = 2) -> NDArray[np.int64]:
        """Numbers of the words that at most so many edits might turn into a spelling.

        An edit changes the length by at most one, and the bag of letters by at most two.
        """
        code = np.array(encode_word(spelling))
        bag = np.array([(code == letter).sum() for letter in range(_OTHER_CHAR + 1)], np.int8)
        close = np.flatnonzero(np.abs(self.lengths - len(spelling)) <= edits)
        return close[np.abs(self._bags[close] - bag).sum(1) <= 2 * edits]


def encode_word(word: str) -> list[int]:
    """LONGEST_WORD numbers: the letters in lower case, −1 behind the end."""
    codes = [_CODE.get(letter, _OTHER_CHAR) for letter in word.lower()[:LONGEST_WORD]]
    return codes + [-1] * (LONGEST_WORD - len(codes))
