"""Renoising: predict the tokens, project them, noise them again to the next level (SSD-LM)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core import ops, randomness
from redraft.core.prediction import Prediction, VectorPrediction
from redraft.core.randomness import Rng
from redraft.decoding.solvers.ode import Solver
from redraft.decoding.solvers.step import SolverStep


class Projection(Protocol):
    """The guess of x, given the network's prediction."""

    def __call__(self, pred: Prediction, *, rng: Rng) -> Tensor:
        """(B, N, D)"""
        ...


@dataclass(frozen=True)
class KeepMean:
    """x̂ itself."""

    def __call__(self, pred: Prediction, *, rng: Rng) -> Tensor:
        return pred.x


@dataclass(frozen=True)
class ArgmaxProjection:
    """The corner of the likeliest token."""

    def __call__(self, pred: Prediction, *, rng: Rng) -> Tensor:
        return _corners(pred, _require_token_weights(pred).argmax(-1))


@dataclass(frozen=True)
class NucleusProjection:
    """The corner of a token drawn from the nucleus; with top_p = 1, from all tokens."""

    top_p: float = 1.0

    def __post_init__(self) -> None:
        _require_top_p(self.top_p)

    def __call__(self, pred: Prediction, *, rng: Rng) -> Tensor:
        log_p = _require_token_weights(pred)
        allowed = log_p.masked_fill(~ops.nucleus_mask(log_p, self.top_p), -torch.inf)
        tokens = randomness.sample_categorical(allowed.flatten(0, 1), rng.uniform(log_p.shape[1]).flatten())
        return _corners(pred, tokens.view(log_p.shape[:2]))


@dataclass(frozen=True)
class MultiHotProjection:
    """1 for every token of the nucleus, −1 for the others."""

    top_p: float = 0.9

    def __post_init__(self) -> None:
        _require_top_p(self.top_p)

    def __call__(self, pred: Prediction, *, rng: Rng) -> Tensor:
        log_p = _require_token_weights(pred)
        if isinstance(pred, VectorPrediction) and pred.table is not None:
            raise ValueError("MultiHot is a point of the simplex; tokens with vectors of their own need Sampled")
        return 2 * ops.nucleus_mask(log_p, self.top_p).to(log_p.dtype) - 1


def _require_token_weights(pred: Prediction) -> Tensor:
    """(B, N, V) log-weights of tokens, from a network that names them."""
    if not isinstance(pred, VectorPrediction) or pred.log_weights is None:
        raise ValueError("this network names no tokens to project to; use Renoise(project=Average()), or Ddim")
    return pred.log_weights


def _corners(pred: Prediction, tokens: Tensor) -> Tensor:
    """(B, N) → (B, N, D) the vectors of tokens: ±1 on the simplex"""
    log_p = _require_token_weights(pred)
    table = pred.table if isinstance(pred, VectorPrediction) else None
    return 2 * F.one_hot(tokens, log_p.shape[-1]).to(log_p.dtype) - 1 if table is None else F.embedding(tokens, table)


def _require_top_p(top_p: float) -> None:
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p={top_p}; the nucleus is a share of the probability, above 0 and at most 1")


@dataclass(frozen=True)
class Renoise(Solver):
    """z_s = a_s·project(x̂) + s_s·n: each step guesses x and noises it anew (SSD-LM; Han et al. 2023).

    It keeps the marginals only if the projection is a draw of x given z: `NucleusProjection`. With the mean or the likeliest
    token, frequent tokens become more and more frequent.
    """

    project: Projection = NucleusProjection()

    def step(self, move: SolverStep) -> Tensor:
        (signal, noise), (what, new) = move.to, move.rng.split(2)
        return signal * self.project(move.pred, rng=what).to(move.z.dtype) + noise * move.noise(new)
