"""Dense matrices: exponentials of rates, equal to the closed forms where there are some, and even schedules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from redraft.core import (
    AbsorbingRates,
    BandedRates,
    Canvas,
    Cosine,
    Interpolating,
    JumpRates,
    Linear,
    Markov,
    Masked,
    NeighborRates,
    NoiseTimes,
    NoisySample,
    Polynomial,
    Schedule,
    TablePrediction,
    UniformRates,
    Vocab,
    mutual_information_schedule,
    nearest_words,
    rng,
)
from redraft.models import DiffusionLM
from redraft.training import Bound, SumOfTerms, TokenCrossEntropy

PValue = Callable[[Tensor, Tensor], float]
Build = Callable[..., DiffusionLM]
CHANCE = 1e-4
MASK = 2
VOCAB, UNMASKED = Vocab(6, mask=MASK), Vocab(6)  # words 0, 1, 3, 4, 5
RING = NeighborRates(((1,), (3,), (4,), (5,), (0, 3)))
PROCESSES = [
    Markov(VOCAB),
    Markov(UNMASKED, UniformRates(), Cosine()),
    Markov(VOCAB, AbsorbingRates()),
    Markov(VOCAB, BandedRates(0.7)),
    Markov(UNMASKED, BandedRates(2.0), Polynomial(2)),
    Markov(VOCAB, RING),
]
every_process = pytest.mark.parametrize("process", PROCESSES, ids=repr)


def words(process: Markov) -> Tensor:
    return torch.tensor([i for i in range(6) if i != process.vocab.mask])


def guess(process: Markov, length: int, seed: int = 0) -> TablePrediction:
    raw = torch.randn(1, length, 6, generator=torch.Generator().manual_seed(seed)).double()
    if process.vocab.mask is not None:
        raw[..., MASK] = -torch.inf
    return TablePrediction(raw.log_softmax(-1))


def column(t: float) -> Tensor:
    return torch.full((1, 1), t, dtype=torch.float64)


def pairs(process: Markov, t: float) -> NoisySample:
    """One row of all pairs of a word x and a state z that it may become."""
    table = process.marginal(t)
    each = [(x, z) for x in words(process).tolist() for z in range(6) if table[x, z] > 0]
    x, z = torch.tensor(each).T
    return NoisySample(z[None], column(t), x[None])


# --- tables ---


@every_process
@pytest.mark.parametrize("t", [0.05, 0.5, 0.95])
def test_marginals_are_exponentials_of_rates(process: Markov, t: float) -> None:
    """Q_t = exp(−log k_t·R) by another algorithm; time is counted so that the slowest mode decays as k."""
    rates = process.jumps.rates(process.vocab).fill_diagonal_(0)
    generator = rates - torch.diag(rates.sum(-1))
    decay = -torch.linalg.eigvals(generator).real
    slowest = decay[decay > 1e-9].min()
    keep = process.schedule.keep(torch.tensor(t, dtype=torch.float64))
    expected = torch.linalg.matrix_exp(-keep.log() / slowest * generator)
    assert torch.allclose(process.marginal(t), expected, atol=1e-10)


@pytest.mark.parametrize("schedule", [Linear(), Cosine(), Linear(0.1)], ids=repr)
@pytest.mark.parametrize(("jumps", "kind"), [(UniformRates(), Interpolating), (AbsorbingRates(), Masked)])
def test_closed_forms_are_the_same_process(
    jumps: JumpRates, kind: type[Interpolating] | type[Masked], schedule: Schedule
) -> None:
    dense, closed = Markov(VOCAB, jumps, schedule), kind(VOCAB, schedule)
    for t in (0.01, 0.5, 0.99):
        noised = pairs(dense, t)
        pred = guess(dense, noised.z.shape[1])
        x = words(dense)
        assert torch.allclose(dense.marginal(t)[x], closed.marginal(t)[x], atol=1e-9)
        assert torch.equal(dense.undetermined(noised), closed.undetermined(noised))
        for s in (None, column(0.0), column(t / 2)):
            assert torch.allclose(dense.nelbo(pred, noised, s), closed.nelbo(pred, noised, s), rtol=1e-5, atol=1e-6)
    assert torch.allclose(dense.transition(0.3, 0.6)[x], closed.transition(0.3, 0.6)[x], atol=1e-9)
    if not (isinstance(closed, Masked) and schedule.end > 0):  # the closed form knows that this is infinite
        assert torch.allclose(dense.prior_kl(x[None]), closed.prior_kl(x[None]), atol=1e-9)


@every_process
@pytest.mark.parametrize(("s", "t"), [(0.3, 0.6), (0.0, 0.2), (0.9, 1.0)])
def test_steps_are_bayes_rule(process: Markov, s: float, t: float, p_value: PValue) -> None:
    draws, eye = 20_000, torch.eye(6, dtype=torch.float64)
    early, onto = (eye, process.marginal(t)) if s == 0 else (process.marginal(s), process.transition(s, t))
    raw = guess(process, 1).log_weights
    for z in range(6):
        law = onto[:, z] * (raw[0, 0].exp() @ early)
        if float(process.marginal(t)[words(process), z].max()) > 1e-9:
            canvas = Canvas(torch.full((1, draws), z), torch.zeros(1, draws, dtype=torch.bool))
            drawn = process.step(TablePrediction(raw.expand(1, draws, -1)), canvas, column(s), column(t), rng=rng(z)).z
            seen, expected = torch.bincount(drawn[0], minlength=6), draws * law / law.sum()
            assert not seen[expected == 0].any()
            common = expected > 5
            assert common.sum() < 2 or p_value(seen[common], expected[common]) > CHANCE


@every_process
def test_many_steps_tend_to_the_bound(process: Markov) -> None:
    noised, steps = pairs(process, 0.5), 100_000
    pred = guess(process, noised.z.shape[1])
    summed = steps * process.nelbo(pred, noised, column(0.5 - 1 / steps))
    assert torch.allclose(summed, process.nelbo(pred, noised), rtol=5e-3, atol=1e-5)


@every_process
def test_given_tokens_and_padding_are_left_alone(process: Markov) -> None:
    x = words(process)[torch.arange(40) % 5][None]
    pad, prompt = torch.arange(40)[None] >= 30, torch.arange(40)[None] < 10
    t = torch.where(prompt, 0.0, 1.0).double()
    noised = process.noise(x, t, pad=pad, rng=rng(0))
    assert torch.equal(noised.z[pad | prompt], x[pad | prompt])
    assert not process.undetermined(noised)[pad | prompt].any()
    loss = process.nelbo(guess(process, 40), noised)
    assert (loss[pad | prompt] == 0).all()
    assert loss.isfinite().all()
    canvas = Canvas(noised.z, pad | prompt)
    stepped = process.step(guess(process, 40), canvas, column(0.4), column(0.8), rng=rng(1))
    assert torch.equal(stepped.z[pad | prompt], x[pad | prompt])


@pytest.mark.parametrize("end", [0.0, 0.05])
def test_what_is_left_at_the_end_is_paid_for(end: float) -> None:
    process = Markov(VOCAB, BandedRates(0.7), Linear(end))
    table, even = process.marginal(1.0), 1 / 5
    cost = (table[0] * (table[0] / even).log()).nansum()
    assert float(process.prior_kl(torch.zeros(1, 1).long())) == pytest.approx(float(cost), abs=1e-6)
    assert (float(cost) > 1e-3) == (end > 0)


# --- jumps ---


def test_band_jumps_are_the_discretized_gaussian() -> None:
    """D3PM's exp(−4|i − j|²/((K − 1)²β)) with width² = (K − 1)²β/8; noise spreads to the neighbors first."""
    beta, K = 0.02, 6
    width = ((K - 1) ** 2 * beta / 8) ** 0.5
    rates = BandedRates(width).rates(UNMASKED)
    i = torch.arange(K)
    expected = (-4 * (i[:, None] - i).double() ** 2 / ((K - 1) ** 2 * beta)).exp()
    assert torch.allclose(rates, expected)
    table = Markov(UNMASKED, BandedRates(1.0)).marginal(0.2)
    assert torch.allclose(table.sum(0), torch.ones(K, dtype=torch.float64)), "doubly stochastic"
    assert (table[0].diff() < 0).all()


def test_neighbors_go_both_ways() -> None:
    rates = RING.rates(VOCAB)
    assert torch.equal(rates, rates.T)
    assert rates[0].nonzero().flatten().tolist() == [1, 5]
    assert not rates[MASK].any()
    assert not rates[:, MASK].any()


def test_the_nearest_words_are_neighbors() -> None:
    place = torch.tensor([[0.0], [1.0], [99.0], [2.5], [4.5], [7.0]])  # id 2 is the mask
    assert nearest_words(place, VOCAB, k=1).neighbors == ((1,), (0,), (1,), (3,), (4,))
    near = nearest_words(place, VOCAB, k=2)
    assert near.neighbors[0] == (1, 3)
    table = Markov(VOCAB, near).marginal(0.1)
    assert table[0, 1] > table[0, 5]


@dataclass(frozen=True)
class Circle(JumpRates):
    def rates(self, vocab: Vocab) -> Tensor:
        return torch.eye(vocab.size, dtype=torch.float64).roll(1, 1)


@pytest.mark.parametrize(
    ("jumps", "says"),
    [
        (NeighborRates(((1,), (0,), (4,), (3,), (3,))), "words in separate groups"),
        (NeighborRates(((1,), (0,))), "2 lists of neighbors for 5 words"),
        (NeighborRates(((1,), (MASK,), (4,), (5,), (0,))), r"word 1 has the neighbors \[2\], which are not words"),
        (Circle(), "complex eigenvalues"),
    ],
)
def test_jumps_that_cannot_be_are_refused(jumps: JumpRates, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Markov(UNMASKED if isinstance(jumps, Circle) else VOCAB, jumps).marginal(0.5)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="width above 0"):
        BandedRates(0)
    with pytest.raises(ValueError, match="6 embeddings, k=5; give 6, and 0 < k < 5"):
        nearest_words(torch.zeros(6, 2), VOCAB, k=5)


# --- the schedule of information ---


def information(p: Tensor, table: Tensor) -> float:
    joint = p[:, None] * table
    return float(torch.where(joint > 0, joint * (table.clamp(min=1e-300) / (p @ table)).log(), 0.0).sum())


@pytest.mark.parametrize("jumps", [AbsorbingRates(), UniformRates(), BandedRates(0.7), RING], ids=repr)
def test_information_is_lost_evenly(jumps: JumpRates) -> None:
    p = torch.tensor([0.4, 0.3, 0.0, 0.1, 0.15, 0.05], dtype=torch.float64)
    process = Markov(VOCAB, jumps, mutual_information_schedule(jumps, VOCAB, p * 1000, points=32))
    entropy = float(-(p[p > 0] * p[p > 0].log()).sum())
    for i in (1, 8, 16, 24, 31):
        assert information(p, process.marginal(i / 32)) == pytest.approx((1 - i / 32) * entropy, abs=2e-3)


def test_for_the_mask_it_is_the_linear_schedule() -> None:
    keeps = torch.tensor(mutual_information_schedule(AbsorbingRates(), VOCAB, torch.ones(6), points=16).keeps)
    assert torch.allclose(keeps, torch.linspace(1, 0, 17), atol=1e-3)


# --- losses ---


def test_both_decoders_are_distributions() -> None:
    for direct in (False, True):
        process = Markov(UNMASKED, BandedRates(1.0), direct=direct)
        raw = guess(process, 1).log_weights
        for z in range(6):
            noised = NoisySample(torch.full((1, 6), z), column(0.3), torch.arange(6)[None])
            said = raw[0, 0].exp() if direct else raw[0, 0].exp() * process.marginal(0.3)[:, z]
            loss = process.nelbo(TablePrediction(raw.expand(1, 6, -1)), noised, column(0.0))[0].double()
            assert torch.allclose((-loss).exp(), said / said.sum(), rtol=1e-5)


def test_the_direct_decoder_draws_the_prediction_itself(p_value: PValue) -> None:
    process = Markov(UNMASKED, BandedRates(1.0), direct=True)
    raw, canvas = guess(process, 1).log_weights, Canvas(torch.zeros(1, 30_000).long(), torch.zeros(1, 30_000).bool())
    drawn = process.step(TablePrediction(raw.expand(1, 30_000, -1)), canvas, column(0.0), column(0.2), rng=rng(0)).z
    assert p_value(torch.bincount(drawn[0], minlength=6), 30_000 * raw[0, 0].exp()) > CHANCE


def test_the_direct_decoder_acts_at_the_last_step_only() -> None:
    """Before it the step is Bayes' rule; then every free token is drawn, even a word that no noise leads to."""
    z = torch.tensor([[0, 1, 3, MASK, MASK, 4] * 50])
    canvas = Canvas(z, (torch.arange(300) % 2 == 0)[None])
    pred = guess(Markov(VOCAB), 300)

    def stepped(s: float, direct: bool) -> Tensor:
        process = Markov(VOCAB, AbsorbingRates(), direct=direct)
        return process.step(pred, canvas, column(s), column(0.6), rng=rng(0)).z

    assert torch.equal(stepped(0.3, direct=True), stepped(0.3, direct=False))
    assert not torch.equal(stepped(0.3, direct=True), z)
    last = stepped(0.0, direct=True)
    assert torch.equal(last[canvas.fixed], z[canvas.fixed])
    assert (last != z)[~canvas.fixed & (z != MASK)].any()


def test_absorbing_with_a_free_prediction_has_its_closed_form() -> None:
    """x̂ may put weight μ on the mask (no zero-masking): the KL of a step of the linear schedule, by hand."""
    process, t, dt = Markov(VOCAB, AbsorbingRates()), 0.4, 0.1
    raw = torch.randn(1, 5, 6, generator=torch.Generator().manual_seed(0)).double().log_softmax(-1)
    noised = NoisySample(torch.full((1, 5), MASK), column(t), words(process)[None])
    mu, said = raw[0, :, MASK].exp(), raw[0].gather(-1, noised.target[0][:, None]).squeeze(-1)
    whole = ((1 - t) * mu / t + 1).log()
    expected = dt / t * (whole - said) + (1 - dt / t) * (whole - ((1 - t + dt) * mu / (t - dt) + 1).log())
    assert torch.allclose(process.nelbo(TablePrediction(raw), noised, column(t - dt))[0].double(), expected, rtol=1e-5)


def test_the_hybrid_loss_is_a_sum() -> None:
    process = Markov(VOCAB, AbsorbingRates())
    noised = pairs(process, 0.5)
    pred, times = guess(process, noised.z.shape[1]), NoiseTimes(column(0.5), column(0.49), 100.0)
    both = SumOfTerms(Bound(steps=100), TokenCrossEntropy(), factor=0.3)(process, pred, noised, times)
    bound = 100 * process.nelbo(pred, noised, column(0.49))
    where = noised.z == MASK
    assert torch.allclose(both, (bound + 0.3 * torch.where(where, pred.nll(where, noised.target), 0.0)).to(both.dtype))
    assert SumOfTerms(Bound(steps=4), TokenCrossEntropy()).grid(column(0.6)) == Bound(steps=4).grid(column(0.6))


@every_process
@pytest.mark.parametrize("t", [1e-4, 0.5, 1 - 1e-4])
def test_gradients_are_finite(process: Markov, t: float) -> None:
    x = words(process)[torch.arange(40) % 5][None]
    noised = process.noise(x, column(t), rng=rng(0))
    raw = torch.randn(1, 40, 6, generator=torch.Generator().manual_seed(1), requires_grad=True)
    for s in (None, column(t / 2), column(0.0)):
        loss = process.nelbo(TablePrediction(raw.log_softmax(-1)), noised, s).sum()
        if loss.requires_grad:
            (slope,) = torch.autograd.grad(loss, raw)
            assert slope.isfinite().all()
        assert loss.isfinite()
