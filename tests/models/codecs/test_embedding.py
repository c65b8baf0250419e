from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import randomize
from torch import Tensor

from redraft.apps import frames
from redraft.core import (
    Batch,
    CharTokenizer,
    ClampedLogSnr,
    Context,
    CosineSquared,
    Gaussian,
    LearnedVariance,
    Masked,
    NoisySample,
    StraightPath,
    VariancePreserving,
    Vocab,
    rng,
)
from redraft.decoding import Ancestral, MultiHotProjection, Renoise, final_canvas
from redraft.models import (
    ConditionOnLogSnr,
    Contextual,
    DiffusionLM,
    DiffusionLMConfig,
    Embedding,
    MaskedLM,
    PredictEps,
    PredictScore,
    PredictTokens,
    PredictV,
    PredictX,
    Subs,
    TransformerConfig,
    TransformerSize,
    VectorHead,
    WithVariance,
)
from redraft.models.codecs.embedding import cooccurrence_vectors
from redraft.training import (
    Bound,
    CodecObjective,
    ConstantWeight,
    MinSnrWeight,
    Objective,
    OffsetSnrWeight,
    P2Weight,
    SquaredError,
    TrainStep,
    best_token_bound,
    likelihood,
    with_final_logsnr,
)
from redraft.training.objectives.conditioning import (
    self_condition,
)

LETTERS = CharTokenizer("abcde ", ("eos", "mask"))
VOCAB, D = LETTERS.vocab, 4
PROCESS = Gaussian(VOCAB, VariancePreserving(ClampedLogSnr(CosineSquared(), -8.0, 4.0)))


def config(head: VectorHead = PredictX(), self_conditioning: bool = False, unit: bool = True) -> DiffusionLMConfig:
    network = TransformerConfig(width=16, layers=2, heads=2, hidden=32, time=8)
    process = replace(PROCESS, variance=LearnedVariance()) if isinstance(head, WithVariance) else PROCESS
    return DiffusionLMConfig(
        process, network, head, ConditionOnLogSnr(), codec=Embedding(D, unit), self_conditioning=self_conditioning
    )


def model(head: VectorHead = PredictX(), self_conditioning: bool = False, unit: bool = True) -> DiffusionLM:
    return randomize(DiffusionLM(config(head, self_conditioning, unit), LETTERS), seed=0).eval()


def batch(rows: int = 4) -> Batch:
    return Batch.of(torch.arange(rows * 6).view(rows, 6) % 6)


def test_a_token_is_its_vector_and_back() -> None:
    codec, tokens = model().codec, torch.arange(VOCAB.size)[None]
    assert codec is not None
    x = codec.encode(tokens)
    assert torch.allclose(x.norm(dim=-1), torch.tensor(D**0.5).expand(1, VOCAB.size))
    assert torch.equal(codec.decode(x), tokens)
    assert torch.equal(codec.project(x), x)  # nothing moves a vector of a token
    near = codec.project(x + 0.01)
    assert torch.equal(near, x)
    bias = dict(codec.named_parameters())["bias"]
    by_hand = -(x[0] @ x[0].T + bias).log_softmax(-1).diagonal()
    assert torch.allclose(codec.nll(x, tokens)[0], by_hand, atol=1e-5)


def test_every_term_teaches_the_vectors() -> None:
    made = model(unit=False)
    codec = made.codec
    assert codec is not None
    weight = dict(codec.named_parameters())["weight"]
    loss = Objective(SquaredError())
    parts: dict[str, Tensor] = {}
    for name in ("diffusion", "prior", "reconstruction"):
        made.zero_grad()
        _part(made, loss, name).sum().backward()
        assert weight.grad is not None
        parts[name] = weight.grad.clone()
    assert all(float(g.abs().sum()) > 0 for g in parts.values())
    assert not torch.allclose(parts["diffusion"], parts["reconstruction"])


def _part(made: DiffusionLM, objective: Objective, name: str) -> Tensor:
    """One of the terms of the objective, by itself, with its gradient."""
    b, keys = batch(), rng(1, 4)
    early, late, final, _ = keys.split(4)
    encoded = made.read(b)
    if name == "prior":
        return made.process.prior_kl(encoded.x)
    if name == "reconstruction":
        z = made.process.noise(encoded.x, torch.full((4, 6), 1e-12, dtype=torch.float64), rng=final).z
        assert made.codec is not None
        return made.codec.nll(z, b.tokens)
    times = objective.loss.grid(objective.times(b, rng=early))
    noised = made.process.noise(encoded.x, times.t, rng=late)
    return objective.loss(made.process, made.predict(noised.z, noised.t), noised, times)


def test_the_parts_are_those_of_the_objective() -> None:
    made, objective = model(), Objective(SquaredError())
    loss = objective(made, batch(), rng=rng(1, 4))
    for name, mean in loss.parts.items():
        assert float(_part(made, objective, name).detach().sum()) / 24 == pytest.approx(float(mean), rel=1e-5), name


def test_without_rounding_the_vectors_collapse() -> None:
    """The squared error alone is least where all vectors are one; the norm √D keeps them apart in length only."""
    made = model(unit=False)
    codec = made.codec
    assert codec is not None
    weight = dict(codec.named_parameters())["weight"]
    optimizer, objective = torch.optim.Adam([weight], 0.1), Objective(SquaredError())
    before = torch.pdist(weight.detach()).mean()
    for i in range(60):
        optimizer.zero_grad()
        b, keys = batch(), rng(i, 4)
        encoded = made.read(b)
        noised = made.process.noise(encoded.x, torch.full((4, 1), 0.9), rng=keys)
        objective.loss(
            made.process, made.predict(noised.z, noised.t), noised, objective.loss.grid(noised.t)
        ).mean().backward()
        optimizer.step()
    assert torch.pdist(weight.detach()).mean() < 0.5 * before


@pytest.mark.parametrize("head", [PredictX(), PredictEps(), PredictV(), PredictScore(), WithVariance(PredictX())])
def test_every_head_gives_x(head: VectorHead) -> None:
    made = model(head)
    encoded = made.read(batch())
    noised = made.process.noise(encoded.x, torch.full((4, 1), 0.5), rng=rng(0, 4))
    pred = made.predict(noised.z, noised.t)
    assert pred.x.shape == encoded.x.shape
    nats = made.process.nelbo(pred, noised, torch.full((4, 1), 0.4))
    assert nats.shape == (4, 6)
    assert bool((nats > 0).all())


def test_the_heads_agree_with_the_noise() -> None:
    """Told the true noise, ε, v and score heads give the true x."""
    made = model()
    encoded = made.read(batch())
    t = torch.full((4, 1), 0.5, dtype=torch.float64)
    noised = made.process.noise(encoded.x, t, rng=rng(0, 4))
    assert isinstance(made.process, Gaussian)
    a, s = (scale.float()[..., None] for scale in made.process.path.scales(t))
    eps = (noised.z - a * encoded.x) / s
    for head, raw in ((PredictEps(), eps), (PredictV(), a * eps - s * encoded.x), (PredictScore(), -eps)):
        assert torch.allclose(head(raw, noised.z, t, made.process).x, encoded.x, atol=1e-5), head


@pytest.mark.parametrize("unit", [True, False])
def test_a_head_that_names_tokens_knows_what_z_says_of_its_own(unit: bool) -> None:
    """With no word from the network: Bayes with even chances, by hand; sure of the token where there is no noise."""
    made = model(PredictTokens(prior=True), unit=unit)
    assert isinstance(made.process, Gaussian)
    assert made.codec is not None
    table, silent = made.codec.table, torch.zeros(4, 6, VOCAB.size)
    assert table is not None
    x = made.read(batch()).x
    t = torch.full((4, 1), 0.5, dtype=torch.float64)
    z = made.process.noise(x, t, rng=rng(0, 4)).z
    a, s = (float(scale[0, 0]) for scale in made.process.path.scales(t))
    log_q = -(z[:, :, None] - a * table).square().sum(-1) / (2 * s**2)
    pred = PredictTokens(prior=True)(silent, z, t, made.process, table)
    assert torch.allclose(pred.x, log_q.softmax(-1) @ table, atol=1e-5)
    everywhere = torch.ones(4, 6, dtype=torch.bool)
    by_hand = -log_q.log_softmax(-1).gather(-1, batch().tokens[..., None]).squeeze(-1)
    assert torch.allclose(pred.nll(everywhere, x), by_hand, atol=1e-5)
    clean = PredictTokens(prior=True)(silent, x, torch.zeros(4, 1), made.process, table)
    assert torch.allclose(clean.x, x, atol=1e-4)


def test_naming_tokens_needs_tokens_with_vectors() -> None:
    codec = Contextual(MaskedLM(8, TransformerSize(width=D, heads=2)), 8, TransformerSize(layers=1))
    with pytest.raises(ValueError, match="such as Embedding, not Contextual"):
        DiffusionLMConfig(PROCESS, config().network, PredictTokens(), codec=codec)


def test_tokens_that_are_named_can_be_drawn_and_noised_anew() -> None:
    made = model(PredictTokens(prior=True))
    drawn = final_canvas(Renoise(3)(made, made.process, made.canvas(new=5, rows=4), rng=rng(1, 4)))
    assert drawn.z.shape == (4, 5, D)
    with pytest.raises(ValueError, match="use NucleusProjection"):
        final_canvas(
            Renoise(3, project=MultiHotProjection())(made, made.process, made.canvas(new=5, rows=4), rng=rng(1, 4))
        )


def test_given_tokens_stay_and_rows_do_not_depend_on_their_batch() -> None:
    made = model(self_conditioning=True)
    canvas = made.canvas("abc", new=5, rows=6)
    chosen = (torch.tensor([0, 1, 2, 3, 4, 5]), torch.tensor([4]))
    ends = [final_canvas(Ancestral(5)(made, made.process, canvas.rows(rows), rng=rng(3, rows))) for rows in chosen]
    assert torch.equal(ends[0].z[:, :3], canvas.z[:, :3])
    assert torch.allclose(ends[0].z[4:5], ends[1].z, atol=1e-4)
    assert made.text(ends[0])[4] == made.text(ends[1])[0]
    assert all(text.startswith("abc") for text in made.text(ends[0]))
    assert [len(f.tokens) >= 3 for f in frames(Ancestral(2)(made, made.process, canvas, rng=rng(0, 6)), made)] == [
        True
    ] * 3


def test_a_hint_of_nothing_is_no_hint() -> None:
    made = model(self_conditioning=True)
    x = made.read(batch()).x
    t = torch.full((4, 1), 0.3)
    assert torch.equal(made.predict(x, t, Context(previous=torch.zeros_like(x))).x, made.predict(x, t, Context()).x)
    assert not torch.allclose(made.predict(x, t, Context(previous=x)).x, made.predict(x, t, Context()).x)


def test_half_of_the_rows_are_told_in_training() -> None:
    made = model(self_conditioning=True)
    many = Batch.of(torch.arange(400 * 6).view(400, 6) % 6)
    x = made.read(many).x
    noised = NoisySample(x, torch.full((400, 1), 0.5), x)
    made.train()
    hint = self_condition(made, noised, Context(), rng=rng(0, 400)).previous
    assert hint is not None
    assert 160 < int((hint != 0).any(-1).any(-1).sum()) < 240
    made.eval()
    hint = self_condition(made, noised, Context(), rng=rng(0, 400)).previous
    assert hint is not None
    assert bool((hint != 0).any(-1).any(-1).all())
    assert not hint.requires_grad


def test_weights_by_the_signal() -> None:
    logsnr = torch.tensor([-2.0, 0.0, 3.0])
    snr = logsnr.exp()
    for weight, expected in (
        (ConstantWeight(), torch.ones(3)),
        (OffsetSnrWeight(), snr),
        (OffsetSnrWeight(1.0), snr + 1),
        (MinSnrWeight(5.0), snr.clamp(max=5)),
        (P2Weight(), snr / (1 + snr)),  # a² of variance-preserving noise
    ):
        assert torch.allclose(weight(logsnr), expected), weight


def test_the_bound_is_the_squared_error_with_its_weight() -> None:
    """½·(−SNR')·‖x − x̂‖², so D/2·(−SNR') times the mean error of `SquaredError`."""
    made = model()
    encoded = made.read(batch())
    t = torch.full((4, 1), 0.5, dtype=torch.float64)
    noised = made.process.noise(encoded.x, t, rng=rng(0, 4))
    pred, times = made.predict(noised.z, noised.t), Bound().grid(t)
    assert isinstance(made.process, Gaussian)
    path = made.process.path
    slope = float((path.logsnr(t).exp() * path.logsnr_slope(t))[0, 0])
    match, bound = (loss(made.process, pred, noised, times) for loss in (SquaredError(), Bound()))
    assert torch.allclose(bound, -slope * D / 2 * match, rtol=1e-4)


def test_where_the_diffusion_ends_is_a_choice() -> None:
    made = model()
    rows = [batch(8)]
    nats = {end: float(likelihood(with_final_logsnr(made, end), rows).row_nats.sum()) for end in (0.0, 3.0)}
    end, best = best_token_bound(made, rows, ends=(0.0, 3.0))
    assert end == min(nats, key=lambda e: nats[e])
    assert float(best.row_nats.sum()) == nats[end]
    with pytest.raises(ValueError, match="a final log-SNR is for Gaussian noise, not Masked"):
        with_final_logsnr(DiffusionLM(DiffusionLMConfig(Masked(VOCAB), TransformerConfig(16, 1, 2))), 1.0)
    with pytest.raises(ValueError, match="StraightPath cannot end at another log-SNR"):
        StraightPath().ending(1.0)


def test_training_learns() -> None:
    torch.manual_seed(0)
    made = DiffusionLM(config(self_conditioning=True), LETTERS)
    step = TrainStep(made, Objective(SquaredError()))
    optimizer = torch.optim.Adam(made.parameters(), 0.01)
    losses = []
    for i in range(120):
        optimizer.zero_grad()
        loss = step(batch(16), rng(i, 16))
        loss.mean.backward()
        optimizer.step()
        losses.append(float(loss.mean.detach()))
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])


def test_pieces_that_do_not_belong_together() -> None:
    good = config()
    for wrong, message in (
        ({"codec": None}, "needs a codec, Gaussian noise and a head for vectors; got NoneType"),
        ({"head": Subs()}, "got Embedding, Gaussian, Subs"),
        ({"network": replace(good.network, tied=True)}, "a network for vectors reads no ids"),
        ({"process": Masked(VOCAB)}, "got Embedding, Masked"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(good, **wrong)  # type: ignore[arg-type]
    network = TransformerConfig(16, 1, 2)
    with pytest.raises(ValueError, match="use a head such as Subs"):
        DiffusionLMConfig(Masked(VOCAB), network, PredictX())
    tokens = DiffusionLM(DiffusionLMConfig(Masked(VOCAB), network))
    with pytest.raises(ValueError, match="SquaredError is for Gaussian noise, not "):
        Objective(SquaredError())(tokens, batch(), rng=rng(0, 4))
    with pytest.raises(ValueError, match="no codec to train"):
        CodecObjective()(tokens, batch(), rng=rng(0, 4))
    with pytest.raises(ValueError, match="trained together with the denoiser"):
        CodecObjective()(model(), batch(), rng=rng(0, 4))


# --- words of a kind ---


def sentences(rows: int = 200) -> list[Batch]:
    """Nouns 0–3 and verbs 4–7 by turns, 8 after each pair; 9 is padding, 10 is nowhere."""
    drawn = torch.randint(0, 4, (rows, 6), generator=torch.Generator().manual_seed(0))
    kinds = torch.tensor([0, 4, 8, 0, 4, 8])
    tokens = torch.where(kinds < 8, drawn + kinds, 8)
    pad = torch.zeros(rows, 7, dtype=torch.bool)
    pad[:, 6] = True
    return [Batch.of(torch.cat([tokens, torch.full((rows, 1), 9)], 1), pad)]


def test_words_with_the_same_neighbors_lie_together() -> None:
    found = cooccurrence_vectors(sentences(), 11, 6)
    assert found.shape == (11, 6)
    torch.testing.assert_close(found.norm(dim=-1), torch.ones(11))
    alike = found @ found.T
    within = min(float(alike[:4, :4].min()), float(alike[4:8, 4:8].min()))
    assert within > float(alike[:4, 4:8].max()) + 0.3
    assert torch.equal(cooccurrence_vectors(sentences(), 11, 6), found)


def test_the_signs_of_eigenvectors_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines choose them differently; the same seed must begin with the same vectors on all."""
    found, solve = cooccurrence_vectors(sentences(), 11, 6), torch.linalg.eigh

    def flipped(matrix: Tensor) -> tuple[Tensor, Tensor]:
        values, vectors = solve(matrix)
        return values, vectors * (-1) ** torch.arange(len(values))

    monkeypatch.setattr(torch.linalg, "eigh", flipped)
    assert torch.equal(cooccurrence_vectors(sentences(), 11, 6), found)


@torch.no_grad()
def test_a_survey_puts_words_of_a_kind_together_and_tells_them_apart() -> None:
    torch.manual_seed(0)
    vocab, asked = Vocab(11), []

    def rows(count: int) -> list[Batch]:
        asked.append(count)
        return sentences()

    made, plain = (Embedding(16, neighbor_fraction=kinds).build(vocab) for kinds in (0.75, 0.0))
    before = plain.table.clone()
    plain.fit_statistics(rows)
    assert asked == []  # nothing is read in vain
    assert torch.equal(plain.table, before)
    made.fit_statistics(rows)
    assert len(asked) == 1
    table = made.table / 4
    torch.testing.assert_close(table.norm(dim=-1), torch.ones(11))
    torch.testing.assert_close(table[:, :12].square().sum(-1), torch.full((11,), 0.75))
    distance = torch.cdist(table, table)
    assert float((distance + torch.eye(11)).min()) > 0.1
    assert float(distance[:4, :4].max()) < float(distance[:4, 4:8].min())


@pytest.mark.parametrize(
    "wrong", [{"neighbor_fraction": 1.0}, {"neighbor_fraction": -0.1}, {"neighbor_fraction": 0.5, "unit": False}]
)
def test_wrong_shares_of_kinds_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="neighbor_fraction must be at least 0 and below 1"):
        Embedding(8, **wrong)
