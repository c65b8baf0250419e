"""What a denoiser says of the clean text: predictions, draws from them, and the protocol of denoisers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from redraft.core import ops, randomness
from redraft.core.canvas import Context
from redraft.core.randomness import Rng


class GapPrediction(ABC):
    """A prediction of how many tokens are missing from z, gap by gap: before each token, and after the last."""

    @property
    @abstractmethod
    def log_mean(self) -> Tensor:
        """(B, L + 1) fp32: log of how many are expected to be missing; in logs, so a closed gap never means log 0."""

    @property
    def mean(self) -> Tensor:
        """(B, L + 1) fp32: how many are expected to be missing."""
        return self.log_mean.exp()

    @abstractmethod
    def nll(self, count: Tensor) -> Tensor:
        """(B, L + 1) −log probability of these numbers of missing tokens."""

    @abstractmethod
    def draw(self, share: Tensor, *, rng: Rng) -> Tensor:
        """(B, L + 1) int64: how many arrive if each missing token does with probability `share` (B, 1)."""


class Draw(ABC):
    """A prediction at N positions, and the tokens it draws there, in the order of `where.nonzero()`."""

    log_x: Tensor  # (N, V) fp32: what `Prediction.at` gives there, whatever the temperature of the draw

    @abstractmethod
    def tokens(self, kept: Tensor | None = None) -> Tensor:
        """(N,) the tokens; with `kept`, (N,) bool or an index, those of some positions, as if all had been kept."""

    def demand(self) -> Tensor:
        """(N,) nats: how much likelier a rule has made each drawn token than the network says; here there is none."""
        return torch.zeros_like(self.log_x[:, 0])


@dataclass(frozen=True)
class IndependentDraw(Draw):
    """Each position drawn by itself from its own random number: only what is kept costs a draw."""

    log_x: Tensor
    u: Tensor  # (N,)
    temperature: float

    def tokens(self, kept: Tensor | None = None) -> Tensor:
        if kept is None or "_all" in self.__dict__:  # a pick may have asked for all of them already
            return self._all if kept is None else self._all[kept]
        return randomness.sample_categorical(self.log_x[kept], self.u[kept], self.temperature)

    @cached_property
    def _all(self) -> Tensor:
        return randomness.sample_categorical(self.log_x, self.u, self.temperature)


class Prediction(ABC):
    """What the network predicts about x. Lazy: trunk and output layer run only where it is queried."""

    @property
    def normalised(self) -> bool:
        """Whether x̂ sums to one everywhere; only a score head (SEDD) leaves the sum free."""
        return True

    @property
    def joint(self) -> bool:
        """Whether tokens depend on each other, so that only what `draw` gives may be written."""
        return False

    @property
    @abstractmethod
    def x(self) -> Tensor:
        """(B, L, V) log-weights of the clean token, fp32."""

    @abstractmethod
    def at(self, where: Tensor) -> Tensor:
        """(B, L) bool → (N, V) fp32 log-weights there only, in the order of `where.nonzero()`."""

    def draw(self, where: Tensor, *, rng: Rng, temperature: float = 1.0) -> Draw:
        """Tokens at the marked positions from x̂^{1/temperature}, the likeliest ones at 0: the only way to get tokens.

        Here each position is drawn by itself. A prediction that knows how tokens depend on each other (a pattern that
        the text must match) draws them jointly, or takes the likeliest text as a whole; `at` are then its marginals.
        """
        u = rng.uniform(where.shape[1]) if temperature else torch.empty(where.shape)  # the likeliest needs no draw
        return IndependentDraw(self.at(where), u.to(where.device).take(ops.flat_positions(where)), temperature)

    @abstractmethod
    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        """(B, L) fp32: −log x̂[target] at `where`, zero elsewhere; plus Σx̂ − 1 where x̂ is not normalised.

        The sum makes it the price of a wrong Poisson intensity, pkl(1[y = target], x̂_y) summed over y.
        """

    @property
    def gaps(self) -> GapPrediction:
        """How many tokens are missing from z; insertion models only."""
        raise ValueError(f"{type(self).__name__} does not predict gaps; insertion needs a network with gaps=…")


@dataclass(frozen=True)
class TablePrediction(Prediction):
    """A prediction given as a table: for oracles, tests and small vocabularies."""

    log_weights: Tensor  # (B, L, V)
    normalised: bool = True
    missing: GapPrediction | None = None

    @property
    def x(self) -> Tensor:
        return self.log_weights

    def at(self, where: Tensor) -> Tensor:
        return self.log_weights[where]

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        loss = -self.log_weights.gather(-1, target[..., None]).squeeze(-1)
        loss = loss if self.normalised else loss + self.log_weights.logsumexp(-1).expm1()
        return torch.where(where, loss, torch.zeros_like(loss))

    @property
    def gaps(self) -> GapPrediction:
        return super().gaps if self.missing is None else self.missing


@dataclass(frozen=True)
class VectorPrediction(Prediction):
    """A prediction of vectors: x̂ = E[x | z] and, from networks that name tokens, the tokens themselves."""

    mean: Tensor  # (B, N, D)
    log_weights: Tensor | None = None  # (B, N, V) of the tokens, from networks that name them (SSD-LM)
    spread: Tensor | None = None  # (B, N, D) in [0, 1]: from the least to the largest variance of a step, if learnt
    table: Tensor | None = None  # (V, D) the vectors of the tokens that are named; None: the corners of a simplex

    @property
    def x(self) -> Tensor:
        return self.mean

    def at(self, where: Tensor) -> Tensor:
        return self.mean[where]

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        """½‖x − x̂‖²; if the network names tokens, the cross-entropy of the token whose vector is the target."""
        if self.log_weights is None:
            return torch.where(where, (target - self.mean).square().sum(-1) / 2, 0.0)
        loss = -self.log_weights.gather(-1, self._named(target)[..., None]).squeeze(-1)
        return torch.where(where, loss, 0.0)

    @torch.no_grad()
    def _named(self, x: Tensor) -> Tensor:
        """(B, N, D) → (B, N) the nearest token: argmax x·e − ‖e‖²/2"""
        if self.table is None:
            return x.argmax(-1)
        return (x @ self.table.T - self.table.square().sum(-1) / 2).argmax(-1)


class Denoiser(Protocol):
    """Sees a noisy sequence and predicts the clean one. `DiffusionLM` is one; guidance wraps one."""

    @property
    def block(self) -> int | None:
        """How many tokens are written at a time, left to right; None: all of them."""

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction: ...
    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        """Tokens z enter the cache at their places: finished ones, or noisy ones of time t (approximate caches)."""


@dataclass(frozen=True)
class DenoiserWrapper:
    """A denoiser that wraps another: guidance and the like define only what they change."""

    denoise: Denoiser

    @property
    def block(self) -> int | None:
        return self.denoise.block

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return self.denoise.absorb(z, context, t)
