"""All random numbers: a counter-based generator with one key per row, and draws from it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from redraft.core.ops import widest_float

_GAMMA = -7046029254386353131  # 0x9E3779B97F4A7C15, the golden ratio in 64 bits


_MIX1 = -4658895280553007687  # 0xBF58476D1CE4E5B9


_MIX2 = -7723592293110705685  # 0x94D049BB133111EB


_UNSIGNED = tuple(np.uint64(n % 2**64) for n in (_GAMMA, _MIX1, _MIX2))


def _wrap(n: int) -> int:
    """Any Python integer into int64, as tensors do by themselves."""
    return (n + 2**63) % 2**64 - 2**63


_Ints = Tensor | np.ndarray  # int64, or uint64 in numpy: the same bits, the same sums and products


def _bits(a: Tensor) -> _Ints:
    """int64 as they are hashed fastest, without a copy: by numpy on CPUs."""
    return a.numpy().view(np.uint64) if a.is_cpu else a


def _constants(h: _Ints) -> tuple[Any, ...]:
    """gamma and the two factors of the hash in the type of h."""
    return (_GAMMA, _MIX1, _MIX2) if isinstance(h, Tensor) else _UNSIGNED


def _shift(h: _Ints, bits: int) -> _Ints:
    """Logical right shift: int64 has only the arithmetic one."""
    return (h >> bits) & ((1 << (64 - bits)) - 1) if isinstance(h, Tensor) else h >> bits


def _hash(h: _Ints) -> _Ints:
    """The finaliser of splitmix64: a bijection of int64 that looks random (Steele et al. 2014)."""
    _, first, second = _constants(h)
    h = (h ^ _shift(h, 30)) * first
    h = (h ^ _shift(h, 27)) * second
    return h ^ _shift(h, 31)


def _unit(h: _Ints) -> Tensor:
    """The upper 52 bits as float64 in the open interval (0, 1)."""
    bits = _shift(h, 12)
    if isinstance(bits, np.ndarray):
        return torch.from_numpy((bits + 0.5) * 2.0**-52)
    return (bits.to(widest_float(bits.device)) + 0.5) * 2.0**-52


@lru_cache(64)
def _counted(count: int, device: torch.device) -> _Ints:
    """(count,) what tells the numbers of columns 0, 1, 2 … apart."""
    return _bits(torch.arange(1, count + 1, device=device) * _GAMMA)


@dataclass(frozen=True)
class Rng:
    """Pure, counter-based random numbers with one key per row.

    A row's numbers depend on its key alone, so its text does not depend on the batch it sits in. Nothing is used up:
    the same call gives the same numbers; `fold` the step in to get new ones.
    """

    key: Tensor  # (B,) int64
    place: Tensor | None = None  # (B, L), or (1, L) if all rows stand alike: the columns drawn for; None: 0, 1, 2 …

    def fold(self, n: int | Tensor) -> Rng:
        """New keys from n: one number for all rows, or (B,) one for each."""
        key = _bits(self.key)
        *_, factor = _constants(key)
        key = _hash(key * factor + self._step(n))
        return Rng(torch.from_numpy(key.view(np.int64)) if isinstance(key, np.ndarray) else key, self.place)

    def steps(self, together: int = 32) -> Iterator[Rng]:
        """fold(0), fold(1), fold(2) …, hashed some at a time: a loop needs one per step."""
        for first in itertools.count(0, together):
            number = torch.arange(first, first + together, device=self.key.device)[:, None]
            held = Rng(self.key[None].expand(together, -1)).fold(number).key
            yield from (Rng(key, self.place) for key in held)

    def _step(self, n: int | Tensor) -> Any:
        """(n + 1)·gamma in the type of the keys."""
        if isinstance(n, Tensor):
            return _bits((n + 1) * _GAMMA)
        return np.uint64((n + 1) * _GAMMA % 2**64) if self.key.is_cpu else _wrap((n + 1) * _GAMMA)

    def rows(self, index: Tensor) -> Rng:
        """The same for some rows of the batch."""
        place = self.place if self.place is None or len(self.place) == 1 else self.place[index]
        return Rng(self.key[index], place)

    def split(self, n: int) -> tuple[Rng, ...]:
        """n independent generators."""
        return tuple(self.fold(-2 - i) for i in range(n))

    def at(self, place: Tensor | None) -> Rng:
        """The numbers of columns at these places (B, L): a window draws what the whole row would draw there."""
        return Rng(self.key, place)

    def uniform(self, *shape: int) -> Tensor:
        """(B, *shape) in the open interval (0, 1), float64 with 52 bits; shape[0] counts places."""
        return _unit(_hash(_bits(self.key)[:, None] + self._counter(*shape))).view(len(self.key), *shape)

    def _counter(self, *shape: int) -> _Ints:
        """(count,) or (1 or B, count): each place has its own numbers, whatever the window."""
        count = torch.Size(shape).numel()
        if self.place is None:
            return _counted(count, self.key.device)
        if shape[0] != self.place.shape[1]:
            raise ValueError(f"{shape[0]} places to draw for, but the window has {self.place.shape[1]}; use once()")
        each = count // max(1, shape[0])
        if each == 1:
            return _bits((self.place + 1) * _GAMMA)
        number = self.place[..., None] * each + torch.arange(1, each + 1, device=self.key.device)
        return _bits(number.flatten(1) * _GAMMA)

    def once(self) -> Tensor:
        """(B, 1) one number per row, wherever its window is."""
        return Rng(self.key).uniform(1)

    def normal(self, *shape: int) -> Tensor:
        """(B, *shape) standard normal, by Box–Muller."""
        radius, angle = (half.uniform(*shape) for half in self.split(2))
        return (-2 * radius.log()).sqrt() * (2 * torch.pi * angle).cos()


def rng(seed: int, rows: int | Tensor = 1, device: torch.device | str = "cpu") -> Rng:
    """Keys for rows 0, 1, … or for the given sample numbers: row i of a seed is the same whatever the other rows."""
    numbers = torch.arange(rows, device=device) if isinstance(rows, int) else rows
    return Rng(torch.full_like(numbers, _wrap(seed))).fold(numbers)


def sample_categorical(log_weights: Tensor, u: Tensor, temperature: float = 1.0) -> Tensor:
    """(N, V) log-weights, (N,) uniform → (N,) draws from weights^{1/temperature} by inverse CDF; 0: the likeliest.

    In float64: low-precision Gumbel noise truncates the tail, that is, silently lowers the temperature. A state of
    zero weight is never drawn. Of equally likely states temperature 0 takes the lowest index.
    """
    if temperature == 0:
        return log_weights.argmax(-1)
    if temperature != 1:
        above = log_weights.to(u.dtype) - log_weights.amax(-1, keepdim=True)  # the likeliest stays at 0, however cold
        log_weights = above / temperature
    cdf = log_weights.softmax(-1, dtype=u.dtype).cumsum(-1)
    return torch.searchsorted(cdf, u[:, None] * cdf[:, -1:], right=True).squeeze(-1)


def normal_like(z: Tensor, rng: Rng) -> Tensor:
    """Standard normal numbers for (B, N, D) vectors; a window of places draws what the whole row would draw there."""
    return rng.normal(*z.shape[1:]).to(z.dtype)


def sign_like(z: Tensor, rng: Rng) -> Tensor:
    """±1 with equal chances (Rademacher) for (B, N, D) vectors."""
    return 1.0 - 2.0 * (rng.uniform(*z.shape[1:]) < 0.5).to(z.dtype)


def sample_poisson(mean: Tensor, u: Tensor, most: int) -> Tensor:
    """Poisson counts by inverse CDF: the least n with P(N ≤ n) ≥ u, or `most` if that is less; any shape."""
    low, high = torch.zeros_like(u, dtype=torch.int64), torch.full_like(u, most, dtype=torch.int64)
    while bool((low < high).any()):  # bisection, since P(N ≤ n) = Γ(n + 1, mean)/Γ(n + 1) is at hand for any n
        middle = (low + high) // 2
        enough = torch.special.gammaincc(middle.to(u.dtype) + 1, mean.to(u.dtype)) >= u
        low, high = torch.where(enough, low, middle + 1), torch.where(enough, middle, high)
    return low


def thin_counts(count: Tensor, share: Tensor, rng: Rng) -> Tensor:
    """(B, n) counts → binomial ones: each counted item stays with probability `share` (B, 1)."""
    end = count.cumsum(-1)
    thing = torch.arange(int(end[:, -1].max()), device=count.device).expand(len(count), -1).contiguous()
    stays = (rng.uniform(thing.shape[1]) < share) & (thing < end[:, -1:])
    home = torch.searchsorted(end, thing, right=True).clamp(max=count.shape[1] - 1)
    return torch.zeros_like(count).scatter_add(1, home, stays.long())
