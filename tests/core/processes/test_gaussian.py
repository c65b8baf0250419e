"""Gaussian noise: paths, conversions, the step back and its bound. The laws are in test_check_gaussian."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from redraft.core import (
    Canvas,
    ClampedLogSnr,
    CosineOffset,
    CosineSquared,
    DiscreteChain,
    ForwardVariance,
    Gaussian,
    LearnedVariance,
    Linear,
    NoisePath,
    NoisySample,
    PiecewiseLogSnr,
    PosteriorVariance,
    Schedule,
    ShiftedLogSnr,
    Sqrt,
    StraightPath,
    TanD,
    VarianceExploding,
    VariancePreserving,
    VectorPrediction,
    Vocab,
    VPLinear,
    eps_from_x,
    rng,
    score_from_x,
    v_from_x,
    x_from_eps,
    x_from_score,
    x_from_v,
)
from redraft.models import from_json, to_json

PATHS: list[NoisePath] = [
    VariancePreserving(),
    VariancePreserving(ClampedLogSnr(Sqrt())),
    VariancePreserving(ClampedLogSnr(TanD())),
    VariancePreserving(PiecewiseLogSnr((8.0, 3.0, 1.0, -2.0, -9.0))),
    VariancePreserving(DiscreteChain(Sqrt(), 50)),
    VarianceExploding(),
    StraightPath(),
]
every_path = pytest.mark.parametrize("path", PATHS, ids=repr)
VOCAB = Vocab(4)


def at(*times: float) -> Tensor:
    """(B, 1)"""
    return torch.tensor(times, dtype=torch.float64)[:, None]


def vectors(rows: int, places: int = 3, width: int = 2, seed: int = 0) -> Tensor:
    return rng(seed, rows).normal(places, width)


def canvas(z: Tensor) -> Canvas:
    return Canvas(z, torch.zeros(z.shape[:2], dtype=torch.bool))


# --- paths ---


@every_path
def test_the_log_snr_falls_and_is_finite(path: NoisePath) -> None:
    logsnr = path.logsnr(torch.linspace(0, 1, 101))
    assert logsnr.dtype == torch.float64
    assert bool(logsnr.isfinite().all())
    assert bool((logsnr.diff() <= 0).all())
    assert bool((logsnr.diff()[5:-5] < 0).all())


@every_path
def test_time_is_the_inverse_of_the_log_snr(path: NoisePath) -> None:
    t = torch.linspace(0.01, 0.99, 50, dtype=torch.float64)
    assert torch.allclose(path.time(path.logsnr(t)), t, atol=1e-9)


@every_path
def test_time_zero_is_clean_and_its_limit_is_not(path: NoisePath) -> None:
    a, s = path.scales(torch.tensor([0.0, 1e-9]))
    assert (float(a[0]), float(s[0])) == (1.0, 0.0)
    assert float(s[1]) > 0
    assert float(path.noise(torch.zeros(()))) == pytest.approx(float(s[1]), rel=1e-3)
    assert math.isfinite(float(path.logsnr(torch.zeros(()))))


@every_path
def test_slopes_are_the_derivatives(path: NoisePath) -> None:
    t, h = torch.tensor([0.11, 0.4, 0.83], dtype=torch.float64), 1e-6
    for slope, of in zip((*path.slopes(t), path.logsnr_slope(t)), (path.signal, path.noise, path.logsnr), strict=True):
        assert torch.allclose(slope, (of(t + h) - of(t - h)) / (2 * h), rtol=1e-6, atol=1e-8)


@every_path
def test_slopes_are_finite_at_the_ends(path: NoisePath) -> None:
    """A weight that is not a number would spoil the gradient even of places that are masked out."""
    with torch.inference_mode():
        slopes = (*path.slopes(torch.tensor([0.0, 1.0])), path.logsnr_slope(torch.tensor([0.0, 1.0])))
    assert all(bool(slope.isfinite().all()) for slope in slopes)


@every_path
def test_two_formulas_for_the_diffusion_of_the_sde(path: NoisePath) -> None:
    """g² = −s²·λ' = ds²/dt − 2f·s², f = d ln a/dt"""
    t = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
    s, slope = path.noise(t), path.slopes(t)[1]
    assert torch.allclose(path.diffusion(t), 2 * s * slope - 2 * path.drift(t) * s**2, rtol=1e-9)


def test_the_rates_of_variance_preserving_noise() -> None:
    """f = −β/2 and g² = β; β in closed form for three schedules."""
    t = torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64)
    tau, root = (torch.pi * t / 2).tan(), (t + 1e-4).sqrt()
    betas: list[tuple[Schedule, Tensor]] = [
        (VPLinear(), 0.1 + t * 19.9),
        (TanD(9.0), torch.pi * 81 * tau * (1 + tau**2) / (1 + 81 * tau**2)),
        (Sqrt(), 1 / (2 * root * (1 - root))),
    ]
    for schedule, beta in betas:
        path = VariancePreserving(ClampedLogSnr(schedule))
        assert torch.allclose(path.diffusion(t), beta, rtol=1e-9)
        assert torch.allclose(path.drift(t), -beta / 2, rtol=1e-9)


def test_paths_are_what_they_are_called() -> None:
    t = torch.linspace(0, 1, 11, dtype=torch.float64)
    preserving, exploding, straight = (
        VariancePreserving(ClampedLogSnr(CosineSquared())),
        VarianceExploding(0.1, 10.0),
        StraightPath(0.01, 0.98),
    )
    assert torch.allclose(preserving.signal(t) ** 2 + preserving.noise(t) ** 2, torch.ones_like(t))
    assert bool((exploding.signal(t) == 1).all())
    assert exploding.noise(t)[[0, 5, 10]].tolist() == pytest.approx([0.1, 1.0, 10.0])
    assert torch.allclose(straight.signal(t) + straight.noise(t), torch.ones_like(t))
    assert straight.noise(t)[[0, 5, 10]].tolist() == pytest.approx([0.01, 0.495, 0.98])
    assert [p.prior_std for p in (preserving, exploding, straight)] == [1.0, 10.0, 0.98]


@pytest.mark.parametrize("schedule", [CosineSquared(), Linear(), TanD(), CosineOffset(), Linear(0.1)], ids=repr)
def test_a_schedule_without_a_finite_log_snr_is_refused(schedule: Schedule) -> None:
    with pytest.raises(ValueError, match=r"use ClampedLogSnr\(schedule\)"):
        VariancePreserving(schedule)
    assert VariancePreserving(ClampedLogSnr(schedule)).prior_std == 1


@pytest.mark.parametrize(
    "make", [lambda: VarianceExploding(2, 1), lambda: VarianceExploding(0, 1), lambda: StraightPath(0.5, 1.0)]
)
def test_noise_must_rise_from_above_zero(make: type[NoisePath]) -> None:
    with pytest.raises(ValueError, match="noise rises"):
        make()


# --- conversions ---


@every_path
def test_predictions_of_one_x(path: NoisePath) -> None:
    """ε, v and the score by definition, for x and ε that are known."""
    a, s = path.scales(at(0.02, 0.5, 0.98)[..., None])
    x, eps = vectors(3), vectors(3, seed=1)
    z = a * x + s * eps
    assert torch.allclose(eps_from_x(x, z, a, s), eps)
    assert torch.allclose(v_from_x(x, z, a, s), a * eps - s * x)
    assert torch.allclose(score_from_x(x, z, a, s), -eps / s)
    for found in (x_from_eps(eps, z, a, s), x_from_v(a * eps - s * x, z, a, s), x_from_score(-eps / s, z, a, s)):
        assert torch.allclose(found, x)


def test_what_is_clean_is_x_whatever_was_predicted() -> None:
    z, (a, s) = vectors(1), VariancePreserving().scales(at(0.0)[..., None])
    for convert in (x_from_eps, x_from_v, x_from_score):
        assert torch.equal(convert(vectors(1, seed=3), z, a, s), z)


def test_errors_of_the_predictions_are_weights_of_one_error() -> None:
    """‖ε − ε̂‖² = SNR·‖x − x̂‖², ‖v − v̂‖² = (SNR + 1)·‖x − x̂‖² where variance is preserved."""
    path, t = VariancePreserving(), at(0.3)[..., None]
    a, s = path.scales(t)
    z, x, guess = vectors(1), vectors(1, seed=1), vectors(1, seed=2)
    error, snr = (x - guess).square(), path.logsnr(t).exp()
    assert torch.allclose((eps_from_x(x, z, a, s) - eps_from_x(guess, z, a, s)).square(), snr * error)
    assert torch.allclose((v_from_x(x, z, a, s) - v_from_x(guess, z, a, s)).square(), (snr + 1) * error)


# --- noise ---


def test_prompts_and_padding_stay_clean() -> None:
    process, x = Gaussian(VOCAB), vectors(2, places=4).float()
    t = torch.tensor([[0.0, 0.5, 0.5, 0.5], [0.5, 0.5, 0.0, 0.5]])
    pad = torch.tensor([[False, False, False, True], [False] * 4])
    noised = process.noise(x, t, pad=pad, rng=rng(0, 2))
    clean = (t == 0) | pad
    assert torch.equal(noised.z[clean], x[clean])
    assert bool((noised.z[~clean] != x[~clean]).all())
    assert noised.z.dtype == x.dtype
    assert torch.equal(noised.target, x)
    assert torch.equal(process.undetermined(noised), ~clean)


def test_noise_is_differentiable_in_what_is_noised() -> None:
    """Embeddings are learned through z: dz/dx = a."""
    process, x, t = Gaussian(VOCAB), vectors(1).requires_grad_(), at(0.5)
    (slope,) = torch.autograd.grad(process.noise(x, t, rng=rng(0)).z.sum(), x)
    assert torch.allclose(slope, process.path.signal(t)[..., None].expand_as(x))


def test_a_window_draws_what_the_row_would_draw_there() -> None:
    process, x = Gaussian(VOCAB), vectors(2, places=6)
    whole = process.noise(x, at(0.4, 0.7), rng=rng(1, 2)).z
    window = process.noise(x[:, 2:5], at(0.4, 0.7), rng=rng(1, 2).at(torch.arange(2, 5)[None])).z
    assert torch.equal(window, whole[:, 2:5])


def test_a_row_does_not_depend_on_its_batch() -> None:
    process, x = Gaussian(VOCAB), vectors(3)
    every = process.noise(x, at(0.1, 0.4, 0.7), rng=rng(1, 3)).z
    assert torch.equal(process.noise(x[1:2], at(0.4), rng=rng(1, torch.tensor([1]))).z, every[1:2])


@pytest.mark.parametrize("t", [torch.rand(2), torch.rand(2, 5)], ids=lambda t: str(tuple(t.shape)))
def test_the_shape_of_times_is_asserted(t: Tensor) -> None:
    with pytest.raises(ValueError, match="times must have shape"):
        Gaussian(VOCAB).noise(vectors(2), t, rng=rng(0, 2))


def test_tokens_are_no_vectors() -> None:
    with pytest.raises(ValueError, match="vectors must be floats"):
        Gaussian(VOCAB).noise(torch.zeros(2, 3, dtype=torch.int64), at(0.5, 0.5), rng=rng(0, 2))


def test_the_prior_leaves_what_is_fixed() -> None:
    process, z = Gaussian(VOCAB, VarianceExploding()), vectors(2)
    given = torch.tensor([[True, False, False], [False, False, True]])
    start = process.prior(Canvas(z, given), rng=rng(0, 2)).z
    assert torch.equal(start[given], z[given])
    assert float(start[~given].std()) > 10


def test_the_kl_of_a_prior_that_is_not_reached() -> None:
    """½Σ(a²x² + s² − 1 − ln s²), with a² = σ(−2) left at t = 1."""
    process, x = Gaussian(VOCAB, VariancePreserving(ClampedLogSnr(CosineSquared(), low=-2.0))), vectors(2)
    kept = 1 / (1 + math.exp(2))
    expected = (kept * x.square() - kept - math.log(1 - kept)).sum(-1) / 2
    assert torch.allclose(process.prior_kl(x), expected)


# --- the step back ---


def test_the_posterior_of_ddpm() -> None:
    """One step of a chain: [√ᾱ_s·β·x + √α·(1 − ᾱ_s)·z]/(1 − ᾱ_t) and β(1 − ᾱ_s)/(1 − ᾱ_t) (Ho et al. 2020, eq. 7)."""
    process, s, t, x, z = Gaussian(VOCAB), at(0.5), at(0.51), vectors(1), vectors(1, seed=1)
    before, kept = (process.path.signal(u)[..., None] ** 2 for u in (s, t))
    alpha = kept / before
    mean, variance = process.posterior(x, z, s, t)
    expected = (before.sqrt() * (1 - alpha) * x + alpha.sqrt() * (1 - before) * z) / (1 - kept)
    assert torch.allclose(mean, expected, rtol=1e-10)
    assert torch.allclose(variance, (1 - alpha) * (1 - before) / (1 - kept), rtol=1e-10)
    noise = eps_from_x(x, z, *process.path.scales(t[..., None]))
    assert torch.allclose(mean, (z - (1 - alpha) * noise / (1 - kept).sqrt()) / alpha.sqrt(), rtol=1e-10)


@every_path
@pytest.mark.parametrize("variance", [PosteriorVariance(), ForwardVariance(), LearnedVariance()], ids=repr)
def test_the_last_step_is_the_prediction(
    path: NoisePath, variance: PosteriorVariance | ForwardVariance | LearnedVariance
) -> None:
    process, x = Gaussian(VOCAB, path, variance), vectors(2).float()
    pred = VectorPrediction(x, spread=torch.full_like(x, 0.5))
    end = process.step(pred, canvas(vectors(2, seed=1).float()), 0 * at(1, 1), at(0.1, 1.0), rng=rng(0, 2))
    assert torch.equal(end.z, x)


def test_a_step_keeps_the_hint_and_what_is_fixed() -> None:
    process, z, x = Gaussian(VOCAB), vectors(1).float(), vectors(1, seed=1).float()
    before = Canvas(z, torch.tensor([[True, False, False]]))
    after = process.step(VectorPrediction(x), before, at(0.3), at(0.6), rng=rng(0))
    assert after.context.previous is x
    assert torch.equal(after.z[:, 0], z[:, 0])
    assert bool((after.z[:, 1:] != z[:, 1:]).all())
    assert after.z.dtype == z.dtype


def test_the_large_variance_is_beta() -> None:
    """1 − ᾱ_t/ᾱ_s in DDPM's letters, and that of the forward step."""
    process, s, t = Gaussian(VOCAB, variance=ForwardVariance()), at(0.4), at(0.6)
    _, variance = process.reverse(VectorPrediction(vectors(1)), vectors(1, seed=1), s, t)
    before, kept = (process.path.signal(u) ** 2 for u in (s, t))
    assert float(variance) == pytest.approx(float(1 - kept / before))
    assert float(variance) == pytest.approx(float(process.transition(s, t)[1]))


def test_the_large_variance_is_right_for_normal_data() -> None:
    """If x ~ N(0, I), all z are, and z_s | z_t ~ N(a_t/a_s·z_t, 1 − (a_t/a_s)²); x̂ = a_t·z_t."""
    process, z, s, t = Gaussian(VOCAB, variance=ForwardVariance()), vectors(1), at(0.2), at(0.8)
    factor, _ = process.transition(s, t)
    mean, variance = process.reverse(VectorPrediction(process.path.signal(t) * z), z, s, t)
    assert torch.allclose(mean, factor * z)
    assert float(variance) == pytest.approx(float(1 - factor**2))


def test_a_learned_variance_lies_between() -> None:
    """Spread 0 is the small one, 1 the large one, and 0.3 their geometric mean with that weight; so is its bound."""
    x, z, s, t = vectors(1), vectors(1, seed=1), at(0.4), at(0.6)
    noised = NoisySample(z, t, vectors(1, seed=2))

    def said(variance: PosteriorVariance | ForwardVariance | LearnedVariance, spread: float) -> tuple[Tensor, Tensor]:
        process, pred = Gaussian(VOCAB, variance=variance), VectorPrediction(x, spread=torch.full_like(x, spread))
        return process.reverse(pred, z, s, t)[1], process.nelbo(pred, noised, s)

    for fixed, spread in ((PosteriorVariance(), 0.0), (ForwardVariance(), 1.0)):
        for ours, theirs in zip(said(LearnedVariance(), spread), said(fixed, spread), strict=True):
            assert torch.allclose(ours, theirs)
    small, large, between = (
        said(PosteriorVariance(), 0)[0],
        said(ForwardVariance(), 0)[0],
        said(LearnedVariance(), 0.3)[0],
    )
    assert torch.allclose(between, small**0.7 * large**0.3)


def test_a_learned_variance_needs_a_network_that_says_it() -> None:
    process, z = Gaussian(VOCAB, variance=LearnedVariance()), vectors(1)
    with pytest.raises(ValueError, match="needs a head that predicts it"):
        process.step(VectorPrediction(z), canvas(z), at(0.4), at(0.6), rng=rng(0))


# --- the bound ---


@pytest.mark.parametrize("variance", [PosteriorVariance(), ForwardVariance(), LearnedVariance()], ids=repr)
@every_path
def test_the_bound_of_a_step_is_a_kl(
    path: NoisePath, variance: PosteriorVariance | ForwardVariance | LearnedVariance
) -> None:
    process, x, guess, z = Gaussian(VOCAB, path, variance), vectors(1), vectors(1, seed=1), vectors(1, seed=2)
    s, t, pred = at(0.4), at(0.6), VectorPrediction(guess, spread=torch.sigmoid(vectors(1, seed=3)))
    q, p = (
        torch.distributions.Normal(mean, variance.sqrt().expand_as(mean))
        for mean, variance in (process.posterior(x, z, s, t), process.reverse(pred, z, s, t))
    )
    kl = torch.distributions.kl_divergence(q, p).sum(-1)
    assert torch.allclose(process.nelbo(pred, NoisySample(z, t, x), s), kl, rtol=1e-9)


@every_path
def test_the_steps_of_the_bound_add_up_to_its_integral(path: NoisePath) -> None:
    """For one error everywhere: ½(SNR_0 − SNR_1)·error², the end at s = 0 being the finite one."""
    process, x, guess = Gaussian(VOCAB, path), vectors(1), vectors(1, seed=1)
    snr = path.logsnr(torch.tensor([0.0, 1.0])).exp()
    whole = (snr[0] - snr[1]) / 2 * (x - guess).square().sum(-1)
    grid = torch.linspace(0, 1, 11, dtype=torch.float64)[:, None, None]
    steps = sum(process.nelbo(VectorPrediction(guess), NoisySample(x, t, x), s) for s, t in pairwise(grid))
    assert torch.allclose(torch.as_tensor(steps), whole, rtol=1e-9)
    t, h = at(0.45), 1e-5
    step = process.nelbo(VectorPrediction(guess), NoisySample(x, t + h, x), t - h)
    assert torch.allclose(process.nelbo(VectorPrediction(guess), NoisySample(x, t, x)), step / (2 * h), rtol=1e-5)


@pytest.mark.parametrize("s", [None, at(0.2)], ids=["continuous", "steps"])
def test_nothing_is_learned_of_prompts_and_padding(s: Tensor | None) -> None:
    process, x, guess = Gaussian(VOCAB), vectors(1, places=4), vectors(1, places=4, seed=1).requires_grad_()
    t, pad = torch.tensor([[0.0, 0.5, 0.7, 0.5]]), torch.tensor([[False, False, False, True]])
    nats = process.nelbo(VectorPrediction(guess), process.noise(x, t, pad=pad, rng=rng(0)), s)
    assert (nats[0] > 0).tolist() == [False, True, True, False]
    assert nats[0, [0, 3]].tolist() == [0, 0]
    (slope,) = torch.autograd.grad(nats.sum(), guess)
    assert (slope[0] != 0).any(-1).tolist() == [False, True, True, False]
    assert bool(slope.isfinite().all())


def test_only_the_small_variance_has_a_limit() -> None:
    for variance in (ForwardVariance(), LearnedVariance()):
        process, x = Gaussian(VOCAB, variance=variance), vectors(1)
        assert not process.continuous
        with pytest.raises(ValueError, match=r"use Bound\(steps=T\)"):
            process.nelbo(VectorPrediction(x, spread=x), NoisySample(x, at(0.5), x))
    assert Gaussian(VOCAB).continuous


def test_the_bound_is_of_the_dtype_of_the_vectors() -> None:
    process, x = Gaussian(VOCAB), vectors(1).float()
    for s in (None, at(0.2)):
        assert process.nelbo(VectorPrediction(x + 1), process.noise(x, at(0.5), rng=rng(0)), s).dtype == torch.float32


# --- at home ---


def test_the_process_is_its_configuration() -> None:
    process = Gaussian(VOCAB, VariancePreserving(ShiftedLogSnr(ClampedLogSnr(TanD(5.0)), 0.5)), ForwardVariance())
    assert from_json(to_json(process)) == process
