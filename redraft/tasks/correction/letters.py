"""Correcting by the process itself, where noise makes other letters of letters: p(x | z) ∝ x̂ · q_t(z | x)."""

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
from redraft.core.processes.insertion import Insertion
from redraft.core.processes.masked import Masked
from redraft.core.processes.remasking import Remask
from redraft.core.text.tokenizers import CharTokenizer
from redraft.tasks.correction.scorers import _error_rate, _longest_row, _time_of_error_rate
from redraft.tasks.correction.suspects import _WHOLE_WORD, _CandidateGenerator, _Replacement
from redraft.tasks.engine.model import TextModel

_MOST_SWEEPS, _BATCH = 4, 32
_LEAST = 0.02  # of the probability of a word: below, too many would have to be compared
_NUMBER = re.compile(r"\w*\d\w*")


def _is_letter_channel(model: TextModel) -> bool:
    """Whether letters become other letters by the noise of the model itself."""
    process = model.lm.process
    if (
        not isinstance(model.tokenizer, CharTokenizer)
        or model.lm.block is not None
        or not isinstance(process, TokenProcess)
    ):
        return False
    return not isinstance(process, Masked | Remask | Insertion) and _error_rate(process, 0.5) > 0


def _letter_changes(
    model: TextModel, speller: _CandidateGenerator, texts: Sequence[str], confidence: float
) -> list[list[_Replacement]]:
    """The changed words of each text; a word is replaced if the letters of another one are likely enough together.

    Each sweep reads what the last one has written, until nothing changes.
    """
    process = model.lm.process
    assert isinstance(process, TokenProcess)
    read = _LetterPosterior(
        model.lm, process, _time_of_error_rate(process, speller.noise), _longest_row(model), _letters(model)
    )
    return [_changes(model, read, speller, text, confidence) if text else [] for text in texts]


def _letters(model: TextModel) -> int:
    assert isinstance(model.tokenizer, CharTokenizer)  # its letters come first
    return len(model.tokenizer.alphabet)


def _changes(
    model: TextModel, read: _LetterPosterior, speller: _CandidateGenerator, text: str, confidence: float
) -> list[_Replacement]:
    observed = z = torch.tensor(model.tokenizer.encode(text), device=next(model.lm.parameters()).device)
    free, found = _free(text, speller).to(z.device), list[_LikelyLetters]()
    spaces = torch.tensor([letter == " " for letter in text], device=z.device)
    for _ in range(_MOST_SWEEPS):
        log_p = read.letters(z, observed, free)
        spans = _doubtful(log_p, observed, spaces, confidence, read.room // 2)
        found = [each for each in read.likeliest(z, observed, free, spans, confidence) if each is not None]
        before, z = z, observed.clone()
        for start, letters, _ in found:
            z[start : start + len(letters)] = torch.tensor(letters, device=z.device)
        if torch.equal(before, z):
            break
    sure = torch.ones(len(z), dtype=torch.float64)
    for start, letters, probability in found:
        sure[start : start + len(letters)] = probability
    return list(_words(text, model.tokenizer.decode(z.tolist()), sure.tolist()))


def _doubtful(log_p: Tensor, observed: Tensor, spaces: Tensor, confidence: float, most: int) -> list[tuple[int, int]]:
    """The words whose own letters leave room for others that are likely enough: 1 − p(as it stands) ≥ confidence.

    A space of which the same is true does not end a word. Long pieces are cut.
    """
    own = log_p.gather(-1, observed[:, None]).squeeze(-1)
    ends = spaces & (own.exp() > 1 - confidence)
    cuts = [-1, *ends.nonzero().flatten().tolist(), len(observed)]
    words = [(left + 1, right) for left, right in itertools.pairwise(cuts) if right > left + 1]
    pieces = [(i, min(i + most, end)) for begin, end in words for i in range(begin, end, most)]
    return [(begin, end) for begin, end in pieces if float(own[begin:end].sum().exp()) <= 1 - confidence]


class _LikelyLetters(NamedTuple):
    """The likeliest letters of a span."""

    start: int
    letters: tuple[int, ...]
    probability: float


class _Begun(NamedTuple):
    """The first letters of a span, and how likely they are."""

    span: int
    letters: tuple[int, ...]
    log_p: float


@dataclass(frozen=True)
class _LetterPosterior:
    """p(x | z) ∝ x̂ · q_t(z | x) of letters, one by one and several together, read from windows of a text."""

    denoise: Denoiser
    process: TokenProcess
    time: float
    room: int  # letters of a row, at most
    alphabet: int  # ids below are letters

    def letters(self, z: Tensor, observed: Tensor, free: Tensor) -> Tensor:
        """(L, A) log p of each letter by itself; windows overlap, and a letter is read where it is most central."""
        rows = []
        for start, first, last in _windows(len(z), self.room):
            time = torch.full_like(z[start : start + self.room], self.time, dtype=torch.float64)
            where = torch.arange(first - start, last - start, device=z.device)
            rows.append(self._read(z[None, start : start + self.room], time[None], [where])[0])
        return self._weighed(torch.cat(rows), observed, free)

    def likeliest(
        self, z: Tensor, observed: Tensor, free: Tensor, spans: Sequence[tuple[int, int]], confidence: float
    ) -> list[_LikelyLetters | None]:
        """For each span the letters with p(letters | all of z) ≥ confidence, the likeliest; None: there are none.

        By the chain rule from left to right, p(x_1 | z) · p(x_2 | x_1, z) · …: letters that are decided are clean (t =
        0), those that follow stand as observed. A beginning that is less likely than `confidence` is dropped with all
        that could follow, so nothing likely enough is missed.
        """
        least, done = math.log(max(confidence, _LEAST)), list[_Begun]()
        begun = [_Begun(number, (), 0.0) for number in range(len(spans))]
        while begun:
            longer = [
                more for each, log_p in zip(begun, self._next(z, observed, free, spans, begun), strict=True)
                for more in _continued(each, log_p, least)
            ]  # fmt: skip
            complete = [len(each.letters) == spans[each.span][1] - spans[each.span][0] for each in longer]
            done += [each for each, whole in zip(longer, complete, strict=True) if whole]
            begun = [each for each, whole in zip(longer, complete, strict=True) if not whole]
        return [_best(number, start, done) for number, (start, _) in enumerate(spans)]

    def _next(
        self, z: Tensor, observed: Tensor, free: Tensor, spans: Sequence[tuple[int, int]], begun: Sequence[_Begun]
    ) -> list[Tensor]:
        """(A,) log p of the next letter of each."""
        found: list[Tensor] = []
        for some in (begun[i : i + _BATCH] for i in range(0, len(begun), _BATCH)):
            rows, times, where = zip(*(self._row(z, observed, spans[each.span], each) for each in some), strict=True)
            at = torch.tensor([spans[each.span][0] + len(each.letters) for each in some], device=z.device)
            log_x = torch.cat(self._read(torch.stack(rows), torch.stack(times), where))
            found += self._weighed(log_x, observed[at], free[at])
        return found

    def _row(self, z: Tensor, observed: Tensor, span: tuple[int, int], begun: _Begun) -> tuple[Tensor, Tensor, Tensor]:
        """A window around a span, its times, and the place of its next letter."""
        start, end = span
        place = start + len(begun.letters)
        row, time = z.clone(), torch.full_like(z, self.time, dtype=torch.float64)
        row[start:end] = observed[start:end]
        row[start:place] = torch.tensor(begun.letters, dtype=z.dtype, device=z.device)
        time[start:place] = 0.0
        left = max(0, min(len(z) - self.room, (start + end - self.room) // 2))
        window = slice(left, left + self.room)
        return row[window], time[window], torch.tensor([place - left], device=z.device)

    def _read(self, rows: Tensor, times: Tensor, places: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """(n, V) log x̂ at some places of each row."""
        where = torch.zeros_like(rows, dtype=torch.bool)
        for row, at in zip(where, places, strict=True):
            row[at] = True
        times = times[:, :1] if bool((times == times[:, :1]).all()) else times
        return self.denoise(rows, times, Context()).at(where).double().split([len(at) for at in places])

    def _weighed(self, log_x: Tensor, observed: Tensor, free: Tensor) -> Tensor:
        """(N, A) log p(x | z); a letter that is not free is what it is."""
        channel = self.process.channel(observed, torch.full_like(observed, self.time, dtype=torch.float64))
        log_p = (log_x + channel)[:, : self.alphabet].log_softmax(-1)
        sure = torch.where(F.one_hot(observed, self.alphabet) > 0, 0.0, -math.inf).to(log_p)
        return torch.where(free[:, None], log_p, sure)


def _continued(begun: _Begun, log_p: Tensor, least: float) -> Iterator[_Begun]:
    for letter in (log_p + begun.log_p >= least).nonzero().flatten().tolist():
        yield _Begun(begun.span, (*begun.letters, letter), begun.log_p + float(log_p[letter]))


def _best(number: int, start: int, done: Sequence[_Begun]) -> _LikelyLetters | None:
    best = max((each for each in done if each.span == number), key=lambda each: each.log_p, default=None)
    return None if best is None else _LikelyLetters(start, best.letters, math.exp(best.log_p))


def _free(text: str, speller: _CandidateGenerator) -> Tensor:
    """(L,) which letters may be changed: not those of a word to keep or of a name, nor of one with a digit in it."""
    free = torch.ones(len(text), dtype=torch.bool)
    kept = [word for word in _WHOLE_WORD.finditer(text) if not speller.may_change(text, word.start(), word.group())]
    for word in (*kept, *_NUMBER.finditer(text)):
        free[max(0, word.start() - 1) : word.end() + 1] = False
    return free


def _windows(length: int, room: int) -> Iterator[tuple[int, int, int]]:
    """Where a window begins, and which places are taken from it."""
    starts = [*range(0, max(1, length - room), max(1, room // 2)), max(0, length - room)]
    starts = sorted(set(starts))
    for number, start in enumerate(starts):
        first = 0 if number == 0 else (starts[number - 1] + room + start) // 2
        last = length if number == len(starts) - 1 else (start + room + starts[number + 1]) // 2
        yield start, first, last


def _words(was: str, now: str, sure: Sequence[float]) -> Iterator[_Replacement]:
    """The changed words: what stands between spaces that are in both texts."""
    cuts = [-1, *(i for i, (a, b) in enumerate(zip(was, now, strict=True)) if a == b == " "), len(was)]
    for left, right in itertools.pairwise(cuts):
        if was[left + 1 : right] != now[left + 1 : right]:
            yield _Replacement(left + 1, was[left + 1 : right], now[left + 1 : right], min(sure[left + 1 : right]))
