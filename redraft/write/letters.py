"""Correcting by the process itself, where noise makes other letters of letters: p(x | z) ∝ x̂ · q_t(z | x)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from redraft.processes import Insertion, Masked, Remask, TokenProcess
from redraft.text import Characters
from redraft.types import Context
from redraft.write.models import Opened
from redraft.write.readers import moment, row_length, wrong_share
from redraft.write.spots import WHOLE_WORD, Replacement, Speller

_MOST_SWEEPS = 8
_NUMBER = re.compile(r"\w*\d\w*")


def is_own_channel(it: Opened) -> bool:
    """Whether letters become other letters by the noise of the model itself."""
    process = it.model.process
    if not isinstance(it.tokenizer, Characters) or it.model.block is not None or not isinstance(process, TokenProcess):
        return False
    return not isinstance(process, Masked | Remask | Insertion) and wrong_share(process, 0.5) > 0


def letter_changes(it: Opened, speller: Speller, texts: Sequence[str], confidence: float) -> list[list[Replacement]]:
    """The changed words of each text; a letter is replaced if another one is likelier and likely enough.

    Each sweep reads what the last one has written, until nothing changes.
    """
    process = it.model.process
    assert isinstance(process, TokenProcess)
    t = moment(process, speller.noise)
    return [_changes(it, process, speller, text, t, confidence) if text else [] for text in texts]


def _changes(
    it: Opened, process: TokenProcess, speller: Speller, text: str, t: float, confidence: float
) -> list[Replacement]:
    assert isinstance(it.tokenizer, Characters)  # its letters come first
    observed = z = torch.tensor(it.tokenizer.encode(text), device=next(it.model.parameters()).device)
    free, sure = _free(text, speller).to(z.device), torch.ones(len(z), dtype=torch.float64, device=z.device)
    channel = process.channel(observed, torch.full_like(observed, t, dtype=torch.float64))
    for _ in range(_MOST_SWEEPS):
        log_p = _denoised(it, z, t, row_length(it)).double() + channel
        p, best = log_p[:, : len(it.tokenizer.alphabet)].softmax(-1).max(-1)
        best = torch.where(free & (p >= confidence), best, observed)
        sure = torch.where(best != observed, p, 1.0)
        if bool((best == z).all()):
            break
        z = best
    return list(_words(text, it.tokenizer.decode(z.tolist()), sure.tolist()))


def _free(text: str, speller: Speller) -> Tensor:
    """(L,) which letters may be changed: not those of a word to keep or of a name, nor of one with a digit in it."""
    free = torch.ones(len(text), dtype=torch.bool)
    kept = [word for word in WHOLE_WORD.finditer(text) if not speller.free(text, word.start(), word.group())]
    for word in (*kept, *_NUMBER.finditer(text)):
        free[max(0, word.start() - 1) : word.end() + 1] = False
    return free


def _denoised(it: Opened, z: Tensor, t: float, room: int) -> Tensor:
    """(L, V) log x̂; a long text is read in windows that overlap by half, and each place where it is most central."""
    rows, places = [], list(_windows(len(z), room))
    for start, first, last in places:
        row = z[None, start : start + room]
        pred = it.model(row, torch.full((1, 1), t, dtype=torch.float64, device=z.device), Context())
        where = torch.zeros_like(row, dtype=torch.bool)
        where[:, first - start : last - start] = True
        rows.append(pred.at(where))
    return torch.cat(rows)


def _windows(length: int, room: int) -> Iterator[tuple[int, int, int]]:
    """Where a window begins, and which places are taken from it."""
    starts = [*range(0, max(1, length - room), max(1, room // 2)), max(0, length - room)]
    starts = sorted(set(starts))
    for number, start in enumerate(starts):
        first = 0 if number == 0 else (starts[number - 1] + room + start) // 2
        last = length if number == len(starts) - 1 else (start + room + starts[number + 1]) // 2
        yield start, first, last


def _words(was: str, now: str, sure: Sequence[float]) -> Iterator[Replacement]:
    """The changed words: what stands between spaces that are in both texts."""
    cuts = [-1, *(i for i, (a, b) in enumerate(zip(was, now, strict=True)) if a == b == " "), len(was)]
    for left, right in itertools.pairwise(cuts):
        if was[left + 1 : right] != now[left + 1 : right]:
            yield Replacement(left + 1, was[left + 1 : right], now[left + 1 : right], min(sure[left + 1 : right]))
