"""Which words of a text may be wrong, and which known words may have been meant."""

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
from redraft.tasks.correction.lexicon import LONGEST_WORD, Lexicon

_WHOLE_WORD = re.compile(r"(?<!\w)[^\W\d_]+(?!\w)")  # letters without digits or underscores beside them
_SENTENCE = re.compile(r"(^|[.!?:]|\n)[\s\"'“”‘’(—-]*$")  # what stands before the first word of one
_CERTAIN = 0.999  # a spelling whose own word is so likely, whatever the text, is not looked at
_CANDIDATES, _PAIRS, _MERGED = 16, 4, 4
_HOPELESS = 14.0  # nats by which another candidate is likelier: no text around makes up for it
_OTHER_CASE = math.log(0.02)  # a word with a capital was written without one, or the other way round
_SPLIT_EDGE = 3.0  # nats by which two words may be likelier than one, and still both are asked


class _Candidate(NamedTuple):
    """What may be meant: its text, log P(spelling | it), and log of how frequent it is."""

    text: str
    channel: float
    prior: float

    @property
    def score(self) -> float:
        return self.channel + self.prior


class _SuspectWord(NamedTuple):
    """A place of a text and what may be meant there; the first candidate is the spelling itself."""

    start: int
    end: int
    candidates: tuple[_Candidate, ...]


class _Replacement(NamedTuple):
    """A change: where, what it was, what it is now, how likely that is."""

    start: int
    was: str
    now: str
    probability: float


@dataclass(frozen=True)
class _CandidateGenerator:
    """Known words, the channel and how noisy it is: from a text to its doubtful spots."""

    lexicon: Lexicon
    channel: EditChannel
    noise: float
    keep: frozenset[str] = frozenset()  # in lower case
    names: bool = False
    alphabet: frozenset[str] | None = None  # of letters that the model can read; None: all

    def suspects(self, text: str) -> list[_SuspectWord]:
        """The doubtful spots of a text, from left to right."""
        pieces = [piece for piece in _WHOLE_WORD.finditer(text) if self.may_change(text, piece.start(), piece.group())]
        merged = self._merged(text, pieces)
        inside = [range(spot.start, spot.end) for spot in merged]
        single = [piece for piece in pieces if not any(piece.start() in span for span in inside)]
        spots = [_SuspectWord(piece.start(), piece.end(), self.candidates(piece.group())) for piece in single]
        return sorted((spot for spot in spots + merged if _is_suspect(spot)), key=lambda spot: spot.start)

    def may_change(self, text: str, start: int, word: str) -> bool:
        """Whether a word may be touched: not one to keep, and no name, which is a capital inside of a sentence."""
        if word.lower() in self.keep or len(word) > LONGEST_WORD:
            return False
        name = word[0].isupper() and not _SENTENCE.search(text[max(0, start - 12) : start])
        return self.names or not name or (word.isupper() and len(word) == 1)

    def knows(self, text: str) -> bool:
        """Whether all words of a text are known."""
        return all(word.lower() in self.lexicon.folded for word in text.split())

    @cached_property
    def candidates(self) -> Callable[[str], tuple[_Candidate, ...]]:
        """The likeliest words for a spelling, the spelling itself first; remembered."""
        return lru_cache(2**14)(self._candidates)

    def _candidates(self, spelling: str) -> tuple[_Candidate, ...]:
        """The likeliest words for a spelling, without a look at the text around it."""
        near = sorted(self._near(spelling), key=lambda c: c.score)
        others = {c.text: c for c in near if c.text.lower() != spelling.lower()}
        best = sorted([*others.values(), *self._split(spelling)], key=lambda c: -c.score)[:_CANDIDATES]
        own = self._own(spelling)
        least = max(c.score for c in (own, *best)) - _HOPELESS
        return (own, *(c for c in best if c.score > least))

    def _near(self, spelling: str, edits: int = 2) -> Iterator[_Candidate]:
        near = self.lexicon.near(spelling, edits)
        channel = self.channel.log_probs(spelling, self.lexicon.codes[near], self.noise)
        for number, log_p in zip(near[_best(channel)], channel[_best(channel)], strict=True):
            word = self.lexicon.words[number]
            text, cost = _match_case(spelling, word)
            if self.alphabet is None or self.alphabet >= set(text):
                yield _Candidate(text, float(log_p) + cost, self.prior(text))

    def _split(self, spelling: str) -> Iterator[_Candidate]:
        """Two known words whose space was lost; one of them may be misspelt besides if the spelling is unknown."""
        lost, clean = self.channel.log_space(self.noise), spelling.lower() in self.lexicon.folded
        for place in range(1, len(spelling)):
            halves = spelling[:place], spelling[place:]
            known = [half.lower() in self.lexicon.folded and _stands_alone(half) for half in halves]
            if not all(known) and (clean or not any(known)):
                continue
            first, second = (
                [self._own(half)] if seen else list(self._close(half)) for half, seen in zip(halves, known, strict=True)
            )
            for a in first:
                for b in second:
                    yield _Candidate(f"{a.text} {b.text}", a.channel + b.channel + lost, a.prior + b.prior)

    def _own(self, spelling: str) -> _Candidate:
        return _Candidate(spelling, self.channel.log_prob(spelling, spelling, self.noise), self.prior(spelling))

    def _close(self, spelling: str) -> list[_Candidate]:
        """The likeliest known words one edit away."""
        found = (c for c in self._near(spelling, 1) if _stands_alone(c.text)) if len(spelling) > 1 else iter(())
        return sorted(found, key=lambda c: -c.score)[:2]

    def prior(self, word: str) -> float:
        """log of how frequent a word is; written in another case it is rarer."""
        counts = self.lexicon.counts
        if word in counts or word.lower() not in counts:
            return self.lexicon.log_prob(word)
        return self.lexicon.log_prob(word.lower()) + _OTHER_CASE

    def _merged(self, text: str, pieces: Sequence[re.Match[str]]) -> list[_SuspectWord]:
        """Pairs of pieces that may be one word: one of them is unknown, or together they are known.


        Where pairs overlap, the one that gains most by being one word is taken.
        """
        found = []
        for first, second in pairwise(pieces):
            halves = first.group(), second.group()
            apart, together = self.knows(" ".join(halves)), self.knows("".join(halves))
            if text[first.end() : second.start()] == " " and (together or not apart):
                whole, pairs = self._joined(*halves), self._pairs(*halves)
                gain = max((c.score for c in whole), default=-math.inf) - max(c.score for c in pairs)
                found.append((gain, _SuspectWord(first.start(), second.end(), (*pairs, *whole))))
        taken: list[_SuspectWord] = []
        for gain, spot in sorted(found, key=lambda each: -each[0]):
            if gain > -_SPLIT_EDGE and all(spot.end <= other.start or other.end <= spot.start for other in taken):
                taken.append(spot)
        return taken

    def _joined(self, first: str, second: str) -> list[_Candidate]:
        """Known words for two pieces, between which there is a space too many."""
        extra = self.channel.log_space(self.noise)
        found = (c._replace(channel=c.channel + extra) for c in self._near(first + second, 1))
        return sorted(found, key=lambda c: -c.score)[:_MERGED]

    def _pairs(self, first: str, second: str) -> list[_Candidate]:
        """Each of the two as it may be by itself, their own spellings first."""
        a, b = self.candidates(first)[:_PAIRS], self.candidates(second)[:_PAIRS]
        return [_Candidate(f"{x.text} {y.text}", x.channel + y.channel, x.prior + y.prior) for x in a for y in b]


def _is_suspect(spot: _SuspectWord) -> bool:
    """Whether the spelling itself is not by far the likeliest, as far as words alone can tell."""
    scores = np.array([c.score for c in spot.candidates])
    weights = np.exp(scores - scores.max())
    return len(scores) > 1 and weights[0] < _CERTAIN * weights.sum()


def _match_case(spelling: str, word: str) -> tuple[str, float]:
    """A known word as the spelling is written, in capitals or with one; log of how likely its case is."""
    if len(spelling) > 1 and spelling.isupper():
        return word.upper(), 0.0
    if spelling[0].isupper():
        return word[0].upper() + word[1:], 0.0
    return word, 0.0 if word[0].islower() else _OTHER_CASE


def _stands_alone(half: str) -> bool:
    """Whether a part of a word may stand by itself."""
    return len(half) > 1 or half in ("a", "A", "I", "i", "O", "o")


def _best(channel: np.ndarray, most: int = 4 * _CANDIDATES) -> np.ndarray:
    return np.argsort(-channel, kind="stable")[:most]
