"""Denoisers for processes that insert tokens: they also say how many tokens are missing in each gap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise, product
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from redraft.evaluation.referee.arrays import _array_like, _to_tensor
from redraft.evaluation.referee.denoisers import _NEVER, _Change, _denoiser_changes
from redraft.evaluation.referee.languages import _AuditLanguage

_NO_GAP = 1e-20  # expected tokens where none is missing, so that 0 · log 0 is zero

_Missing = Callable[[Any], Any]  # times → the probability that a token is missing


class _Alignments(NamedTuple):
    """For every noisy row z (M of them) and every text x (N), over all ways to place z in x."""

    ways: Tensor  # (M, N) number of ways to place z in x
    words: Tensor  # (M, N, L, V) number of ways in which position l of z is this word of x
    gaps: Tensor  # (M, N, L + 1) number of words of x in each gap of z, summed over the ways
    missing: Tensor  # (M, N) number of words of x that are missing in z


@dataclass
class _InsertionDenoiser:
    """`denoise(z, t)`: log-probabilities (B, L, V) of the clean token, and (B, L + 1) tokens expected in each gap.

    Rows of z are packed to the left: words or `mask`, then `pad`. V = words + 2, and all but masks are certain. Gap l
    is before position l; what is missing at the end is in the gap after the last token. `t` is a number or (B, 1).
    """

    language: _AuditLanguage
    noise: _Missing
    name: str = "exact"
    change: _Change | None = None
    more: float = 1.0  # factor on the expected numbers of tokens
    queried: int = 0  # number of rows queried so far
    counts: Tensor | None = None

    @property
    def words(self) -> int:
        """Number of words; their ids are 0, 1, …"""
        return self.language.words

    @property
    def length(self) -> int:
        """Most tokens per row."""
        return self.language.length

    @property
    def mask(self) -> int:
        return self.words

    @property
    def pad(self) -> int:
        """The id behind the last token."""
        return self.words + 1

    def __call__(self, z: Any, t: Any) -> tuple[Any, Any]:
        rows = self._checked(_to_tensor(z, "z"))
        self.queried += len(rows)
        missing = self._missing(t, len(rows))
        if len(rows) and bool((missing == missing[0]).all()):  # one time, as in samplers: each different row once
            different, index = rows.unique(dim=0, return_inverse=True)
            log_p, gaps = (part[index] for part in self._predict(different, missing[:1]))
        else:
            log_p, gaps = self._predict(rows, missing)
        return _array_like(log_p, z), _array_like(gaps, z)

    def _predict(self, rows: Tensor, missing: Tensor) -> tuple[Tensor, Tensor]:
        """(B, L, V) log-probabilities and (B, L + 1) expected tokens."""
        index = self._row_of[(rows * self._place).sum(-1)]
        if bool((index < 0).any()):
            raise ValueError("denoise(z, t): rows of z must be packed to the left, with denoise.pad after their tokens")
        every = self._alignments
        weight = self.language.toy.p * missing ** every.missing[index]
        total = (weight * every.ways[index]).sum(-1).clamp(min=1e-300)
        p = self._changed(torch.einsum("bn,bnlv->blv", weight, every.words[index]) / total[:, None, None], rows)
        gaps = torch.einsum("bn,bng->bg", weight, every.gaps[index]) / total[:, None] * self.more
        return torch.where(p > 0, p.log(), _NEVER), gaps.clamp(min=_NO_GAP)

    def _checked(self, z: Tensor) -> Tensor:
        if z.dim() != 2 or z.shape[1] != self.length or z.is_floating_point():
            raise ValueError(f"denoise(z, t): z must hold integers of shape (B, {self.length}); got {tuple(z.shape)}")
        if len(z) and not 0 <= int(z.min()) <= int(z.max()) <= self.pad:
            raise ValueError(f"denoise(z, t): ids of z must be from 0 to {self.pad}, which is denoise.pad")
        return z.long()

    def _missing(self, t: Any, rows: int) -> Tensor:
        """(B, 1) probabilities that a token is missing."""
        times = _to_tensor(t, "t").double()
        times = (times if times.dim() else times.expand(rows)).reshape(rows, -1)[:, :1]
        return _to_tensor(self.noise(times), "the probability that a token is missing").double().expand(rows, 1)

    def _changed(self, p: Tensor, rows: Tensor) -> Tensor:
        """Turn the exact x̂ into that of a wrong denoiser, and give what is visible its own id."""
        words = p[..., : self.words]
        words = words if self.change is None else self.change(words)
        words = words / words.sum(-1, keepdim=True).clamp(min=1e-300)
        free = torch.cat([words, torch.zeros(*rows.shape, 2, dtype=p.dtype)], -1)
        return torch.where((rows == self.mask)[..., None], free, one_hot(rows, self.words + 2).double())

    @cached_property
    def _place(self) -> Tensor:
        return (self.words + 2) ** torch.arange(self.length - 1, -1, -1)

    @cached_property
    def _noisy_rows(self) -> Tensor:
        """(M, L) all rows that are packed to the left."""
        ids = range(self.words + 1)
        rows = [
            [*row, *[self.pad] * (self.length - n)] for n in range(self.length + 1) for row in product(ids, repeat=n)
        ]
        return torch.tensor(rows)

    @cached_property
    def _row_of(self) -> Tensor:
        index = torch.full(((self.words + 2) ** self.length,), -1)
        index[(self._noisy_rows * self._place).sum(-1)] = torch.arange(len(self._noisy_rows))
        return index

    @cached_property
    def _alignments(self) -> _Alignments:
        rows, texts = self._noisy_rows.tolist(), self.language.toy.sequences.tolist()
        M, N, L = len(rows), len(texts), self.length
        ways, missing = torch.zeros(M, N).double(), torch.zeros(M, N).double()
        words, gaps = torch.zeros(M, N, L, self.words).double(), torch.zeros(M, N, L + 1).double()
        for (m, z), (n, x) in product(enumerate(rows), enumerate(texts)):
            z, x = ([token for token in row if token != self.pad] for row in (z, x))
            missing[m, n] = max(0, len(x) - len(z))
            for places in combinations(range(len(x)), len(z)):
                if all(token in (self.mask, x[place]) for token, place in zip(z, places, strict=True)):
                    ways[m, n] += 1
                    words[m, n, range(len(z)), [x[place] for place in places]] += 1
                    ends = [-1, *places, len(x)]
                    gaps[m, n, : len(ends) - 1] += torch.tensor([b - a - 1 for a, b in pairwise(ends)])
        return _Alignments(ways, words, gaps, missing)


def _insertion_denoisers(language: _AuditLanguage, missing: _Missing) -> tuple[_InsertionDenoiser, ...]:
    """Return the exact denoiser and wrong ones."""
    exact = _InsertionDenoiser(language, missing)
    wrong = (replace(exact, name=name, change=change) for name, change in _denoiser_changes(language.words).items())
    gaps = (replace(exact, name=name, more=more) for name, more in (("impatient", 1.6), ("hesitant", 0.5)))
    return exact, *wrong, *gaps
