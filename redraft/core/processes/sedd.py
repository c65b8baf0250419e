"""Score entropy and the steps of SEDD as pure functions of a score (Lou et al. 2024).

A score is the ratio s_y = q_t(y)/q_t(z) for changing one token z into y; it is 1 at z itself. The noise is given by
its total σ, with α = e^{−σ}, and by `limit`, its (V,) limiting distribution π: q_t(z | x) = α·1[z = x] +
(1 − α)·π_z, with the rate σ'·π_z into z from anywhere. The absorbing graph has all of π on the mask, the uniform graph
spreads it evenly over the words.

Redraft's own models predict x̂ (`score_ratios`). For them the bound of the process is the score entropy and its
ancestral step the Tweedie step; tests compare both with these functions. Imported models with uniform noise may
predict ratios that no x̂ gives: only these functions can score and sample them.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core import ops


def log_scores(raw: Tensor, z: Tensor, sigma: Tensor | None = None) -> Tensor:
    """(B, L, V) log s as SEDD's output layer computes it from the raw outputs, exactly zero at z.

    With σ (B, 1), for mask noise, the raw outputs are scaled first: log s_y = raw_y − log(e^σ − 1) − log(V − 1).
    """
    if sigma is not None:
        raw = raw - (sigma.expm1().log()[..., None] + math.log(raw.shape[-1] - 1))
    return raw.scatter(-1, z[..., None], 0.0)


def score_ratios(log_x: Tensor, z: Tensor, keep: Tensor, limit: Tensor) -> Tensor:
    """(B, L, V) log s of a prediction: s_y = q_t(y | x̂)/q_t(z | x̂), a change of parameterization.

    x̂ need not be normalized. keep: (B, 1) or (B, L), α_t.
    """
    keep = keep[..., None]
    log_q = (keep * log_x.exp() + (1 - keep) * limit).log()
    return log_q - _at(log_q, z)


def score_entropy(log_score: Tensor, z: Tensor, x: Tensor, sigma: Tensor, limit: Tensor) -> Tensor:
    """(B, L) nats π_z · Σ_{y≠z} pkl(ρ_y, s_y), ρ_y = q_t(y | x)/q_t(z | x), pkl(ρ, s) = s − ρ + ρ log(ρ/s).

    Multiplied by σ', it is the integrand of the bound ("DWDSE"). Zero where no noise leads to z.
    """
    keep = (-sigma)[..., None].exp()
    q = keep * F.one_hot(x, len(limit)) + (1 - keep) * limit
    cost = ops.poisson_kl(q / _at(q, z), log_score.exp())  # zero at z, where both ratios are one
    return torch.where(limit[z] > 0, limit[z] * cost.sum(-1), 0.0)


def euler_probs(log_score: Tensor, z: Tensor, change: Tensor, limit: Tensor) -> Tensor:
    """(B, L, V) p(z → y) = change·π_z·s_y, and the remainder for staying; change (B, 1) = Δt·σ'_t.

    If the step is too long, the remainder is negative; `clip_and_normalize` restores a distribution. A token that the
    noise never leads to has rate zero, even where its score is infinite (x̂ = 0 there).
    """
    rate = change[..., None] * limit[z][..., None]
    p = torch.where(rate > 0, rate * log_score.exp(), 0.0)
    p = p.scatter(-1, z[..., None], 0.0)
    return p.scatter(-1, z[..., None], 1 - p.sum(-1, keepdim=True))


def tweedie_probs(log_score: Tensor, z: Tensor, change: Tensor, limit: Tensor) -> Tensor:
    """(B, L, V) p(z_s = y | z) ∝ (the score at s)_y · q_{t|s}(z | y); change (B, 1) = σ_t − σ_s ("analytic").

    The score at s is that at t with the noise in between undone, e^Δ·s + (1 − e^Δ)·π·Σs. Δ = σ_t goes to the clean end.
    For the ratios of an x̂ that sums to one, this is the ancestral step. Other ratios may give negative weights and, at
    the clean end, weight on the mask (the original code drops it); the ancestral step never does.
    """
    kept, s = (-change)[..., None].exp(), log_score.exp()
    before = (s - (1 - kept) * limit * s.sum(-1, keepdim=True)) / kept
    return before * (kept * F.one_hot(z, len(limit)) + (1 - kept) * limit[z][..., None])


def clip_and_normalize(p: Tensor) -> Tensor:
    """A distribution: negative weights become zero, then they are normalized."""
    p = p.clamp(min=0)
    return p / p.sum(-1, keepdim=True)


def _at(values: Tensor, z: Tensor) -> Tensor:
    """(B, L, V), (B, L) → (B, L, 1)"""
    return values.gather(-1, z[..., None])
