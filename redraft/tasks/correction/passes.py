"""Correction in passes: scores every suspect word in its context, then again in the corrected context."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from redraft.tasks.correction.scorers import _HoleScorer, _WordHole
from redraft.tasks.correction.suspects import _OTHER_CASE, _CandidateGenerator, _Replacement, _SuspectWord
from redraft.tasks.engine.model import TextModel

_PASSES = 2
_ODDS_PER_NOISE = 125  # chosen on a book used neither for training nor for evaluation
_CONTEXT_CHARS = 12  # characters of context on each side per token of a row, more than fit into it


@dataclass(frozen=True)
class _Choice:
    """A suspect word and its current candidate."""

    suspect: _SuspectWord
    best: int = 0  # index of the candidate; 0 is the spelling itself
    probability: float = 1.0

    @property
    def text(self) -> str:
        return self.suspect.candidates[self.best].text

    @property
    def typed(self) -> str:
        return self.suspect.candidates[0].text

    def replacement(self, text: str, known: bool) -> _Replacement:
        (start, end, _), now = self.suspect, self.text
        why = "a known word, but" if known else "no known word, and"
        reason = f"“{text[start:end]}” is {why} “{now}” is more likely in this context"
        return _Replacement(start, text[start:end], now, self.probability, reason)


@dataclass(frozen=True)
class _CorrectionPasses:
    """Bayes' rule at every suspect word: channel(observed | word) × model(word | context)."""

    model: TextModel
    generator: _CandidateGenerator
    scorer: _HoleScorer
    confidence: float

    def __call__(self, texts: Sequence[str]) -> list[list[_Replacement]]:
        """Returns the changes of each text."""
        state = [[_Choice(suspect) for suspect in self.generator.suspects(text)] for text in texts]
        for _ in range(_PASSES):
            holes = [
                self._hole(text, choices, i)
                for text, choices in zip(texts, state, strict=True)
                for i in range(len(choices))
            ]
            scores = iter(self.scorer(holes))
            state = [[self._decide(choice, next(scores)) for choice in choices] for choices in state]
        return [
            [choice.replacement(text, self.generator.knows(choice.typed)) for choice in choices if choice.best]
            for text, choices in zip(texts, state, strict=True)
        ]

    def _decide(self, choice: _Choice, scores: Sequence[float]) -> _Choice:
        """Chooses the most likely candidate, or the spelling itself if its probability is below the threshold.

        Known words need better odds, because errors in their context mislead the model, the more the higher the noise.
        """
        candidates = choice.suspect.candidates
        log_p = [score + c.channel + self._log_share(c.text) for score, c in zip(scores, candidates, strict=True)]
        top = max(log_p)
        probability = 1 / sum(math.exp(value - top) for value in log_p)
        is_known = self.generator.knows(choice.typed)
        odds = max(1.0, _ODDS_PER_NOISE * self.generator.noise) if is_known else 1.0
        threshold = 1 - (1 - self.confidence) / odds
        return replace(choice, best=log_p.index(top) if probability >= threshold else 0, probability=probability)

    # --- input of the model ---

    def _hole(self, text: str, choices: Sequence[_Choice], at: int) -> _WordHole:
        """The current text around one suspect word, tokenized with each candidate in its place."""
        suspect, reach = choices[at].suspect, _CONTEXT_CHARS * self.scorer.max_length
        left = _current_text(text, choices[:at], max(0, suspect.start - reach), suspect.start)
        right = _current_text(text, choices[at + 1 :], suspect.end, min(len(text), suspect.end + reach))
        tokenizer = self.model.tokenizer
        before, after = tokenizer.encode_before(left), tokenizer.encode(right)
        rows = [tokenizer.encode(f"{left}{candidate.text}{right}") for candidate in suspect.candidates]
        first = min([_common_prefix(before, row) for row in rows])
        last = min([_common_prefix(after[::-1], row[first:][::-1]) for row in rows])
        fillings = tuple(tuple(row[first : len(row) - last]) for row in rows)
        return _WordHole(tuple(rows[0][:first]), fillings, tuple(rows[0][len(rows[0]) - last :]))

    # --- words outside a word tokenizer's vocabulary ---

    def _log_share(self, text: str) -> float:
        """log P(word | unknown), summed over the words of a candidate that are not in the vocabulary."""
        vocabulary, prior = self._vocabulary, self.generator.prior
        if vocabulary is None:
            return 0.0
        return sum(prior(word) - self._log_unknown for word in text.split() if word not in vocabulary)

    @cached_property
    def _vocabulary(self) -> frozenset[str] | None:
        return frozenset(self.model.tokenizer.known_words) or None

    @cached_property
    def _log_unknown(self) -> float:
        """log of the fraction of unknown words in text."""
        lexicon, vocabulary = self.generator.lexicon, self._vocabulary or frozenset()
        rare = sum(count for word, count in lexicon.counts.items() if word not in vocabulary)
        other = math.exp(_OTHER_CASE) * lexicon.total  # known words in another case
        return math.log((rare + other + lexicon.new_words) / (lexicon.total + lexicon.new_words))


def _current_text(text: str, choices: Sequence[_Choice], start: int, end: int) -> str:
    """Characters start..end of the text with its current candidates."""
    pieces, at = [], start
    for choice in choices:
        if choice.suspect.start >= at and choice.suspect.end <= end:
            pieces += [text[at : choice.suspect.start], choice.text]
            at = choice.suspect.end
    return "".join([*pieces, text[at:end]])


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of tokens that two rows share at their beginning."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count
