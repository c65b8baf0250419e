"""Rules on vectors: the program's gradient against differences and enumeration; every finished text obeys."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from redraft import (
    Ancestral,
    Blocks,
    Canvas,
    Constrained,
    Context,
    DiffusionLM,
    DiffusionLMConfig,
    Gaussian,
    Regex,
    TransformerConfig,
    constrain,
    rng,
)
from redraft.core import VectorPrediction
from redraft.decoding import Ddim, DpmPP, GuidedSampler, Renoise, Required, final_canvas
from redraft.decoding.constraints.constrained import _guide_vectors
from redraft.decoding.constraints.placement import _PlacedRuleSet
from redraft.models import (
    AttentionPattern,
    BlockCausal,
    CodecConfig,
    Compressed,
    Contextual,
    Embedding,
    Full,
    MaskedLM,
    PredictTokens,
    PredictX,
    Simplex,
    Smooth,
    TransformerSize,
    VectorHead,
)
from tests.decoding.constraints.test_outputs import WORDS
from tests.decoding.constraints.toys import LETTERS, VOCAB, blank, law, said

TABLE = torch.randn(VOCAB.size, 3, generator=torch.Generator().manual_seed(0))
PATTERN, LENGTH = "a+b?|b(ab)*", 4
PRIOR = said(LENGTH, seed=5)
PROCESS = Gaussian(VOCAB)


def told(z: Tensor, t: Tensor) -> Tensor:
    """(B, L, V) log p(w | z) of independent tokens, exactly: the prior times N(z; a·e_w, s²)."""
    a, s = PROCESS.path.scales(t[:, :1, None].double())
    far = (z[..., None, :] - a[..., None] * TABLE).square().sum(-1)
    return (PRIOR.clamp(min=-60) - far / (2 * s**2)).log_softmax(-1)


@dataclass(frozen=True)
class Exact:
    """The denoiser of independent tokens; without `names` it says x̂ alone."""

    names: bool = True
    block: int | None = None

    def predict(self, z: Tensor, t: Tensor, context: Context) -> VectorPrediction:
        log_p = told(z.double(), t)
        return VectorPrediction(log_p.exp() @ TABLE.double(), log_p if self.names else None, table=TABLE.double())

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return context


def canvas_of(rows: int, pattern: str = PATTERN, given: dict[int, int] | None = None) -> Canvas:
    """A canvas of vectors; tokens are read from how near they are."""
    tokens = constrain(blank(LENGTH, rows, given), Regex(pattern), LETTERS)
    marks = tokens.context.constraints.rules
    assert marks is not None
    read = marks.reading(lambda x: -(x[..., None, :] - TABLE.to(x)).square().sum(-1) / 2)
    return replace(tokens.with_constraints(rules=read), z=TABLE[tokens.z])


def marked(canvas: Canvas) -> _PlacedRuleSet:
    assert isinstance(canvas.context.constraints.rules, _PlacedRuleSet)
    return canvas.context.constraints.rules


def log_chance(log_p: Tensor) -> Tensor:
    """() log-probability that tokens drawn from (L, V), each by itself, match; by enumeration."""
    texts = torch.tensor(list(law(PRIOR, PATTERN)))
    return log_p[torch.arange(LENGTH), texts].sum(-1).logsumexp(0)


def test_the_slope_is_that_of_the_chance_to_obey() -> None:
    """x̂ moves by γ·∂log Z/∂x̂, here against the differentiated enumeration."""
    canvas = canvas_of(1)
    x = torch.randn(1, LENGTH, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    (slope,) = torch.autograd.grad(log_chance(marked(canvas).log_p(x)[0].double()), x)
    found = _guide_vectors(VectorPrediction(x.detach()), marked(canvas), 0.7)
    assert torch.allclose(found.mean, x.detach() + 0.7 * slope, atol=1e-5)


def test_named_tokens_become_their_marginals() -> None:
    pred = Exact().predict(torch.zeros(1, LENGTH, 3), torch.full((1, 1), 0.5), Context())
    assert pred.log_weights is not None
    found = _guide_vectors(pred, marked(canvas_of(1)), 1.0)
    table = torch.zeros(LENGTH, VOCAB.size, dtype=torch.float64)
    for ids, p in law(pred.log_weights[0], PATTERN).items():
        table[torch.arange(LENGTH), torch.tensor(ids)] += p
    assert torch.allclose(found.mean[0], table @ TABLE.double(), atol=1e-5)
    assert found.log_weights is not None
    assert torch.allclose(found.log_weights[0].exp(), table, atol=1e-5)
    assert _guide_vectors(pred, marked(canvas_of(1)), 0.0).mean.allclose(pred.mean)
    on_simplex = _guide_vectors(
        replace(pred, table=None, mean=2 * pred.log_weights.exp() - 1), marked(canvas_of(1)), 1.0
    )
    assert torch.allclose(on_simplex.mean[0], 2 * table - 1, atol=1e-5)


def test_the_mean_given_the_rule_is_bayes() -> None:
    """E[x | z, obeys] = x̂ + (s²/a)·∂log P(obeys | z)/∂z, by autodiff through the exact posterior."""
    t = torch.full((1, 1), 0.4)
    z = torch.randn(1, LENGTH, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    (slope,) = torch.autograd.grad(log_chance(told(z, t)[0]), z)
    a, s = PROCESS.path.scales(t)
    pred = Exact().predict(z.detach(), t, Context())
    found = Constrained(PROCESS)(Exact()).predict(z.detach(), t, canvas_of(1).context)
    assert torch.allclose(found.x, pred.mean + s**2 / a * slope, atol=1e-4)


def test_given_places_do_not_move() -> None:
    canvas = canvas_of(1, "(ab)*", given={1: 1})
    x = torch.randn(1, LENGTH, 3, generator=torch.Generator().manual_seed(2))
    found = _guide_vectors(VectorPrediction(x), marked(canvas), 1.0).mean
    assert torch.equal(found[:, 1], x[:, 1])
    assert not torch.allclose(found[:, 2], x[:, 2])


@pytest.mark.parametrize("names", [True, False])
def test_guidance_makes_vectors_obey_before_they_are_decoded(names: bool) -> None:
    """Read freely, guided vectors obey far more often than unguided ones; read by the rule, all do."""
    canvas, rows = canvas_of(64, "(aab|bba)a"), 64
    free, kept = [], []
    for scale in (0.0, 1.0):
        guided = GuidedSampler(Ancestral(16), Constrained(PROCESS, scale))
        done = final_canvas(guided(Exact(names), PROCESS, canvas, rng=rng(1, rows)))
        free.append(sum(map(obeys, marked(canvas).log_p(done.z).argmax(-1).tolist())))
        kept.append(sum(map(obeys, marked(canvas).likeliest(done.z).tolist())))
    assert kept == [rows, rows]
    assert free[0] < rows / 4
    assert free[1] > rows / 2


def obeys(ids: list[int]) -> bool:
    return ids in ([0, 0, 1, 0], [1, 1, 0, 0])


SIZE = TransformerSize(16, 1, 2)
ENCODER = MaskedLM(12, SIZE)


def model_of(codec: CodecConfig, head: VectorHead = PredictX(), pattern: AttentionPattern = Full()) -> DiffusionLM:
    network = TransformerConfig(width=16, layers=1, heads=2, hidden=32, rotary=100.0, pattern=pattern, time=16)
    torch.manual_seed(0)
    config = DiffusionLMConfig(Gaussian(WORDS.vocab), network, head, codec=codec)
    return DiffusionLM(config, WORDS).eval()


RULE = Regex("[a-z ]*cat[a-z ]*") & Required("mat")


@pytest.mark.parametrize(
    ("codec", "head", "pattern", "sampler"),
    [
        (Embedding(8), PredictX(), Full(), Ancestral(4)),
        (Embedding(8), PredictX(), Full(), DpmPP(4)),
        (Embedding(8), PredictTokens(), Full(), Ddim(4)),
        (Simplex(), PredictTokens(), Full(), Renoise(4)),
        (Simplex(), PredictTokens(), BlockCausal(4), Blocks(Renoise(3), stop=True)),
        (Contextual(ENCODER, 12, SIZE), PredictX(), Full(), Ancestral(3)),
        (Smooth(ENCODER, 11, 4, 8, SIZE, SIZE), PredictX(), Full(), Ancestral(3)),
    ],
    ids=str,
)
def test_every_text_obeys(codec: CodecConfig, head: VectorHead, pattern: AttentionPattern, sampler: Any) -> None:
    model = model_of(codec, head, pattern)
    prompt = "" if isinstance(codec, Smooth) else "the"
    canvas = model.to_vectors(constrain(model.to_tokens(model.canvas(prompt, new=9, rows=6)), RULE, WORDS))
    done = final_canvas(GuidedSampler(sampler, Constrained(model.process))(model, model.process, canvas, rng=rng(0, 6)))
    for text in model.text(done):
        assert text.startswith(prompt)
        assert re.fullmatch("[a-z ]*cat[a-z ]*", text)
        assert "mat" in text.split()


def test_given_tokens_come_back_as_they_are() -> None:
    """Also if the codec, here untrained, would read their vectors as others."""
    model = model_of(Contextual(ENCODER, 12, SIZE))
    canvas = model.compose(["the [[2]] sat on [[3]]."] * 2)
    tokens = model.to_tokens(canvas)
    assert tokens.z[tokens.fixed].tolist() == 2 * [
        tokens.z[0, 0].item(),
        *WORDS.encode("the"),
        *WORDS.encode("sat on."),
    ]
    done = final_canvas(Ancestral(2)(model, model.process, canvas, rng=rng(0, 2)))
    assert all(re.fullmatch(r"the .*sat on .*\.", text) for text in model.text(done))


def test_rules_that_vectors_cannot_obey_are_refused() -> None:
    model = model_of(Compressed(ENCODER, 11, 4, 8, SIZE, SIZE))
    tokens = constrain(model.to_tokens(model.canvas(new=9)), RULE, WORDS)
    with pytest.raises(ValueError, match="CompressedCodec has no logits for each position"):
        model.to_vectors(tokens)
    vectors = model_of(Embedding(8)).canvas(new=9)
    with pytest.raises(ValueError, match=re.escape("use model.to_vectors(constrain(model.to_tokens(canvas)")):
        constrain(vectors, RULE, WORDS)
    tokens = constrain(blank(LENGTH), Regex(PATTERN), LETTERS)
    with pytest.raises(ValueError, match="rules on vectors need a codec"):
        Constrained(PROCESS)(Exact(False)).predict(TABLE[tokens.z], torch.ones(1, 1), tokens.context)
