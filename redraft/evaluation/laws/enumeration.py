"""A language small enough to enumerate, its exact denoiser, and bounds computed by enumeration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.batch import NoisySample
from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Prediction, TablePrediction
from redraft.core.processes.base import TokenProcess
from redraft.core.randomness import rng
from redraft.core.vocab import Vocab
from redraft.evaluation.laws.law import P_MIN, Law, _Integral, _integrate, _law_at_least, chi_square

_WORDS, _LENGTH = 3, 3
VOCAB = Vocab(_WORDS + 1, mask=_WORDS)
_DRAWS = 8_000
_RARE = 1e-12  # smaller probabilities are rounding noise (tables are exact to 1e-16) and add as little to a bound


@dataclass(frozen=True)
class ToyLanguage:
    """A language small enough to enumerate: N = words^length sequences and their probabilities."""

    sequences: Tensor  # (N, L) ids of all sequences
    p: Tensor  # (N,) float64 probability of each sequence

    @classmethod
    def of(cls, seed: int = 0, length: int = _LENGTH, words: int = _WORDS) -> ToyLanguage:
        """A language with random, uneven probabilities."""
        sequences = torch.tensor(list(product(range(words), repeat=length)))
        weights = rng(seed).uniform(len(sequences))[0] ** 8
        # no sequence is very rare, since samplers would need many more steps to get it right
        return cls(sequences, 0.85 * weights / weights.sum() + 0.15 / len(sequences))

    @property
    def entropy(self) -> float:
        """Entropy in nats per sequence."""
        return float(-(self.p * self.p.log()).sum())


@dataclass(frozen=True)
class _OracleCache:
    """The oracle's cache: the ids of finished tokens."""

    tokens: Tensor  # (B, n) ids of the finished tokens

    exact = True

    @property
    def covers(self) -> Tensor:
        return torch.ones_like(self.tokens, dtype=torch.bool)

    def rows(self, index: Tensor) -> _OracleCache:
        return _OracleCache(self.tokens[index])


def _finished_tokens(z: Tensor, context: Context) -> Tensor:
    """(B, n) finished tokens before z."""
    if context.positions is not None and len(context.positions) > 1:
        raise ValueError("Oracle needs all rows at the same positions; give all rows prompts of the same length")
    return context.cache.tokens if isinstance(context.cache, _OracleCache) else z[:, :0]


@dataclass(frozen=True)
class Oracle:
    """The best denoiser: x̂[l] = p(x[l] | everything visible except z[l]), by summing over the language.

    The step plugs x̂ into the posterior, which accounts for z[l] itself, so x̂ must not depend on z[l] (leave-one-out).
    `blur` mixes x̂ with the uniform distribution over the words, for a denoiser that is worse.
    """

    toy: ToyLanguage
    process: TokenProcess
    block: int | None = None
    blur: float = 0.0

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        finished = _finished_tokens(z, context)
        visible, lo = torch.cat([finished, z], 1), finished.shape[1]
        time = torch.cat([torch.zeros_like(finished, dtype=torch.float64), t.double().expand_as(z)], 1)
        clean = visible if context.clean is None else context.clean
        row, inverse = _unique_rows(visible, time, *([] if clean is visible else [clean]))
        x = self._posterior(visible[row], clean[row], time[row])
        return TablePrediction(x[inverse][:, lo:].log())

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return replace(context, cache=_OracleCache(torch.cat([_finished_tokens(z, context), z], 1)))

    def _posterior(self, visible: Tensor, clean: Tensor, time: Tensor) -> Tensor:
        """(B, n) → (B, n, V) x̂."""
        words = self.toy.sequences[:, : visible.shape[1]].T  # (n, N)
        times, inverse = time.unique(return_inverse=True)
        tables = torch.stack([self._table(float(t)) for t in times])  # (times, V, V)
        noisy = tables[inverse[..., None], words, visible[..., None]]  # (B, n, N) q_t(visible | words)
        exact = (clean[:, : visible.shape[1], None] == words).double()
        x = noisy.new_zeros(*visible.shape, self.process.vocab.size)
        for l in range(visible.shape[1]):
            weight = self.toy.p * self._likelihood(noisy, exact, l)  # (B, N)
            x[:, l].index_add_(1, words[l], weight)
        x = x / x.sum(-1, keepdim=True)
        return (1 - self.blur) * x + self.blur / _WORDS * (torch.arange(x.shape[-1]) < _WORDS)

    def _likelihood(self, noisy: Tensor, exact: Tensor, l: int) -> Tensor:
        """(B, N) likelihood of what position l sees: clean earlier blocks, and its own noisy block except itself."""
        likelihood = torch.ones_like(noisy[:, 0])
        for j in range(noisy.shape[1]):
            block_l, block_j = (0, 0) if self.block is None else (l // self.block, j // self.block)
            if j != l and block_l >= block_j:
                likelihood = likelihood * (noisy[:, j] if block_l == block_j else exact[:, j])
        return likelihood

    def _table(self, t: float) -> Tensor:
        """(V, V) q_t(z | x); the identity at t = 0."""
        return torch.eye(self.process.vocab.size, dtype=torch.float64) if t == 0 else self.process.marginal(t)


def _unique_rows(*columns: Tensor) -> tuple[Tensor, Tensor]:
    """Return an index into (B, n) tensors for each distinct row, and (B,) which distinct row each row equals."""
    code = torch.zeros_like(columns[0][:, 0])
    for column in (c for table in columns for c in table.unbind(1)):
        values, digit = column.unique(return_inverse=True)
        code = code * len(values) + digit
    codes, inverse = code.unique(return_inverse=True)
    row = torch.empty_like(codes).scatter_(0, inverse, torch.arange(len(code)))
    return row, inverse


def _uneven_prediction(states: int) -> Tensor:
    """(V,) an arbitrary x̂ that gives the mask no weight."""
    x = rng(4).uniform(states)[0] * (torch.arange(states) < _WORDS)
    return x / x.sum()


def _reverse_marginal_law(process: TokenProcess, s: float, t: float) -> Law:
    """Check that a step from z_t ~ q_t(z | x) with the true x̂ gives z_s ~ q_s(z | x)."""
    worst = 1.0
    for w in range(_WORDS):
        noisy = process.noise(torch.full((1, _DRAWS), w), torch.full((1, 1), t), rng=rng(5)).z
        truth = torch.eye(process.vocab.size, dtype=torch.float64)[w]
        worst = min(worst, chi_square(_reverse_step(process, noisy, truth, s, t), process.marginal(s)[w]))
    return _law_at_least(process, "stepping back keeps marginals", worst, P_MIN)


def _reverse_step(process: TokenProcess, z: Tensor, x: Tensor, s: float, t: float) -> Tensor:
    """Draw z_s given z and the prediction x, (V,), at every position."""
    canvas = Canvas(z, torch.zeros_like(z, dtype=torch.bool))
    pred = TablePrediction(x.log().expand(*z.shape, -1))
    times = (torch.full((1, 1), u, dtype=torch.float64) for u in (s, t))
    return process.step(pred, canvas, *times, rng=rng(6)).z


def _enumerated_bound(process: TokenProcess, oracle: Oracle, steps: int | None = None) -> float:
    """Return the expected bound in nats per sequence, enumerating x and z; an integral over t, or a sum over steps."""
    if steps is None:
        return float(_integrated_bound(process, oracle))
    grid = torch.arange(steps + 1, dtype=torch.float64) / steps
    return float(_prior_kl(process, oracle.toy) + _mean_bound_terms(process, oracle, grid[1:], grid[:-1]).sum())


def _integrated_bound(process: TokenProcess, oracle: Oracle) -> _Integral:
    """Return the expected bound in continuous time, in nats per sequence, with the error of the integral."""
    result = _integrate(lambda t: _mean_bound_terms(process, oracle, t))
    ends, zero = _prior_kl(process, oracle.toy), torch.zeros(1, dtype=torch.float64)
    if process.leaves_noise:
        ends = ends + _mean_bound_terms(process, oracle, zero + 1e-12, zero).squeeze()
    return result._replace(value=result.value + ends)


def _prior_kl(process: TokenProcess, toy: ToyLanguage) -> Tensor:
    """() expected KL from the prior, in nats per sequence."""
    return (toy.p * process.prior_kl(toy.sequences).double().sum(-1)).sum()


def _bound_terms(process: TokenProcess, oracle: Oracle, t: Tensor, s: Tensor | None = None) -> Tensor:
    """(T,) times → (T, N) term of the bound at each time for each sequence, averaged over z ~ q_t(z | x)."""
    x, V = oracle.toy.sequences, process.vocab.size
    z = torch.tensor(list(product(range(V), repeat=x.shape[1])))
    tables = torch.stack([process.marginal(float(a)) for a in t])
    q = tables[:, x[:, None], z[None]].prod(-1)  # (T, N, V^L)
    likely = q > _RARE
    t_index, x_index, z_index = likely.nonzero(as_tuple=True)
    noised = NoisySample(z[z_index], t[t_index, None], x[x_index])
    pred = oracle.predict(noised.z, noised.t, Context(clean=None if oracle.block is None else noised.target))
    nats = process.nelbo(pred, noised, None if s is None else s[t_index, None])
    return (q * ops.scatter(nats.double().sum(-1), likely)).sum(-1)


def _mean_bound_terms(process: TokenProcess, oracle: Oracle, t: Tensor, s: Tensor | None = None) -> Tensor:
    """(T,) times → (T,) term of the bound at each time, averaged over the language, 16 times per call."""
    chunks = zip(t.split(16), [None] * len(t) if s is None else s.split(16), strict=False)
    return torch.cat([_bound_terms(process, oracle, ts, ss) @ oracle.toy.p for ts, ss in chunks])


def _frequencies(z: Tensor, states: int) -> Tensor:
    """(V,) relative frequency of each state in z."""
    return torch.bincount(z.flatten(), minlength=states).double() / z.numel()
