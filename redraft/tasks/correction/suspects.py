"""Finds suspect words in a text, and candidates for what was meant."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from redraft.tasks.correction.edit_channel import EditChannel
from redraft.tasks.correction.lexicon import _LONGEST_WORD, Lexicon

_WHOLE_WORD = re.compile(r"(?<!\w)[^\W\d_]+(?!\w)")  # letters not adjacent to digits or underscores
_SENTENCE = re.compile(r"(^|[.!?:]|\n)[\s\"'“”‘’(—-]*$")  # text right before the first word of a sentence
_CERTAIN = 0.999  # a spelling with this probability, regardless of context, is not suspect
_CANDIDATES, _PAIRS, _MERGED = 16, 4, 4
_HOPELESS = 14.0  # nats behind the best candidate that no context can make up for
_OTHER_CASE = math.log(0.02)  # log probability that a word is written in another case than in the lexicon
_SPLIT_EDGE = 3.0  # nats by which two words may be more likely than one merged word, which is still considered


class _Candidate(NamedTuple):
    """A text that may have been meant."""

    text: str
    channel: float  # log P(spelling | text)
    prior: float  # log P(text)

    @property
    def score(self) -> float:
        return self.channel + self.prior


class _SuspectWord(NamedTuple):
    """A span of a text and its candidates; the first candidate is the spelling itself."""

    start: int
    end: int
    candidates: tuple[_Candidate, ...]


class _Replacement(NamedTuple):
    """A change: start, old text, new text, probability of the new text, and why it is likelier."""

    start: int
    was: str
    now: str
    probability: float
    reason: str


@dataclass(frozen=True)
class _CandidateGenerator:
    """Finds suspect words and their candidates by a lexicon and an error channel."""

    lexicon: Lexicon
    channel: EditChannel
    noise: float
    keep: frozenset[str] = frozenset()  # words never to change, in lower case
    names: bool = False  # whether capitalized words within a sentence may be changed
    alphabet: frozenset[str] | None = None  # characters that the model can read; None for all

    def suspects(self, text: str) -> list[_SuspectWord]:
        """The suspect words of a text, from left to right."""
        pieces = [piece for piece in _WHOLE_WORD.finditer(text) if self.may_change(text, piece.start(), piece.group())]
        merged = self._merged(text, pieces)
        spans = [range(pair.start, pair.end) for pair in merged]
        single = [piece for piece in pieces if not any(piece.start() in span for span in spans)]
        words = [_SuspectWord(piece.start(), piece.end(), self.candidates(piece.group())) for piece in single]
        return sorted((word for word in words + merged if _is_suspect(word)), key=lambda word: word.start)

    def may_change(self, text: str, start: int, word: str) -> bool:
        """Whether a word may be changed: not a kept word, too long, or a name (capitalized within a sentence)."""
        if word.lower() in self.keep or len(word) > _LONGEST_WORD:
            return False
        name = word[0].isupper() and not _SENTENCE.search(text[max(0, start - 12) : start])
        return self.names or not name or (word.isupper() and len(word) == 1)

    def knows(self, text: str) -> bool:
        """Whether all words of a text are known."""
        return all(word.lower() in self.lexicon.folded for word in text.split())

    @cached_property
    def candidates(self) -> Callable[[str], tuple[_Candidate, ...]]:
        """The most likely words for a spelling, the spelling itself first; cached."""
        return lru_cache(2**14)(self._candidates)

    def _candidates(self, spelling: str) -> tuple[_Candidate, ...]:
        """The most likely words for a spelling, regardless of context."""
        near = sorted(self._near(spelling), key=lambda c: c.score)
        others = {c.text: c for c in near if c.text.lower() != spelling.lower()}
        best = sorted([*others.values(), *self._split(spelling)], key=lambda c: -c.score)[:_CANDIDATES]
        own = self._own(spelling)
        least = max(c.score for c in (own, *best)) - _HOPELESS
        return (own, *(c for c in best if c.score > least))

    def _near(self, spelling: str, edits: int = 2) -> Iterator[_Candidate]:
        """Yields known words near a spelling."""
        near = self.lexicon.near(spelling, edits)
        channel = self.channel.log_probs(spelling, self.lexicon.codes[near], self.noise)
        for index, log_p in zip(near[_best(channel)], channel[_best(channel)], strict=True):
            word = self.lexicon.words[index]
            text, cost = _match_case(spelling, word)
            if self.alphabet is None or self.alphabet >= set(text):
                yield _Candidate(text, float(log_p) + cost, self.prior(text))

    def _split(self, spelling: str) -> Iterator[_Candidate]:
        """Yields pairs of known words that lost their space; if the spelling is unknown, one may be misspelled too."""
        log_space, clean = self.channel.log_space(self.noise), spelling.lower() in self.lexicon.folded
        for at in range(1, len(spelling)):
            halves = spelling[:at], spelling[at:]
            is_known = [half.lower() in self.lexicon.folded and _stands_alone(half) for half in halves]
            if not all(is_known) and (clean or not any(is_known)):
                continue
            first, second = (
                [self._own(half)] if seen else list(self._close(half))
                for half, seen in zip(halves, is_known, strict=True)
            )
            for a in first:
                for b in second:
                    yield _Candidate(f"{a.text} {b.text}", a.channel + b.channel + log_space, a.prior + b.prior)

    def _own(self, spelling: str) -> _Candidate:
        return _Candidate(spelling, self.channel.log_prob(spelling, spelling, self.noise), self.prior(spelling))

    def _close(self, spelling: str) -> list[_Candidate]:
        """The two most likely known words within one edit."""
        near = (c for c in self._near(spelling, 1) if _stands_alone(c.text)) if len(spelling) > 1 else iter(())
        return sorted(near, key=lambda c: -c.score)[:2]

    def prior(self, word: str) -> float:
        """log P(word); lower if the word is only known in another case."""
        counts = self.lexicon.counts
        if word in counts or word.lower() not in counts:
            return self.lexicon.log_prob(word)
        return self.lexicon.log_prob(word.lower()) + _OTHER_CASE

    def _merged(self, text: str, pieces: Sequence[re.Match[str]]) -> list[_SuspectWord]:
        """Pairs of neighboring pieces that may be one word, because one is unknown or the joined word is known.

        If pairs overlap, the one whose joined word gains most is taken.
        """
        pairs = []
        for first, second in pairwise(pieces):
            halves = first.group(), second.group()
            apart, together = self.knows(" ".join(halves)), self.knows("".join(halves))
            if text[first.end() : second.start()] == " " and (together or not apart):
                joined, separate = self._joined(*halves), self._separate(*halves)
                gain = max((c.score for c in joined), default=-math.inf) - max(c.score for c in separate)
                pairs.append((gain, _SuspectWord(first.start(), second.end(), (*separate, *joined))))
        taken: list[_SuspectWord] = []
        for gain, pair in sorted(pairs, key=lambda item: -item[0]):
            if gain > -_SPLIT_EDGE and all(pair.end <= other.start or other.end <= pair.start for other in taken):
                taken.append(pair)
        return taken

    def _joined(self, first: str, second: str) -> list[_Candidate]:
        """Known words for two pieces with an extra space between them."""
        log_space = self.channel.log_space(self.noise)
        joined = (c._replace(channel=c.channel + log_space) for c in self._near(first + second, 1))
        return sorted(joined, key=lambda c: -c.score)[:_MERGED]

    def _separate(self, first: str, second: str) -> list[_Candidate]:
        """Candidates for two pieces as separate words, their own spellings first."""
        a, b = self.candidates(first)[:_PAIRS], self.candidates(second)[:_PAIRS]
        return [_Candidate(f"{x.text} {y.text}", x.channel + y.channel, x.prior + y.prior) for x in a for y in b]


def _is_suspect(word: _SuspectWord) -> bool:
    """Whether the spelling itself is less than certain, regardless of context."""
    scores = np.array([c.score for c in word.candidates])
    weights = np.exp(scores - scores.max())
    return len(scores) > 1 and weights[0] < _CERTAIN * weights.sum()


def _match_case(spelling: str, word: str) -> tuple[str, float]:
    """A known word in the case of the spelling, and the log probability of that case."""
    if len(spelling) > 1 and spelling.isupper():
        return word.upper(), 0.0
    if spelling[0].isupper():
        return word[0].upper() + word[1:], 0.0
    return word, 0.0 if word[0].islower() else _OTHER_CASE


def _stands_alone(half: str) -> bool:
    """Whether part of a split word may be a word itself."""
    return len(half) > 1 or half in ("a", "A", "I", "i", "O", "o")


def _best(channel: np.ndarray, most: int = 4 * _CANDIDATES) -> np.ndarray:
    return np.argsort(-channel, kind="stable")[:most]
