"""Correcting by the process itself, with uniform or hybrid noise of letters: p(x | z) ∝ x̂ · q_t(z | x)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from redraft.processes import Interpolating
from redraft.types import Context
from redraft.write.models import Opened
from redraft.write.readers import HoleReader, moment
from redraft.write.spots import WHOLE_WORD, Replacement, Speller

_MOST_SWEEPS = 8


def letter_changes(
    it: Opened, ask: HoleReader, speller: Speller, texts: Sequence[str], confidence: float
) -> list[list[Replacement]]:
    """The changed words of each text; a letter is replaced if another one is likelier and likely enough.

    Words that may not be touched are as certain as spaces around them. Each sweep reads what the last one has written,
    until nothing changes.
    """
    process = it.model.process
    assert isinstance(process, Interpolating)
    found = []
    for text in texts:
        z = torch.tensor(it.tokenizer.encode(text), device=next(it.model.parameters()).device)
        observed, free = z, _free(text, speller).to(z.device)
        sure = torch.ones(len(z), dtype=torch.float64, device=z.device)
        for _ in range(_MOST_SWEEPS):
            log_p = _posterior(it, process, z, observed, moment(process, speller.noise), ask.room)
            p, best = log_p.exp().max(-1)
            best = torch.where(free & (p >= confidence), best, observed)
            sure = torch.where(best != observed, p, 1.0)
            if bool((best == z).all()):
                break
            z = best
        found.append(list(_words(text, it.tokenizer.decode(z.tolist()), sure.tolist())))
    return found


def _free(text: str, speller: Speller) -> Tensor:
    """(L,) which letters may be changed."""
    free = torch.ones(len(text), dtype=torch.bool)
    for piece in WHOLE_WORD.finditer(text):
        if not speller.free(text, piece.start(), piece.group()):
            free[max(0, piece.start() - 1) : piece.end() + 1] = False
    return free


def _posterior(it: Opened, process: Interpolating, z: Tensor, observed: Tensor, t: float, room: int) -> Tensor:
    """(L, V) log p(x | z): x̂ as the text stands now, and the channel of what was observed."""
    channel = process.channel(observed, torch.full_like(observed, t, dtype=torch.float64))
    return (_denoised(it, z, t, room).double() + channel).log_softmax(-1)


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
