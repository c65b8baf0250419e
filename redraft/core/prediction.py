"""Predictions of the clean text, draws from them, and the protocol of denoisers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from redraft.core import ops, randomness
from redraft.core.canvas import Context
from redraft.core.randomness import Rng


class GapPrediction(ABC):
    """A prediction of how many tokens are missing from z in each gap: before each token, and after the last."""

    @property
    @abstractmethod
    def log_mean(self) -> Tensor:
        """(B, L + 1) fp32: log of the expected number of missing tokens, so that small means do not underflow."""

    @property
    def mean(self) -> Tensor:
        """(B, L + 1) fp32: expected number of missing tokens."""
        return self.log_mean.exp()

    @abstractmethod
    def nll(self, count: Tensor) -> Tensor:
        """(B, L + 1) −log-probability of these numbers of missing tokens."""

    @abstractmethod
    def draw(self, share: Tensor, *, rng: Rng) -> Tensor:
        """(B, L + 1) int64: number of tokens that arrive if each missing one does with probability `share` (B, 1)."""


class Draw(ABC):
    """A prediction at N positions, and the tokens it draws there, in the order of `where.nonzero()`."""

    log_x: Tensor  # (N, V) fp32: `Prediction.at` at these positions, without the temperature of the draw

    @abstractmethod
    def tokens(self, kept: Tensor | None = None) -> Tensor:
        """(N,) the tokens drawn; with `kept` (an (N,) bool mask or an index) only those, unchanged by the selection."""

    def log_p(self) -> Tensor:
        """(N,) log-probability of each token drawn."""
        return self.log_x.gather(-1, self.tokens()[:, None]).squeeze(-1)

    def demand(self) -> Tensor:
        """(N,) nats: log-ratio of each drawn token's probability with and without the rules; zero without rules."""
        return torch.zeros_like(self.log_x[:, 0])


@dataclass(frozen=True)
class IndependentDraw(Draw):
    """Draws each position independently from its own random number, and only where tokens are requested."""

    log_x: Tensor  # (N, V) fp32 log-probabilities
    u: Tensor  # (N,) uniform random numbers; none at temperature 0
    temperature: float

    def tokens(self, kept: Tensor | None = None) -> Tensor:
        if kept is None or "_all" in self.__dict__:  # a pick may have drawn all of them already
            return self._all if kept is None else self._all[kept]
        u = self.u[kept] if self.temperature else self.u
        return randomness.sample_categorical(self.log_x[kept], u, self.temperature)

    @cached_property
    def _all(self) -> Tensor:
        return randomness.sample_categorical(self.log_x, self.u, self.temperature)


class Prediction(ABC):
    """What the network predicts about x. It is lazy: trunk and output layer run only where it is queried."""

    @property
    def normalized(self) -> bool:
        """Whether x̂ sums to one everywhere; only a score head (SEDD) leaves the sum free."""
        return True

    @property
    def joint(self) -> bool:
        """Whether tokens depend on each other, so that only tokens from `draw` may be written."""
        return False

    @property
    @abstractmethod
    def x(self) -> Tensor:
        """(B, L, V) fp32 log-weights of the clean token."""

    @abstractmethod
    def at(self, where: Tensor) -> Tensor:
        """(B, L) bool → (N, V) fp32 log-weights there only, in the order of `where.nonzero()`."""

    def draw(self, where: Tensor, *, rng: Rng, temperature: float = 1.0) -> Draw:
        """Draw tokens at the marked positions from x̂^{1/temperature}; temperature 0 takes the most likely ones.

        All sampling goes through this method. Here positions are independent. A prediction that knows how tokens depend
        on each other (as under a regular expression) draws them jointly, or takes the most likely text as a whole;
        `at` then gives its marginals.
        """
        log_x = self.at(where)
        if temperature == 0:
            return IndependentDraw(log_x, log_x.new_empty(0), temperature)
        u = rng.uniform(where.shape[1]).to(where.device)
        return IndependentDraw(log_x, u.take(ops.flat_positions(where)), temperature)

    @property
    def vectors(self) -> VectorPrediction | None:
        """The prediction itself if it is one of vectors; None if it is one of tokens."""
        return None

    @property
    def steers(self) -> bool:
        """Whether guidance acts on the distribution of z_s instead of x̂ (UDLM); `next_log_probs` then computes it."""
        return False

    def next_log_probs(self, state_log_probs: Callable[[Tensor], Tensor], where: Tensor) -> Tensor:
        """(N, V) log-probabilities of z_s at the marked positions; unguided, they are `state_log_probs` of x̂."""
        return state_log_probs(self.at(where))

    def after(self, z: Tensor) -> Prediction:
        """The prediction once z is written, from the same network call; it changes only under rules."""
        return self

    def evaluated(self, where: Tensor) -> Prediction:
        """Query the network now at the marked positions; the result serves later queries there."""
        return _Evaluated(self, where)

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        """(B, L) fp32: −log x̂[target] at `where`, zero elsewhere; plus Σx̂ − 1 if x̂ is not normalized.

        With that term it is the Poisson KL pkl(1[y = target], x̂_y), summed over y.
        """
        return ops.scatter(-self.at(where).gather(-1, target[where][:, None]).squeeze(-1), where)

    @property
    def gaps(self) -> GapPrediction:
        """The number of tokens missing from z; insertion models only."""
        raise ValueError(f"{type(self).__name__} does not predict gaps; insertion needs a network with gaps=…")


class _Evaluated(Prediction):
    """A prediction evaluated once at the positions `where`, which serves later queries from that result."""

    def __init__(self, inner: Prediction, where: Tensor) -> None:
        self._inner, self._where, self._log_x = inner, where, inner.at(where)

    @property
    def normalized(self) -> bool:
        return self._inner.normalized

    @property
    def x(self) -> Tensor:
        return self._inner.x

    def at(self, where: Tensor) -> Tensor:
        return self._log_x[where[self._where]]

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        return self._inner.nll(where, target)


@dataclass(frozen=True)
class TablePrediction(Prediction):
    """A prediction given as a table: for oracles, tests and small vocabularies."""

    log_weights: Tensor  # (B, L, V) log-weights of the clean token
    normalized: bool = True
    missing: GapPrediction | None = None  # for insertion; None for other processes

    @property
    def x(self) -> Tensor:
        return self.log_weights

    def at(self, where: Tensor) -> Tensor:
        return self.log_weights[where]

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        loss = -self.log_weights.gather(-1, target[..., None]).squeeze(-1)
        loss = loss if self.normalized else loss + self.log_weights.logsumexp(-1).expm1()
        return torch.where(where, loss, torch.zeros_like(loss))

    @property
    def gaps(self) -> GapPrediction:
        return super().gaps if self.missing is None else self.missing


@dataclass(frozen=True)
class VectorPrediction(Prediction):
    """A prediction of vectors: x̂ = E[x | z] and, if the network also predicts tokens, their log-weights."""

    mean: Tensor  # (B, N, D) x̂
    log_weights: Tensor | None = None  # (B, N, V) log-weights of tokens, if it predicts them (SSD-LM)
    spread: Tensor | None = None  # (B, N, D) learned step variance: 0 for the smallest, 1 for the largest
    table: Tensor | None = None  # (V, D) token vectors for `nll`; None if they are the corners of a simplex

    @property
    def vectors(self) -> VectorPrediction:
        return self

    @property
    def x(self) -> Tensor:
        return self.mean

    def at(self, where: Tensor) -> Tensor:
        return self.mean[where]

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        """½‖x − x̂‖², or if the network predicts tokens, the cross-entropy of the token nearest to the target."""
        if self.log_weights is None:
            return torch.where(where, (target - self.mean).square().sum(-1) / 2, 0.0)
        loss = -self.log_weights.gather(-1, self._nearest_token(target)[..., None]).squeeze(-1)
        return torch.where(where, loss, 0.0)

    @torch.no_grad()
    def _nearest_token(self, x: Tensor) -> Tensor:
        """(B, N, D) → (B, N) the nearest token: argmax x·e − ‖e‖²/2"""
        if self.table is None:
            return x.argmax(-1)
        return (x @ self.table.T - self.table.square().sum(-1) / 2).argmax(-1)


class Denoiser(Protocol):
    """Predicts the clean sequence from a noisy one. `DiffusionLM` is one; guidance wraps one."""

    @property
    def block(self) -> int | None:
        """Tokens per block, written left to right; None if all are written at once."""

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        """Return the prediction, which runs the network only when it is queried: by `at`, `x`, `draw` or `nll`."""

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        """Add tokens z to the cache at their positions: finished ones, or noisy ones of time t (approximate caches)."""


@dataclass(frozen=True)
class DenoiserWrapper:
    """Base for denoisers that wrap another, such as guidance: subclasses define only what they change."""

    denoise: Denoiser

    @property
    def block(self) -> int | None:
        return self.denoise.block

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return self.denoise.absorb(z, context, t)
