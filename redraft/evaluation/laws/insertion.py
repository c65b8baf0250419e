"""The laws of insertion, on a toy language whose sentences differ in length.

Sentences have zero to three of two words. Each token of a noisy sentence is missing, masked or clean. The best denoiser
sums over all sentences and all their alignments with z. Its bound must equal the entropy, length included, and samplers
must reproduce the joint distribution of lengths and words.
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
    P_MIN,
    Law,
    _distribution_error,
    _integrate,
    _law_at_least,
    _law_equal,
    chi_square,
)

_LONGEST = 3
_WORDS = 2
_SENTENCE_VOCAB = Vocab(_WORDS + 2, mask=_WORDS, pad=_WORDS + 1)
_CLEAN, _MASKED, _MISSING = range(3)


@dataclass(frozen=True)
class _InsertAtOnce(Schedule):
    """A schedule that inserts everything just below t = 1: mask noise on a text whose length is drawn first."""

    def keep(self, t: Tensor) -> Tensor:
        return (t < 1).to(t.dtype)

    def inverse(self, keep: Tensor) -> Tensor:
        return torch.ones_like(keep)


@dataclass(frozen=True)
class _SentenceLanguage:
    """A language of N sentences and their probabilities."""

    x: Tensor  # (N, longest) ids, padded
    p: Tensor  # (N,) float64 probability of each sentence

    @classmethod
    def of(cls, seed: int = 0, lengths: range = range(_LONGEST + 1)) -> _SentenceLanguage:
        """All sentences of these lengths, with random probabilities."""
        sentences = ((n, words) for n in lengths for words in product(range(_WORDS), repeat=n))
        rows = [[*words, *[_SENTENCE_VOCAB.filler] * (_LONGEST - n)] for n, words in sentences]
        weights = rng(seed).uniform(len(rows))[0] ** 2 + 0.05
        return cls(torch.tensor(rows), weights / weights.sum())

    @property
    def pad(self) -> Tensor:
        """(N, longest) bool: padding."""
        return self.x == _SENTENCE_VOCAB.filler

    @property
    def entropy(self) -> float:
        """Entropy in nats per sentence."""
        return float(-(self.p * self.p.log()).sum())

    def indices(self, canvas: Canvas) -> Tensor:
        """(B,) index of the sentence on each row of a canvas; N for a row that is not a sentence."""
        assert canvas.context.pad is not None
        z = canvas.z.masked_fill(canvas.context.pad, _SENTENCE_VOCAB.filler)
        equal = (z[:, None] == self.x).all(-1)
        return torch.where(equal.any(-1), equal.int().argmax(-1), len(self.x))


@dataclass(frozen=True)
class _NoisedSentences:
    """Every sentence with every combination of clean, masked and missing tokens: M noisy samples."""

    noised: NoisySample
    sentence: Tensor  # (M,) index of the sentence
    states: Tensor  # (M, longest) clean, masked or missing; padding counts as clean

    @classmethod
    def of(cls, toy: _SentenceLanguage, process: Insertion) -> _NoisedSentences:
        """All noisy samples of a language."""
        states = torch.tensor(list(product((_CLEAN, _MASKED, _MISSING), repeat=_LONGEST)))
        sentence = torch.arange(len(toy.p)).repeat_interleave(len(states))
        states = states.repeat(len(toy.p), 1)
        valid = ~((states != _CLEAN) & toy.pad[sentence]).any(-1)  # padding is always clean
        sentence, states = sentence[valid], states[valid]
        t, given = torch.zeros(len(sentence), 1), torch.zeros_like(states, dtype=torch.bool)
        x, pad = toy.x[sentence], toy.pad[sentence]
        noised = process.packed(x, t, states == _MISSING, states == _MASKED, given, pad)
        return cls(noised, sentence, states)

    def p(self, toy: _SentenceLanguage, process: Insertion, t: float) -> Tensor:
        """(M,) probability of each sentence with its states at time t."""
        word = process.marginal(t)[0]
        state_p = word[torch.tensor([0, _SENTENCE_VOCAB.masked, -1])][self.states]
        return toy.p[self.sentence] * torch.where(toy.pad[self.sentence], 1.0, state_p).prod(-1)

    def at(self, *times: float) -> NoisySample:
        """Return all samples at the first time, then all at the second, and so on."""
        repeated = {n: a.repeat(len(times), 1) for n, a in self.noised._asdict().items() if a is not None}
        t = torch.tensor(times, dtype=torch.float64).repeat_interleave(len(self.sentence))[:, None]
        return self.noised._replace(**{**repeated, "t": t})


@dataclass(frozen=True)
class _SentenceOracle:
    """The best denoiser: x̂ and gaps given z, by summing over all sentences x and all alignments of z with x.

    p(x, alignment | z) ∝ p(x)·(1 − a_t)^(missing tokens): it depends on the time, but not on which tokens are masked.
    `counted` predicts the distribution of each gap instead of its mean. `blur` mixes both with uniform distributions,
    for a denoiser that is worse.
    """

    toy: _SentenceLanguage
    process: Insertion
    counted: bool = False
    blur: float = 0.0
    block: int | None = None

    @cached_property
    def _alignments(self) -> tuple[Tensor, Tensor, Tensor]:
        """All alignments: (M, longest) tokens present, (M, longest + 1) missing per gap, (M,) probability of x."""
        samples = _NoisedSentences.of(self.toy, self.process)
        unmasked = (samples.states != _MASKED).all(-1)
        assert samples.noised.gaps is not None
        return samples.noised.z[unmasked], samples.noised.gaps[unmasked], self.toy.p[samples.sentence[unmasked]]

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        z = z if context.pad is None else z.masked_fill(context.pad, _SENTENCE_VOCAB.filler)
        z_index = (z * _SENTENCE_VOCAB.size ** torch.arange(_LONGEST - 1, -1, -1)).sum(-1)
        times, t_index = t.flatten().unique(return_inverse=True)
        # all possible z, in numerical order
        all_z = torch.cartesian_prod(*[torch.arange(_SENTENCE_VOCAB.size)] * _LONGEST)
        tables = zip(*(self._posterior(all_z, time) for time in times), strict=True)
        return self._prediction(*(torch.stack(table)[t_index, z_index] for table in tables))

    def _posterior(self, z: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """(B, longest, V) probabilities of words, (B, longest + 1, longest + 1) of gap counts; nan for impossible z."""
        tokens, gaps, p = self._alignments
        masked = (z == _SENTENCE_VOCAB.masked)[:, None] & (tokens != _SENTENCE_VOCAB.filler)
        fits = (masked | (z[:, None] == tokens)).all(-1)
        weight = fits * p * (1 - self.process.insert_schedule.kept(t)) ** gaps.sum(-1)
        weight = weight / weight.sum(-1, keepdim=True)  # (B, M)
        x = torch.einsum("bm,mlv->blv", weight, F.one_hot(tokens, _SENTENCE_VOCAB.size).double())
        return x, torch.einsum("bm,mgn->bgn", weight, F.one_hot(gaps, _LONGEST + 1).double())

    def _prediction(self, x: Tensor, count: Tensor) -> TablePrediction:
        """Return the blurred prediction."""
        uniform = (torch.arange(x.shape[-1]) < _WORDS) / _WORDS
        x, count = (1 - self.blur) * x + self.blur * uniform, (1 - self.blur) * count + self.blur / count.shape[-1]
        expected = count @ torch.arange(count.shape[-1], dtype=count.dtype)
        missing = CategoricalGaps(count.log()) if self.counted else PoissonGaps.of(expected)
        return TablePrediction(x.log(), missing=missing)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        raise ValueError("insertion has no finished part of the text to cache; sample without blocks")


def _sentence_integrand(oracle: _SentenceOracle, t: Tensor) -> Tensor:
    """(T,) times → (T,) integrand of the bound at each time, averaged over the language and over z."""
    process, samples = oracle.process, _NoisedSentences.of(oracle.toy, oracle.process)
    noised = samples.at(*t.tolist())
    nats = process.nelbo(oracle.predict(noised.z, noised.t, Context(pad=noised.pad)), noised).double().sum(-1)
    p = torch.stack([samples.p(oracle.toy, process, time) for time in t.tolist()])
    return (p * torch.where(p > 0, nats.view_as(p), 0.0)).sum(-1)  # impossible samples have infinite nats


def _sampled_sentences(oracle: _SentenceOracle, sampler: Sampler, keys: Rng) -> Tensor:
    """(n,) index of each sampled sentence, from empty canvases with room for the longest sentence."""
    blank = torch.full((len(keys.key), _LONGEST), _SENTENCE_VOCAB.filler)
    everywhere, gaps = torch.ones_like(blank, dtype=torch.bool), torch.zeros(len(blank), _LONGEST + 1, dtype=torch.bool)
    gaps[:, 0] = True
    canvas = Canvas(blank, ~everywhere, Context(pad=everywhere), open=gaps)
    return oracle.toy.indices(final_canvas(sampler(oracle, oracle.process, canvas, rng=keys)))


def _laws(process: Insertion) -> Iterator[Law]:
    """Check all laws of insertion on one process."""
    toy = _SentenceLanguage.of()
    yield from _forward_laws(process)
    yield from _bound_laws(process, _SentenceOracle(toy, process))
    samplers: dict[str, tuple[Sampler, bool]] = {
        "tau-leaping reproduces lengths and words": (Ancestral(steps=64), False),
        "tau-leaping by counts reproduces lengths and words": (Ancestral(steps=64), True),
        "lowest entropy first reproduces lengths and words": (Unmask(64, Entropy(temperature=1.0)), False),
    }
    for law, (sampler, counted) in samplers.items():
        oracle = _SentenceOracle(toy, process, counted)
        yield _law_at_least(process, law, _sentence_p_value(oracle, sampler), P_MIN)
    yield from _masked_limit_laws(process, toy)


def _forward_laws(process: Insertion) -> Iterator[Law]:
    """Check that tokens are missing, masked or clean as often as the tables say, and that gaps count missing tokens."""
    times, word = (0.15, 0.5, 0.9), torch.zeros(1, _DRAWS, dtype=torch.int64)
    tables = [process.marginal(t) for t in times] + [process.transition(0.15, 0.5), process.transition(0.5, 0.9)]
    yield _law_equal(process, "tables are distributions", max(_distribution_error(table) for table in tables), 0, 1e-9)
    composed = process.marginal(0.15)[:_WORDS] @ process.transition(0.15, 0.5)
    error = float((composed - process.marginal(0.5)[:_WORDS]).abs().max())
    yield _law_equal(process, "marginals compose", error, 0, 1e-9)
    draws = [process.noise(word, torch.full((1, 1), t), rng=rng(2)) for t in (0.0, *times, 1.0)]
    clean, *between, noise = [_present_then_missing(process, noised) for noised in draws]
    yield _law_equal(process, "time zero is clean", float((clean == 0).sum()), _DRAWS, 0)
    yield _law_equal(process, "the prior is reached", float((noise == process.vocab.size).sum()), _DRAWS, 0)
    worst = min(chi_square(z, process.marginal(t)[0]) for z, t in zip(between, times, strict=True))
    yield _law_at_least(process, "draws match marginals", worst, P_MIN)


def _present_then_missing(process: Insertion, noised: NoisySample) -> Tensor:
    """(n,) ids of the tokens still in z, then one V for each missing token; the order is not kept."""
    assert noised.pad is not None
    assert noised.gaps is not None
    return torch.cat([noised.z[~noised.pad], torch.full((int(noised.gaps.sum()),), process.vocab.size)])


def _bound_laws(process: Insertion, oracle: _SentenceOracle) -> Iterator[Law]:
    """Check the bound of the best denoiser and of a worse one."""
    H, worse = oracle.toy.entropy, replace(oracle, blur=0.3)
    exact = _integrate(lambda t: _sentence_integrand(oracle, t))
    yield _law_equal(process, "bound = entropy, length included", exact, H, 1e-3)
    looser = _integrate(lambda t: _sentence_integrand(worse, t))
    yield _law_at_least(process, "bound rises for a worse denoiser", float(looser), H + 0.01)


def _masked_limit_laws(process: Insertion, toy: _SentenceLanguage) -> Iterator[Law]:
    """Check that inserting all tokens at once equals mask noise on a text whose length is drawn first."""
    process = replace(process, insert_schedule=_InsertAtOnce())
    samples, oracle = _NoisedSentences.of(toy, process), _SentenceOracle(toy, process, counted=True, blur=0.3)
    complete, masked = (samples.states != _MISSING).all(-1), Masked(process.vocab, process.unmask_schedule)
    worst = 0.0
    for t in (0.2, 0.7):
        noised = NoisySample(*(a[complete] for a in samples.at(t) if a is not None))
        pred = oracle.predict(noised.z, noised.t, Context(pad=noised.pad))
        difference = process.nelbo(pred, noised).sum(-1) - masked.nelbo(pred, noised).sum(-1)
        worst = max(worst, float(difference.abs().max()))
    yield _law_equal(process, "inserted at once: bound of mask noise", worst, 0, 1e-6)
    p = _sentence_p_value(replace(oracle, blur=0.0), Ancestral(steps=64))
    yield _law_at_least(process, "inserted at once: sampling reproduces the joint", p, P_MIN)


def _sentence_p_value(oracle: _SentenceOracle, sampler: Sampler) -> float:
    """Return the p-value of sampled sentences; rows that are not sentences have probability zero."""
    p = torch.cat([oracle.toy.p, torch.zeros(1, dtype=torch.float64)])
    return chi_square(_sampled_sentences(oracle, sampler, rng(7, _DRAWS)), p)


def _built_in() -> list[Insertion]:
    # with this schedule the last step, which inserts nothing, is small enough
    return [Insertion(_SENTENCE_VOCAB, Polynomial(2.0), Polynomial(2.0))]
