"""Correction by a diffusion process that replaces characters: p(x | z) ∝ x̂ · q_t(z | x)."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core.canvas import Context
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import TokenProcess
from redraft.tasks.correction.scorers import _longest_row, _time_of_error_rate
from redraft.tasks.correction.suspects import _WHOLE_WORD, _CandidateGenerator, _Replacement
from redraft.tasks.engine.model import TextModel

_MOST_PASSES, _BATCH = 4, 32
_LEAST = 0.02  # minimum probability of a word; lower values would leave too many to compare
_NUMBER = re.compile(r"\w*\d\w*")


def _is_letter_channel(model: TextModel) -> bool:
    """Whether the model's own noise replaces characters by other characters."""
    process = model.lm.process
    if not model.tokenizer.letters or model.lm.block is not None or process.base is not process:
        return False
    return process.error_rate(0.5) > 0


def _letter_changes(
    model: TextModel, generator: _CandidateGenerator, texts: Sequence[str], confidence: float
) -> list[list[_Replacement]]:
    """Returns the changes of each text. A word is replaced if the joint probability of other characters is high enough.

    Each pass reads the text that the last one has written, until nothing changes.
    """
    process = model.lm.process.narrowed(TokenProcess, "this correction", "use a model of tokens")
    posterior = _LetterPosterior(
        model.lm,
        process,
        _time_of_error_rate(process, generator.noise),
        _longest_row(model),
        len(model.tokenizer.letters),
    )
    return [_changes(model, posterior, generator, text, confidence) if text else [] for text in texts]


def _changes(
    model: TextModel, posterior: _LetterPosterior, generator: _CandidateGenerator, text: str, confidence: float
) -> list[_Replacement]:
    observed = z = torch.tensor(model.tokenizer.encode(text), device=next(model.lm.parameters()).device)
    free, changed = _free(text, generator).to(z.device), list[_LikelyLetters]()
    spaces = torch.tensor([letter == " " for letter in text], device=z.device)
    for _ in range(_MOST_PASSES):
        log_p = posterior.letters(z, observed, free)
        spans = _suspect_spans(log_p, observed, spaces, confidence, posterior.room // 2)
        best = posterior.likeliest(z, observed, free, spans, confidence)
        changed = [letters for letters in best if letters is not None]
        before, z = z, observed.clone()
        for start, letters, _ in changed:
            z[start : start + len(letters)] = torch.tensor(letters, device=z.device)
        if torch.equal(before, z):
            break
    probabilities = torch.ones(len(z), dtype=torch.float64)
    for start, letters, probability in changed:
        probabilities[start : start + len(letters)] = probability
    return list(_changed_words(text, model.tokenizer.decode(z.tolist()), probabilities.tolist()))


def _suspect_spans(
    log_p: Tensor, observed: Tensor, spaces: Tensor, confidence: float, most: int
) -> list[tuple[int, int]]:
    """Spans of words whose observed characters have a probability of at most 1 − confidence.

    A space that is itself as improbable does not end a word. Long spans are cut.
    """
    own = log_p.gather(-1, observed[:, None]).squeeze(-1)
    ends = spaces & (own.exp() > 1 - confidence)
    cuts = [-1, *ends.nonzero().flatten().tolist(), len(observed)]
    words = [(left + 1, right) for left, right in itertools.pairwise(cuts) if right > left + 1]
    pieces = [(i, min(i + most, end)) for begin, end in words for i in range(begin, end, most)]
    return [(begin, end) for begin, end in pieces if float(own[begin:end].sum().exp()) <= 1 - confidence]


class _LikelyLetters(NamedTuple):
    """The most likely characters of a span."""

    start: int
    letters: tuple[int, ...]
    probability: float


class _Prefix(NamedTuple):
    """The first characters of a span, and their log probability."""

    span: int  # index of the span
    letters: tuple[int, ...]
    log_p: float


@dataclass(frozen=True)
class _LetterPosterior:
    """p(x | z) ∝ x̂ · q_t(z | x) for single characters and for spans, computed in windows of a text."""

    denoise: Denoiser
    process: TokenProcess
    time: float
    room: int  # maximum number of characters in a row
    alphabet: int  # number of characters; their ids are below it

    def letters(self, z: Tensor, observed: Tensor, free: Tensor) -> Tensor:
        """(L, A) log p of each character alone, from the overlapping window in which it is most central."""
        rows = []
        for start, first, last in _windows(len(z), self.room):
            time = torch.full_like(z[start : start + self.room], self.time, dtype=torch.float64)
            where = torch.arange(first - start, last - start, device=z.device)
            rows.append(self._read(z[None, start : start + self.room], time[None], [where])[0])
        return self._posterior(torch.cat(rows), observed, free)

    def likeliest(
        self, z: Tensor, observed: Tensor, free: Tensor, spans: Sequence[tuple[int, int]], confidence: float
    ) -> list[_LikelyLetters | None]:
        """The most likely characters of each span, if p(characters | z) ≥ max(confidence, 0.02); else None.

        Computed left to right by the chain rule, p(x_1 | z) · p(x_2 | x_1, z) · …: decided characters are clean (t =
        0), later ones are as observed. Prefixes below the limit are dropped; as a prefix is at least as likely as
        its continuations, no span above the limit is lost.
        """
        least, complete = math.log(max(confidence, _LEAST)), list[_Prefix]()
        prefixes = [_Prefix(index, (), 0.0) for index in range(len(spans))]
        while prefixes:
            log_probs = self._next(z, observed, free, spans, prefixes)
            longer = [
                p for prefix, log_p in zip(prefixes, log_probs, strict=True) for p in _extend(prefix, log_p, least)
            ]
            done = [len(prefix.letters) == spans[prefix.span][1] - spans[prefix.span][0] for prefix in longer]
            complete += [prefix for prefix, is_done in zip(longer, done, strict=True) if is_done]
            prefixes = [prefix for prefix, is_done in zip(longer, done, strict=True) if not is_done]
        return [_best(index, start, complete) for index, (start, _) in enumerate(spans)]

    def _next(
        self, z: Tensor, observed: Tensor, free: Tensor, spans: Sequence[tuple[int, int]], prefixes: Sequence[_Prefix]
    ) -> list[Tensor]:
        """(A,) log p of the next character of each prefix."""
        log_probs: list[Tensor] = []
        for batch in (prefixes[i : i + _BATCH] for i in range(0, len(prefixes), _BATCH)):
            inputs = [self._row(z, observed, spans[prefix.span], prefix) for prefix in batch]
            rows, times, where = zip(*inputs, strict=True)
            at = torch.tensor([spans[prefix.span][0] + len(prefix.letters) for prefix in batch], device=z.device)
            log_x = torch.cat(self._read(torch.stack(rows), torch.stack(times), where))
            log_probs += self._posterior(log_x, observed[at], free[at])
        return log_probs

    def _row(
        self, z: Tensor, observed: Tensor, span: tuple[int, int], prefix: _Prefix
    ) -> tuple[Tensor, Tensor, Tensor]:
        """A window around a span, the times of its characters, and the column of the next one."""
        start, end = span
        position = start + len(prefix.letters)
        row, time = z.clone(), torch.full_like(z, self.time, dtype=torch.float64)
        row[start:end] = observed[start:end]
        row[start:position] = torch.tensor(prefix.letters, dtype=z.dtype, device=z.device)
        time[start:position] = 0.0
        left = max(0, min(len(z) - self.room, (start + end - self.room) // 2))
        window = slice(left, left + self.room)
        return row[window], time[window], torch.tensor([position - left], device=z.device)

    def _read(self, rows: Tensor, times: Tensor, places: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """(n, V) log x̂ at the given columns of each row."""
        where = torch.zeros_like(rows, dtype=torch.bool)
        for row, at in zip(where, places, strict=True):
            row[at] = True
        times = times[:, :1] if bool((times == times[:, :1]).all()) else times
        return self.denoise.predict(rows, times, Context()).at(where).double().split([len(at) for at in places])

    def _posterior(self, log_x: Tensor, observed: Tensor, free: Tensor) -> Tensor:
        """(N, A) log p(x | z); characters that are not free keep their value."""
        channel = self.process.channel(observed, torch.full_like(observed, self.time, dtype=torch.float64))
        log_p = (log_x + channel)[:, : self.alphabet].log_softmax(-1)
        confidence = torch.where(F.one_hot(observed, self.alphabet) > 0, 0.0, -math.inf).to(log_p)
        return torch.where(free[:, None], log_p, confidence)


def _extend(prefix: _Prefix, log_p: Tensor, least: float) -> Iterator[_Prefix]:
    """Yields the prefix with each next character that keeps its log probability above `least`."""
    for letter in (log_p + prefix.log_p >= least).nonzero().flatten().tolist():
        yield _Prefix(prefix.span, (*prefix.letters, letter), prefix.log_p + float(log_p[letter]))


def _best(span: int, start: int, complete: Sequence[_Prefix]) -> _LikelyLetters | None:
    """The most likely of the complete prefixes of a span; None if there is none."""
    best = max((prefix for prefix in complete if prefix.span == span), key=lambda prefix: prefix.log_p, default=None)
    return None if best is None else _LikelyLetters(start, best.letters, math.exp(best.log_p))


def _free(text: str, generator: _CandidateGenerator) -> Tensor:
    """(L,) bool: characters that may change; False in kept words, names and words with digits, and next to them."""
    free = torch.ones(len(text), dtype=torch.bool)
    locked = [word for word in _WHOLE_WORD.finditer(text) if not generator.may_change(text, word.start(), word.group())]
    for word in (*locked, *_NUMBER.finditer(text)):
        free[max(0, word.start() - 1) : word.end() + 1] = False
    return free


def _windows(length: int, room: int) -> Iterator[tuple[int, int, int]]:
    """Yields the start of each window, and the range of positions that are taken from it."""
    starts = [*range(0, max(1, length - room), max(1, room // 2)), max(0, length - room)]
    starts = sorted(set(starts))
    for index, start in enumerate(starts):
        first = 0 if index == 0 else (starts[index - 1] + room + start) // 2
        last = length if index == len(starts) - 1 else (start + room + starts[index + 1]) // 2
        yield start, first, last


def _changed_words(was: str, now: str, probabilities: Sequence[float]) -> Iterator[_Replacement]:
    """Yields the changed words, split at spaces that both texts have."""
    cuts = [-1, *(i for i, (a, b) in enumerate(zip(was, now, strict=True)) if a == b == " "), len(was)]
    for left, right in itertools.pairwise(cuts):
        if was[left + 1 : right] != now[left + 1 : right]:
            word = slice(left + 1, right)
            reason = f"“{now[word]}” has other characters, which are more likely in this context"
            yield _Replacement(left + 1, was[word], now[word], min(probabilities[word]), reason)
