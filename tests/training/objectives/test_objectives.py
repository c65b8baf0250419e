"""Objectives: strata of times, prompts at zero, and losses that are likelihoods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from redraft.core import (
    Batch,
    BatchOrigin,
    Context,
    Cosine,
    Exponential,
    Gaussian,
    Geometric,
    Linear,
    Loss,
    Masked,
    NoiseTimes,
    NoisySample,
    Polynomial,
    Prediction,
    Rng,
    Schedule,
    VectorPrediction,
    Vocab,
    rng,
)
from redraft.models import (
    AttentionPattern,
    BlockCausal,
    Causal,
    DiffusionLM,
    Full,
    TransformerConfig,
)
from redraft.models.checkpoints import serialization
from redraft.models.networks.patterns import _TwoStreams
from redraft.training import (
    Bound,
    ImportanceTimes,
    Objective,
    SquaredError,
    StratifiedTimes,
    SumOfTerms,
    TokenCrossEntropy,
    TrainStep,
    fit_clipped_times,
    fit_importance_times,
    presets,
)
from redraft.training.objectives.conditioning import (
    _punch_holes,
)
from redraft.training.objectives.fitted_times import (
    _candidate_intervals,
    _relative_variance,
)

Build = Callable[..., DiffusionLM]
MASK = 6
_GOLDEN = 0.6180339887498949


def tokens(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 6, (rows, length), generator=torch.Generator().manual_seed(seed))


def prompted(rows: int, length: int, prompt: int, pad: int = 0) -> Batch:
    """`prompt` given tokens at the left, `pad` empty places at the right."""
    place = torch.arange(length).expand(rows, -1)
    empty = place >= length - pad
    return Batch(tokens(rows, length), (place >= prompt) & ~empty, empty if pad else None)


# --- times ---


def split(total: int, parts: list[int]) -> list[tuple[int, int]]:
    """(first, rows) of each worker and accumulation step."""
    cuts = sorted({0, total, *(p % (total + 1) for p in parts)})
    return [(lo, hi - lo) for lo, hi in pairwise(cuts)]


@given(total=st.integers(1, 24), cuts=st.lists(st.integers(0, 24), max_size=4), seed=st.integers(0, 10**6))
def test_every_stratum_is_hit_once_however_the_batch_is_split(total: int, cuts: list[int], seed: int) -> None:
    """Each part with a generator of its own, as workers and accumulation steps have."""
    drawn = []
    for i, (first, rows) in enumerate(split(total, cuts)):
        batch = replace(Batch.of(tokens(rows, 5)), origin=BatchOrigin(first=first, total=total))
        drawn.append(StratifiedTimes()(batch, rng=rng(seed + i, rows)))
    t = torch.cat(drawn)
    assert t.shape == (total, 1)
    assert (t * total).floor().flatten().sort().values.tolist() == list(range(total))


@given(total=st.integers(1, 24), block=st.integers(1, 6), seed=st.integers(0, 10**6))
def test_every_block_has_its_own_strata(total: int, block: int, seed: int) -> None:
    length = 10
    t = StratifiedTimes(block=block)(Batch.of(tokens(total, length)), rng=rng(seed, total))
    assert t.shape == (total, length)
    for b, lo in enumerate(range(0, length, block)):
        inside = t[:, lo : lo + block]
        assert (inside == inside[:, :1]).all(), "one time per block"
        turned = (inside[:, 0] - b * _GOLDEN) % 1
        assert (turned * total).floor().sort().values.tolist() == list(range(total))
    assert len(t[0].unique()) == -(-length // block), "blocks of a row differ"


@given(low=st.floats(0, 0.5), width=st.floats(0.01, 0.5), seed=st.integers(0, 10**6))
def test_clipped_times_stay_within_their_bounds(low: float, width: float, seed: int) -> None:
    t = StratifiedTimes(low, low + width)(Batch.of(tokens(16, 3)), rng=rng(seed, 16))
    assert low <= t.min() <= t.max() <= low + width
    assert (((t - low) / width) * 16).floor().flatten().tolist() == list(range(16))


@pytest.mark.parametrize(("low", "high"), [(0.5, 0.5), (0.7, 0.2), (-0.1, 1.0), (0.0, 1.1)])
def test_bounds_must_be_bounds(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="0 <= low < high <= 1"):
        StratifiedTimes(low, high)


@given(steps=st.integers(1, 1000), t=st.floats(0, 1, exclude_min=True))
def test_a_drawn_time_falls_into_its_step(steps: int, t: float) -> None:
    times = Bound(steps).grid(torch.tensor([[t]], dtype=torch.float64))
    assert times.s is not None
    late, early = float(times.t), float(times.s)
    assert early - 1e-9 <= t <= late + 1e-9
    assert late - early == pytest.approx(1 / steps)
    assert late * steps == pytest.approx(round(late * steps))
    assert times.weight == steps


def test_continuous_time_has_no_grid() -> None:
    t = torch.rand(3, 1)
    for term in (Bound(), TokenCrossEntropy()):
        times = term.grid(t)
        assert torch.equal(times.t, t)
        assert (times.s, times.weight) == (None, 1.0)


def test_a_chain_has_a_step() -> None:
    with pytest.raises(ValueError, match="a chain has at least one step"):
        Bound(steps=0)


DENSITY = (4.0, 1.0, 1.0, 2.0)


def test_important_times_are_drawn_more_often() -> None:
    t = ImportanceTimes(DENSITY)(Batch.of(tokens(8000, 1)), rng=rng(0, 8000))
    assert torch.histc(t, 4, 0, 1).tolist() == pytest.approx([4000, 1000, 1000, 2000], abs=2)
    assert (torch.histc(t[t < 0.25], 10, 0, 0.25) - 400).abs().max() < 5, "evenly within a part"


@given(seed=st.integers(0, 10**6), density=st.lists(st.floats(0.1, 9), min_size=1, max_size=6))
def test_weights_undo_the_density(seed: int, density: list[float]) -> None:
    """The weighted mean of any function of the time is its mean over all times."""
    clock = ImportanceTimes(tuple(density))
    t = clock(Batch.of(tokens(2000, 1)), rng=rng(seed, 2000))
    for function in (torch.ones_like, torch.square, torch.cos):
        even = function((torch.arange(10_000) + 0.5).double() / 10_000).mean()
        assert float((clock.weight(t) * function(t)).mean()) == pytest.approx(float(even), abs=0.01)


def test_importance_has_the_mean_of_even_times_and_less_variance(build: Build) -> None:
    """For one row, again and again; the clock is measured with the model, by the root of the mean squared loss."""
    model, row = build(), Batch.of(tokens(1, 6).expand(4000, -1).contiguous())
    with torch.no_grad():
        clock = fit_importance_times(model, Batch.of(row.tokens[:300]), Bound(steps=20), parts=10, rng=rng(1, 300))
        even, keen = (
            Objective(Bound(steps=20), times)(model, row, rng=rng(2, 4000)).nats for times in (StratifiedTimes(), clock)
        )
    assert len(clock.density) == 10
    error = float((even.var() / 4000 + keen.var() / 4000).sqrt())
    assert float(keen.mean()) == pytest.approx(float(even.mean()), abs=4 * error)
    assert float(keen.var()) < 0.9 * float(even.var())


def test_intervals_are_those_of_the_grid() -> None:
    assert _candidate_intervals(0.5, 0.25) == [
        (0.0, 1.0),
        (0.0, 0.75),
        (0.25, 1.0),
        (0.0, 0.5),
        (0.25, 0.75),
        (0.5, 1.0),
    ]
    assert len(_candidate_intervals()) == len(set(_candidate_intervals())) == sum(range(1, 12))


@pytest.mark.parametrize(("low", "high"), [(0.1, 1.0), (0.3, 0.8), (0.5, 1.0)])
def test_relative_variance_of_the_even_guess(build: Build, low: float, high: float) -> None:
    """−log x̂ = log 6 everywhere: n/t·log 6 of n ~ Binomial(4, t) masks a block has the variance 4·(1 − t)/t·log² 6."""
    model, batch = even_guess(build(BlockCausal(4))), Batch.of(tokens(4000, 8))
    found = _relative_variance(
        model, [batch, batch], Objective(Bound(), StratifiedTimes(low, high, 4)), rng=rng(3, 4000)
    )
    t = torch.linspace(low, high, 10_001, dtype=torch.float64)
    assert found == pytest.approx(float(((1 - t) / t).mean()) / 8, rel=0.1)


@torch.no_grad()
def even_guess(model: DiffusionLM) -> DiffusionLM:
    model.network.output.weight.zero_()
    return model


def test_clipped_takes_the_interval_that_varies_least(build: Build) -> None:
    """The even guess varies least where most is masked; with plain cross-entropy, whose mean is t, there as well."""
    model, batches = even_guess(build(BlockCausal(2))), [Batch.of(tokens(200, 6, seed)) for seed in range(2)]
    for loss in (Bound(), TokenCrossEntropy()):
        best = fit_clipped_times(model, batches, loss, _candidate_intervals(0.5, 0.1), rng=rng(1, 200))
        assert best == StratifiedTimes(0.5, 1.0, block=2)
        best = fit_clipped_times(model, batches, loss, [(0.1, 0.6), (0.2, 0.7)], rng=rng(1, 200))
        assert best == StratifiedTimes(0.2, 0.7, block=2)


def test_clipped_is_judged_by_other_draws_too(build: Build) -> None:
    """A network that sees: with new random numbers none of the intervals is much better."""
    model, grid = build(BlockCausal(2)), _candidate_intervals(0.5, 0.25)
    batches = [Batch.of(tokens(400, 6, seed)) for seed in range(2)]
    chosen = fit_clipped_times(model, batches, Bound(), grid, rng=rng(1, 400))
    judged = {
        low_high: _relative_variance(model, batches, Objective(Bound(), StratifiedTimes(*low_high, 2)), rng=rng(2, 400))
        for low_high in grid
    }
    assert judged[chosen.low, chosen.high] <= 1.05 * min(judged.values())
    assert max(judged.values()) > 1.5 * min(judged.values())


def test_a_clipped_clock_is_a_setting(build: Build) -> None:
    """It is saved and read with the run, by its own name."""
    clock = fit_clipped_times(
        build(BlockCausal(2)), [Batch.of(tokens(8, 4))], Bound(), _candidate_intervals(0.8), rng=rng(0, 8)
    )
    run = replace(presets.bd3_tiny(), objective=Objective(Bound(), clock))
    again = serialization.from_json(serialization.to_json(run))
    assert (again, serialization.digest(again)) == (run, serialization.digest(run))
    assert serialization.digest(run) != serialization.digest(
        replace(run, objective=Objective(Bound(), StratifiedTimes(block=2)))
    )


@pytest.mark.parametrize("density", [(), (1.0, 0.0), (-1.0, 2.0)])
def test_every_time_must_be_possible(density: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"every part of \[0, 1\] needs a density above 0"):
        ImportanceTimes(density)


# --- the loss ---


@dataclass(frozen=True)
class Fixed(StratifiedTimes):
    """All rows at one time."""

    t: float = 0.5

    def __call__(self, batch: Batch, *, rng: Rng) -> Tensor:
        return torch.full((len(batch.tokens), 1), self.t, dtype=torch.float64)


class Heard:
    """What the model was given: tokens of every call."""

    def __init__(self, model: DiffusionLM) -> None:
        self.z: list[Tensor] = []
        self.ask = model.predict
        model.predict = self.predict  # type: ignore[method-assign]

    def predict(self, z: Tensor, t: Tensor, context: Context = Context()) -> Prediction:
        self.z.append(z)
        return self.ask(z, t, context)


@pytest.mark.parametrize("loss", [Bound(), TokenCrossEntropy(), TokenCrossEntropy(1.0)])
def test_prompts_and_padding_are_neither_noised_nor_counted(build: Build, loss: Bound) -> None:
    model, batch = build(), prompted(6, 8, prompt=3, pad=2)
    heard = Heard(model)
    result = Objective(loss, Fixed(t=1.0))(model, batch, rng=rng(0, 6))
    given = ~batch.learn
    assert torch.equal(heard.z[0][given], batch.tokens[given])
    assert (heard.z[0][batch.learn] == MASK).all()
    assert result.count.tolist() == [3] * 6
    assert float(result.mean.detach()) == pytest.approx(float(result.nats.sum()) / 18, rel=1e-5)


@pytest.mark.parametrize("steps", [1, 4])
def test_prompts_are_not_noised_by_a_chain_either(build: Build, steps: int) -> None:
    model, batch = build(), prompted(20, 8, prompt=4)
    heard = Heard(model)
    loss = Objective(Bound(steps))(model, batch, rng=rng(0, 20))
    assert loss.mean.isfinite()
    assert torch.equal(heard.z[0][:, :4], batch.tokens[:, :4])


def test_torn_texts_have_a_hole_or_two() -> None:
    """Only what was learned is torn: prompts and padding stay; a text of no token stays as it is."""
    batch, empty = prompted(4000, 20, prompt=2, pad=4), Batch.of(tokens(3, 4), torch.ones(3, 4, dtype=torch.bool))
    learn = _punch_holes(batch, 0.3, rng=rng(0, 4000)).learn
    assert not bool((learn & ~batch.learn).any())
    whole = (learn == batch.learn).all(-1)
    assert float(whole.float().mean()) == pytest.approx(0.7, abs=0.03)
    holes = (torch.nn.functional.pad(learn[~whole].int(), (1, 0)).diff() == 1).sum(-1)
    assert set(holes.tolist()) == {1, 2}
    assert 1 <= int(learn[~whole].sum(-1).min()) <= 3, "short holes are the most frequent"
    assert not bool(_punch_holes(empty, 1.0, rng=rng(0, 3)).learn.any())


def test_what_is_left_of_a_torn_text_is_given(build: Build) -> None:
    model, batch, keys = build(), Batch.of(tokens(8, 9)), rng(0, 8)
    heard = Heard(model)
    loss = Objective(TokenCrossEntropy(), Fixed(t=1.0), holes=1.0)(model, batch, rng=keys)
    learn = heard.z[0] == MASK
    assert torch.equal(heard.z[0][~learn], batch.tokens[~learn])
    assert bool(learn.any(-1).all())
    assert not bool(learn.all())
    assert loss.count.tolist() == [9] * 8, "a torn text counts as much as before, so that parts of a batch add up"


@pytest.mark.parametrize("holes", [0.0, 0.5])
def test_a_part_of_a_batch_is_divided_by_the_whole(build: Build, holes: float) -> None:
    """Losses of slices, each divided by the total, add up to the loss of the batch: also their gradients."""
    model, batch, total = build(), Batch.of(tokens(6, 5)), torch.tensor(30)
    keys, objective = rng(0, 6), Objective(times=Fixed(t=0.6), holes=holes)
    whole = objective(model, batch, rng=keys)
    whole.mean.backward()
    expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    sliced = 0.0
    for lo, hi in ((0, 1), (1, 4), (4, 6)):
        part = Batch.of(batch.tokens[lo:hi])
        loss = objective(model, part, rng=Rng(keys.key[lo:hi]), total=total)
        loss.mean.backward()
        sliced += float(loss.mean.detach())
    assert sliced == pytest.approx(float(whole.mean.detach()), rel=1e-5)
    assert all(
        torch.allclose(p.grad, e, atol=1e-5)
        for p, e in zip(model.parameters(), expected, strict=True)
        if p.grad is not None
    )


@given(seed=st.integers(0, 10**6), eps=st.sampled_from([0.0, 0.05]))
def test_the_bound_of_linear_mask_noise_is_recovery_over_t(build: Build, seed: int, eps: float) -> None:
    model = build(process=Masked(Vocab(7, mask=MASK), Linear(eps)))
    batch = prompted(8, 6, prompt=1, pad=1) if eps == 0 else Batch.of(tokens(8, 6))
    bound, recovery = (
        Objective(loss)(model, batch, rng=rng(seed, 8)).parts["diffusion"] for loss in (Bound(), TokenCrossEntropy(1.0))
    )
    assert torch.allclose(bound, recovery, rtol=1e-5)


def test_plain_recovery_is_cross_entropy_at_masked_tokens(build: Build) -> None:
    model, batch = build(), Batch.of(tokens(4, 6))
    heard = Heard(model)
    loss = Objective(TokenCrossEntropy())(model, batch, rng=rng(0, 4))
    z = heard.z[0]
    nll = model.predict(z, torch.ones(4, 1)).nll(z == MASK, batch.tokens)
    assert torch.allclose(loss.nats, nll.sum(-1).detach(), rtol=1e-5)


@pytest.mark.parametrize("schedule", [Linear(), Cosine(), Polynomial(2), Exponential(), Geometric()], ids=repr)
@pytest.mark.parametrize("steps", [None, 3])
def test_a_jump_is_paid_for_as_reconstruction(build: Build, schedule: Schedule, steps: int | None) -> None:
    """In continuous time; a chain's first step spans the jump itself."""
    jump = isinstance(schedule, Exponential | Geometric)
    model, batch = build(process=Masked(Vocab(7, mask=MASK), schedule)), Batch.of(tokens(300, 6))
    heard = Heard(model)
    loss = Objective(Bound(steps))(model, batch, rng=rng(0, 300))
    assert ("reconstruction" in loss.parts) == (jump and steps is None)
    if "reconstruction" in loss.parts:
        z = heard.z[1]
        nll = model.predict(z, torch.ones(300, 1)).nll(z == MASK, batch.tokens)
        assert float(loss.parts["reconstruction"]) == pytest.approx(float(nll.detach().sum()) / 1800, rel=1e-4)
        lost = (1 - schedule.start) * 1800
        assert int((z == MASK).sum()) == pytest.approx(lost, abs=5 * lost**0.5)
    assert float(loss.parts["prior"]) == (torch.inf if schedule.end > 0 else 0)


def test_an_infinite_prior_is_infinite_and_not_nan(build: Build) -> None:
    model = build(process=Masked(Vocab(7, mask=MASK), Linear(1e-3)))
    loss = Objective()(model, prompted(4, 6, prompt=2), rng=rng(0, 4))
    assert float(loss.mean.detach()) == torch.inf


def test_a_step_is_the_objective_as_a_module(build: Build) -> None:
    model, batch, objective = build(), Batch.of(tokens(4, 6)), Objective()
    expected = objective(model, batch, rng=rng(3, 4), total=torch.tensor(99))
    given = TrainStep(model, objective)(batch, rng(3, 4), torch.tensor(99))
    assert torch.equal(given.mean, expected.mean)
    assert [name for name, _ in TrainStep(model, objective).named_parameters()] == [
        f"model.{n}" for n, _ in model.named_parameters()
    ]


def test_a_loss_depends_on_its_key_alone(build: Build) -> None:
    model, batch = build(), Batch.of(tokens(4, 6))

    def nats(seed: int) -> Tensor:
        return Objective()(model, batch, rng=rng(seed, 4)).nats

    assert torch.equal(nats(5), nats(5))
    assert not torch.equal(nats(5), nats(6))


def test_gradients_are_finite_at_both_ends_of_time(build: Build, tiny: TransformerConfig) -> None:
    batch = prompted(6, 8, prompt=2, pad=1)
    for schedule in (Linear(), Cosine(), Polynomial(0.5)):
        for network in (tiny, replace(tiny, time=8)):
            for t in (1e-4, 1 - 1e-4, 1.0):
                model = build(Full(), network, process=Masked(Vocab(7, mask=MASK), schedule))
                Objective(Bound(), Fixed(t=t))(model, batch, rng=rng(4, 6)).mean.backward()
                assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


# --- likelihoods ---

SMALL = Vocab(4, mask=3)
SEQUENCES = torch.tensor(list(product(range(3), repeat=3)))


class LeakyStreams(_TwoStreams):
    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        return super().sees(query, key) | (self.index[query] == self.index[key]) & self.clean[key]


class Leaky(BlockCausal):
    """Noisy tokens see the clean token of their own block: what must never happen."""

    def streams(self, pos: Tensor) -> _TwoStreams:
        honest = super().streams(pos)
        return LeakyStreams(honest.index, honest.clean)


def likelihood(build: Build, tiny: TransformerConfig, pattern: AttentionPattern, seed: int) -> tuple[DiffusionLM, Loss]:
    """A random model of three tokens, and its one-step bound of all 27 sequences of length three."""
    model = build(pattern, tiny, process=Masked(SMALL), seed=seed)
    with torch.no_grad():
        return model, Objective(Bound(steps=1))(model, Batch.of(SEQUENCES), rng=rng(0, 27))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("pattern", [Causal(3), BlockCausal(1)], ids=repr)
def test_probabilities_of_all_sequences_sum_to_one(
    build: Build, tiny: TransformerConfig, pattern: AttentionPattern, seed: int
) -> None:
    _, loss = likelihood(build, tiny, pattern, seed)
    p = (-loss.nats.double()).exp()
    assert float(p.sum()) == pytest.approx(1, abs=1e-5)
    joint = p.view(3, 3, 3)
    apart = joint.sum((1, 2))[:, None, None] * joint.sum((0, 2))[None, :, None] * joint.sum((0, 1))[None, None, :]
    assert float((joint - apart).abs().sum()) > 0.01, "a product of marginals would sum to one without any care"


def test_a_leak_would_not_sum_to_one(build: Build, tiny: TransformerConfig) -> None:
    _, loss = likelihood(build, tiny, Leaky(1), seed=0)
    assert abs(float((-loss.nats.double()).exp().sum()) - 1) > 0.1


@pytest.mark.parametrize("pattern", [Causal(3), BlockCausal(1)], ids=repr)
def test_the_one_step_bound_is_the_chain_rule_read_in_one_stream(
    build: Build, tiny: TransformerConfig, pattern: AttentionPattern
) -> None:
    """Position i asked by a mask after x₁…x_{i−1}, as sampling does."""
    model, loss = likelihood(build, tiny, pattern, seed=0)
    with torch.no_grad():
        total = torch.zeros(27)
        for i in range(3):
            z = torch.cat([SEQUENCES[:, :i], torch.full((27, 1), 3)], 1)
            last = torch.arange(i + 1).expand(27, -1) == i
            t = last.double()
            total += model.predict(z, t).nll(last, SEQUENCES[:, : i + 1]).sum(-1)
    assert torch.allclose(total, loss.nats, atol=1e-5)


def test_the_squared_error_is_its_formula() -> None:
    """The mean over coordinates of (x − x̂)², nothing at time zero; a sum of terms adds the second one once."""
    process = Gaussian(Vocab(4, mask=3))
    x, guess, t = torch.randn(2, 3, 5), torch.randn(2, 3, 5), torch.tensor([[0.5], [0.0]])
    noised, times = NoisySample(x, t, x), NoiseTimes(t)
    errors = SquaredError()(process, VectorPrediction(guess), noised, times)
    torch.testing.assert_close(errors[0], ((x - guess) ** 2).mean(-1)[0])
    assert not errors[1].any()
    both = SumOfTerms(SquaredError(), SquaredError())(process, VectorPrediction(guess), noised, times)
    torch.testing.assert_close(both, 2 * errors)
