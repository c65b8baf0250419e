"""Mask noise: what never changes, how often the rest does, and the weights of the bound."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from redraft.core import (
    Canvas,
    Cosine,
    CosineSquared,
    Exponential,
    Geometric,
    IndependentReveal,
    Linear,
    Masked,
    NoisySample,
    PickResult,
    Polynomial,
    Prediction,
    Rng,
    Schedule,
    TablePrediction,
    Vocab,
    rng,
)

PValue = Callable[[Tensor, Tensor], float]
CHANCE = 1e-4
V, MASK = 5, 3  # the mask need not be the last id
VOCAB = Vocab(V, mask=MASK)
TOKENS = torch.tensor([0, 1, 2, 4])
SCHEDULES = [
    Linear(), Linear(0.1), Cosine(), CosineSquared(), Polynomial(2), Polynomial(0.5), Exponential(), Geometric(1e-2, 8),
]  # fmt: skip
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
seeds = st.integers(0, 10**6)


def random_tokens(seed: int, rows: int, length: int) -> Tensor:
    return TOKENS[torch.randint(0, 4, (rows, length), generator=torch.Generator().manual_seed(seed))]


def random_prediction(seed: int, rows: int, length: int) -> TablePrediction:
    raw = torch.randn(rows, length, V, generator=torch.Generator().manual_seed(seed))
    raw[..., MASK] = -torch.inf
    return TablePrediction(raw.log_softmax(-1))


def masked_canvas(rows: int, length: int) -> Canvas:
    return Canvas(torch.full((rows, length), MASK), torch.zeros(rows, length, dtype=torch.bool))


def column(t: float, rows: int) -> Tensor:
    return torch.full((rows, 1), t, dtype=torch.float64)


# --- noise ---


@given(seed=seeds, t=st.floats(0, 1), schedule=st.sampled_from(SCHEDULES))
def test_noise_masks_or_keeps_and_never_touches_padding(seed: int, t: float, schedule: Schedule) -> None:
    x, pad = random_tokens(seed, 3, 8), torch.arange(8) >= torch.tensor([[8], [5], [1]])
    noised = Masked(VOCAB, schedule).noise(x, column(t, 3), pad=pad, rng=rng(seed, 3))
    assert ((noised.z == x) | (noised.z == MASK)).all()
    assert torch.equal(noised.z[pad], x[pad])
    assert torch.equal(noised.target, x)


@given(seed=seeds, schedule=st.sampled_from(SCHEDULES), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_time_zero_is_exactly_clean(seed: int, schedule: Schedule, dtype: torch.dtype) -> None:
    """Whatever the schedule's start, and for each token by itself."""
    x = random_tokens(seed, 2, 50)
    t = torch.where(torch.arange(50) % 2 == 0, 0.0, 1.0).to(dtype).expand(2, -1)
    z = Masked(VOCAB, schedule).noise(x, t, rng=rng(seed, 2)).z
    assert torch.equal(z[:, ::2], x[:, ::2])
    assert (z[:, 1::2] == MASK).sum() > 35


@every_schedule
@pytest.mark.parametrize("t", [0.1, 0.5, 0.8])
def test_noise_keeps_the_scheduled_share(schedule: Schedule, t: float, p_value: PValue) -> None:
    x = random_tokens(0, 200, 200)
    kept = (Masked(VOCAB, schedule).noise(x, column(t, 200), rng=rng(1, 200)).z == x).sum()
    expected = float(schedule.keep(torch.tensor(t, dtype=torch.float64))) * x.numel()
    both = torch.tensor([expected, x.numel() - expected])
    assert p_value(torch.tensor([kept, x.numel() - kept]), both) > CHANCE


@given(seed=seeds)
def test_more_time_is_more_noise(seed: int) -> None:
    """One random number per token: what is lost at s is lost at t > s."""
    x, process = random_tokens(seed, 2, 30), Masked(VOCAB)
    early, late = (process.noise(x, column(t, 2), rng=rng(seed, 2)).z == MASK for t in (0.3, 0.7))
    assert (late | ~early).all()


# --- the reverse step ---


class Spy:
    """A pick that reveals nothing and remembers what it was told."""

    def __call__(self, pred: Prediction, canvas: Canvas, hidden: Tensor, share: Tensor, *, rng: Rng) -> PickResult:
        self.hidden, self.share = hidden, share
        return PickResult(torch.zeros_like(hidden), torch.empty(0, dtype=torch.int64))


@given(schedule=st.sampled_from(SCHEDULES), s=st.floats(0.001, 0.9), gap=st.floats(0.01, 0.1))
def test_the_share_is_that_of_bayes(schedule: Schedule, s: float, gap: float) -> None:
    spy, t = Spy(), s + gap
    Masked(VOCAB, schedule).reveal(
        random_prediction(0, 1, 2), masked_canvas(1, 2), column(s, 1), column(t, 1), spy, rng=rng(0)
    )
    early, late = (float(schedule.keep(torch.tensor(a, dtype=torch.float64))) for a in (s, t))
    assert float(spy.share) == pytest.approx((early - late) / (1 - late), rel=1e-9)


@every_schedule
@pytest.mark.parametrize("t", [1.0, 0.5, 1e-3])
def test_the_step_to_zero_reveals_everything(schedule: Schedule, t: float) -> None:
    canvas = Masked(VOCAB, schedule).step(
        random_prediction(0, 50, 20), masked_canvas(50, 20), column(0, 50), column(t, 50), rng=rng(0, 50)
    )
    assert (canvas.z != MASK).all()


@given(seed=seeds, s=st.floats(0, 0.99))
def test_a_step_changes_masked_tokens_only_and_no_given_ones(seed: int, s: float) -> None:
    g = torch.Generator().manual_seed(seed)
    z = torch.randint(0, V, (3, 9), generator=g)
    fixed = torch.rand(3, 9, generator=g) < 0.3
    pred, canvas = random_prediction(seed, 3, 9), Canvas(z, fixed)
    after = Masked(VOCAB).step(pred, canvas, column(s, 3), column(1, 3), rng=rng(seed, 3))
    stays = fixed | (z != MASK)
    assert torch.equal(after.z[stays], z[stays])
    spy = Spy()
    Masked(VOCAB).reveal(pred, canvas, column(s, 3), column(1, 3), spy, rng=rng(seed, 3))
    assert torch.equal(spy.hidden, ~stays)


def test_a_step_reveals_the_share_and_draws_from_the_prediction(p_value: PValue) -> None:
    rows, length = 400, 50
    x = torch.tensor([0.1, 0.2, 0.3, 0.0, 0.4])
    pred = TablePrediction(x.log().expand(rows, length, V))
    process, spy = Masked(VOCAB, Cosine()), Spy()
    s, t = column(0.4, rows), column(0.6, rows)
    process.reveal(pred, masked_canvas(rows, length), s, t, spy, rng=rng(0, rows))
    share = float(spy.share[0])
    z = process.step(pred, masked_canvas(rows, length), s, t, rng=rng(0, rows)).z
    expected = share * x.double()
    expected[MASK] = 1 - share
    assert p_value(z.flatten().bincount(minlength=V), expected * z.numel()) > CHANCE


def test_a_pick_that_changes_nothing_asks_nothing() -> None:
    class Silent(TablePrediction):
        def at(self, where: Tensor) -> Tensor:
            raise AssertionError("nothing is revealed, so the network must not be asked")

    pred = Silent(torch.zeros(2, 3, V))
    z = Masked(VOCAB).step(pred, masked_canvas(2, 3), column(0.5, 2), column(0.5, 2), rng=rng(0, 2)).z
    assert (z == MASK).all()
    nowhere = torch.zeros(2, 3, dtype=torch.bool)
    assert not IndependentReveal()(pred, masked_canvas(2, 3), nowhere, column(1, 2), rng=rng(0, 2)).where.any()


def test_tables_compose() -> None:
    for schedule in SCHEDULES:
        process = Masked(VOCAB, schedule)
        rows = process.marginal(0.2)
        assert torch.allclose(rows.sum(-1), torch.ones(V, dtype=torch.float64))
        assert torch.allclose(rows @ process.transition(0.2, 0.7), process.marginal(0.7))
        assert torch.allclose(process.transition(0.2, 0.5) @ process.transition(0.5, 0.7), process.transition(0.2, 0.7))


# --- prior, first hitting ---


def test_the_prior_masks_all_that_is_not_given() -> None:
    x = random_tokens(0, 2, 6)
    fixed = torch.arange(6).expand(2, -1) < 2
    z = Masked(VOCAB).prior(Canvas(x, fixed), rng=rng(0, 2)).z
    assert torch.equal(z[fixed], x[fixed])
    assert (z[~fixed] == MASK).all()


@every_schedule
def test_noise_that_does_not_forget_has_no_finite_prior(schedule: Schedule) -> None:
    process, x = Masked(VOCAB, schedule), random_tokens(0, 2, 3)
    expected = 0.0 if schedule.end == 0 else torch.inf
    assert torch.equal(process.prior_kl(x), torch.full((2, 3), expected))
    assert process.leaves_noise == (schedule.start < 1) == isinstance(schedule, Exponential | Geometric)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_the_next_reveal_is_the_largest_of_n_uniform_times(n: int, p_value: PValue) -> None:
    rows, t = 20_000, 0.8
    s = Masked(VOCAB).hit(masked_canvas(rows, n), column(t, rows), rng=rng(n, rows)) / t
    deviation = (n / ((n + 1) ** 2 * (n + 2)) / rows) ** 0.5
    assert float(s.mean()) == pytest.approx(n / (n + 1), abs=4 * deviation)
    assert p_value(torch.histc(s**n, 32, 0, 1), torch.full((32,), rows / 32)) > CHANCE


@every_schedule
def test_the_hit_law_holds_in_lost_signal_for_any_schedule(schedule: Schedule, p_value: PValue) -> None:
    rows, n, t = 20_000, 3, 0.9
    lost = lambda a: 1 - schedule.keep(a)  # noqa: E731
    s = Masked(VOCAB, schedule).hit(masked_canvas(rows, n), column(t, rows), rng=rng(0, rows))
    assert (s < t).all()
    hit = s > 0  # a schedule that starts below one may reach zero at once
    u = (lost(s) / lost(column(t, rows))) ** n
    floor = float((lost(torch.zeros(1)) / lost(column(t, 1))) ** n)
    kept = ((u[hit] - floor) / (1 - floor)).clamp(0, 1)
    assert p_value(torch.histc(kept, 32, 0, 1), torch.full((32,), len(kept) / 32)) > CHANCE
    assert float(hit.double().mean()) == pytest.approx(1 - floor, abs=4 * (floor / rows) ** 0.5 + 1e-9)


def test_a_row_without_masks_is_at_the_end() -> None:
    canvas = Canvas(torch.tensor([[MASK, MASK], [0, MASK], [0, 1]]), torch.tensor([[0, 0], [0, 1], [0, 0]]).bool())
    s = Masked(VOCAB).hit(canvas, column(0.7, 3), rng=rng(0, 3))
    assert s.shape == (3, 1)
    assert 0 < float(s[0]) < 0.7
    assert s[1:].tolist() == [[0.0], [0.0]]


def test_the_hit_of_a_window_is_that_of_its_row() -> None:
    process, r = Masked(VOCAB), rng(0, 4)
    whole, window = (
        process.hit(masked_canvas(4, 3), column(1, 4), rng=a) for a in (r, r.at(torch.arange(12, 15)[None]))
    )
    assert torch.equal(whole, window)


# --- the bound ---


def noised_at(t: Tensor, seed: int = 0, pad: Tensor | None = None) -> NoisySample:
    x = random_tokens(seed, 2, 6)
    hide = torch.rand(2, 6, generator=torch.Generator().manual_seed(seed)) < 0.7
    return NoisySample(x.masked_fill(hide, MASK), t, x, pad)


@given(t=st.floats(1e-6, 1), seed=seeds)
def test_the_weight_of_the_linear_schedule_is_one_over_t(t: float, seed: int) -> None:
    noised, pred = noised_at(column(t, 2), seed), random_prediction(seed, 2, 6)
    hidden = noised.z == MASK
    expected = pred.nll(hidden, noised.target) / t
    for eps in (0.0, 0.1):
        assert torch.allclose(Masked(VOCAB, Linear(eps)).nelbo(pred, noised), expected, rtol=1e-5)


@every_schedule
def test_the_weights_are_rates_and_shares(schedule: Schedule) -> None:
    process, noised, pred = Masked(VOCAB, schedule), noised_at(column(0.6, 2)), random_prediction(0, 2, 6)
    loss = pred.nll(noised.z == MASK, noised.target)
    kept = {a: float(schedule.keep(torch.tensor(a, dtype=torch.float64))) for a in (0.6, 0.6 - 1e-7, 0.2)}
    rate = (kept[0.6 - 1e-7] - kept[0.6]) / 1e-7 / (1 - kept[0.6])
    assert torch.allclose(process.nelbo(pred, noised), rate * loss, rtol=1e-4)
    share = (kept[0.2] - kept[0.6]) / (1 - kept[0.6])
    assert torch.allclose(process.nelbo(pred, noised, column(0.2, 2)), share * loss, rtol=1e-5)
    assert torch.allclose(process.nelbo(pred, noised, column(0, 2)), loss), "the last step pays in full"


@every_schedule
def test_many_steps_tend_to_the_rate(schedule: Schedule) -> None:
    process, noised, pred = Masked(VOCAB, schedule), noised_at(column(0.5, 2)), random_prediction(0, 2, 6)
    steps = 100_000
    summed = steps * process.nelbo(pred, noised, column(0.5 - 1 / steps, 2))
    assert torch.allclose(summed, process.nelbo(pred, noised), rtol=1e-3)


def test_padding_costs_nothing() -> None:
    pad = torch.arange(6).expand(2, -1) >= 3
    noised = noised_at(column(0.5, 2), pad=pad)
    noised = noised._replace(z=torch.full_like(noised.z, MASK))
    loss = Masked(VOCAB).nelbo(random_prediction(0, 2, 6), noised)
    assert (loss[pad] == 0).all()
    assert (loss[~pad] > 0).all()
    assert torch.equal(Masked(VOCAB).undetermined(noised), ~pad)


@every_schedule
@pytest.mark.parametrize("t", [1e-4, 0.5, 1 - 1e-4])
def test_gradients_are_finite_and_those_of_the_formula(schedule: Schedule, t: float) -> None:
    """In float32, at both ends of time, with a prompt at time zero, where the weight is infinite."""
    times = torch.full((2, 6), t)
    times[:, 0] = 0.0
    noised = noised_at(times)
    noised.z[:, 0] = noised.target[:, 0]
    raw = torch.randn(2, 6, V, generator=torch.Generator().manual_seed(1), requires_grad=True)
    (given_loss,) = torch.autograd.grad(
        Masked(VOCAB, schedule).nelbo(TablePrediction(raw.log_softmax(-1)), noised).sum(), raw, retain_graph=True
    )
    at = torch.tensor(t, dtype=torch.float32).double()
    rate = float(-schedule.slope(at) / (1 - schedule.keep(at)))
    hidden = noised.z == MASK
    naive = rate * torch.nn.functional.cross_entropy(raw[hidden], noised.target[hidden], reduction="sum")
    (expected,) = torch.autograd.grad(naive, raw)
    assert given_loss.isfinite().all()
    assert torch.allclose(given_loss, expected, rtol=1e-4)


# --- errors ---


def test_times_and_tokens_have_two_dimensions() -> None:
    process, x = Masked(VOCAB), random_tokens(0, 2, 3)
    for t in (torch.rand(2), torch.rand(2, 2), torch.rand(3, 1), torch.rand(())):
        with pytest.raises(ValueError, match=r"times must have shape \(B, 1\) or \(B, L\)"):
            process.noise(x, t, rng=rng(0, 2))
    for bad in (x[0], x.float(), x.int()):
        with pytest.raises(ValueError, match=r"tokens must be int64 of shape \(B, L\)"):
            process.noise(bad, torch.rand(2, 1), rng=rng(0, 2))
    with pytest.raises(ValueError, match="times must have shape"):
        process.step(random_prediction(0, 2, 3), masked_canvas(2, 3), torch.rand(2), torch.rand(2, 1), rng=rng(0, 2))


def test_mask_noise_needs_a_mask() -> None:
    with pytest.raises(ValueError, match="this vocabulary has no mask token"):
        Masked(Vocab(V)).noise(random_tokens(0, 1, 3), torch.ones(1, 1), rng=rng(0))
