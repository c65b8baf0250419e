"""Corruptions of tokens and vectors while a codec is trained, so that it tolerates a denoiser's mistakes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from redraft.core import randomness
from redraft.core.randomness import Rng
from redraft.core.vocab import Vocab


def require_share(name: str, value: float) -> None:
    """Raises unless an amount of corruption is within 0..1: a share, or a σ beside √(1 − σ²)."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name}={value}; corruption is a share, or a σ beside √(1 − σ²): use 0 (none) to 1")


def add_noise(x: Tensor, sigma: Tensor | float, *, rng: Rng) -> Tensor:
    """√(1 − σ²)·x + σ·ξ with ξ ~ N(0, I), which keeps unit variance. σ is a number, or (B, 1, 1)."""
    sigma = torch.as_tensor(sigma, dtype=x.dtype, device=x.device)
    return (1 - sigma.square()).sqrt() * x + sigma * randomness.normal_like(x, rng)


def add_random_noise(x: Tensor, most: float, spread: float = 1.0, *, rng: Rng) -> tuple[Tensor, Tensor]:
    """The same with σ = sin φ drawn for each row up to `most`, φ evenly; and the scale of its signal, √(1 − σ²).

    So a decoder that learns from all levels often sees almost nothing but noise, where it can only guess: if σ itself
    were drawn evenly, one row in a hundred would have a signal weaker than a fiftieth of the noise. With `spread` d it
    is tan φ that is d times as large, as in the schedule `TanD`: the more numbers a vector has, the more noise it takes
    before a word is in doubt.
    """
    level, noise = rng.split(2)
    furthest = math.atan(math.tan(math.asin(most)) / spread)
    angle = (spread * (furthest * level.uniform(1, 1)).tan()).atan()
    return add_noise(x, angle.sin(), rng=noise), angle.cos().to(x.dtype)


def drop_positions(x: Tensor, share: float, *, rng: Rng) -> Tensor:
    """(B, N, D) with the vectors at a share of all places set to zero."""
    return x.masked_fill(rng.uniform(x.shape[1], 1) < share, 0)


def drop_features(x: Tensor, share: float, *, rng: Rng) -> Tensor:
    """(B, N, D) with a share of all numbers set to zero."""
    return x.masked_fill(rng.uniform(*x.shape[1:]) < share, 0)


def substitute_tokens(tokens: Tensor, share: float, vocab: Vocab, *, rng: Rng) -> Tensor:
    """(B, L) ids with a share replaced by random ones, drawn uniformly."""
    where, what = (part.uniform(tokens.shape[1]) for part in rng.split(2))
    return torch.where(where < share, (what * vocab.size).long(), tokens)


def mask_tokens(tokens: Tensor, share: float, vocab: Vocab, *, rng: Rng) -> tuple[Tensor, Tensor]:
    """Which ids the network must guess, and what it sees instead (Devlin et al. 2019, §3.1).

    80 % of them are masked, 10 % are replaced by a random id, and 10 % stay, so that the state of a visible token still
    reveals which it is.
    """
    where, how, what = rng.split(3)
    chosen, u = where.uniform(tokens.shape[1]) < share, how.uniform(tokens.shape[1])
    seen = torch.where(chosen & (u < 0.9), substitute_tokens(tokens, 1.0, vocab, rng=what), tokens)
    return chosen, seen.masked_fill(chosen & (u < 0.8), vocab.masked)
