"""Guidance of tokens by classifiers: p(x | y) itself on a toy, its first order, and how guidance composes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from redraft.core import Canvas, Context, Denoiser, Masked, TablePrediction, rng
from redraft.decoding import (
    AnyOrder,
    FirstHitting,
    FirstOrderClassifier,
    Guidance,
    GuidedSampler,
    LeftToRight,
    LogitFilter,
    Sampler,
    TokenClassifier,
    Unmask,
    final_canvas,
)
from redraft.evaluation import VOCAB, Oracle
from redraft.evaluation.laws.enumeration import _WORDS, ToyLanguage

PValue = Callable[[Tensor, Tensor], float]
PROCESS, TOY = Masked(VOCAB), ToyLanguage.of()
DRAWS = 3_000
SUM = TOY.sequences.sum(-1) % 2 == 1  # what the classifier is about: an odd sum


@dataclass(frozen=True)
class Odd:
    """The exact classifier: p(the sum is odd | what is visible), of one-hot tokens."""

    def __call__(self, x: Tensor, t: Tensor, context: Context) -> Tensor:
        z = x.argmax(-1)
        fits = ((z[:, None] == TOY.sequences) | (z[:, None] == VOCAB.masked)).all(-1)  # (B, N)
        return ((fits * (TOY.p * SUM)).sum(-1) / (fits * TOY.p).sum(-1)).log()


def blank(rows: int) -> Canvas:
    z = torch.zeros(rows, TOY.sequences.shape[1], dtype=torch.int64)
    return Canvas(z, torch.zeros_like(z, dtype=torch.bool))


def counts(sampler: Sampler, guidance: Guidance) -> Tensor:
    """How often each sequence was written."""
    written = final_canvas(
        GuidedSampler(sampler, guidance)(Oracle(TOY, PROCESS), PROCESS, blank(DRAWS), rng=rng(3, DRAWS))
    ).z
    place = _WORDS ** torch.arange(written.shape[1] - 1, -1, -1)
    return (written * place).sum(-1).bincount(minlength=len(TOY.p))


@pytest.mark.parametrize(
    "sampler", [FirstHitting(), Unmask(None, AnyOrder()), Unmask(None, LeftToRight(1.0))], ids=repr
)
def test_the_exact_classifier_gives_the_exact_conditional(sampler: Sampler, p_value: PValue) -> None:
    found = counts(sampler, TokenClassifier(Odd()))
    assert int(found[~SUM].sum()) == 0, "what is impossible given y is never written"
    p = TOY.p[SUM] / TOY.p[SUM].sum()
    common = p * DRAWS >= 5
    observed = torch.cat([found[SUM][common], found[SUM][~common].sum()[None]])
    expected = torch.cat([p[common], p[~common].sum()[None]]) * DRAWS
    kept = expected >= 5
    assert p_value(observed[kept], expected[kept] * observed[kept].sum() / expected[kept].sum()) > 1e-4


def test_unlikely_tokens_are_not_tried() -> None:
    """least=1: only the likeliest, about which the classifier is not asked; nearly 0: as all; top=2: two."""
    where, z, asked = torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2, dtype=torch.int64), []
    said = TablePrediction(torch.tensor([[[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]]).log())

    def likes_the_second(x: Tensor, t: Tensor, context: Context) -> Tensor:
        asked.append(len(x))
        return x[..., 1].sum(-1)

    def weighed(least: float, top: int | None = None) -> Tensor:
        asked.clear()
        classifier = TokenClassifier(likes_the_second, least=least, top=top)
        return classifier(Says(said)).predict(z, torch.ones(1, 1), Context()).at(where)

    every = weighed(0.0)
    assert asked == [6]
    torch.testing.assert_close(weighed(1e-6), every)
    assert weighed(0.2).exp().count_nonzero(-1).tolist() == [2, 1]
    assert asked == [2]
    assert weighed(1.0).exp().tolist() == [[1, 0, 0], [0, 0, 1]]
    assert asked == []
    assert weighed(0.0, top=2).exp().count_nonzero(-1).tolist() == [2, 2]
    assert asked == [4]


@dataclass(frozen=True)
class Says:
    pred: TablePrediction
    block: int | None = None

    def predict(self, z: Tensor, t: Tensor, context: Context) -> TablePrediction:
        return self.pred

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return context


def test_more_scale_is_more_of_it() -> None:
    """γ = 0 is the denoiser itself; in between the odd ones grow."""
    oracle = Oracle(TOY, PROCESS)
    assert TokenClassifier(Odd(), 0.0)(oracle) is oracle
    assert FirstOrderClassifier(Odd(), 0.0)(oracle) is oracle

    @dataclass(frozen=True)
    class Soft:
        def __call__(self, x: Tensor, t: Tensor, context: Context) -> Tensor:
            return 0.5 * x[..., 1].sum(-1)

    ones = [
        (counts(FirstHitting(), TokenClassifier(Soft(), s)) @ (TOY.sequences == 1).sum(-1)) for s in (0.0, 1.0, 4.0)
    ]
    assert int(ones[0]) < int(ones[1]) < int(ones[2])


@dataclass(frozen=True)
class Linear:
    """log p(y | z) linear in the one-hot tokens."""

    weights: Tensor  # (L, V)

    def __call__(self, x: Tensor, t: Tensor, context: Context) -> Tensor:
        return (x * self.weights).sum((-1, -2))


def test_the_first_order_is_exact_for_what_is_linear() -> None:
    g = torch.Generator().manual_seed(0)
    length = TOY.sequences.shape[1]
    judge, oracle = Linear(torch.randn(length, VOCAB.size, generator=g)), Oracle(TOY, PROCESS)
    z = torch.where(torch.rand(TOY.sequences.shape, generator=g) < 0.5, VOCAB.masked, TOY.sequences)
    where = z == VOCAB.masked
    exact, first = (
        kind(judge, 1.5)(oracle).predict(z, where.double(), Context()).at(where)
        for kind in (TokenClassifier, FirstOrderClassifier)
    )
    assert torch.allclose(exact, first, atol=1e-5)
    assert not torch.allclose(exact, oracle.predict(z, where.double(), Context()).at(where).to(exact.dtype), atol=0.1)


def test_the_classifier_is_asked_as_if_alone() -> None:
    """Chunks of trials change nothing."""
    from redraft.decoding.guidance import token_classifier

    z = torch.full((5, TOY.sequences.shape[1]), VOCAB.masked)
    where, oracle = z == VOCAB.masked, Oracle(TOY, PROCESS)
    asked = TokenClassifier(Odd())(oracle)
    whole = asked.predict(z, where.double(), Context()).at(where)
    before = token_classifier._MAX_ELEMENTS
    try:
        token_classifier._MAX_ELEMENTS = 40
        assert torch.equal(asked.predict(z, where.double(), Context()).at(where), whole)
    finally:
        token_classifier._MAX_ELEMENTS = before


def test_guidance_first_then_filters() -> None:
    """Filter(TokenClassifier(model)): the filter sees what the classifier left."""
    oracle: Denoiser = Oracle(TOY, PROCESS)
    z = torch.full((1, TOY.sequences.shape[1]), VOCAB.masked)
    where = z == VOCAB.masked
    steered = TokenClassifier(Linear(torch.eye(z.shape[1], VOCAB.size) * 9))(oracle)
    left = LogitFilter(top_k=1)(steered).predict(z, where.double(), Context()).at(where)
    assert torch.equal(left.argmax(-1), steered.predict(z, where.double(), Context()).at(where).argmax(-1))
    assert torch.equal((left > -torch.inf).sum(-1), torch.ones(len(left), dtype=torch.int64))
