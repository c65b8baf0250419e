"""Reference estimates under mask noise, with which the user's estimates are compared."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from redraft.core.randomness import rng
from redraft.evaluation.referee.denoisers import _AuditDenoiser


def _reference_loss(calls: int, seed: int) -> Callable[[Tensor, _AuditDenoiser, object], Tensor]:
    """Return the reference loss: L/n · Σ −log x̂ over n masked tokens, with n ~ U{1…L} spread evenly over the calls."""
    keys = rng(seed).steps()

    def reference(x: Tensor, denoise: _AuditDenoiser, rng: object) -> Tensor:
        key, length = next(keys), x.shape[1]
        start = key.uniform(len(x)).view(-1, 1)
        total = torch.zeros(len(x), dtype=torch.float64)
        for call in range(calls):
            n = 1 + (length * ((start + call / calls) % 1.0)).long()
            hidden = key.fold(call).uniform(*x.shape)[0].argsort(-1).argsort(-1) < n
            nll = -denoise(x.masked_fill(hidden, denoise.mask)).gather(-1, x[..., None]).squeeze(-1)
            total += (nll * hidden).sum(-1) * length / n[:, 0]
        return total / calls

    return reference


def _any_order_probability(x: Tensor, log_table: Any, states: int) -> Tensor:
    """(N,) probability of each row if its tokens are written one by one in a random order.

    `log_table` maps rows z (N, L) to log-probabilities (N, L, V); the mask is the last of the states.
    """
    length = x.shape[1]
    chance: dict[tuple[int, ...], Tensor] = {(): torch.ones(len(x), dtype=torch.float64)}
    for size in range(length):
        for known in combinations(range(length), size):
            hidden = [l for l in range(length) if l not in known]
            z = x.clone()
            z[:, hidden] = states - 1
            p = log_table(z).double().gather(-1, x[..., None]).squeeze(-1).exp()
            for l in hidden:
                after = tuple(sorted((*known, l)))
                chance[after] = chance.get(after, torch.zeros(())) + chance[known] * p[:, l] / len(hidden)
    return chance[tuple(range(length))]
