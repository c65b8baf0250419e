"""A toy language whose sentences differ in length, for the laws of insertion.

Two words, sentences of none to three of them. Each token of a sentence is missing, masked or clean; the best denoiser
sums over all sentences and all ways in which z can lie in them. Its bound must equal the entropy, length included, and
samplers must reproduce the joint distribution over lengths and words.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.ops import Rng, rng
from redraft.processes import Counted, Expected, Insertion
from redraft.samplers import Sampler, last
from redraft.schedules import Schedule
from redraft.types import Canvas, Context, Known, Noised, Prediction, Vocab

WORDS, LONGEST = 2, 3
VOCAB = Vocab(WORDS + 2, mask=WORDS, pad=WORDS + 1)
CLEAN, MASKED, MISSING = range(3)


@dataclass(frozen=True)
class AtOnce(Schedule):
    """Nothing until t = 1 is left, then everything: insertion is then mask noise on a text of known length."""

    def keep(self, t: Tensor) -> Tensor:
        return (t < 1).to(t.dtype)

    def inverse(self, keep: Tensor) -> Tensor:
        return torch.ones_like(keep)


@dataclass(frozen=True)
class Sentences:
    """All sentences and their probabilities; N rows of LONGEST columns, padded."""

    x: Tensor  # (N, LONGEST)
    p: Tensor  # (N,) float64

    @classmethod
    def of(cls, seed: int = 0, lengths: range = range(LONGEST + 1)) -> Sentences:
        rows = [[*words, *[VOCAB.filler] * (LONGEST - n)] for n in lengths for words in product(range(WORDS), repeat=n)]
        weights = rng(seed).uniform(len(rows))[0] ** 2 + 0.05
        return cls(torch.tensor(rows), weights / weights.sum())

    @property
    def pad(self) -> Tensor:
        return self.x == VOCAB.filler

    @property
    def entropy(self) -> float:
        return float(-(self.p * self.p.log()).sum())

    @property
    def length_entropy(self) -> float:
        p = torch.bincount((~self.pad).sum(-1), self.p)
        return float(-torch.xlogy(p, p).sum())

    def numbers(self, canvas: Canvas) -> Tensor:
        """(B,) which sentences a canvas holds; N for what is none."""
        assert canvas.context.pad is not None
        z = canvas.z.masked_fill(canvas.context.pad, VOCAB.filler)
        same = (z[:, None] == self.x).all(-1)
        return torch.where(same.any(-1), same.int().argmax(-1), len(self.x))


@dataclass(frozen=True)
class Ways:
    """Every sentence with every choice of clean, masked and missing tokens: each z that there is, and where from."""

    noised: Noised
    sentence: Tensor  # (M,) index
    states: Tensor  # (M, LONGEST); padding counts as clean

    @classmethod
    def of(cls, toy: Sentences, process: Insertion) -> Ways:
        states = torch.tensor(list(product((CLEAN, MASKED, MISSING), repeat=LONGEST)))
        each = torch.arange(len(toy.p)).repeat_interleave(len(states))
        states = states.repeat(len(toy.p), 1)
        real = ~((states != CLEAN) & toy.pad[each]).any(-1)  # where there is no token, there is nothing to choose
        each, states = each[real], states[real]
        never, given = torch.zeros(len(each), 1), torch.zeros_like(states, dtype=torch.bool)
        noised = process.packed(toy.x[each], never, states == MISSING, states == MASKED, given, toy.pad[each])
        return cls(noised, each, states)

    def p(self, toy: Sentences, process: Insertion, t: float) -> Tensor:
        """(M,) the probability of sentence and states at time t."""
        word = process.marginal(t)[0]
        chance = word[torch.tensor([0, VOCAB.masked, -1])][self.states]
        return toy.p[self.sentence] * torch.where(toy.pad[self.sentence], 1.0, chance).prod(-1)

    def at(self, *times: float) -> Noised:
        """All of them at each of the times, one after the other."""
        again = {n: a.repeat(len(times), 1) for n, a in self.noised._asdict().items() if a is not None}
        t = torch.tensor(times, dtype=torch.float64).repeat_interleave(len(self.sentence))[:, None]
        return self.noised._replace(**{**again, "t": t})


@dataclass(frozen=True)
class Oracle:
    """The best denoiser: x̂ and gaps given z, summed over all sentences x and all ways in which z can lie in x.

    p(x, way | z) ∝ p(x)·(1 − a_t)^(tokens missing): it depends on the time, but not on which tokens are masked.
    `counted` gives the distribution of each gap instead of its mean. With `blur` a part of both is even, for contrast.
    """

    toy: Sentences
    process: Insertion
    counted: bool = False
    blur: float = 0.0
    block: int | None = None

    @cached_property
    def _ways(self) -> tuple[Tensor, Tensor, Tensor]:
        """Sentences with tokens missing, none masked: (M, LONGEST) tokens, (M, LONGEST + 1) gaps, (M,) probability."""
        ways = Ways.of(self.toy, self.process)
        plain = (ways.states != MASKED).all(-1)
        assert ways.noised.gaps is not None
        return ways.noised.z[plain], ways.noised.gaps[plain], self.toy.p[ways.sentence[plain]]

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        z = z if context.pad is None else z.masked_fill(context.pad, VOCAB.filler)
        number = (z * VOCAB.size ** torch.arange(LONGEST - 1, -1, -1)).sum(-1)
        moments, which = t.flatten().unique(return_inverse=True)
        every = torch.cartesian_prod(*[torch.arange(VOCAB.size)] * LONGEST)  # any z there is, in the order of numbers
        tables = zip(*(self._posterior(every, moment) for moment in moments), strict=True)
        return self._said(*(torch.stack(table)[which, number] for table in tables))

    def _posterior(self, z: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """(B, LONGEST, V) probabilities of words, (B, LONGEST + 1, LONGEST + 1) of counts; nan if no sentence fits."""
        tokens, gaps, p = self._ways
        unknown = (z == VOCAB.masked)[:, None] & (tokens != VOCAB.filler)
        fits = (unknown | (z[:, None] == tokens)).all(-1)
        weight = fits * p * (1 - self.process.insert_schedule.kept(t)) ** gaps.sum(-1)
        weight = weight / weight.sum(-1, keepdim=True)  # (B, M)
        x = torch.einsum("bm,mlv->blv", weight, F.one_hot(tokens, VOCAB.size).double())
        return x, torch.einsum("bm,mgn->bgn", weight, F.one_hot(gaps, LONGEST + 1).double())

    def _said(self, x: Tensor, count: Tensor) -> Known:
        even = (torch.arange(x.shape[-1]) < WORDS) / WORDS
        x, count = (1 - self.blur) * x + self.blur * even, (1 - self.blur) * count + self.blur / count.shape[-1]
        expected = count @ torch.arange(count.shape[-1], dtype=count.dtype)
        return Known(x.log(), missing=Counted(count.log()) if self.counted else Expected(expected))

    def absorb(self, z: Tensor, context: Context) -> Context:
        raise ValueError("a text that grows everywhere has no finished part to keep")


def expected(oracle: Oracle, t: Tensor) -> Tensor:
    """(T,) times → (T,) the bound's integrand at each of them, averaged over the language and over z."""
    process, ways = oracle.process, Ways.of(oracle.toy, oracle.process)
    noised = ways.at(*t.tolist())
    nats = process.nelbo(oracle(noised.z, noised.t, Context(pad=noised.pad)), noised).double().sum(-1)
    p = torch.stack([ways.p(oracle.toy, process, time) for time in t.tolist()])
    return (p * torch.where(p > 0, nats.view_as(p), 0.0)).sum(-1)  # what cannot be missing has no finite price


def written(oracle: Oracle, sampler: Sampler, keys: Rng) -> Tensor:
    """(n,) the numbers of sampled sentences, each from an empty canvas with room for the longest."""
    blank = torch.full((len(keys.key), LONGEST), VOCAB.filler)
    everywhere, open = torch.ones_like(blank, dtype=torch.bool), torch.zeros(len(blank), LONGEST + 1, dtype=torch.bool)
    open[:, 0] = True
    canvas = Canvas(blank, ~everywhere, Context(pad=everywhere), open=open)
    return oracle.toy.numbers(last(sampler(oracle, oracle.process, canvas, rng=keys)))
