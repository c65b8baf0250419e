"""Asks a model about every doubtful spot of some texts, and then again with what it has corrected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from redraft.core.text.tokenizers import HubTokenizer, WordTokenizer
from redraft.tasks.correction.scorers import _HoleScorer, _WordHole
from redraft.tasks.correction.suspects import _OTHER_CASE, _CandidateGenerator, _Replacement, _SuspectWord
from redraft.tasks.engine.model import TextModel

_SWEEPS = 2
_MISLED = 125  # chosen on a book that is neither learnt from nor measured
_BESIDE = 12  # characters on each side of a spot for every token of a row: more than it can hold


@dataclass(frozen=True)
class _Chosen:
    """A spot and the candidate that stands there now."""

    spot: _SuspectWord
    best: int = 0
    probability: float = 1.0

    @property
    def text(self) -> str:
        return self.spot.candidates[self.best].text

    def replacement(self, text: str) -> _Replacement:
        start, end, _ = self.spot
        return _Replacement(start, text[start:end], self.text, self.probability)


@dataclass(frozen=True)
class _CorrectionPasses:
    """Bayes at every spot: channel(observed | word) × model(word | both sides)."""

    model: TextModel
    speller: _CandidateGenerator
    ask: _HoleScorer
    confidence: float

    def __call__(self, texts: Sequence[str]) -> list[list[_Replacement]]:
        """The changes of each text."""
        state = [[_Chosen(spot) for spot in self.speller.suspects(text)] for text in texts]
        for _ in range(_SWEEPS):
            holes = [
                self._hole(text, chosen, i)
                for text, chosen in zip(texts, state, strict=True)
                for i in range(len(chosen))
            ]
            scores = iter(self.ask(holes))
            state = [[self._judged(each, next(scores)) for each in chosen] for chosen in state]
        return [
            [each.replacement(text) for each in chosen if each.best] for text, chosen in zip(texts, state, strict=True)
        ]

    def _judged(self, chosen: _Chosen, scores: Sequence[float]) -> _Chosen:
        """The likeliest candidate, or the spelling itself if that is not likely enough.

        A known word is changed at better odds only: other errors around it mislead the model, the more the noisier.
        """
        candidates = chosen.spot.candidates
        log_p = [score + c.channel + self._share(c.text) for score, c in zip(scores, candidates, strict=True)]
        top = max(log_p)
        probability = 1 / sum(math.exp(value - top) for value in log_p)
        odds = max(1.0, _MISLED * self.speller.noise) if self.speller.knows(candidates[0].text) else 1.0
        enough = 1 - (1 - self.confidence) / odds
        return replace(chosen, best=log_p.index(top) if probability >= enough else 0, probability=probability)

    # --- what the model reads ---

    def _hole(self, text: str, chosen: Sequence[_Chosen], at: int) -> _WordHole:
        """The text as it stands now around one spot, cut into tokens with each candidate in it."""
        spot, reach = chosen[at].spot, _BESIDE * self.ask.max_length
        left = _spliced(text, chosen[:at], max(0, spot.start - reach), spot.start)
        right = _spliced(text, chosen[at + 1 :], spot.end, min(len(text), spot.end + reach))
        tokenizer = self.model.tokenizer
        # a tokenizer of word pieces joins the space before a word to it
        before = tokenizer.encode(left.rstrip() if isinstance(tokenizer, HubTokenizer) else left)
        behind = tokenizer.encode(right)
        rows = [tokenizer.encode(f"{left}{candidate.text}{right}") for candidate in spot.candidates]
        first = min([_shared(before, row) for row in rows])
        last = min([_shared(behind[::-1], row[first:][::-1]) for row in rows])
        fillings = tuple(tuple(row[first : len(row) - last]) for row in rows)
        return _WordHole(tuple(rows[0][:first]), fillings, tuple(rows[0][len(rows[0]) - last :]))

    # --- words that a tokenizer does not tell apart ---

    def _share(self, text: str) -> float:
        """log P(word | unknown), of each word of a candidate that the tokenizer does not know."""
        known, prior = self._vocabulary, self.speller.prior
        return 0.0 if known is None else sum(prior(w) - self._unknown for w in text.split() if w not in known)

    @cached_property
    def _vocabulary(self) -> frozenset[str] | None:
        return frozenset(self.model.tokenizer.words) if isinstance(self.model.tokenizer, WordTokenizer) else None

    @cached_property
    def _unknown(self) -> float:
        """log of the share of unknown words."""
        lexicon, known = self.speller.lexicon, self._vocabulary or frozenset()
        rare = sum(count for word, count in lexicon.counts.items() if word not in known)
        other = math.exp(_OTHER_CASE) * lexicon.total  # known words in another case
        return math.log((rare + other + lexicon.new_words) / (lexicon.total + lexicon.new_words))


def _spliced(text: str, chosen: Sequence[_Chosen], start: int, end: int) -> str:
    """A part of the text with the candidates that stand in it now."""
    pieces, at = [], start
    for each in chosen:
        if each.spot.start >= at and each.spot.end <= end:
            pieces += [text[at : each.spot.start], each.text]
            at = each.spot.end
    return "".join([*pieces, text[at:end]])


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two rows have in common at the beginning."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count
