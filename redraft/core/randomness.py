"""A counter-based random number generator with one key per row, and samplers that use it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from redraft.core.ops import argmax, widest_float

_GAMMA = -7046029254386353131  # 0x9E3779B97F4A7C15, the golden ratio in 64 bits


_MIX1 = -4658895280553007687  # 0xBF58476D1CE4E5B9


_MIX2 = -7723592293110705685  # 0x94D049BB133111EB


_UNSIGNED = tuple(np.uint64(n % 2**64) for n in (_GAMMA, _MIX1, _MIX2))


def _wrap(n: int) -> int:
    """Wraps a Python integer into int64, as tensor arithmetic does."""
    return (n + 2**63) % 2**64 - 2**63


_Ints = Tensor | np.ndarray  # int64 tensor or uint64 array: the same bits, sums and products


def _bits(a: Tensor) -> _Ints:
    """int64 in the form that hashes fastest, without a copy: a uint64 array on CPUs."""
    return a.numpy().view(np.uint64) if a.is_cpu else a


def _constants(h: _Ints) -> tuple[Any, ...]:
    """Gamma and the two factors of the hash, in the type of h."""
    return (_GAMMA, _MIX1, _MIX2) if isinstance(h, Tensor) else _UNSIGNED


def _shift(h: _Ints, bits: int) -> _Ints:
    """Logical right shift, which torch lacks for int64."""
    return (h >> bits) & ((1 << (64 - bits)) - 1) if isinstance(h, Tensor) else h >> bits


def _hash(h: _Ints) -> _Ints:
    """The finalizer of splitmix64: a pseudorandom bijection of int64 (Steele et al. 2014)."""
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
def _column_counters(count: int, device: torch.device) -> _Ints:
    """(count,) the counters of columns 0, 1, 2 …, times gamma."""
    return _bits(torch.arange(1, count + 1, device=device) * _GAMMA)


@dataclass(frozen=True)
class Rng:
    """Pure, counter-based random numbers with one key per row.

    A row's numbers depend only on its key, so its text does not depend on the rest of the batch. There is no state:
    the same call gives the same numbers; `fold` in the step to get new ones.
    """

    key: Tensor  # (B,) int64 key of each row
    positions: Tensor | None = (
        None  # (B, L), or (1, L) if all rows share them: positions to draw for; None for 0, 1, 2 …
    )

    def fold(self, n: int | Tensor) -> Rng:
        """New keys derived from n, which is one integer for all rows or (B,) one per row."""
        key = _bits(self.key)
        *_, factor = _constants(key)
        key = _hash(key * factor + self._step(n))
        return Rng(torch.from_numpy(key.view(np.int64)) if isinstance(key, np.ndarray) else key, self.positions)

    def steps(self, together: int = 32) -> Iterator[Rng]:
        """Yields fold(0), fold(1), fold(2) …, which draw the numbers of `together` steps at once."""
        for first in itertools.count(0, together):
            index = torch.arange(first, first + together, device=self.key.device)[:, None]
            keys = Rng(self.key[None].expand(together, -1)).fold(index).key
            yield from _StepKeys(keys, self.positions).generators()

    def _step(self, n: int | Tensor) -> Any:
        """(n + 1)·gamma in the type of the keys."""
        if isinstance(n, Tensor):
            return _bits((n + 1) * _GAMMA)
        return np.uint64((n + 1) * _GAMMA % 2**64) if self.key.is_cpu else _wrap((n + 1) * _GAMMA)

    def rows(self, index: Tensor) -> Rng:
        """The generator of the rows at `index`."""
        position = self.positions if self.positions is None or len(self.positions) == 1 else self.positions[index]
        return Rng(self.key[index], position)

    def split(self, n: int) -> tuple[Rng, ...]:
        """n independent generators."""
        return tuple(self.fold(-2 - i) for i in range(n))

    def at(self, place: Tensor | None) -> Rng:
        """The generator for columns at these positions (B, L): a window draws what the whole row would draw there."""
        return Rng(self.key, place)

    def uniform(self, *shape: int) -> Tensor:
        """(B, *shape) in the open interval (0, 1), float64 with 52 bits; shape[0] is the number of positions."""
        return _unit(_hash(_bits(self.key)[:, None] + self._counter(*shape))).view(len(self.key), *shape)

    def _counter(self, *shape: int) -> _Ints:
        """(count,) or (1 or B, count): each position has its own counters, whatever the window."""
        count = torch.Size(shape).numel()
        if self.positions is None:
            return _column_counters(count, self.key.device)
        if shape[0] != self.positions.shape[1]:
            raise ValueError(
                f"{shape[0]} positions to draw for, but the window has {self.positions.shape[1]}; use once()"
            )
        per_position = count // max(1, shape[0])
        if per_position == 1:
            return _bits((self.positions + 1) * _GAMMA)
        counter = self.positions[..., None] * per_position + torch.arange(1, per_position + 1, device=self.key.device)
        return _bits(counter.flatten(1) * _GAMMA)

    def once(self) -> Tensor:
        """(B, 1) one uniform number per row, whatever its window."""
        return Rng(self.key).uniform(1)

    def normal(self, *shape: int) -> Tensor:
        """(B, *shape) standard normal, by Box–Muller."""
        radius, angle = (half.uniform(*shape) for half in self.split(2))
        return (-2 * radius.log()).sqrt() * (2 * torch.pi * angle).cos()


@dataclass(frozen=True)
class _StepRng(Rng):
    """The generator of one of several steps: the numbers of all of them are drawn when the first one needs its own."""

    together: _StepKeys = field(kw_only=True)
    step: int = field(kw_only=True)

    def split(self, n: int) -> tuple[Rng, ...]:
        return self.together.split(n)[self.step]

    def uniform(self, *shape: int) -> Tensor:
        drawn = self.together.uniform(shape)
        return super().uniform(*shape) if drawn is None else drawn[self.step]


class _StepKeys:
    """The keys of several steps, and what was drawn from them; each step gets what it would have drawn alone."""

    def __init__(self, keys: Tensor, positions: Tensor | None) -> None:
        self._keys, self._positions = keys, positions  # (steps, B)
        self._parts: dict[int, list[tuple[Rng, ...]]] = {}
        self._drawn: dict[tuple[int, ...], tuple[Tensor, ...] | None] = {}

    def generators(self) -> list[Rng]:
        """The generator of each step."""
        rows = enumerate(self._keys.unbind())
        return [_StepRng(key, self._positions, together=self, step=step) for step, key in rows]

    def split(self, n: int) -> list[tuple[Rng, ...]]:
        """`Rng.split` of each step."""
        if n not in self._parts:
            parts = Rng(self._keys.flatten()).split(n)
            steps = [_StepKeys(part.key.view_as(self._keys), self._positions).generators() for part in parts]
            self._parts[n] = list(zip(*steps, strict=True))
        return self._parts[n]

    def uniform(self, shape: tuple[int, ...]) -> tuple[Tensor, ...] | None:
        """`Rng.uniform` of each step; None if that is so much that drawing it in vain would cost more than it saves."""
        if shape not in self._drawn:
            few = self._keys.numel() * math.prod(shape) <= _DRAWN_TOGETHER
            self._drawn[shape] = self._draw(shape) if few else None
        return self._drawn[shape]

    def _draw(self, shape: tuple[int, ...]) -> tuple[Tensor, ...]:
        steps, positions = len(self._keys), self._positions
        if positions is not None and len(positions) > 1:
            positions = positions.repeat(steps, 1)
        return Rng(self._keys.flatten(), positions).uniform(*shape).view(*self._keys.shape, *shape).unbind()


_DRAWN_TOGETHER = 2**15  # numbers


def rng(seed: int, rows: int | Tensor = 1, device: torch.device | str = "cpu") -> Rng:
    """The generator for rows 0, 1, … or for the given sample indices; a row's key does not depend on the others."""
    indices = torch.arange(rows, device=device) if isinstance(rows, int) else rows
    return Rng(torch.full_like(indices, _wrap(seed))).fold(indices)


def sample_categorical(log_weights: Tensor, u: Tensor, temperature: float = 1.0) -> Tensor:
    """(N, V) log-weights, (N,) uniform → (N,) draws from weights^{1/temperature} by inverse CDF; 0 is argmax.

    Sums and random numbers are float64: low-precision Gumbel noise truncates the tail, which silently lowers the
    temperature. A state of zero weight is never drawn. At temperature 0, ties go to the lowest index.
    """
    if temperature == 0:
        return argmax(log_weights)
    if temperature != 1:
        relative = log_weights.to(u.dtype) - log_weights.amax(-1, keepdim=True)  # the maximum stays 0, however cold
        log_weights = relative / temperature
    cdf = log_weights.softmax(-1).cumsum(-1, dtype=u.dtype)
    return torch.searchsorted(cdf, u[:, None] * cdf[:, -1:], right=True).squeeze(-1)


def normal_like(z: Tensor, rng: Rng) -> Tensor:
    """Standard normal noise in the shape of (B, N, D) vectors; a window draws what the whole row would draw there."""
    return rng.normal(*z.shape[1:]).to(z.dtype)


def sign_like(z: Tensor, rng: Rng) -> Tensor:
    """±1 with equal probability (Rademacher) in the shape of (B, N, D) vectors."""
    return 1.0 - 2.0 * (rng.uniform(*z.shape[1:]) < 0.5).to(z.dtype)


def sample_poisson(mean: Tensor, u: Tensor, most: int) -> Tensor:
    """Poisson counts by inverse CDF: the least n with P(N ≤ n) ≥ u, capped at `most`; any shape."""
    low, high = torch.zeros_like(u, dtype=torch.int64), torch.full_like(u, most, dtype=torch.int64)
    while bool((low < high).any()):  # bisection, since P(N ≤ n) = Γ(n + 1, mean)/Γ(n + 1) has a closed form
        middle = (low + high) // 2
        enough = torch.special.gammaincc(middle.to(u.dtype) + 1, mean.to(u.dtype)) >= u
        low, high = torch.where(enough, low, middle + 1), torch.where(enough, middle, high)
    return low


def thin_counts(count: Tensor, share: Tensor, rng: Rng) -> Tensor:
    """(B, n) counts → (B, n) binomial counts: each counted item is kept with probability `share` (B, 1)."""
    end = count.cumsum(-1)
    item = torch.arange(int(end[:, -1].max()), device=count.device).expand(len(count), -1).contiguous()
    stays = (rng.uniform(item.shape[1]) < share) & (item < end[:, -1:])
    column = torch.searchsorted(end, item, right=True).clamp(max=count.shape[1] - 1)
    return torch.zeros_like(count).scatter_add(1, column, stays.long())
