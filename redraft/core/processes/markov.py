"""Noise by dense rate matrices: a token jumps between any states at given rates (Austin et al. 2021, "D3PM").

A jump process in continuous time, Q_{t|s} = exp(−log(k_t/k_s)·R) with one generator R and k = `schedule.keep`. D3PM's
chains of T matrices are this process observed at T times; its β schedules are changes of time. Unlike a list of T
matrices, this form allows any number of steps, skipped steps, and a continuous-time bound.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from redraft.core import ops, randomness
from redraft.core.batch import NoisySample
from redraft.core.canvas import Canvas
from redraft.core.prediction import Prediction
from redraft.core.processes.base import TokenProcess, _resampled_positions, exclude_mask, require_times
from redraft.core.randomness import Rng
from redraft.core.schedules.base import Schedule
from redraft.core.schedules.tokens import Linear
from redraft.core.schedules.transforms import PiecewiseKeep
from redraft.core.vocab import Vocab

_FLOOR = 1e-30  # probability of impossible states: below any rounding error, but with a finite logarithm


class JumpRates(ABC):
    """Rates at which tokens jump between states."""

    @abstractmethod
    def rates(self, vocab: Vocab) -> Tensor:
        """(V, V) float64 rate of jumps from y (row) to z; the diagonal and the unit of time do not matter."""


@dataclass(frozen=True)
class UniformRates(JumpRates):
    """Jumps to every word at the same rate: the dense form of `UniformNoise`."""

    def rates(self, vocab: Vocab) -> Tensor:
        words = _words(vocab)
        return _among(words, torch.ones(len(words), len(words)), vocab)


@dataclass(frozen=True)
class AbsorbingRates(JumpRates):
    """Jumps to the mask and stays there: the dense form of `Masked`."""

    def rates(self, vocab: Vocab) -> Tensor:
        rates = torch.zeros(vocab.size, vocab.size, dtype=torch.float64)
        rates[_words(vocab), vocab.masked] = 1
        return rates


@dataclass(frozen=True)
class BandedRates(JumpRates):
    """Jumps to nearby ids at the rate exp(−½(i − j)²/width²), for ordinal values: D3PM's discretized Gaussian.

    D3PM widens the Gaussian from step to step. Here the width is constant, and the sum of jumps is again Gaussian.
    """

    width: float = 1.0

    def __post_init__(self) -> None:
        if self.width <= 0:
            raise ValueError(f"width={self.width}; jumps need a width above 0, in ids")

    def rates(self, vocab: Vocab) -> Tensor:
        words = _words(vocab)
        index = torch.arange(len(words), dtype=torch.float64)
        return _among(words, (-((index[:, None] - index) ** 2) / (2 * self.width**2)).exp(), vocab)


@dataclass(frozen=True)
class NeighborRates(JumpRates):
    """Jumps between neighbors in a graph of words, rate G + Gᵀ (D3PM, appendix A.2). See `nearest_words`."""

    neighbors: tuple[tuple[int, ...], ...]  # ids near each word; words are all ids but the mask, in order

    def rates(self, vocab: Vocab) -> Tensor:
        words = _words(vocab).tolist()
        if len(words) != len(self.neighbors):
            raise ValueError(f"{len(self.neighbors)} lists of neighbors for {len(words)} words; give one per word")
        rates = torch.zeros(vocab.size, vocab.size, dtype=torch.float64)
        for word, near in zip(words, self.neighbors, strict=True):
            if unknown := set(near) - set(words):
                raise ValueError(f"word {word} has the neighbors {sorted(unknown)}, which are not words; use word ids")
            rates[word, list(near)] = 1
        return rates + rates.T


def nearest_words(embeddings: Tensor, vocab: Vocab, k: int = 20) -> NeighborRates:
    """Rates between each word and its k nearest words, by distance of their (V, D) embeddings."""
    words = _words(vocab)
    if embeddings.shape[0] != vocab.size or not 0 < k < len(words):
        raise ValueError(f"{embeddings.shape[0]} embeddings, k={k}; give {vocab.size}, and 0 < k < {len(words)}")
    distance = torch.cdist(embeddings[words].double(), embeddings[words].double()).fill_diagonal_(torch.inf)
    near = words[distance.argsort(dim=-1, stable=True)[:, :k]]
    return NeighborRates(tuple(tuple(sorted(row)) for row in near.tolist()))


def mutual_information_schedule(jumps: JumpRates, vocab: Vocab, frequencies: Tensor, points: int = 64) -> PiecewiseKeep:
    """The schedule that loses information about x linearly: I(z_t; x) = (1 − t)·H(x) (D3PM, "MI schedule").

    `frequencies`: (V,) token counts or frequencies; the mask's is ignored. For `AbsorbingRates` this is `Linear()`.
    """
    p = torch.zeros_like(frequencies, dtype=torch.float64)
    p[_words(vocab)] = frequencies.double()[_words(vocab)]
    p = p / p.sum()
    spectrum = _spectrum(jumps, vocab, p.device)
    keep = (torch.pi / 2 * torch.linspace(0, 1, 40 * points, dtype=torch.float64)).sin() ** 2
    information = torch.stack([_information(p, spectrum.rows(torch.arange(len(p)), k.expand(len(p)))) for k in keep])
    wanted = torch.linspace(1, 0, points + 1, dtype=torch.float64) * information[-1]
    above = torch.searchsorted(information, wanted[1:-1]).clamp(1, len(information) - 1)
    low, high = information[above - 1], information[above]
    fraction = (wanted[1:-1] - low) / (high - low).clamp(min=1e-300)
    middle = keep[above - 1] + fraction * (keep[above] - keep[above - 1])
    return PiecewiseKeep((1.0, *middle.tolist(), 0.0))


def _information(p: Tensor, table: Tensor) -> Tensor:
    """I(z; x) in nats for x ~ p and z ~ table[x]."""
    return (p[:, None] * table * (table.log() - (p @ table).clamp(min=_FLOOR).log())).sum()


class _Spectrum(NamedTuple):
    """R = −right·diag(decay)·left, so that Q at keep = k is right·diag(k^decay)·left."""

    right: Tensor  # (V, V) right eigenvectors of R, as columns
    decay: Tensor  # (V,) eigenvalues of −R, scaled so that the smallest positive one is 1
    left: Tensor  # (V, V) left eigenvectors of R, as rows
    rates: Tensor  # (V, V) R without its diagonal

    def rows(self, x: Tensor, keep: Tensor) -> Tensor:
        """(N,) → (N, V): Q[x, ·]"""
        return ((self.right[x] * self._modes(keep)) @ self.left).clamp(min=_FLOOR)

    def columns(self, z: Tensor, keep: Tensor) -> Tensor:
        """(N,) → (N, V): Q[·, z]"""
        return ((self.left.T[z] * self._modes(keep)) @ self.right.T).clamp(min=_FLOOR)

    def mixed(self, p: Tensor, keep: Tensor) -> Tensor:
        """(N, V) → (N, V): pQ"""
        return (((p @ self.right) * self._modes(keep)) @ self.left).clamp(min=_FLOOR)

    def _modes(self, keep: Tensor) -> Tensor:
        """(N, V) k^decay, computed once per distinct time: positions share few times, and powers are slow."""
        values, index = keep.unique(return_inverse=True)
        return (values[:, None] ** self.decay)[index]


@lru_cache(maxsize=16)
def _spectrum(jumps: JumpRates, vocab: Vocab, device: torch.device) -> _Spectrum:
    """The eigendecomposition, cached. The unit of time is such that the slowest mode decays as k itself."""
    rates = jumps.rates(vocab).to(ops.widest_float(device))
    rates = rates.clone().fill_diagonal_(0)
    generator = rates - torch.diag(rates.sum(-1))
    if torch.equal(rates, rates.T):
        values, right = torch.linalg.eigh(generator)
        left = right.T
    else:
        values, right, left = _decomposed(generator)
    decay = torch.where(-values > 1e-9 * -values.min(), -values, 0.0)
    slowest = decay[decay > 0].min()
    spectrum = _Spectrum(*(a.contiguous().to(device) for a in (right, decay / slowest, left, rates / slowest)))
    _require_forgetting(spectrum, vocab)
    return spectrum


def _decomposed(generator: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvalues, right and left eigenvectors of asymmetric rates; raises unless they are real and complete."""
    values, vectors = torch.linalg.eig(generator)
    if float(values.imag.abs().max()) < 1e-9 and torch.linalg.cond(vectors) < 1e8:
        return values.real, vectors.real, torch.linalg.inv(vectors.real)
    raise ValueError("these rates have complex eigenvalues or too few eigenvectors; use symmetric rates")


def _require_forgetting(spectrum: _Spectrum, vocab: Vocab) -> None:
    words = _words(vocab).to(spectrum.right.device)
    end = spectrum.rows(words, torch.zeros_like(words, dtype=spectrum.right.dtype))
    if float((end - end[:1]).abs().max()) > 1e-6:
        raise ValueError(
            "the jumps leave words in separate groups, so z never becomes independent of x; give words more neighbors"
        )


@dataclass(frozen=True)
class Markov(TokenProcess):
    """q_t(z | x) = Q_t[x, z], Q_t = exp(−log k_t·R), for jumps between any states at rates R.

    Bayes: p(z_s = y | z_t = z) ∝ Q_{t|s}[y, z] · (x̂Q_s)[y] (D3PM, eq. 4; with x̂ plugged in, not averaged over).
    Bound: −k'_t/k_t · Σ_{y≠z} R[y, z]·pkl(r_y, ŝ_y) with r, ŝ the ratios of q_t(· | x) and x̂Q_t to their value at z.
    Costs V² per position: for vocabularies of characters, or a few thousand words.
    """

    vocab: Vocab
    jumps: JumpRates = UniformRates()
    schedule: Schedule = Linear()
    direct: bool = False  # the step to s = 0 draws all tokens from x̂, even visible ones, as in D3PM

    def prior(self, canvas: Canvas, *, rng: Rng) -> Canvas:
        u = rng.uniform(canvas.z.shape[1])
        return canvas.write(
            randomness.sample_categorical(
                self._prior(canvas.z.device).log().expand(u.numel(), -1), u.flatten()
            ).view_as(u)
        )

    def prior_kl(self, x: Tensor) -> Tensor:
        states = torch.arange(self.vocab.size, device=x.device)
        end = self._rows(states, torch.ones(len(states), device=x.device))
        return ops.poisson_kl(end, self._prior(x.device).expand_as(end)).sum(-1)[x].float()

    def noise(self, x: Tensor, t: Tensor, *, pad: Tensor | None = None, rng: Rng) -> NoisySample:
        require_times(x, t)
        q = self._rows(x.flatten(), t.expand_as(x).flatten())
        z = randomness.sample_categorical(q.log(), rng.uniform(x.shape[1]).flatten()).view_as(x)
        given = t == 0 if pad is None else (t == 0) | pad
        return NoisySample(torch.where(given, x, z), t, x, pad)

    def step(self, pred: Prediction, canvas: Canvas, s: Tensor, t: Tensor, *, rng: Rng) -> Canvas:
        require_times(canvas.z, s, t)
        where = ~canvas.fixed & self._entered(canvas.z)
        if self.direct:
            where = where | (~canvas.fixed & (s == 0))
        if not where.any():
            return canvas
        pred = exclude_mask(pred, s, self.vocab)
        z, early, late = canvas.z[where], s.expand_as(canvas.z)[where], t.expand_as(canvas.z)[where]
        guess = pred.at(where).exp()
        weights = self._onto(z, early, late) * self._mixed(guess, early)
        if self.direct:
            weights = torch.where((early == 0)[:, None], guess, weights)
        tokens = randomness.sample_categorical(weights.log(), rng.uniform(canvas.z.shape[1])[where])
        return canvas.write(canvas.z.masked_scatter(where, tokens))

    def nelbo(self, pred: Prediction, noised: NoisySample, s: Tensor | None = None) -> Tensor:
        where = self.undetermined(noised)
        if self.direct and s is not None:
            where = where | _resampled_positions(noised, s)
        log_x, z, x, t = pred.at(where), noised.z[where], noised.target[where], noised.t.expand_as(where)[where]
        if s is None:
            nats = self._continuous(log_x.exp(), z, x, t)
        else:
            early = s.expand_as(where)[where]
            nats = self._discrete(log_x.exp(), z, x, early, t)
            if self.direct:
                nats = torch.where(early == 0, -log_x.gather(-1, x[:, None]).squeeze(-1), nats)
        return ops.scatter(nats.to(log_x.dtype), where)

    def _continuous(self, guess: Tensor, z: Tensor, x: Tensor, t: Tensor) -> Tensor:
        t = t.to(ops.widest_float(t.device)).clamp(max=1 - 1e-12)
        truth, predicted = self._rows(x, t), self._mixed(guess, t)
        rates = self._spectrum(z.device).rates.T[z]  # into z, from each state
        at = z[:, None]
        cost = ops.poisson_kl(truth / truth.gather(-1, at), predicted / predicted.gather(-1, at))
        return -self.schedule.slope(t) / self.schedule.keep(t) * (rates * cost).sum(-1)

    def _discrete(self, guess: Tensor, z: Tensor, x: Tensor, s: Tensor, t: Tensor) -> Tensor:
        onto = self._onto(z, s, t)
        truth, predicted = (onto * q for q in (self._rows(x, s), self._mixed(guess, s)))
        truth, predicted = (p / p.sum(-1, keepdim=True) for p in (truth, predicted))
        return ops.poisson_kl(truth, predicted).sum(-1)

    def undetermined(self, noised: NoisySample) -> Tensor:
        where = self._entered(noised.z) & (noised.t > 0)
        return where if noised.pad is None else where & ~noised.pad

    def marginal(self, t: float) -> Tensor:
        states = torch.arange(self.vocab.size)
        return _rounded(self._rows(states, torch.full((len(states),), t, dtype=torch.float64)))

    def transition(self, s: float, t: float) -> Tensor:
        states = torch.arange(self.vocab.size)
        early, late = (torch.full((len(states),), a, dtype=torch.float64) for a in (s, t))
        return _rounded(self._onto(states, early, late).T)

    @property
    def continuous(self) -> bool:
        return not self.direct  # the cost of a last step that draws x̂ depends on where that step starts

    @property
    def leaves_noise(self) -> bool:
        return self.schedule.start < 1

    # --- tables in the widest float, one row per position ---

    def _spectrum(self, device: torch.device) -> _Spectrum:
        return _spectrum(self.jumps, self.vocab, device)

    def _keep(self, t: Tensor) -> Tensor:
        t = t.to(ops.widest_float(t.device))
        return torch.where(t == 0, 1.0, self.schedule.keep(t))

    def _rows(self, x: Tensor, t: Tensor) -> Tensor:
        """q_t(· | x)"""
        return self._spectrum(x.device).rows(x, self._keep(t))

    def _mixed(self, guess: Tensor, t: Tensor) -> Tensor:
        """x̂Q_t"""
        return self._spectrum(guess.device).mixed(guess.to(ops.widest_float(guess.device)), self._keep(t))

    def _onto(self, z: Tensor, s: Tensor, t: Tensor) -> Tensor:
        """q_{t|s}(z | ·)"""
        return self._spectrum(z.device).columns(z, self._keep(t) / self._keep(s))

    def _entered(self, z: Tensor) -> Tensor:
        """Whether any state jumps to z; if none does, z must be x."""
        return (self._spectrum(z.device).rates > 0).any(0)[z]

    def _prior(self, device: torch.device) -> Tensor:
        """(V,) the limiting distribution, from any word."""
        word = _words(self.vocab)[:1].to(device)
        return self._spectrum(device).rows(word, torch.zeros(1, dtype=ops.widest_float(device), device=device))[0]


def _rounded(table: Tensor) -> Tensor:
    """The table with rounding errors (below 1e-12) set to zero."""
    return torch.where(table > 1e-12, table, 0.0)


def _words(vocab: Vocab) -> Tensor:
    """The ids of all states but the mask."""
    return torch.tensor([i for i in range(vocab.size) if i != vocab.mask])


def _among(words: Tensor, rates: Tensor, vocab: Vocab) -> Tensor:
    """(K, K) rates between words → (V, V) rates between states; the mask, if any, has none."""
    out = torch.zeros(vocab.size, vocab.size, dtype=torch.float64)
    out[words[:, None], words] = rates.double()
    return out
