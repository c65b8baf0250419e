"""What a typed English word may have been meant to be: known words near it, and words that it is mistaken for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from redraft.tasks.correction.edit_channel import EditChannel
from redraft.tasks.correction.english.typed_words import _TypedWord
from redraft.tasks.correction.english.words import confused_words
from redraft.tasks.correction.lexicon import Lexicon, encode_word
from redraft.tasks.correction.suspects import _Candidate

_NEAR = 5  # candidates of an unknown spelling
_APOSTROPHE = 1.5  # rate of lost apostrophes, per unit of noise
_CONFUSION = 1.0  # rate at which one word of a group is typed for another one, per unit of noise
_SPLIT = 0.5  # rate of lost spaces, per unit of noise
_RARE = 1e-9  # frequency of words that are not in the lexicon
_COMMON = 2e-6  # frequency above which a word may have been meant where another known word stands
_SPLIT_COMMON = 4e-6  # frequency of each part of a word that lost a space
_ENDINGS = ("'s", "'ll", "'ve", "'re", "'d")
_CALENDAR = frozenset(
    {"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "january", "february", "march"}
    | {"april", "june", "july", "august", "september", "october", "november", "december"}
)


@dataclass(frozen=True, eq=False)
class _WordCandidates:
    """The candidates of typed words, by a lexicon and an error channel."""

    lexicon: Lexicon
    channel: EditChannel
    noise: float
    keep: frozenset[str] = frozenset()  # words never to change, in lower case
    names: bool = False  # whether capitalized words within a sentence may be changed

    def knows(self, word: str) -> bool:
        """Whether a word is in the lexicon, perhaps with an ending such as 's."""
        word, known = _plain(word), self.lexicon.folded
        return word in known or any(word.endswith(end) and word.removesuffix(end) in known for end in (*_ENDINGS, "'"))

    def of(self, word: _TypedWord) -> list[_Candidate]:
        """What else may have been meant, most likely first regardless of context."""
        spelling = _plain(word.text)
        if spelling in self.keep:
            return []
        if word.is_name and not self.names:
            return [] if self.knows(spelling) else self._calendar_names(word.text)
        if self.knows(spelling):
            return self._instead_of_known(word.text)
        return self._instead_of_unknown(word.text) if len(spelling) > 1 else []

    def unchanged(self, word: str) -> _Candidate:
        """The word as typed."""
        return _Candidate(word, self.channel.log_prob(_plain(word), _plain(word), self.noise), 0.0)

    # --- known words ---

    def _instead_of_known(self, word: str) -> list[_Candidate]:
        """Common words that one edit turns into this one, and those it is mistaken for."""
        spelling, likely = _plain(word), dict[str, float]()
        near = [other for other in self.lexicon.one_edit_from(spelling) if self._share(other) >= _COMMON]
        for other, log_p in zip(near, self._log_probs(spelling, near), strict=True):
            likely[other] = self._with_apostrophe(spelling, other, log_p)
        for other in confused_words().get(word if word == "i" else spelling, ()):
            likely[other] = max(likely.get(other, -math.inf), math.log(min(0.5, _CONFUSION * self.noise)))
        return self._sorted(word, likely)

    def _share(self, word: str) -> float:
        return self.lexicon.counts.get(word, 0.0) / self.lexicon.total

    # --- unknown spellings ---

    def _instead_of_unknown(self, word: str) -> list[_Candidate]:
        """Known words within two edits, with the same ending if there is one, and two words that lost their space."""
        spelling = _plain(word)
        ending = next((end for end in _ENDINGS if spelling.endswith(end)), "")
        likely = self._near(spelling)
        if ending:
            stem = spelling.removesuffix(ending)
            likely |= {f"{other}{ending}": log_p for other, log_p in self._near(stem).items() if other != stem}
        return [*self._sorted(word, likely)[:_NEAR], *self._split(word)]

    def _near(self, spelling: str) -> dict[str, float]:
        near = [self.lexicon.words[i] for i in self.lexicon.near(spelling)]
        pairs = zip(near, self._log_probs(spelling, near), strict=True)
        return {other: self._with_apostrophe(spelling, other, log_p) for other, log_p in pairs}

    def _split(self, word: str) -> Iterator[_Candidate]:
        """Yields the most frequent pair of common words that make this one without their space."""
        spelling, pairs = _plain(word), []
        for at in range(1, len(spelling)):
            halves = spelling[:at], spelling[at:]
            shares = [self._share(half) for half in halves]
            if min(shares) >= _SPLIT_COMMON and all(len(half) > 1 or half in "ai" for half in halves):
                pairs.append((sum(map(math.log, shares)), " ".join(halves)))
        if pairs:
            prior, text = max(pairs)
            yield _Candidate(_with_case(word, text), math.log(_SPLIT * self.noise), prior)

    def _calendar_names(self, word: str) -> list[_Candidate]:
        """Days and months, for an unknown name."""
        likely = {other: log_p for other, log_p in self._near(_plain(word)).items() if other in _CALENDAR}
        return self._sorted(word, likely)

    # --- both ---

    def _log_probs(self, spelling: str, words: Sequence[str]) -> list[float]:
        """log P(spelling | word) of each word."""
        if not words:
            return []
        codes = np.array([encode_word(word) for word in words])
        log_p: list[float] = self.channel.log_probs(spelling, codes, self.noise).tolist()
        return log_p

    def _with_apostrophe(self, spelling: str, word: str, log_p: float) -> float:
        lost = "'" in word and word.replace("'", "") == spelling.replace("'", "")
        return max(log_p, math.log(min(0.5, _APOSTROPHE * self.noise))) if lost else log_p

    def _sorted(self, word: str, likely: dict[str, float]) -> list[_Candidate]:
        others = (_Candidate(_with_case(word, other), log_p, self._prior(other)) for other, log_p in likely.items())
        return sorted((c for c in others if c.text != word), key=lambda c: -c.score)

    def _prior(self, word: str) -> float:
        """log of the frequency of a word, without its ending."""
        word = _plain(word)
        ending = next((end for end in _ENDINGS if word.endswith(end) and word not in self.lexicon.counts), "")
        return math.log(max(self._share(word.removesuffix(ending)), _RARE))


def _plain(word: str) -> str:
    """A word in lower case with a straight apostrophe."""
    return word.lower().replace("’", "'")


def _with_case(typed: str, word: str) -> str:
    """A known word in the case of the typed one, and with its kind of apostrophe."""
    if word.startswith("i'") or word in ("i", "I"):
        word = f"I{word[1:]}"
    word = word.replace("'", "’") if "’" in typed else word
    return word[0].upper() + word[1:] if typed[0].isupper() or _plain(word) in _CALENDAR else word
