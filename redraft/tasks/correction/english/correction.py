"""Correction with a causal model: a sentence is read once, and only suspicious words get a closer look.

A spelling that is not a known word is suspicious; the sentence is read with the likeliest known word in its place. A
known word is suspicious if another one fits the text to its left much better, or if the words after it are a surprise.
A closer look scores the candidates with the next few tokens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from redraft.tasks.correction.english.candidates import _WordCandidates
from redraft.tasks.correction.english.reader import _CausalReader, _Reading
from redraft.tasks.correction.english.typed_words import _typed_words, _TypedWord
from redraft.tasks.correction.suspects import _Candidate, _Replacement

# chosen on recipes/typos_tuning.txt and on text without errors
_NEW_WORD = -3.0  # log odds that an unknown spelling was meant to be typed, before the model reads it
_NEW_NAME = 1.0  # the same at the beginning of a sentence, where it may be a name
_KNOWN_WORD = 1.5  # log odds that a known word was meant, beyond the channel
_LEAST_LEFT = 1.0  # nats by which another word must fit better, judged by the text to its left
_EXTRA_TOKEN = 2.0  # nats that each token after the first of a candidate costs at least
_SURPRISE, _MOST_SURPRISE = 3.0, 8.0  # nats of a token that are no surprise; most nats that surprises count
_LOOKED_AT = 3  # candidates of a known word that get a closer look
_WINDOW, _CONTEXT = 400, 200  # characters read at once, and corrected characters before them
_END = re.compile(r"[.!?][\"'”’)]*\s+|\n+")


@dataclass(frozen=True)
class _WordChoice:
    """A typed word, its candidates, and the text in its place."""

    word: _TypedWord
    known: bool
    candidates: tuple[_Candidate, ...]  # the typed word first
    text: str
    probability: float = 1.0
    odds: float = 0.0  # nats by which the chosen text fits the sentence better than the typed word

    def replacement(self) -> _Replacement:
        return _Replacement(self.word.start, self.word.text, self.text, self.probability, self._reason())

    def _reason(self) -> str:
        fits = f"“{self.text}” fits the sentence {_times(self.odds)} better"
        return f"“{self.word.text}” is {'a word, but' if self.known else 'not in the word list, and'} {fits}"


def _times(nats: float) -> str:
    """A ratio given by its logarithm, as "3 times", "2,000 times" or "over a million times"."""
    ratio = math.exp(min(nats, 99.0))
    rounded = ratio if ratio < 10 else float(f"{ratio:.1g}")
    return f"{rounded:.1f} times" if ratio < 10 else f"{rounded:,.0f} times" if rounded < 1e6 else "a million times"


@dataclass(frozen=True)
class _CausalCorrection:
    """Bayes' rule at every suspicious word: channel(typed | word) × model(word, next words | words before)."""

    reader: _CausalReader
    words: _WordCandidates
    confidence: float

    def __call__(self, texts: Sequence[str]) -> list[list[_Replacement]]:
        """Returns the changes of each text."""
        return [self._changes(text) for text in texts]

    def _changes(self, text: str) -> list[_Replacement]:
        typed, changes, corrected = [*_typed_words(text)], list[_Replacement](), ""
        for start, end in _windows(text):
            words = [word for word in typed if start <= word.start < end]
            choices = [choice for word in words if (choice := self._begin(word)) is not None]
            context = corrected[-_CONTEXT:]
            if choices:
                choices = self._decide(_Window(context, text, start, end), choices)
            changed = [choice for choice in choices if choice.text != choice.word.text]
            changes += [choice.replacement() for choice in changed]
            corrected = f"{context}{_Window('', text, start, end).with_choices(changed)[0]}"
        return changes

    def _begin(self, word: _TypedWord) -> _WordChoice | None:
        """The word with its candidates, an unknown one already replaced by the likeliest; None if it has none."""
        if not (others := self.words.of(word)):
            return None
        known, capital = self.words.knows(word.text), word.text[0].isupper()
        prior = _KNOWN_WORD if known or word.is_name else _NEW_NAME if capital else _NEW_WORD
        unchanged = self.words.unchanged(word.text)._replace(prior=prior)
        guess = word.text if known or word.is_name else others[0].text
        # the model is the prior of the others
        return _WordChoice(word, known, (unchanged, *(other._replace(prior=0.0) for other in others)), guess)

    def _decide(self, window: _Window, choices: list[_WordChoice]) -> list[_WordChoice]:
        """Reads a window once, then takes a closer look at its suspicious words."""
        text, starts = window.with_choices(choices)
        reading = self.reader.read(text, len(window.context))
        return [self._look(reading, start, choice) for start, choice in zip(starts, choices, strict=True)]

    def _look(self, reading: _Reading, start: int, choice: _WordChoice) -> _WordChoice:
        """The choice with the most likely candidate, if the word is suspicious."""
        candidates = self._suspected(reading, start, choice) if choice.known else choice.candidates[1:]
        kept = replace(choice, text=choice.word.text)
        if not candidates:
            return kept
        options = (choice.candidates[0], *candidates)
        others = [option.text for option in options if option.text != choice.text]
        variants = self.reader.variants(reading, start, start + len(choice.text), others)
        scores = self.reader.log_probs(reading, variants, range(1, len(others) + 1))
        log_p = dict(zip(others, scores, strict=True)) | {choice.text: self.reader.own_log_prob(reading, variants)}
        total = [log_p[option.text] + option.score for option in options]
        best = max(range(1, len(total)), key=total.__getitem__)
        probability = 1 / sum(math.exp(min(700.0, value - total[best])) for value in total)
        if total[best] <= total[0] or probability < self.confidence:
            return kept
        odds = log_p[options[best].text] - log_p[choice.word.text]
        return replace(choice, text=options[best].text, probability=probability, odds=odds)

    def _suspected(self, reading: _Reading, start: int, choice: _WordChoice) -> list[_Candidate]:
        """The candidates that may be more likely than a known word, judged by what was read already."""
        candidates = choice.candidates[1:]
        end = start + len(choice.text)
        variants = self.reader.variants(reading, start, end, [candidate.text for candidate in candidates])
        after = variants.first + len(variants.differing(0))
        own = -reading.nats(variants.first, after)
        nats = [reading.nats(i, i + 1) for i in range(after, min(after + 3, len(reading.ids)))]
        surprise = min(_MOST_SURPRISE, sum(max(0.0, value - _SURPRISE) for value in nats))
        scored = []
        for row, candidate in enumerate(candidates, 1):
            tokens = variants.differing(row)
            left = float(reading.log_probs[variants.first - 1, tokens[0]]) - _EXTRA_TOKEN * (len(tokens) - 1)
            scored.append((left - own + candidate.channel, candidate))
        scored.sort(key=lambda pair: -pair[0])
        return [candidate for score, candidate in scored[:_LOOKED_AT] if score + surprise > _LEAST_LEFT]


@dataclass(frozen=True)
class _Window:
    """Part of a text that is read at once, and the corrected text before it."""

    context: str
    text: str
    start: int
    end: int

    def with_choices(self, choices: Sequence[_WordChoice]) -> tuple[str, list[int]]:
        """The context and the part with its choices; and where each of them begins there."""
        pieces, starts, at = [self.context], [], self.start
        length = len(self.context)
        for choice in choices:
            given = self.text[at : choice.word.start]
            pieces += [given, choice.text]
            starts.append(length + len(given))
            length, at = starts[-1] + len(choice.text), choice.word.end
        return "".join([*pieces, self.text[at : self.end]]), starts


def _windows(text: str) -> Iterator[tuple[int, int]]:
    """Yields parts of a text: whole sentences if they are short enough, else cut at spaces."""
    ends = [match.end() for match in _END.finditer(text)]
    start = 0
    while start < len(text):
        fitting = [end for end in ends if start < end <= start + _WINDOW]
        if len(text) - start <= _WINDOW:
            end = len(text)
        elif fitting:
            end = fitting[-1]
        else:
            space = text.rfind(" ", start, start + _WINDOW)
            end = space + 1 if space > start else start + _WINDOW
        yield start, end
        start = end
