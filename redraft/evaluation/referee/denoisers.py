"""Denoisers for the user's code: the exact one, and wrong ones, which can also reveal a wrong weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import torch
from torch import Tensor

from redraft.core.randomness import rng
from redraft.evaluation.referee.arrays import _array_like, _to_tensor
from redraft.evaluation.referee.languages import _AuditLanguage

_LARGEST_TABLE = 10_000  # rows z for which x̂ is computed in advance
_NEVER = -1e6  # the logarithm of zero; finite, so that 0 · log 0 is zero

_Marginal = Callable[[Any, int], Any]  # times, number of words → tables q_t(z | x), (words, V) per time
_Change = Callable[[Tensor], Tensor]  # probabilities of words → others


@dataclass
class _AuditDenoiser:
    """`denoise(z, t)`: log-probabilities (B, L, V) of the clean token at each position of noisy rows (B, L).

    Mask noise: V = words + 1, the mask is the last id, a visible token is certain, and `t` is ignored.
    Other noise: `t` is a number, or an array (B,), (B, 1) or (B, L), as its `marginal` takes it, and x̂ at a position
    does not depend on the token there (leave-one-out), unless `ordinary`.
    """

    language: _AuditLanguage
    noise: _Marginal | None = None  # None for mask noise
    name: str = "exact"
    change: _Change | None = None
    ordinary: bool = False
    queried: int = 0  # number of rows queried so far
    counts: Tensor | None = None  # (L + 1,) queried rows by their number of masks

    @property
    def words(self) -> int:
        """Number of words; their ids are 0, 1, …"""
        return self.language.words

    @property
    def length(self) -> int:
        """Tokens per row."""
        return self.language.length

    @cached_property
    def states(self) -> int:
        """Number of ids in z, the mask included."""
        return self.words + 1 if self.noise is None else _tables(self.noise, torch.tensor([0.5]), self.words).shape[-1]

    @property
    def mask(self) -> int:
        """The id of the mask."""
        if self.states == self.words:
            raise ValueError("this noise has no mask; denoise.mask exists only for noise with one id more than words")
        return self.words

    def __call__(self, z: Any, t: Any = None) -> Any:
        rows = self._checked(_to_tensor(z, "z"))
        self._count(rows)
        if self.noise is None and self.states**self.length <= _LARGEST_TABLE:
            log_probs = self.table[(rows * self._place).sum(-1)]
        elif self.noise is None:
            log_probs = self._by_evidence(rows)
        else:
            log_probs = self._by_time(rows, self._times(t, rows))
        return _array_like(log_probs.view(*z.shape, -1), z)

    def _checked(self, z: Tensor) -> Tensor:
        if z.dim() not in (1, 2) or z.shape[-1] != self.length or z.is_floating_point() or z.is_complex():
            raise ValueError(
                f"denoise(z, t): z must hold integers of shape (B, {self.length}); got {z.dtype} of shape "
                f"{tuple(z.shape)}; fill unknown positions with denoise.mask"
            )
        z = z.long().view(-1, self.length)
        if len(z) and not 0 <= int(z.min()) <= int(z.max()) < self.states:
            raise ValueError(
                f"denoise(z, t): ids of z must be from 0 to {self.states - 1}; got {int(z.min())} to {int(z.max())}"
            )
        return z

    def _count(self, z: Tensor) -> None:
        self.queried += len(z)
        masks = torch.bincount((z == self.words).sum(-1), minlength=self.length + 1)
        self.counts = masks if self.counts is None else self.counts + masks

    @cached_property
    def _place(self) -> Tensor:
        return self.states ** torch.arange(self.length - 1, -1, -1)

    @cached_property
    def table(self) -> Tensor:
        """(V^L, L, V) log-probabilities under mask noise for every possible z, in numerical order."""
        return self._by_evidence(torch.tensor(list(product(range(self.states), repeat=self.length))))

    def _by_evidence(self, z: Tensor) -> Tensor:
        """(B, L) rows → (B, L, V) log-probabilities under mask noise."""
        q = torch.eye(self.words, self.states, dtype=torch.float64)
        q[:, self.words] = 1.0  # a mask is as likely for every word
        answer = self._changed(self._leave_one_out(q.T[z]))
        copy = torch.eye(self.states, dtype=torch.float64)[z]
        p = torch.where((z == self.words)[..., None], answer, copy)
        return torch.where(p > 0, p.log(), _NEVER).float()

    def _by_time(self, z: Tensor, t: Tensor) -> Tensor:
        """(B, L) rows at times (B, 1) or (B, L) → (B, L, V) log-probabilities under any noise but masks."""
        assert self.noise is not None
        times, which = t.unique(return_inverse=True)
        q = _tables(self.noise, times, self.words)[which].expand(*z.shape, -1, -1)  # (B, L, words, V)
        likely = q.gather(-1, z[..., None, None].expand(*q.shape[:3], 1)).squeeze(-1)
        p = self._leave_one_out(likely)
        if self.ordinary:
            p[..., : self.words] *= likely
            p = p / p.sum(-1, keepdim=True)
        p = self._changed(p)
        return torch.where(p > 0, p.log(), _NEVER)

    def _leave_one_out(self, likely: Tensor) -> Tensor:
        """(B, L, words) q(z[l] | word) → (B, L, V) p(x[l] | the other tokens of z)."""
        toy, length = self.language.toy, likely.shape[1]
        evidence = [likely[:, l, toy.sequences[:, l]] for l in range(length)]  # (B, N) each
        before = [toy.p.expand(len(likely), -1)]  # products of the evidence to the left and to the right
        after = [torch.ones_like(before[0])]
        for l in range(length - 1):
            before.append(before[-1] * evidence[l])
            after.append(after[-1] * evidence[length - 1 - l])
        is_word = torch.nn.functional.one_hot(toy.sequences.T, self.states).double()  # (L, N, V)
        out = torch.stack([(before[l] * after[length - 1 - l]) @ is_word[l] for l in range(length)], 1)
        total = out.sum(-1, keepdim=True)
        even = (torch.arange(self.states) < self.words).double() / self.words
        return torch.where(total > 0, out / total.clamp(min=1e-300), even)  # uniform for rows that no text can become

    def _changed(self, p: Tensor) -> Tensor:
        """Turn the exact x̂ into that of a wrong denoiser."""
        if self.change is None:
            return p
        words = self.change(p[..., : self.words])
        return torch.cat([words / words.sum(-1, keepdim=True), p[..., self.words :]], -1)

    def _times(self, t: Any, z: Tensor) -> Tensor:
        """(B, 1) or (B, L) times in float64."""
        if t is None:
            raise ValueError("denoise(z, t): this noise needs the time t")
        t = _to_tensor(t, "t").double()
        t = t[:, None] if t.dim() == 1 else t
        if t.dim() > 2 or (t.dim() == 2 and (t.shape[0] not in (1, len(z)) or t.shape[1] not in (1, self.length))):
            raise ValueError(
                f"denoise(z, t): t must be a number or have shape (B,), (B, 1) or (B, L) with B = {len(z)} and "
                f"L = {self.length}; got {tuple(t.shape)}"
            )
        return t.expand(len(z), t.shape[1] if t.dim() else 1)


def _tables(noise: _Marginal, t: Tensor, words: int) -> Tensor:
    """(T,) times → (T, words, V) tables; all times at once if the function supports it, else one by one."""
    try:
        tables = _to_tensor(noise(t.double()[:, None, None], words), "the marginal")
    except (TypeError, ValueError, RuntimeError):
        tables = torch.empty(0)
    if tables.dim() != 3 or len(tables) != len(t):
        tables = torch.stack([_to_tensor(noise(float(time), words), "the marginal") for time in t])
    if tables.dim() != 3 or tables.shape[1] < words or tables.shape[2] not in (words, words + 1):
        raise ValueError(
            f"marginal(t, words) must be a table of {words} rows (clean words) and {words} or {words + 1} columns "
            f"(noisy ids, the last one the mask); got {tuple(tables.shape[1:])}"
        )
    return tables[:, :words].double()


def _audit_denoisers(language: _AuditLanguage, noise: _Marginal | None) -> tuple[_AuditDenoiser, ...]:
    """Return the exact denoiser, the ordinary posterior if it differs, and wrong ones."""
    exact = _AuditDenoiser(language, noise)
    ordinary = () if noise is None else (replace(exact, name="ordinary posterior", ordinary=True),)
    changes = _denoiser_changes(language.words)
    return (exact, *ordinary, *(replace(exact, name=name, change=change) for name, change in changes.items()))


def _denoiser_changes(words: int) -> dict[str, _Change]:
    """Return what turns the exact x̂ into that of a wrong denoiser, by name."""
    uneven = rng(4).uniform(words)[0] * 3 + 0.2
    return {
        "blurred": lambda p: 0.7 * p + 0.3 / words,
        "overconfident": lambda p: p**3,
        "biased": lambda p: p * uneven,
        "ignorant": torch.ones_like,
    }
