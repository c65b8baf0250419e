"""The laws of insertion, on a toy language whose sentences differ in length.

It has two words, and sentences of zero to three of them. Each token of a sentence is missing, masked or clean; the best
denoiser sums over all sentences and all alignments of z with them. Its bound must equal the entropy, length included,
and samplers must reproduce the joint distribution over lengths and words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core.batch import NoisySample
from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Prediction, TablePrediction
from redraft.core.processes.insertion import CategoricalGaps, Insertion, PoissonGaps
from redraft.core.processes.masked import Masked
from redraft.core.randomness import Rng, rng
from redraft.core.schedules.base import Schedule
from redraft.core.schedules.tokens import Polynomial
from redraft.core.vocab import Vocab
from redraft.decoding.picks.order import Entropy
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.base import Sampler, final_canvas
from redraft.decoding.samplers.unmask import Unmask
from redraft.evaluation.laws.enumeration import _DRAWS
from redraft.evaluation.laws.law import (
    _P_MIN,
    Law,
    _chi_square,
    _distribution_error,
    _law_at_least,
    _law_equal,
    integral,
)

_LONGEST = 3
_WORDS = 2
SENTENCE_VOCAB = Vocab(_WORDS + 2, mask=_WORDS, pad=_WORDS + 1)
_CLEAN, _MASKED, _MISSING = range(3)


@dataclass(frozen=True)
class InsertAtOnce(Schedule):
    """Everything is inserted at once, just below t = 1: insertion is then mask noise on a text of known length."""

    def keep(self, t: Tensor) -> Tensor:
        return (t < 1).to(t.dtype)

    def inverse(self, keep: Tensor) -> Tensor:
        return torch.ones_like(keep)


@dataclass(frozen=True)
class SentenceLanguage:
    """All sentences and their probabilities; N rows of LONGEST columns, padded."""

    x: Tensor  # (N, LONGEST)
    p: Tensor  # (N,) float64

    @classmethod
    def of(cls, seed: int = 0, lengths: range = range(_LONGEST + 1)) -> SentenceLanguage:
        every = ((n, words) for n in lengths for words in product(range(_WORDS), repeat=n))
        rows = [[*words, *[SENTENCE_VOCAB.filler] * (_LONGEST - n)] for n, words in every]
        weights = rng(seed).uniform(len(rows))[0] ** 2 + 0.05
        return cls(torch.tensor(rows), weights / weights.sum())

    @property
    def pad(self) -> Tensor:
        return self.x == SENTENCE_VOCAB.filler

    @property
    def entropy(self) -> float:
        return float(-(self.p * self.p.log()).sum())

    def numbers(self, canvas: Canvas) -> Tensor:
        """(B,) the numbers of the sentences on a canvas; N for a row that is not a sentence."""
        assert canvas.context.pad is not None
        z = canvas.z.masked_fill(canvas.context.pad, SENTENCE_VOCAB.filler)
        same = (z[:, None] == self.x).all(-1)
        return torch.where(same.any(-1), same.int().argmax(-1), len(self.x))


@dataclass(frozen=True)
class NoisedSentences:
    """Every sentence with every choice of clean, masked and missing tokens: each possible z and its origin."""

    noised: NoisySample
    sentence: Tensor  # (M,) index
    states: Tensor  # (M, LONGEST); padding counts as clean

    @classmethod
    def of(cls, toy: SentenceLanguage, process: Insertion) -> NoisedSentences:
        states = torch.tensor(list(product((_CLEAN, _MASKED, _MISSING), repeat=_LONGEST)))
        each = torch.arange(len(toy.p)).repeat_interleave(len(states))
        states = states.repeat(len(toy.p), 1)
        real = ~((states != _CLEAN) & toy.pad[each]).any(-1)  # padding has no states to choose from
        each, states = each[real], states[real]
        never, given = torch.zeros(len(each), 1), torch.zeros_like(states, dtype=torch.bool)
        noised = process.packed(toy.x[each], never, states == _MISSING, states == _MASKED, given, toy.pad[each])
        return cls(noised, each, states)

    def p(self, toy: SentenceLanguage, process: Insertion, t: float) -> Tensor:
        """(M,) the probability of sentence and states at time t."""
        word = process.marginal(t)[0]
        chance = word[torch.tensor([0, SENTENCE_VOCAB.masked, -1])][self.states]
        return toy.p[self.sentence] * torch.where(toy.pad[self.sentence], 1.0, chance).prod(-1)

    def at(self, *times: float) -> NoisySample:
        """All of them at each of the times, one after the other."""
        again = {n: a.repeat(len(times), 1) for n, a in self.noised._asdict().items() if a is not None}
        t = torch.tensor(times, dtype=torch.float64).repeat_interleave(len(self.sentence))[:, None]
        return self.noised._replace(**{**again, "t": t})


@dataclass(frozen=True)
class SentenceOracle:
    """The best denoiser: x̂ and gaps given z, summed over all sentences x and all alignments of z with x.

    p(x, way | z) ∝ p(x)·(1 − a_t)^(tokens missing): it depends on the time, but not on which tokens are masked.
    `counted` gives the distribution of each gap instead of its mean. With `blur` a part of both is even, for contrast.
    """

    toy: SentenceLanguage
    process: Insertion
    counted: bool = False
    blur: float = 0.0
    block: int | None = None

    @cached_property
    def _ways(self) -> tuple[Tensor, Tensor, Tensor]:
        """Sentences with tokens missing, none masked: (M, LONGEST) tokens, (M, LONGEST + 1) gaps, (M,) probability."""
        ways = NoisedSentences.of(self.toy, self.process)
        plain = (ways.states != _MASKED).all(-1)
        assert ways.noised.gaps is not None
        return ways.noised.z[plain], ways.noised.gaps[plain], self.toy.p[ways.sentence[plain]]

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        z = z if context.pad is None else z.masked_fill(context.pad, SENTENCE_VOCAB.filler)
        number = (z * SENTENCE_VOCAB.size ** torch.arange(_LONGEST - 1, -1, -1)).sum(-1)
        moments, which = t.flatten().unique(return_inverse=True)
        # all possible z, in numerical order
        every = torch.cartesian_prod(*[torch.arange(SENTENCE_VOCAB.size)] * _LONGEST)
        tables = zip(*(self._posterior(every, moment) for moment in moments), strict=True)
        return self._said(*(torch.stack(table)[which, number] for table in tables))

    def _posterior(self, z: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """(B, LONGEST, V) probabilities of words, (B, LONGEST + 1, LONGEST + 1) of counts; nan if no sentence fits."""
        tokens, gaps, p = self._ways
        unknown = (z == SENTENCE_VOCAB.masked)[:, None] & (tokens != SENTENCE_VOCAB.filler)
        fits = (unknown | (z[:, None] == tokens)).all(-1)
        weight = fits * p * (1 - self.process.insert_schedule.kept(t)) ** gaps.sum(-1)
        weight = weight / weight.sum(-1, keepdim=True)  # (B, M)
        x = torch.einsum("bm,mlv->blv", weight, F.one_hot(tokens, SENTENCE_VOCAB.size).double())
        return x, torch.einsum("bm,mgn->bgn", weight, F.one_hot(gaps, _LONGEST + 1).double())

    def _said(self, x: Tensor, count: Tensor) -> TablePrediction:
        even = (torch.arange(x.shape[-1]) < _WORDS) / _WORDS
        x, count = (1 - self.blur) * x + self.blur * even, (1 - self.blur) * count + self.blur / count.shape[-1]
        expected = count @ torch.arange(count.shape[-1], dtype=count.dtype)
        return TablePrediction(
            x.log(), missing=CategoricalGaps(count.log()) if self.counted else PoissonGaps.of(expected)
        )

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        raise ValueError("a text that grows everywhere has no finished part to keep")


def sentence_integrand(oracle: SentenceOracle, t: Tensor) -> Tensor:
    """(T,) times → (T,) the bound's integrand at each of them, averaged over the language and over z."""
    process, ways = oracle.process, NoisedSentences.of(oracle.toy, oracle.process)
    noised = ways.at(*t.tolist())
    nats = process.nelbo(oracle(noised.z, noised.t, Context(pad=noised.pad)), noised).double().sum(-1)
    p = torch.stack([ways.p(oracle.toy, process, time) for time in t.tolist()])
    return (p * torch.where(p > 0, nats.view_as(p), 0.0)).sum(-1)  # impossible states have infinite cost


def written_sentences(oracle: SentenceOracle, sampler: Sampler, keys: Rng) -> Tensor:
    """(n,) the numbers of sampled sentences, each from an empty canvas with room for the longest."""
    blank = torch.full((len(keys.key), _LONGEST), SENTENCE_VOCAB.filler)
    everywhere, gaps = torch.ones_like(blank, dtype=torch.bool), torch.zeros(len(blank), _LONGEST + 1, dtype=torch.bool)
    gaps[:, 0] = True
    canvas = Canvas(blank, ~everywhere, Context(pad=everywhere), open=gaps)
    return oracle.toy.numbers(final_canvas(sampler(oracle, oracle.process, canvas, rng=keys)))


def _laws(process: Insertion) -> Iterator[Law]:
    """All laws of insertion on one process."""
    toy = SentenceLanguage.of()
    yield from _lost_and_found(process)
    yield from _growing_bound(process, SentenceOracle(toy, process))
    samplers: dict[str, tuple[Sampler, bool]] = {
        "tau-leaping reproduces lengths and words": (Ancestral(steps=64), False),
        "tau-leaping by counts reproduces them": (Ancestral(steps=64), True),
        "so does revealing the surest first": (Unmask(64, Entropy(temperature=1.0)), False),
    }
    for law, (sampler, counted) in samplers.items():
        oracle = SentenceOracle(toy, process, counted)
        yield _law_at_least(process, law, _sentence_p(oracle, sampler), _P_MIN)
    yield from _all_at_once(process, toy)


def _lost_and_found(process: Insertion) -> Iterator[Law]:
    """Tokens are missing, masked and clean as often as the tables say, and the gaps count the missing ones."""
    times, word = (0.15, 0.5, 0.9), torch.zeros(1, _DRAWS, dtype=torch.int64)
    tables = [process.marginal(t) for t in times] + [process.transition(0.15, 0.5), process.transition(0.5, 0.9)]
    yield _law_equal(process, "tables are distributions", max(_distribution_error(table) for table in tables), 0, 1e-9)
    composed = process.marginal(0.15)[:_WORDS] @ process.transition(0.15, 0.5)
    gap = float((composed - process.marginal(0.5)[:_WORDS]).abs().max())
    yield _law_equal(process, "marginals compose", gap, 0, 1e-9)
    draws = [process.noise(word, torch.full((1, 1), t), rng=rng(2)) for t in (0.0, *times, 1.0)]
    clean, *between, noise = [_states(process, drawn) for drawn in draws]
    yield _law_equal(process, "time zero is clean", float((clean == 0).sum()), _DRAWS, 0)
    yield _law_equal(process, "the prior is reached", float((noise == process.vocab.size).sum()), _DRAWS, 0)
    worst = min(_chi_square(z, process.marginal(t)[0]) for z, t in zip(between, times, strict=True))
    yield _law_at_least(process, "draws match marginals", worst, _P_MIN)


def _states(process: Insertion, noised: NoisySample) -> Tensor:
    """(n,) the state of each token of a row: its id in z, or V if missing, as the gaps count."""
    assert noised.pad is not None
    assert noised.gaps is not None
    return torch.cat([noised.z[~noised.pad], torch.full((int(noised.gaps.sum()),), process.vocab.size)])


def _growing_bound(process: Insertion, oracle: SentenceOracle) -> Iterator[Law]:
    H, worse = oracle.toy.entropy, replace(oracle, blur=0.3)
    exact = integral(lambda t: sentence_integrand(oracle, t))
    yield _law_equal(process, "bound = entropy, length included", exact, H, 1e-3)
    more = integral(lambda t: sentence_integrand(worse, t))
    yield _law_at_least(process, "bound rises for a worse denoiser", float(more), H + 0.01)


def _all_at_once(process: Insertion, toy: SentenceLanguage) -> Iterator[Law]:
    """Insertion of all tokens at one moment equals mask noise on a text whose length is drawn first."""
    process = replace(process, insert_schedule=InsertAtOnce())
    ways, oracle = NoisedSentences.of(toy, process), SentenceOracle(toy, process, counted=True, blur=0.3)
    there, masked = (ways.states != _MISSING).all(-1), Masked(process.vocab, process.unmask_schedule)
    worst = 0.0
    for t in (0.2, 0.7):
        noised = NoisySample(*(a[there] for a in ways.at(t) if a is not None))
        pred = oracle(noised.z, noised.t, Context(pad=noised.pad))
        gap = process.nelbo(pred, noised).sum(-1) - masked.nelbo(pred, noised).sum(-1)
        worst = max(worst, float(gap.abs().max()))
    yield _law_equal(process, "all at once: the bound of mask noise", worst, 0, 1e-6)
    p = _sentence_p(replace(oracle, blur=0.0), Ancestral(steps=64))
    yield _law_at_least(process, "all at once: sampling reproduces the joint", p, _P_MIN)


def _sentence_p(oracle: SentenceOracle, sampler: Sampler) -> float:
    """The p-value of sampled sentences; anything else has probability zero."""
    p = torch.cat([oracle.toy.p, torch.zeros(1, dtype=torch.float64)])
    return _chi_square(written_sentences(oracle, sampler, rng(7, _DRAWS)), p)


def _built_in() -> list[Insertion]:
    # equal steps of this schedule are small at the end, where the last step inserts nothing
    return [Insertion(SENTENCE_VOCAB, Polynomial(2.0), Polynomial(2.0))]
