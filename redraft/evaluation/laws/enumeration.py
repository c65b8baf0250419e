"""A language small enough to enumerate, a denoiser that knows it, and bounds summed over all of it."""

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
from redraft.evaluation.laws.law import _P_MIN, Law, _chi_square, _Integral, _law_at_least, integral

_WORDS, _LENGTH = 3, 3


VOCAB = Vocab(_WORDS + 1, mask=_WORDS)


_DRAWS = 8_000


_RARE = 1e-12  # tables are exact to 1e-16: probabilities below this are noise, and what they add to a bound is as small


@dataclass(frozen=True)
class _ToyLanguage:
    """A language that can be enumerated: N = words^length sequences and their probabilities."""

    sequences: Tensor  # (N, L)
    p: Tensor  # (N,) float64

    @classmethod
    def of(cls, seed: int = 0, length: int = _LENGTH) -> _ToyLanguage:
        sequences = torch.tensor(list(product(range(_WORDS), repeat=length)))
        weights = rng(seed).uniform(len(sequences))[0] ** 8
        # none is too rare: to get the rarest right, χ² would need many more steps
        return cls(sequences, 0.85 * weights / weights.sum() + 0.15 / len(sequences))

    @property
    def entropy(self) -> float:
        return float(-(self.p * self.p.log()).sum())


@dataclass(frozen=True)
class _OracleCache:
    """The oracle's cache: the finished tokens."""

    tokens: Tensor

    exact = True

    @property
    def covers(self) -> Tensor:
        return torch.ones_like(self.tokens, dtype=torch.bool)

    def rows(self, index: Tensor) -> _OracleCache:
        return _OracleCache(self.tokens[index])


def _said(z: Tensor, context: Context) -> Tensor:
    """(B, n) the finished tokens before z."""
    if context.place is not None and len(context.place) > 1:
        raise ValueError("the oracle reads rows that stand at the same places; give all rows prompts of one length")
    return context.cache.tokens if isinstance(context.cache, _OracleCache) else z[:, :0]


@dataclass(frozen=True)
class Oracle:
    """The best denoiser: x̂[l] = p(x[l] | everything visible but z[l]), by summing over the language.

    The step plugs x̂ into the posterior, which brings in z[l] itself; so z[l] must not enter x̂ (leave-one-out). With
    `blur` a part of x̂ is spread evenly over the words: a worse denoiser, for contrast.
    """

    toy: _ToyLanguage
    process: TokenProcess
    block: int | None = None
    blur: float = 0.0

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        said = _said(z, context)
        seen, lo = torch.cat([said, z], 1), said.shape[1]
        time = torch.cat([torch.zeros_like(said, dtype=torch.float64), t.double().expand_as(z)], 1)
        clean = seen if context.clean is None else context.clean
        first, which = _distinct(seen, time, *([] if clean is seen else [clean]))
        x = self._posterior(seen[first], clean[first], time[first])
        return TablePrediction(x[which][:, lo:].log())

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return replace(context, cache=_OracleCache(torch.cat([_said(z, context), z], 1)))

    def _posterior(self, seen: Tensor, clean: Tensor, time: Tensor) -> Tensor:
        """(B, n) → (B, n, V). likelihood[b, l, i] = q_t(seen[b, l] | word l of sequence i)."""
        words = self.toy.sequences[:, : seen.shape[1]].T  # (n, N)
        moments, which = time.unique(return_inverse=True)
        tables = torch.stack([self._table(float(t)) for t in moments])  # (times, V, V)
        noisy = tables[which[..., None], words, seen[..., None]]
        exact = (clean[:, : seen.shape[1], None] == words).double()
        out = noisy.new_zeros(*seen.shape, self.process.vocab.size)
        for l in range(seen.shape[1]):
            weight = self.toy.p * self._evidence(noisy, exact, l)  # (B, N)
            out[:, l].index_add_(1, words[l], weight)
        out = out / out.sum(-1, keepdim=True)
        return (1 - self.blur) * out + self.blur / _WORDS * (torch.arange(out.shape[-1]) < _WORDS)

    def _evidence(self, noisy: Tensor, exact: Tensor, l: int) -> Tensor:
        """(B, N) likelihood of what position l sees, except itself: clean earlier blocks and its own noisy block."""
        evidence = torch.ones_like(noisy[:, 0])
        for j in range(noisy.shape[1]):
            mine, theirs = (0, 0) if self.block is None else (l // self.block, j // self.block)
            if j != l and mine >= theirs:
                evidence = evidence * (noisy[:, j] if mine == theirs else exact[:, j])
        return evidence

    def _table(self, t: float) -> Tensor:
        return torch.eye(self.process.vocab.size, dtype=torch.float64) if t == 0 else self.process.marginal(t)


def _distinct(*columns: Tensor) -> tuple[Tensor, Tensor]:
    """The index of each distinct row of (B, n) tensors, and for every row which of these it equals."""
    code = torch.zeros_like(columns[0][:, 0])
    for column in (c for table in columns for c in table.unbind(1)):
        values, digit = column.unique(return_inverse=True)
        code = code * len(values) + digit
    codes, which = code.unique(return_inverse=True)
    first = torch.empty_like(codes).scatter_(0, which, torch.arange(len(code)))
    return first, which


def _uneven_guess(states: int) -> Tensor:
    """(V,) some x̂ with no weight on the mask."""
    guess = rng(4).uniform(states)[0] * (torch.arange(states) < _WORDS)
    return guess / guess.sum()


def _kept_marginals(process: TokenProcess, s: float, t: float) -> Law:
    worst = 1.0
    for w in range(_WORDS):
        noisy = process.noise(torch.full((1, _DRAWS), w), torch.full((1, 1), t), rng=rng(5)).z
        truth = torch.eye(process.vocab.size, dtype=torch.float64)[w]
        worst = min(worst, _chi_square(_reverse_step(process, noisy, truth, s, t), process.marginal(s)[w]))
    return _law_at_least(process, "stepping back keeps marginals", worst, _P_MIN)


def _reverse_step(process: TokenProcess, z: Tensor, guess: Tensor, s: float, t: float) -> Tensor:
    canvas = Canvas(z, torch.zeros_like(z, dtype=torch.bool))
    pred = TablePrediction(guess.log().expand(*z.shape, -1))
    at = (torch.full((1, 1), u, dtype=torch.float64) for u in (s, t))
    return process.step(pred, canvas, *at, rng=rng(6)).z


def _enumerated_bound(process: TokenProcess, oracle: Oracle, steps: int | None = None) -> float:
    """Expected bound in nats per sequence, by enumeration of x and z and an integral (or sum) over t."""
    if steps is None:
        return float(_integrated_bound(process, oracle))
    grid = torch.arange(steps + 1, dtype=torch.float64) / steps
    return float(_prior_kl(process, oracle.toy) + _expected(process, oracle, grid[1:], grid[:-1]).sum())


def _integrated_bound(process: TokenProcess, oracle: Oracle) -> _Integral:
    """The same in continuous time, and the error of the integral."""
    found = integral(lambda t: _expected(process, oracle, t))
    ends, clean = _prior_kl(process, oracle.toy), torch.zeros(1, dtype=torch.float64)
    if process.jump:
        ends = ends + _expected(process, oracle, clean + 1e-12, clean).squeeze()
    return found._replace(value=found.value + ends)


def _prior_kl(process: TokenProcess, toy: _ToyLanguage) -> Tensor:
    return (toy.p * process.prior_kl(toy.sequences).double().sum(-1)).sum()


def _bound_terms(process: TokenProcess, oracle: Oracle, t: Tensor, s: Tensor | None = None) -> Tensor:
    """(T,) times → (T, N) the bound's term at each of them for each sequence, averaged over z ~ q_t(z | x)."""
    x, V = oracle.toy.sequences, process.vocab.size
    z = torch.tensor(list(product(range(V), repeat=x.shape[1])))
    tables = torch.stack([process.marginal(float(a)) for a in t])
    q = tables[:, x[:, None], z[None]].prod(-1)  # (T, N, V^L)
    likely = q > _RARE
    at, each_x, each_z = likely.nonzero(as_tuple=True)
    noised = NoisySample(z[each_z], t[at, None], x[each_x])
    pred = oracle(noised.z, noised.t, Context(clean=None if oracle.block is None else noised.target))
    nats = process.nelbo(pred, noised, None if s is None else s[at, None])
    return (q * ops.scatter(nats.double().sum(-1), likely)).sum(-1)


def _expected(process: TokenProcess, oracle: Oracle, t: Tensor, s: Tensor | None = None) -> Tensor:
    """(T,) the same averaged over the language, a few times at once."""
    parts = zip(t.split(16), [None] * len(t) if s is None else s.split(16), strict=False)
    return torch.cat([_bound_terms(process, oracle, late, early) @ oracle.toy.p for late, early in parts])


def _frequencies(z: Tensor, states: int) -> Tensor:
    return torch.bincount(z.flatten(), minlength=states).double() / z.numel()
