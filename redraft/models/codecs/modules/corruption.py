"""Corruption of tokens and vectors while a codec is trained, so that it tolerates a denoiser's mistakes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from redraft.core import randomness
from redraft.core.randomness import Rng
from redraft.core.vocab import Vocab


def require_fraction(name: str, value: float) -> None:
    """Raise unless an amount of corruption, a fraction or the σ of noise, is between 0 and 1."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name}={value}; the amount of corruption must be from 0 (none) to 1")


def _add_noise(x: Tensor, sigma: Tensor | float, *, rng: Rng) -> Tensor:
    """√(1 − σ²)·x + σ·ξ with ξ ~ N(0, I), which preserves unit variance; σ is a number or (B, 1, 1)."""
    sigma = torch.as_tensor(sigma, dtype=x.dtype, device=x.device)
    return (1 - sigma.square()).sqrt() * x + sigma * randomness.normal_like(x, rng)


def add_random_noise(x: Tensor, most: float, spread: float = 1.0, *, rng: Rng) -> tuple[Tensor, Tensor]:
    """Add noise with σ = sin φ ≤ `most`, φ drawn uniformly per row; return (noisy x, the scale √(1 − σ²) of x in it).

    A uniform φ makes almost pure noise frequent enough for a decoder to learn from; with a uniform σ, only one row in
    5,000 would have a signal weaker than a fiftieth of the noise. With `spread` d, tan φ is multiplied by d, as in the
    schedule `TanD`, because vectors with more features need more noise before a word becomes uncertain.
    """
    for_level, for_noise = rng.split(2)
    largest = math.atan(math.tan(math.asin(most)) / spread)
    angle = (spread * (largest * for_level.uniform(1, 1)).tan()).atan()
    return _add_noise(x, angle.sin(), rng=for_noise), angle.cos().to(x.dtype)


def drop_positions(x: Tensor, fraction: float, *, rng: Rng) -> Tensor:
    """(B, N, D) with the vectors at a random fraction of positions set to zero."""
    return x.masked_fill(rng.uniform(x.shape[1], 1) < fraction, 0)


def drop_features(x: Tensor, fraction: float, *, rng: Rng) -> Tensor:
    """(B, N, D) with a random fraction of all numbers set to zero."""
    return x.masked_fill(rng.uniform(*x.shape[1:]) < fraction, 0)


def substitute_tokens(tokens: Tensor, fraction: float, vocab: Vocab, *, rng: Rng) -> Tensor:
    """(B, L) ids with a random fraction replaced by uniformly drawn ids."""
    choice, substitute = (part.uniform(tokens.shape[1]) for part in rng.split(2))
    return torch.where(choice < fraction, (substitute * vocab.size).long(), tokens)


def mask_tokens(tokens: Tensor, fraction: float, vocab: Vocab, *, rng: Rng) -> tuple[Tensor, Tensor]:
    """BERT's masking (Devlin et al. 2019, §3.1): return (B, L) bool of the tokens to predict, and (B, L) corrupted ids.

    Of the tokens to predict, 80 % are masked, 10 % are replaced by a random id, and 10 % stay, so that the state of a
    visible token still tells which token it is.
    """
    for_choice, for_treatment, for_substitutes = rng.split(3)
    chosen, u = for_choice.uniform(tokens.shape[1]) < fraction, for_treatment.uniform(tokens.shape[1])
    substituted = substitute_tokens(tokens, 1.0, vocab, rng=for_substitutes)
    corrupted = torch.where(chosen & (u < 0.9), substituted, tokens)
    return chosen, corrupted.masked_fill(chosen & (u < 0.8), vocab.masked)
