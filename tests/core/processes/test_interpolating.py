"""Uniform, mask and hybrid noise: one process against tables, closed forms, `Masked` and the original code."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from conftest import GOLDEN, pairwise
from hypothesis import given, strategies as st
from safetensors.torch import load_file
from torch import Tensor

from redraft.core import (
    Batch,
    Canvas,
    Condition,
    Context,
    Cosine,
    CosineRatio,
    CosineSquared,
    Exponential,
    HybridNoise,
    Interpolating,
    Linear,
    Masked,
    MaskNoise,
    NoiseDistribution,
    NoiseTimes,
    NoisySample,
    Polynomial,
    Prediction,
    Schedule,
    TablePrediction,
    UniformNoise,
    Vocab,
    ops,
    rng,
)
from redraft.decoding import Ancestral, final_canvas
from redraft.models import DiffusionLM, Subs, TransformerConfig
from redraft.training import Bound, BoundWeight, ClippedWeight, DynamicWeight, Objective, load

PValue = Callable[[Tensor, Tensor], float]
Build = Callable[..., DiffusionLM]
CHANCE = 1e-4
MASK = 3
VOCAB, UNMASKED = Vocab(5, mask=MASK), Vocab(5)  # the mask need not be the last id, nor be there
PROCESSES = [
    Interpolating(UNMASKED),
    Interpolating(UNMASKED, Cosine()),
    Interpolating(VOCAB),
    Interpolating(VOCAB, Polynomial(2), MaskNoise()),
    Interpolating(VOCAB, Linear(), HybridNoise(0.3)),
    Interpolating(VOCAB, CosineSquared(), HybridNoise(0.6, 1.7)),
    Interpolating(VOCAB, Exponential(0.05, 3.0), HybridNoise(0.2)),
]
every_process = pytest.mark.parametrize("process", PROCESSES, ids=repr)


def words(process: Interpolating) -> Tensor:
    return torch.tensor([i for i in range(process.vocab.size) if i != process.vocab.mask])


def guess(process: Interpolating, rows: int, length: int, seed: int = 0, free: bool = False) -> TablePrediction:
    """A random x̂ in float64, never the mask."""
    raw = 2 * torch.randn(rows, length, process.vocab.size, generator=torch.Generator().manual_seed(seed)).double()
    if process.vocab.mask is not None:
        raw[..., process.vocab.mask] = -torch.inf
    return TablePrediction(raw if free else raw.log_softmax(-1), normalized=not free)


def column(t: float, rows: int = 1) -> Tensor:
    return torch.full((rows, 1), t, dtype=torch.float64)


def pairs(process: Interpolating, t: float) -> NoisySample:
    """One row of all pairs of a word x and a state z that it may become."""
    table = process.marginal(t)
    each = [(x, z) for x in words(process).tolist() for z in range(process.vocab.size) if table[x, z] > 0]
    x, z = torch.tensor(each).T
    return NoisySample(z[None], column(t), x[None])


# --- against tables ---


@every_process
@pytest.mark.parametrize("free", [False, True])
def test_the_bound_is_the_price_of_wrong_ratios(process: Interpolating, free: bool) -> None:
    """r_t[z]·Σ_{y≠z} pkl(q_t(y|x)/q_t(z|x), q̂_t(y)/q̂_t(z)), the rate by differences of the tables; any sum of x̂."""
    t, h = 0.6, 1e-6
    noised = pairs(process, t)
    pred = guess(process, 1, noised.z.shape[1], free=free)
    table, V = process.marginal(t), process.vocab.size
    q, said = table[noised.target[0]], pred.x[0].exp() @ table
    if free:  # the rest of x̂ is noise all the same
        noise = table[int(words(process)[0])] - torch.eye(V)[int(words(process)[0])] * process.mix(column(t)).keep
        said = process.mix(column(t)).keep * pred.x[0].exp() + noise
    rates = (process.transition(t - h, t + h) - torch.eye(V, dtype=torch.float64)) / (2 * h)  # from y (row) to z
    at = noised.z[0][:, None]
    price = ops.poisson_kl(q / q.gather(-1, at), said / said.gather(-1, at))
    into = rates.T[noised.z[0]].scatter(-1, at, 0.0)
    assert torch.allclose(process.nelbo(pred, noised)[0].double(), (into * price).sum(-1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("process", "times", "free"),
    pairwise(PROCESSES, [(0.3, 0.6), (0.0, 0.2), (0.999, 1.0), (0.4, 0.401)], [False, True]),
)
def test_a_step_costs_the_kl_of_its_posteriors(process: Interpolating, times: tuple[float, float], free: bool) -> None:
    s, t = times
    noised = pairs(process, t)
    pred = guess(process, 1, noised.z.shape[1], free=free)
    eye = torch.eye(process.vocab.size, dtype=torch.float64)
    onto, early = (eye, eye) if s == 0 else (process.transition(s, t), process.marginal(s))
    onto = process.marginal(t) if s == 0 else onto
    mix = process.mix(column(s))
    noise = early[int(words(process)[0])] - eye[int(words(process)[0])] * mix.keep
    truth = onto[:, noised.z[0]].T * early[noised.target[0]]
    said = onto[:, noised.z[0]].T * (mix.keep * pred.x[0].exp() + noise)
    truth, said = (p / p.sum(-1, keepdim=True) for p in (truth, said))
    expected = torch.where(truth > 0, truth * (truth.log() - said.log()), 0.0).sum(-1)
    found = process.nelbo(pred, noised, column(s))[0].double()
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-9)


@every_process
def test_many_steps_tend_to_the_bound(process: Interpolating) -> None:
    noised, steps = pairs(process, 0.5), 100_000
    pred = guess(process, 1, noised.z.shape[1])
    summed = steps * process.nelbo(pred, noised, column(0.5 - 1 / steps))
    assert torch.allclose(summed, process.nelbo(pred, noised), rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("process", "times", "free"), pairwise(PROCESSES, [(0.3, 0.6), (0.0, 0.2), (0.9, 1.0)], [False, True])
)
def test_a_step_draws_from_bayes(
    process: Interpolating, times: tuple[float, float], free: bool, p_value: PValue
) -> None:
    """Each state z that can occur, 20,000 draws; the prediction is sharp at one word, as trained ones are."""
    s, t = times
    V, draws = process.vocab.size, 20_000
    eye = torch.eye(V, dtype=torch.float64)
    raw = guess(process, 1, 1, seed=1, free=free).log_weights
    mix = process.mix(column(s))
    first = int(words(process)[0])
    early = eye if s == 0 else process.marginal(s)
    said = (mix.keep * raw.exp())[0, 0] + (early[first] - eye[first] * mix.keep[0])
    onto = process.marginal(t) if s == 0 else process.transition(s, t)
    for z in range(V):
        law = onto[:, z] * said
        if float(process.marginal(t)[words(process), z].max()) > 0:
            canvas = Canvas(torch.full((1, draws), z), torch.zeros(1, draws, dtype=torch.bool))
            pred = TablePrediction(raw.expand(1, draws, -1), normalized=not free)
            drawn = process.step(pred, canvas, column(s), column(t), rng=rng(z)).z
            seen, expected = torch.bincount(drawn[0], minlength=V), draws * law / law.sum()
            assert not seen[expected == 0].any()
            common = expected > 5
            assert common.sum() < 2 or p_value(seen[common], expected[common]) > CHANCE


@every_process
@given(t=st.floats(0.01, 1), seed=st.integers(0, 10**6))
def test_tables_are_the_compressed_law(process: Interpolating, t: float, seed: int) -> None:
    mix, table = process.mix(column(t)), process.marginal(t)
    assert float(mix.keep + mix.mask + process.words * mix.word) == pytest.approx(1, abs=1e-12)
    first, second = words(process)[:2].tolist()
    assert float(table[first, first] - table[second, first]) == pytest.approx(float(mix.keep), abs=1e-12)
    assert float(table[second, first]) == pytest.approx(float(mix.word), abs=1e-12)


@every_process
def test_the_error_rate_is_the_share_of_wrong_words(process: Interpolating) -> None:
    """Among the tokens that are words at t, the probability of another word than that of the text."""
    first = int(words(process)[0])
    of_words = process.marginal(0.7)[first, words(process)]
    assert process.error_rate(0.7) == pytest.approx(1 - float(of_words[0] / of_words.sum()), abs=1e-12)


# --- noise ---


@every_process
@given(seed=st.integers(0, 10**6))
def test_padding_and_prompts_are_never_noised(process: Interpolating, seed: int) -> None:
    x = words(process)[torch.randint(0, process.words, (2, 40), generator=torch.Generator().manual_seed(seed))]
    pad, given_ = torch.arange(40).expand(2, -1) >= 30, torch.arange(40).expand(2, -1) < 10
    t = torch.where(given_, 0.0, 1.0).double()
    noised = process.noise(x, t, pad=pad, rng=rng(seed, 2))
    assert torch.equal(noised.z[pad | given_], x[pad | given_])
    assert not process.undetermined(noised)[pad | given_].any()
    assert process.undetermined(noised)[~pad & ~given_ & (noised.z != x)].all()
    loss = process.nelbo(guess(process, 2, 40), noised._replace(t=t.clamp(max=0.9)))
    assert (loss[pad | given_] == 0).all()
    assert loss.isfinite().all()


def test_words_are_all_states_but_the_mask() -> None:
    x = torch.zeros(1, 50_000, dtype=torch.int64)
    with_mask = Interpolating(VOCAB).noise(x, column(1.0), rng=rng(0)).z
    without = Interpolating(UNMASKED).noise(x, column(1.0), rng=rng(0)).z
    assert sorted(with_mask.unique().tolist()) == [0, 1, 2, 4]
    assert sorted(without.unique().tolist()) == [0, 1, 2, 3, 4]


@every_process
def test_the_prior_is_where_noise_ends(process: Interpolating, p_value: PValue) -> None:
    """What of x is left at t = 1 costs the KL of it against the prior, by the table."""
    end, first = process.marginal(1.0), int(words(process)[0])
    keep = process.mix(column(1.0)).keep
    prior = (end[first] - torch.eye(process.vocab.size)[first] * keep)[0] / (1 - keep[0])
    drawn = process.prior(Canvas(torch.zeros(1, 40_000).long(), torch.zeros(1, 40_000).bool()), rng=rng(0)).z
    seen = torch.bincount(drawn[0], minlength=process.vocab.size)
    assert not seen[prior == 0].any()
    assert int((prior > 0).sum()) == 1 or p_value(seen[prior > 0], 40_000 * prior[prior > 0]) > CHANCE
    for x in words(process).tolist():
        cost = torch.where(end[x] > 0, end[x] * (end[x].log() - prior.log()), 0.0).sum()
        assert float(process.prior_kl(torch.tensor([[x]]))) == pytest.approx(float(cost), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("end", [0.3, 0.01, 0.0])
def test_the_prior_of_uniform_noise_has_a_closed_form(end: float) -> None:
    process, K = Interpolating(UNMASKED, Linear(end)), 5
    closed = (end + (1 - end) / K) * math.log((K - 1) * end + 1) + (1 - 1 / K) * (1 - end) * math.log1p(-end)
    assert float(process.prior_kl(torch.zeros(1, 1).long())) == pytest.approx(closed, rel=1e-6)
    masked = Interpolating(VOCAB, Linear(end), MaskNoise()).prior_kl(torch.zeros(1, 1).long())
    assert float(masked) == (math.inf if end else 0.0)


# --- hybrid noise ---


@given(p_u=st.floats(0, 0.95), power=st.floats(0.1, 2))
def test_half_way_the_share_of_uniform_noise_is_as_asked(p_u: float, power: float) -> None:
    mix = Interpolating(VOCAB, mixing=HybridNoise(p_u, power)).mix(column(0.5))
    assert float(4 * mix.word) == pytest.approx(p_u, abs=1e-12)
    assert float(mix.keep) == pytest.approx(float(mix.mask), abs=1e-12)


@given(power=st.floats(0.1, 2), s=st.floats(0.001, 0.99), t=st.floats(0.001, 0.99))
def test_hybrid_steps_exist_up_to_power_two(power: float, s: float, t: float) -> None:
    """b/α never falls, so that every step is a probability; above two it does."""
    at = torch.tensor([min(s, t), max(s, t)], dtype=torch.float64)
    keep, _, word = HybridNoise(0.5, power).mix(1 - at, 4)
    assert float((word / keep).diff()) >= -1e-12


@pytest.mark.parametrize("mixing", [MaskNoise(), HybridNoise(0.1)], ids=repr)
def test_masks_need_a_mask(mixing: NoiseDistribution) -> None:
    with pytest.raises(ValueError, match="this vocabulary has no mask token"):
        Interpolating(UNMASKED, mixing=mixing)


def test_wrong_hybrids_are_refused() -> None:
    with pytest.raises(ValueError, match="above 2 some noise would have to turn back"):
        HybridNoise(0.1, 2.5)
    with pytest.raises(ValueError, match="at least 0 and below 1"):
        HybridNoise(1.0)


@pytest.mark.parametrize("mixing", [MaskNoise(), HybridNoise(0.0)], ids=repr)
@pytest.mark.parametrize("schedule", [Linear(), Cosine(), Polynomial(0.5), Exponential(0.05, 5.0)], ids=repr)
def test_mask_noise_is_masked(mixing: NoiseDistribution, schedule: Schedule) -> None:
    """The same draws of noise, the same bound in continuous time and in steps, the same tables."""
    ours, theirs = Interpolating(VOCAB, schedule, mixing), Masked(VOCAB, schedule)
    x = words(ours)[torch.randint(0, 4, (3, 30), generator=torch.Generator().manual_seed(0))]
    pred = guess(ours, 3, 30)
    for t in (0.001, 0.4, 0.999):
        noised = theirs.noise(x, column(t, 3), rng=rng(1, 3))
        assert torch.equal(ours.noise(x, column(t, 3), rng=rng(1, 3)).z, noised.z)
        assert torch.equal(ours.undetermined(noised), theirs.undetermined(noised))
        for s in (None, column(0.0, 3), column(t / 3, 3)):
            assert torch.allclose(ours.nelbo(pred, noised, s), theirs.nelbo(pred, noised, s), rtol=1e-5)
        assert torch.allclose(ours.marginal(t), theirs.marginal(t))
    assert torch.allclose(ours.transition(0.2, 0.7), theirs.transition(0.2, 0.7))
    assert torch.equal(ours.prior_kl(x), theirs.prior_kl(x))
    assert ours.leaves_noise == theirs.leaves_noise


# --- the network is asked where it matters ---


class Asked(Prediction):
    """Remembers where it was asked."""

    def __init__(self, known: TablePrediction) -> None:
        self.known, self.where = known, torch.zeros(0)

    @property
    def x(self) -> Tensor:
        return self.known.x

    def at(self, where: Tensor) -> Tensor:
        self.where = where
        return self.known.at(where)

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        raise AssertionError


def asked(process: Interpolating, z: Tensor, s: float, t: float) -> float:
    """The share of positions that a step has to ask about."""
    pred = Asked(guess(process, *z.shape))
    process.step(
        pred, Canvas(z, torch.zeros_like(z, dtype=torch.bool)), column(s, len(z)), column(t, len(z)), rng=rng(0)
    )
    return float(pred.where.double().mean()) if pred.where.numel() else 0.0


def test_a_step_asks_only_where_something_may_change() -> None:
    """Never more than b_{t|s}[z]/(b_{t|s}[z] + α_{t|s}·b_s[z]) = (t − s)/(t − s + (1 − t)·s), if z can be noise."""
    z, s, t = torch.zeros(1, 20_000, dtype=torch.int64), 0.48, 0.5
    most = (t - s) / (t - s + (1 - t) * s)
    assert asked(Interpolating(UNMASKED), z, s, t) == pytest.approx(most, abs=0.01)
    assert asked(Interpolating(VOCAB, mixing=MaskNoise()), z, s, t) == 0
    masks = torch.full_like(z, MASK)
    assert asked(Interpolating(VOCAB, mixing=MaskNoise()), masks, s, t) == pytest.approx(most, abs=0.01)
    assert asked(Interpolating(UNMASKED), z, 0.0, t) == 1


@pytest.mark.parametrize("mixing", [UniformNoise(), HybridNoise(0.3)], ids=repr)
def test_sampling_keeps_what_is_given_and_rows_apart(
    build: Build,
    vocab: Vocab,
    mixing: NoiseDistribution,
    ragged: Callable[[int, int, int], Canvas],
    assert_rows_alone: Callable[[Ancestral, DiffusionLM], None],
) -> None:
    model = build(process=Interpolating(vocab, mixing=mixing), head=Subs(carry_over=False))
    canvas = ragged(6, 9, 3)
    end = final_canvas(Ancestral(7)(model, model.process, canvas, rng=rng(0, 6)))
    assert torch.equal(end.z[canvas.fixed], canvas.z[canvas.fixed])
    assert not (end.z == vocab.masked)[~canvas.fixed].any()
    assert_rows_alone(Ancestral(5), model)


# --- the decoder of the last step ---


@pytest.mark.parametrize("direct", [False, True])
def test_both_decoders_are_distributions(direct: bool) -> None:
    """Σ_x exp(−KL of the step to s = 0) = 1 for each z: it is −log p(x | z)."""
    process = Interpolating(UNMASKED, direct=direct)
    raw = guess(process, 1, 1).log_weights
    for z in range(5):
        x, noisy = torch.arange(5)[None], torch.full((1, 5), z)
        loss = process.nelbo(TablePrediction(raw.expand(1, 5, -1)), NoisySample(noisy, column(0.3), x), column(0.0))
        said = raw[0, 0].exp() if direct else raw[0, 0].exp() * process.marginal(0.3)[:, z]
        assert torch.allclose((-loss[0].double()).exp(), said / said.sum(), rtol=1e-5)


def test_the_direct_decoder_draws_the_prediction_itself(p_value: PValue) -> None:
    process = Interpolating(UNMASKED, direct=True)
    raw = guess(process, 1, 1).log_weights
    canvas = Canvas(torch.zeros(1, 30_000).long(), torch.zeros(1, 30_000).bool())
    drawn = process.step(TablePrediction(raw.expand(1, 30_000, -1)), canvas, column(0.0), column(0.2), rng=rng(0)).z
    assert p_value(torch.bincount(drawn[0], minlength=5), 30_000 * raw[0, 0].exp()) > CHANCE


# --- precision ---


def naive(process: Interpolating, log_x: Tensor, noised: NoisySample, rate: float) -> Tensor:
    """The bound in float64 with K-vectors."""
    table = process.marginal(float(noised.t[0, 0]))
    q, said = table[noised.target[0]], log_x[0].double().exp() @ table
    at = noised.z[0][:, None]
    return (rate * ops.poisson_kl(q / q.gather(-1, at), said / said.gather(-1, at)).scatter(-1, at, 0.0)).sum(-1)


@pytest.mark.parametrize("t", [1e-4, 0.01, 0.5, 0.99, 1 - 1e-4, 1 - 1e-8])
def test_float32_gives_the_loss_and_its_gradient(t: float) -> None:
    """UDLM's bound from fp32 logits of 200 words, at both ends of time, where terms of order 1/t cancel."""
    V = 200
    process = Interpolating(Vocab(V))
    raw = torch.randn(1, 60, V, generator=torch.Generator().manual_seed(0), requires_grad=True)
    x = torch.arange(60)[None]
    noised = NoisySample(torch.where(x % 3 == 0, x, (x + 7) % V), column(t), x)
    loss = process.nelbo(TablePrediction(raw.log_softmax(-1)), noised)[0]
    (slope,) = torch.autograd.grad(loss.sum(), raw)
    expected = naive(process, raw.double().log_softmax(-1), noised, 1 / (V * (1 - t)))
    (right,) = torch.autograd.grad(expected.sum(), raw)
    assert torch.allclose(loss.double(), expected, rtol=1e-4, atol=2e-6)
    assert slope.isfinite().all()
    assert torch.allclose(slope, right, rtol=2e-3, atol=1e-5 * float(right.abs().max()) + 1e-6)


@pytest.mark.parametrize("process", [p for p in PROCESSES if not p.leaves_noise], ids=repr)
@pytest.mark.parametrize("t", [1e-6, 1.0])
def test_the_ends_of_time_are_finite(process: Interpolating, t: float) -> None:
    noised = pairs(process, min(t, 0.5))._replace(t=column(t).float())
    pred = guess(process, 1, noised.z.shape[1])
    assert process.nelbo(TablePrediction(pred.x.float()), noised).isfinite().all()


@pytest.mark.parametrize("t", [0.02, 0.5, 0.97])
def test_the_closed_form_of_udlm(t: float) -> None:
    """Schiff et al. 2024: α'/(Kα)·(K/x̄_z − K/x̄θ_z − Σ_j x̄_j/x̄_z·log(x̄θ_z·x̄_j/(x̄θ_j·x̄_z)))."""
    process, K = Interpolating(UNMASKED), 5
    noised = pairs(process, t)
    log_x = guess(process, 1, noised.z.shape[1]).x
    bar = K * (1 - t) * torch.eye(K, dtype=torch.float64)[noised.target[0]] + t
    hat = K * (1 - t) * log_x[0].exp() + t
    at = noised.z[0][:, None]
    bar_z, hat_z = bar.gather(-1, at), hat.gather(-1, at)
    inner = K / bar_z - K / hat_z - (bar / bar_z * (hat_z * bar / (hat * bar_z)).log()).sum(-1, keepdim=True)
    expected = (-1 / (K * (1 - t)) * inner).squeeze(-1)
    assert torch.allclose(process.nelbo(TablePrediction(log_x), noised)[0].double(), expected, rtol=1e-5, atol=1e-7)


# --- the original implementations ---


def golden(name: str) -> tuple[dict[str, Tensor], dict[str, float]]:
    return load_file(GOLDEN / name / "io.safetensors"), json.loads((GOLDEN / name / "expected.json").read_text())[
        "scalars"
    ]


def same(found: Tensor, expected: Tensor | float, rtol: float = 1e-4, atol: float = 2e-5) -> None:
    torch.testing.assert_close(found.float(), torch.as_tensor(expected).float(), rtol=rtol, atol=atol)


GIDD = Vocab(40, mask=39)


def gidd(p_u: float) -> tuple[Interpolating, TablePrediction, NoisySample]:
    """Their smallest share of uniform noise is e⁻²⁰."""
    io, _ = golden("gidd")
    raw = io["logits_hf"].index_fill(-1, torch.tensor([39]), -torch.inf)
    noised = NoisySample(io["z_t"], io["t"][:, None].double(), io["x0"])
    return (
        Interpolating(GIDD, mixing=HybridNoise(max(p_u, math.exp(-20)))),
        TablePrediction(raw.log_softmax(-1)),
        noised,
    )


@pytest.mark.parametrize("p_u", [0.0, 0.1, 0.2])
def test_gidd_schedule_weights_and_bound(p_u: float) -> None:
    io, scalars = golden("gidd")
    process, pred, noised = gidd(p_u)
    mix = process.mix(noised.t)
    same(mix.keep, io[f"alpha_pu{p_u}"])
    same(torch.cat([mix.word.expand(3, 39), mix.mask], -1), io[f"beta_pi_pu{p_u}"])
    weight, nats = process.weight(noised), process.nelbo(pred, noised)
    same(weight, io[f"elbo_weights_pu{p_u}"], atol=0)
    same(weight, io[f"loss_weights_none_pu{p_u}"], atol=0)
    same(nats, io[f"elbo_per_token_pu{p_u}"])
    same(nats.mean(), scalars[f"loss_none_pu{p_u}"])
    real = io["attention_mask"].bool()
    padded = process.nelbo(pred, noised._replace(pad=~real))
    same(padded.sum() / real.sum(), scalars[f"elbo_mean_pu{p_u}"])


@pytest.mark.parametrize("p_u", [0.0, 0.1, 0.2])
def test_gidd_rates_and_metrics(p_u: float) -> None:
    """d log α/dt; and the two parts of the bound, means under its dynamic weights over real tokens."""
    io, scalars = golden("gidd")
    process, pred, noised = gidd(p_u)
    t = noised.t.clone().requires_grad_()
    same(torch.autograd.grad(process.mix(t).keep.log().sum(), t)[0], io[f"alpha_ratio_pu{p_u}"])
    mix, x = process.mix(noised.t), torch.nn.functional.one_hot(noised.target, 40)
    noise = torch.cat([mix.word.expand(3, 39), mix.mask], -1)[:, None]
    q, p = (mix.keep[..., None] * law + noise for law in (x, pred.x.double().exp()))
    ratio = (q / p).gather(-1, noised.z[..., None]).squeeze(-1)
    weight = io[f"loss_weights_dynamic_pu{p_u}"] * io["attention_mask"]
    for name, nats in (("kl", (q * (q / p).log()).sum(-1)), ("is", ratio - ratio.log() - 1)):
        same((weight * nats).sum() / weight.sum(), scalars[f"{name}_metric_pu{p_u}"])


def weighed(weight: BoundWeight, process: Interpolating, pred: TablePrediction, noised: NoisySample) -> Tensor:
    return Bound(weight=weight)(process, pred, noised, NoiseTimes(noised.t))


@pytest.mark.parametrize("p_u", [0.0, 0.1, 0.2])
def test_gidd_clipped_weights(p_u: float) -> None:
    io, scalars = golden("gidd")
    process, pred, noised = gidd(p_u)
    same(ClippedWeight()(process, noised) * process.weight(noised), io[f"loss_weights_clip_pu{p_u}"], atol=0)
    same(weighed(ClippedWeight(), process, pred, noised).mean(), scalars[f"loss_clip_pu{p_u}"])


@pytest.mark.parametrize("p_u", [0.0, 0.1, 0.2])
def test_gidd_dynamic_weights(p_u: float) -> None:
    """Theirs for tokens that are still themselves is B/V·exp(½·sigmoid(−t)); ours is the ratio of the true weights."""
    io, scalars = golden("gidd")
    process, pred, noised = gidd(p_u)
    own, theirs, share = (
        DynamicWeight()(process, noised) * process.weight(noised),
        io[f"loss_weights_dynamic_pu{p_u}"],
        max(p_u, math.exp(-20)),
    )
    clean = noised.z == noised.target
    same(own[~clean], theirs[~clean], atol=0)
    B, t = 2 * share / (1 - share), noised.t
    flat = (B / 40 * (0.5 * torch.sigmoid(-t)).exp()).expand_as(own)
    same(flat[clean], theirs[clean], atol=0)
    c = (B * (t * (1 - t)).sqrt() / 39).expand_as(own)
    same(own[clean], (c / (1 - t + c))[clean], atol=0)
    as_theirs = torch.where(clean, flat, own) / process.weight(noised) * process.nelbo(pred, noised)
    same(as_theirs.mean(), scalars[f"loss_dynamic_pu{p_u}"])


def test_gidd_reverse_step() -> None:
    """With their network, from t = 0.6 to s = 0.55: Bayes' rule from tables, and 40,000 draws at 48 positions."""
    io, _ = golden("gidd")
    process, _, noised = gidd(0.1)
    law, draws = io["sampler_q_st_t0.6_s0.55_pu0.1"].flatten(0, 1).double(), 40_000
    with torch.no_grad():
        log_x = load(GOLDEN / "gidd").predict(noised.z, column(0.6, 3)).x.flatten(0, 1)
    weights = process.transition(0.55, 0.6)[:, noised.z.flatten()].T * (log_x.double().exp() @ process.marginal(0.55))
    same(weights / weights.sum(-1, keepdim=True), law)
    z = noised.z.flatten()[:, None].expand(-1, draws).contiguous()
    canvas = Canvas(z, torch.zeros_like(z, dtype=torch.bool))
    pred = TablePrediction(log_x[:, None].expand(-1, draws, -1))
    drawn = process.step(pred, canvas, column(0.55, 48), column(0.6, 48), rng=rng(0, 48)).z
    seen = torch.stack([torch.bincount(row, minlength=40) for row in drawn]).double()
    error = (seen - draws * law) / (draws * law * (1 - law)).clamp(min=1).sqrt()
    assert float(error.abs().max()) < 5, "the largest of 1,920 standard errors"
    assert float(error.square().mean()) < 1.1


def test_gidd_without_uniform_noise_is_mdlm() -> None:
    """The original's own MDLM loss, whose ε is 10⁻⁴."""
    io, scalars = golden("gidd")
    noised = NoisySample(io["z_t_masked"], io["t"][:, None], io["x0"])
    with torch.no_grad():
        pred = TablePrediction(load(GOLDEN / "gidd").predict(noised.z, noised.t).x)
    mdlm = Masked(GIDD).nelbo(pred, noised)
    same(Interpolating(GIDD, mixing=HybridNoise(0.0)).nelbo(pred, noised), mdlm)
    same(mdlm, io["mdlm_elbo_per_token"], rtol=1e-3)
    same(mdlm.mean(), scalars["mdlm_loss"], rtol=1e-3)


def test_udlm_bound_and_posterior(p_value: PValue) -> None:
    io, scalars = golden("udlm")
    process, noised = Interpolating(Vocab(40)), NoisySample(io["xt"], io["t"][:, None], io["x0"])
    same(process.nelbo(TablePrediction(io["log_p_x0"]), noised), io["diffusion_loss"])
    same(process.nelbo(TablePrediction(io["log_p_x0"]), noised).mean(), scalars["udlm_loss_zero_recon"])
    for row, t in enumerate(io["t"].double()):
        onto, early = process.transition(float(t) - 0.05, float(t)), process.marginal(float(t) - 0.05)
        law = onto[:, io["xt"][row]].T * (io["log_p_x0"][row].double().exp() @ early)
        same(law / law.sum(-1, keepdim=True), io["posterior_s_eq_t_minus_0.05"][row])


def test_udlm_with_its_network() -> None:
    """A chain of T = 1000, whose times are rounded up, and the reconstruction at t = 0, which is that of `direct`."""
    io, scalars = golden("udlm")
    model = load(GOLDEN / "udlm")
    t = ((io["t"][:, None] * 1000).int() / 1000 + 1 / 1000).double()
    process, noised = Interpolating(Vocab(40)), NoisySample(io["xt"], t, io["x0"])
    with torch.no_grad():
        chain = 1000 * process.nelbo(model.predict(io["xt"], t), noised, t - 1 / 1000)
        clean = -model.predict(io["x0"], 0 * t).x.gather(-1, io["x0"][..., None]).squeeze(-1)
    same(chain, io["diffusion_loss_T1000"], atol=5e-4)  # theirs is a difference of rounded logarithms, times T
    same(chain.mean(), scalars["udlm_T1000_diffusion_mean"])
    same(clean, io["recon_loss"])
    nats = process.nelbo(TablePrediction(io["log_p_x0"]), noised._replace(t=io["t"][:, None])).mean()
    same(nats, scalars["udlm_diffusion_loss_mean"])
    same(clean.mean(), scalars["udlm_recon_loss_mean"])
    same(nats + clean.mean(), scalars["udlm_loss_with_recon"])
    with torch.no_grad():
        labeled = model.predict(io["xt"], io["t"][:, None].double(), Context(condition=Condition(label=io["cond"])))
        same(process.nelbo(labeled, noised._replace(t=io["t"][:, None].double())), io["diffusion_loss_cond"])


def multinomial(direct: bool = False) -> tuple[Interpolating, TablePrediction, NoisySample, Tensor]:
    """T = 100, K = 27; their t counts from zero, and no step of theirs keeps less than √10⁻³."""
    io, _ = golden("multinomial")
    nearly = float(CosineRatio().keep(torch.tensor(0.99, dtype=torch.float64)))
    process = Interpolating(Vocab(27), CosineRatio(floor=math.sqrt(1e-3) * nearly), direct=direct)
    pred = TablePrediction(io["denoiser_logits_BKL"].transpose(1, 2).log_softmax(-1))
    s = io["t"][:, None].double() / 100
    return process, pred, NoisySample(io["xt"], s + 0.01, io["x0"]), s


def test_multinomial_schedule() -> None:
    io, _ = golden("multinomial")
    process, *_ = multinomial()
    keep = process.schedule.keep(torch.arange(101, dtype=torch.float64) / 100)
    same(keep[1:].log(), io["log_cumprod_alpha"])
    same((1 - keep[1:]).log(), io["log_1_min_cumprod_alpha"])
    same((keep[1:] / keep[:-1]).log(), io["log_alpha"])
    same((1 - keep[1:] / keep[:-1]).log(), io["log_1_min_alpha"], rtol=1e-3)


def test_multinomial_loss_and_laws() -> None:
    io, scalars = golden("multinomial")
    process, pred, noised, s = multinomial()
    loss = process.nelbo(pred, noised, s)
    same(loss.sum(-1), io["Lt"])
    same(loss.sum(), scalars["Lt_sum"])
    same(loss[1:], io["kl_posterior"][1:], rtol=1e-3)
    for row in range(6):
        t, early = float(noised.t[row]), float(s[row])
        onto = process.marginal(t) if early == 0 else process.transition(early, t)
        q_s = torch.eye(27, dtype=torch.float64) if early == 0 else process.marginal(early)
        same(process.marginal(t)[io["x0"][row]].T, io["q_pred_BKL"][row].exp())
        for law, name in ((q_s[io["x0"][row]], "q_posterior"), (pred.x[row].double().exp() @ q_s, "p_pred")):
            weights = onto[:, io["xt"][row]].T * law
            same((weights / weights.sum(-1, keepdim=True)).T, io[f"{name}_BKL"][row].exp())


def test_multinomial_prior() -> None:
    """Theirs is a difference of rounded float32 logarithms, 4 % off the truth at this size; both are shown."""
    io, scalars = golden("multinomial")
    process, *_ = multinomial()
    a, K = process.schedule.end, 27
    truth = (a + (1 - a) / K) * math.log((K - 1) * a + 1) + (1 - 1 / K) * (1 - a) * math.log1p(-a)
    ours = process.prior_kl(io["x0"]).sum()
    same(ours, 96 * truth, atol=0)
    assert float(ours) == pytest.approx(scalars["kl_prior_sum"], rel=0.05)
    same(process.prior_kl(io["x0"]).sum(-1), io["kl_prior"], rtol=0.05)
    one_hot = torch.eye(K).clamp(min=1e-30).log()[0]
    log_q = torch.logaddexp(one_hot + math.log(a), torch.tensor(math.log1p(-a) - math.log(K)))
    rounded = (log_q.exp() * (log_q + math.log(K))).sum()
    assert 96 * float(rounded) == pytest.approx(scalars["kl_prior_sum"], rel=0.05)


def test_multinomial_decoders() -> None:
    """The code's decoder brings in z once more, the paper's does not; for the same x̂ they differ."""
    io, _ = golden("multinomial")
    (plug_in, pred, noised, s), (direct, *_) = multinomial(), multinomial(direct=True)
    first = s.flatten() == 0
    same(plug_in.nelbo(pred, noised, s)[first].sum(-1), io["Lt"][first])
    expected = -pred.x.gather(-1, io["x0"][..., None]).squeeze(-1)
    same(direct.nelbo(pred, noised, s)[first], expected[first])
    assert torch.equal(direct.nelbo(pred, noised, s)[~first], plug_in.nelbo(pred, noised, s)[~first])


# --- training ---


def test_weights_know_interpolating_noise_only() -> None:
    noised = NoisySample(torch.zeros(1, 2).long(), column(0.5), torch.zeros(1, 2).long())
    with pytest.raises(ValueError, match="this weight is for interpolating noise, not Masked; leave it out"):
        ClippedWeight()(Masked(VOCAB), noised)
    with pytest.raises(ValueError, match="needs HybridNoise with p_u > 0"):
        DynamicWeight()(Interpolating(VOCAB, mixing=MaskNoise()), noised)
    with pytest.raises(ValueError, match="leave out either steps or weight"):
        Bound(steps=3, weight=ClippedWeight())


@pytest.mark.parametrize(
    "loss", [Bound(), Bound(steps=4), Bound(weight=DynamicWeight()), Bound(weight=ClippedWeight())], ids=repr
)
def test_every_loss_has_a_gradient(build: Build, vocab: Vocab, tiny: TransformerConfig, loss: Bound) -> None:
    process = Interpolating(vocab, CosineSquared(), HybridNoise(0.2))
    model = build(network=replace(tiny, time=8), process=process, head=Subs(carry_over=False))
    place = torch.arange(8).expand(16, -1)
    batch = Batch(torch.randint(0, 6, (16, 8), generator=torch.Generator().manual_seed(0)), place > 1, place == 7)
    result = Objective(loss)(model, batch, rng=rng(0, 16))
    result.mean.backward()
    assert float(result.mean.detach()) > 0
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert sum(float(p.grad.abs().sum()) for p in model.parameters() if p.grad is not None) > 0
