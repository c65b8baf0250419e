"""SEDD: pure functions of a score against the original's numbers, and against our processes in other words."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import pytest
import torch
from conftest import GOLDEN
from hypothesis import given, strategies as st
from safetensors.torch import load_file
from torch import Tensor

from redraft.core import (
    Canvas,
    Cosine,
    Geometric,
    HybridNoise,
    Interpolating,
    Linear,
    Masked,
    MaskNoise,
    NoisySample,
    Schedule,
    TablePrediction,
    UniformNoise,
    Vocab,
    rng,
)
from redraft.core.processes import sedd
from redraft.evaluation.laws import tokens
from redraft.models import Score

V, MASK, CHANCE = 5, 4, 1e-4
VOCAB = Vocab(V, mask=MASK)
NOISE = {"mask": Masked, "uniform": Interpolating}
SCHEDULES = [Linear(1e-3), Cosine(1e-3), Geometric(1e-4, 20.0)]
every_noise = pytest.mark.parametrize("noise", NOISE)


# --- the original's numbers ---


@dataclass(frozen=True)
class Golden:
    """A directory of tests/golden, in float64, with the noise it was made with."""

    io: dict[str, Tensor]
    limit: Tensor
    schedule: Schedule
    step: float
    loss: float

    @classmethod
    def of(cls, name: str) -> Golden:
        path = GOLDEN / name
        io = {n: v.double() if v.is_floating_point() else v for n, v in load_file(path / "io.safetensors").items()}
        expected = json.loads((path / "expected.json").read_text())
        states = expected["dim"]
        loss, step = expected["scalars"]["loss_mean"], expected["step_size"]
        if name == "sedd":
            return cls(io, Masked(Vocab(states, mask=states - 1)).limiting_distribution, Linear(1e-3), step, loss)
        return cls(io, Interpolating(Vocab(states)).limiting_distribution, Geometric(1e-4, 20.0), step, loss)

    def __getitem__(self, name: str) -> Tensor:
        return self.io[name]

    def column(self, name: str) -> Tensor:
        return self.io[name][:, None]

    def sigma(self, t: Tensor) -> Tensor:
        return -self.schedule.keep(t).log()


@pytest.fixture(scope="module", params=["sedd", "sedd_uniform"])
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden.of(request.param)


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)


def test_schedules(golden: Golden) -> None:
    t = golden.column("t")
    same(golden.sigma(t), golden.column("sigma"))
    same(-golden.schedule.slope(t) / golden.schedule.keep(t), golden.column("dsigma"))


def test_score_entropy(golden: Golden) -> None:
    found = sedd.score_entropy(golden["log_score"], golden["xt"], golden["x0"], golden.column("sigma"), golden.limit)
    same(found, golden["score_entropy"])
    per_sequence = (golden.column("dsigma") * found).sum(-1)
    same(per_sequence, golden["loss_per_sequence"])
    assert float(per_sequence.mean()) == pytest.approx(golden.loss, rel=1e-4)


def test_euler_step(golden: Golden) -> None:
    found = sedd.euler_probs(golden["log_score"], golden["xt"], golden.step * golden.column("dsigma"), golden.limit)
    same(found, golden["euler_probs"])


def test_tweedie_step_and_the_last_one(golden: Golden) -> None:
    sigma, early = golden.column("sigma"), golden.sigma(golden.column("t") - golden.step)
    same(sedd.tweedie_probs(golden["log_score"], golden["xt"], sigma - early, golden.limit), golden["analytic_probs"])
    last = sedd.tweedie_probs(golden["log_score"], golden["xt"], sigma, golden.limit)
    words = golden["denoiser_probs"].shape[-1]  # the original drops the mask, the last state
    same(last[..., :words], golden["denoiser_probs"])


def test_the_score_head_is_the_original_s_output_layer() -> None:
    """Its x̂ under mask noise has the original's loss, though σ is nowhere in it."""
    golden = Golden.of("sedd")
    z, sigma, states = golden["xt"], golden.column("sigma"), len(golden.limit)
    raw = golden["log_score"] + sigma.expm1().log()[..., None] + math.log(states - 1)  # what the network said
    same(sedd.log_scores(raw, z, sigma), golden["log_score"])
    process = Masked(Vocab(states, mask=states - 1), golden.schedule)
    hidden = z == states - 1
    t = golden.column("t")
    log_x = Score().estimate(raw[hidden], z[hidden], t.expand_as(z)[hidden], process)
    pred = TablePrediction(torch.zeros_like(raw).float().masked_scatter(hidden[..., None], log_x), normalized=False)
    found = process.nelbo(pred, NoisySample(z, t, golden["x0"]))
    same(found.double(), golden.column("dsigma") * golden["score_entropy"])
    log_score = sedd.score_ratios(pred.x.double(), z, process.schedule.keep(t), golden.limit)
    same(log_score[hidden][:, :-1], golden["log_score"][hidden][:, :-1])


# --- the change of parameterization ---


def guess(seed: int, length: int, spread: float) -> Tensor:
    """(1, length, V) log x̂, nothing on the mask; its sum is one only for spread zero."""
    g = torch.Generator().manual_seed(seed)
    log_x = torch.randn(1, length, V, dtype=torch.float64, generator=g)
    log_x[..., MASK] = -torch.inf
    return log_x.log_softmax(-1) + spread * torch.randn(1, length, 1, dtype=torch.float64, generator=g)


def pairs(noise: str) -> tuple[Tensor, Tensor]:
    """(1, n) every z and x that can be."""
    states = [(z, x) for x in range(V - 1) for z in (range(V - 1) if noise == "uniform" else (x, MASK))]
    z, x = torch.tensor(states).T
    return z[None], x[None]


@every_noise
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: type(s).__name__)
@given(t=st.floats(0.02, 0.98), seed=st.integers(0, 10**6), spread=st.sampled_from([0.0, 0.5]))
def test_score_entropy_is_the_bound(noise: str, schedule: Schedule, t: float, seed: int, spread: float) -> None:
    """SEDD equals MDLM and UDLM: σ'·(score entropy of the ratios of x̂) is `nelbo`, if Σx̂ is one and if it is free."""
    process = NOISE[noise](VOCAB, schedule)
    (z, x), time = pairs(noise), torch.full((1, 1), t, dtype=torch.float64)
    log_x, keep = guess(seed, z.shape[1], spread), schedule.keep(time)
    log_s = sedd.score_ratios(log_x, z, keep, process.limiting_distribution)
    rate = -schedule.slope(time) / keep
    expected = rate * sedd.score_entropy(log_s, z, x, -keep.log(), process.limiting_distribution)
    found = process.nelbo(TablePrediction(log_x, normalized=spread == 0), NoisySample(z, time, x))
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


@given(seed=st.integers(0, 10**6), t=st.floats(0.05, 0.95), c=st.floats(1.1, 3))
def test_uniform_noise_does_not_tell_the_sum(seed: int, t: float, c: float) -> None:
    """c·x̂ + (c − 1)·b/α has the same ratios as x̂, so the same loss: hence no `Score` for it."""
    process, (z, x), time = Interpolating(VOCAB), pairs("uniform"), torch.full((1, 1), t, dtype=torch.float64)
    log_x = guess(seed, z.shape[1], 0.0)
    keep, _, word = process.mix(time)
    other = (c * log_x.exp() + (c - 1) * word / keep).log()
    other[..., MASK] = -torch.inf
    losses = (process.nelbo(TablePrediction(g, normalized=False), NoisySample(z, time, x)) for g in (log_x, other))
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)


@given(seed=st.integers(0, 10**6), t=st.floats(0.05, 0.95))
def test_a_wrong_sum_costs(seed: int, t: float) -> None:
    """Z − 1 − log Z more than the same x̂ normalized, per masked token and unit of the rate."""
    time, free = torch.full((1, 1), t, dtype=torch.float64), guess(seed, 6, 0.7)
    noised = NoisySample(torch.full((1, 6), MASK), time, torch.zeros(1, 6, dtype=torch.int64))
    loss = Masked(VOCAB).nelbo(TablePrediction(free, normalized=False), noised).double()
    best = Masked(VOCAB).nelbo(TablePrediction(free.log_softmax(-1)), noised).double()
    log_mass = free.logsumexp(-1)
    torch.testing.assert_close(loss - best, (log_mass.expm1() - log_mass) / time, rtol=1e-4, atol=1e-5)


def test_the_gradient_pulls_every_intensity_to_the_truth() -> None:
    raw = torch.randn(1, 3, V - 1, generator=torch.Generator().manual_seed(0)).requires_grad_()
    x, time = torch.tensor([[0, 1, 2]]), torch.full((1, 1), 0.25)
    log_x = torch.cat([raw, torch.full((1, 3, 1), -torch.inf)], -1)
    noised = NoisySample(torch.full((1, 3), MASK), time, x)
    Masked(VOCAB).nelbo(TablePrediction(log_x, normalized=False), noised).sum().backward()
    expected = 4 * (raw.detach().exp() - torch.nn.functional.one_hot(x, V - 1))
    torch.testing.assert_close(raw.grad, expected)


# --- steps ---


def drawn(process: Masked | Interpolating, log_x: Tensor, z: int, s: float, t: float, draws: int) -> Tensor:
    canvas = Canvas(torch.full((1, draws), z), torch.zeros(1, draws, dtype=torch.bool))
    at = (torch.full((1, 1), u, dtype=torch.float64) for u in (s, t))
    pred = TablePrediction(log_x.expand(1, draws, V), normalized=False)
    return process.step(pred, canvas, *at, rng=rng(3)).z[0]


@every_noise
@pytest.mark.parametrize(("s", "t"), [(0.3, 0.7), (0.0, 0.4)])
def test_the_ancestral_step_is_tweedie_s(noise: str, s: float, t: float) -> None:
    """s = 0 is the original's last step."""
    schedule, log_x = Geometric(0.05, 3.0), guess(1, 1, 0.0)
    process = NOISE[noise](VOCAB, schedule)
    late, early = (-schedule.kept(torch.tensor([[u]], dtype=torch.float64)).log() for u in (t, s))
    for z in (0, 2, MASK) if noise == "mask" else (0, 2):
        state = torch.tensor([[z]])
        log_s = sedd.score_ratios(log_x, state, (-late).exp(), process.limiting_distribution)
        p = sedd.clip_and_normalize(sedd.tweedie_probs(log_s, state, late - early, process.limiting_distribution))[0, 0]
        assert tokens.chi_square(drawn(process, log_x, z, s, t, 20_000), p) > CHANCE


def bayes(process: Masked | Interpolating, log_x: Tensor, z: int, s: float, t: float) -> Tensor:
    """(V,) q_{t|s}(z | y)·(α_s·x̂_y + b_s[y]), from the tables; x̂ as it is, whatever its sum."""
    keep = process.schedule.keep(torch.tensor(s, dtype=torch.float64))
    p = process.transition(s, t)[:, z] * (keep * log_x.exp() + (1 - keep) * process.limiting_distribution)
    return p / p.sum()


@every_noise
def test_a_free_sum_weighs_in_the_step(noise: str) -> None:
    process, (s, t), z = NOISE[noise](VOCAB, Linear()), (0.3, 0.7), MASK if noise == "mask" else 1
    for mass in (0.4, 2.5):
        one = guess(1, 1, 0.0)
        free = one + math.log(mass)
        found = drawn(process, free, z, s, t, 20_000)
        assert tokens.chi_square(found, bayes(process, free[0, 0], z, s, t)) > CHANCE
        assert tokens.chi_square(found, bayes(process, one[0, 0], z, s, t)) < CHANCE, "it is another law than with one"


@every_noise
@given(seed=st.integers(0, 10**6), s=st.floats(0.01, 0.5), t=st.floats(0.55, 0.95), spread=st.sampled_from([0.0, 0.5]))
def test_the_price_of_a_step_is_its_kl(noise: str, seed: int, s: float, t: float, spread: float) -> None:
    process, (z, x) = NOISE[noise](VOCAB, Linear()), pairs(noise)
    late, early = (torch.full((1, 1), u, dtype=torch.float64) for u in (t, s))
    log_x, truth = guess(seed, z.shape[1], spread), torch.eye(V, dtype=torch.float64).log()
    found = process.nelbo(TablePrediction(log_x, normalized=spread == 0), NoisySample(z, late, x), early).double()
    for i, (here, true) in enumerate(zip(z[0].tolist(), x[0].tolist(), strict=True)):
        if noise == "mask" and here != MASK:
            assert float(found[0, i]) == 0
            continue
        q, p = (bayes(process, g, here, s, t) for g in (truth[true], log_x[0, i]))
        kl = float((torch.xlogy(q, q) - torch.xlogy(q, p)).nan_to_num(0.0).sum())
        assert float(found[0, i]) == pytest.approx(kl, rel=2e-4, abs=2e-5)


@every_noise
def test_a_free_sum_is_tweedie_s_in_short_steps(noise: str) -> None:
    process, t, dt = NOISE[noise](VOCAB, Linear()), 0.6, 1e-6
    log_x, z = guess(3, 1, 0.8), MASK if noise == "mask" else 1
    state, keep = torch.tensor([[z]]), torch.full((1, 1), 1 - t, dtype=torch.float64)
    change = (keep + dt).log() - keep.log()
    tweedie = sedd.tweedie_probs(
        sedd.score_ratios(log_x, state, keep, process.limiting_distribution),
        state,
        change,
        process.limiting_distribution,
    )
    ours, theirs = bayes(process, log_x[0, 0], z, t - dt, t), sedd.clip_and_normalize(tweedie)[0, 0]
    others = torch.arange(V) != z
    torch.testing.assert_close(ours[others], theirs[others], rtol=1e-4, atol=1e-12)


@given(seed=st.integers(0, 10**6), change=st.floats(0.001, 5))
def test_a_long_euler_step_is_made_a_distribution(seed: int, change: float) -> None:
    z, limit = torch.tensor([[0, 1, 2, 3]]), Interpolating(VOCAB).limiting_distribution
    log_s = sedd.score_ratios(guess(seed, 4, 0.0), z, torch.full((1, 1), 0.5).double(), limit)
    p = sedd.euler_probs(log_s, z, torch.full((1, 1), change).double(), limit)
    torch.testing.assert_close(p.sum(-1), torch.ones(1, 4).double())
    proper = sedd.clip_and_normalize(p)
    assert (proper >= 0).all()
    torch.testing.assert_close(proper.sum(-1), torch.ones(1, 4).double())
    if bool((p >= 0).all()):
        torch.testing.assert_close(proper, p)


def test_no_euler_step_goes_from_a_token_that_no_noise_leads_to() -> None:
    """A word under mask noise: the score of the other tokens is infinite there, the rate zero."""
    limit = torch.tensor([0.0, 0.0, 1.0]).double()
    log_s = torch.tensor([[[0.0, torch.inf, torch.inf]]]).double()
    p = sedd.euler_probs(log_s, torch.tensor([[0]]), torch.full((1, 1), 0.1).double(), limit)
    assert p.tolist() == [[[1.0, 0.0, 0.0]]]


def test_both_steps_agree_when_they_are_short() -> None:
    z, limit = torch.tensor([[0, 3]]), Interpolating(VOCAB).limiting_distribution
    change = torch.full((1, 1), 1e-5).double()
    log_s = sedd.score_ratios(guess(0, 2, 0.0), z, torch.full((1, 1), 0.4).double(), limit)
    tweedie = sedd.clip_and_normalize(sedd.tweedie_probs(log_s, z, change, limit))
    torch.testing.assert_close(sedd.euler_probs(log_s, z, change, limit), tweedie, rtol=1e-4, atol=1e-9)


# --- ends that are not exact ---


def test_a_geometric_schedule_pays_for_both_ends() -> None:
    """e^{−20} of the signal is left at t = 1 and 10⁻⁴ of the tokens are wrong at t = 0: little, but accounted for."""
    toy, process = tokens.ToyLanguage.of(), Interpolating(tokens.VOCAB, Geometric(1e-4, 20.0))
    assert process.leaves_noise
    prior = float(process.prior_kl(torch.zeros(1, 1, dtype=torch.int64)))
    assert 0 < prior < 1e-7
    assert tokens._enumerated_bound(process, tokens.Oracle(toy, process)) == pytest.approx(toy.entropy, abs=2e-3)
    short = Interpolating(tokens.VOCAB, Geometric(1e-4, 1.0))  # not noise enough: the prior is far
    assert float(short.prior_kl(torch.zeros(1, 1, dtype=torch.int64))) > 0.05
    # exactly: the bound stands above the entropy by what the prior misses of z_1
    z = torch.cartesian_prod(*[torch.arange(tokens._WORDS)] * tokens._LENGTH)
    end = (toy.p[:, None] * short.marginal(1.0)[toy.sequences[:, None], z[None]].prod(-1)).sum(0)
    missed = float((end * (end * len(z)).log()).sum())
    assert missed > 0.05
    assert tokens._enumerated_bound(short, tokens.Oracle(toy, short)) == pytest.approx(toy.entropy + missed, abs=2e-3)


def test_mask_noise_that_leaves_tokens_has_no_bound() -> None:
    assert (
        tokens._enumerated_bound(
            Masked(tokens.VOCAB, Linear(1e-3)), tokens.Oracle(tokens.ToyLanguage.of(), Masked(tokens.VOCAB))
        )
        == math.inf
    )


# --- limits ---


def test_limits() -> None:
    assert Masked(VOCAB).limiting_distribution.tolist() == [0, 0, 0, 0, 1]
    assert Interpolating(VOCAB, mixing=MaskNoise()).limiting_distribution.tolist() == [0, 0, 0, 0, 1]
    assert Interpolating(VOCAB, mixing=UniformNoise()).limiting_distribution.tolist() == [
        0.25,
        0.25,
        0.25,
        0.25,
        0,
    ]
    assert Interpolating(Vocab(4)).limiting_distribution.tolist() == [0.25] * 4
    with pytest.raises(ValueError, match="scores need mask or uniform noise"):
        _ = Interpolating(VOCAB, mixing=HybridNoise(0.1)).limiting_distribution


def test_the_scale_is_stable_where_there_is_hardly_any_noise() -> None:
    raw, z = torch.zeros(1, 1, V), torch.tensor([[MASK]])
    found = sedd.log_scores(raw, z, torch.tensor([[1e-6]]))
    assert float(found[0, 0, 0]) == pytest.approx(-math.log(1e-6) - math.log(V - 1), rel=1e-5)
    assert float(found[0, 0, MASK]) == 0
    assert torch.equal(sedd.log_scores(raw + 2, z)[0, 0], torch.tensor([2.0, 2.0, 2.0, 2.0, 0.0]))
