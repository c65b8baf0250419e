"""Renoising (SSD-LM): predict tokens, project the prediction to a clean x, and noise it to the next level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core import ops, randomness
from redraft.core.prediction import Prediction
from redraft.core.randomness import Rng
from redraft.decoding.solvers.ode import Solver
from redraft.decoding.solvers.step import SolverStep


class Projection(Protocol):
    """A projection of the network's prediction to an estimate of x."""

    def __call__(self, pred: Prediction, *, rng: Rng) -> Tensor:
        """(B, N, D) estimate of x."""
        ...


@dataclass(frozen=True)
class KeepMean:
    """x̂ itself, without projection."""

    def __call__(self, pred: Prediction, *, rng: Rng) -> Tensor:
        return pred.x


@dataclass(frozen=True)
class ArgmaxProjection:
    """The vector of the most likely token."""

    def __call__(self, pred: Prediction, *, rng: Rng) -> Tensor:
        return _token_vectors(pred, _require_token_weights(pred).argmax(-1))


@dataclass(frozen=True)
class NucleusProjection:
    """The vector of a token drawn from the nucleus; with top_p=1, from all tokens."""

    top_p: float = 1.0

    def __post_init__(self) -> None:
        _require_top_p(self.top_p)

    def __call__(self, pred: Prediction, *, rng: Rng) -> Tensor:
        log_p = _require_token_weights(pred)
        allowed = log_p.masked_fill(~ops.nucleus_mask(log_p, self.top_p), -torch.inf)
        tokens = randomness.sample_categorical(allowed.flatten(0, 1), rng.uniform(log_p.shape[1]).flatten())
        return _token_vectors(pred, tokens.view(log_p.shape[:2]))


@dataclass(frozen=True)
class MultiHotProjection:
    """1 for each token in the nucleus and −1 for all others; for tokens at the corners of a simplex."""

    top_p: float = 0.9

    def __post_init__(self) -> None:
        _require_top_p(self.top_p)

    def __call__(self, pred: Prediction, *, rng: Rng) -> Tensor:
        log_p = _require_token_weights(pred)
        if pred.vectors is not None and pred.vectors.table is not None:
            raise ValueError(
                "MultiHotProjection is for tokens at the corners of a simplex; this model has token vectors, "
                "so use NucleusProjection"
            )
        return 2 * ops.nucleus_mask(log_p, self.top_p).to(log_p.dtype) - 1


def _require_token_weights(pred: Prediction) -> Tensor:
    """(B, N, V) log-weights of tokens; raises if the network does not predict tokens."""
    if pred.vectors is None or pred.vectors.log_weights is None:
        raise ValueError("this network predicts no tokens to project to; use Renoise(project=KeepMean()), or Ddim")
    return pred.vectors.log_weights


def _token_vectors(pred: Prediction, tokens: Tensor) -> Tensor:
    """(B, N) ids → (B, N, D) vectors: rows of the table, or corners of the simplex in ±1."""
    log_p = _require_token_weights(pred)
    table = None if pred.vectors is None else pred.vectors.table
    return 2 * F.one_hot(tokens, log_p.shape[-1]).to(log_p.dtype) - 1 if table is None else F.embedding(tokens, table)


def _require_top_p(top_p: float) -> None:
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p={top_p}; it must be above 0 and at most 1")


@dataclass(frozen=True)
class Renoise(Solver):
    """z_s = a_s·project(x̂) + s_s·n: each step estimates x and noises it from scratch (SSD-LM; Han et al. 2023).

    The marginals are right only if the projection draws x given z, as `NucleusProjection()` does. With the mean or the
    most likely token, frequent tokens become more and more frequent.
    """

    project: Projection = NucleusProjection()

    def step(self, step: SolverStep) -> Tensor:
        (signal, noise), (for_projection, for_noise) = step.scales_s, step.rng.split(2)
        x = self.project(step.pred, rng=for_projection).to(step.z.dtype)
        return signal * x + noise * step.noise(for_noise)
