"""Remasking: marginals stay as they are whatever the rate, rate zero is the process, the full rate is the star."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from conftest import pairwise
from hypothesis import given, strategies as st
from torch import Tensor

from redraft.core import (
    Batch,
    Canvas,
    CappedRate,
    ConfidenceRate,
    Context,
    Cosine,
    HybridNoise,
    Interpolating,
    Linear,
    LoopRate,
    Masked,
    MaskNoise,
    NoisySample,
    Process,
    Remask,
    RemaskRate,
    RescaledRate,
    StarRate,
    TablePrediction,
    Vocab,
    WindowedRate,
    rng,
)
from redraft.core.processes.remasking import _RemaskStep
from redraft.decoding import Ancestral, final_canvas
from redraft.evaluation.laws import tokens
from redraft.training import Bound, Objective

V, MASK, CHANCE = 5, 4, 1e-4
VOCAB = Vocab(V, mask=MASK)
BASES = [Masked(VOCAB), Masked(VOCAB, Cosine()), Interpolating(VOCAB), Interpolating(VOCAB, mixing=HybridNoise(0.3))]
RATES: list[RemaskRate] = [
    CappedRate(0.1),
    CappedRate(1.0),
    RescaledRate(0.4),
    RescaledRate(1.0),
    StarRate(),
    WindowedRate(StarRate(), 0.9, 0.2),
    LoopRate(0.5),
]
every_base = pytest.mark.parametrize("base", BASES, ids=tokens._process_name)
every_rate = pytest.mark.parametrize("rate", RATES, ids=repr)


def at(t: float, rows: int = 1) -> Tensor:
    return torch.full((rows, 1), t, dtype=torch.float64)


def free(z: Tensor) -> Canvas:
    return Canvas(z, torch.zeros_like(z, dtype=torch.bool))


def guess(seed: int, *shape: int) -> TablePrediction:
    log_x = torch.randn(*shape, V, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return TablePrediction(log_x.index_fill(-1, torch.tensor([MASK]), -torch.inf).log_softmax(-1))


# --- the law of the step ---


@pytest.mark.parametrize(("base", "rate", "times"), pairwise(BASES, RATES, [(0.4, 0.7), (0.0, 0.3), (0.5, 0.5)]))
def test_marginals_stay_as_they_are(base: Masked | Interpolating, rate: RemaskRate, times: tuple[float, float]) -> None:
    """z_t ~ q_t(· | x), then a step with x known: z_s ~ q_s(· | x)."""
    s, t = times
    process, x = Remask(base, rate), torch.arange(2)[:, None].repeat(1, 20_000)
    z = process.noise(x, at(t, 2), rng=rng(1, 2)).z
    known = TablePrediction(torch.nn.functional.one_hot(x, V).double().log())
    after = process.step(known, free(z), at(s, 2), at(t, 2), rng=rng(2, 2)).z
    for word in range(2):
        expected = torch.eye(V, dtype=torch.float64)[word] if s == 0 else process.marginal(s)[word]
        assert tokens.chi_square(after[word], expected) > CHANCE


@given(s=st.floats(0.01, 0.6), t=st.floats(0.61, 0.99), eta=st.floats(0, 1))
def test_what_is_forgotten_is_made_up_for(s: float, t: float, eta: float) -> None:
    """(1 − σ)·α_t + (reveals)·(1 − α_t) = α_s, exactly; the reveals are the weight of the bound."""
    for base, rate in product(
        (Masked(VOCAB), Masked(VOCAB, Cosine())), (CappedRate(eta), RescaledRate(eta), StarRate())
    ):
        process, z = Remask(base, rate), torch.full((1, 1), MASK)
        pred, noised = guess(0, 1, 1), NoisySample(z, at(t), torch.zeros_like(z))
        reveal = float(process.nelbo(pred, noised, at(s)) / pred.nll(z == MASK, noised.target))
        kept, before = (float(base.schedule.keep(at(u))) for u in (t, s))
        most = min(1.0, (1 - before) / kept)
        sigma = {CappedRate: min(eta, most), RescaledRate: eta * most, StarRate: 1 - before}[type(rate)]
        assert (1 - sigma) * kept + reveal * (1 - kept) == pytest.approx(before, abs=1e-6)
        assert -1e-6 <= reveal <= 1 + 1e-6


@every_rate
def test_masks_by_either_kernel(rate: RemaskRate) -> None:
    """Mask noise in closed form and as noise of any kind: the same law, as far as the second reaches."""
    s, t = 0.4, 0.7
    closed, general = Remask(Masked(VOCAB), rate), Remask(Interpolating(VOCAB, mixing=MaskNoise()), rate)
    if rate in (
        CappedRate(1.0),
        RescaledRate(0.4),
        RescaledRate(1.0),
    ):  # shares of another highest rate; the star is reached by all
        closed, general = Remask(Masked(VOCAB), CappedRate(0.3)), Remask(general.process, CappedRate(0.3))
    draws = 40_000
    for state in (0, MASK):
        canvas = free(torch.full((1, draws), state))
        pred = TablePrediction(guess(1, 1, 1).x.expand(1, draws, V))
        found = [p.step(pred, canvas, at(s), at(t), rng=rng(i)).z for i, p in enumerate((closed, general))]
        p, q = (torch.bincount(z[0], minlength=V).double() / draws for z in found)
        assert float((p - q).abs().sum()) < 0.02
    noised = NoisySample(torch.tensor([[MASK, 1, MASK]]), at(t), torch.tensor([[0, 1, 2]]))
    a, b = (p.nelbo(guess(2, 1, 3), noised, at(s)) for p in (closed, general))
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6, check_dtype=False)


@every_base
def test_rate_zero_is_the_process_itself(base: Masked | Interpolating) -> None:
    """Bit for bit under the same random numbers; also outside a switch's window, and where time moves in a loop."""
    pred = guess(3, 40, 6)
    for rate in (CappedRate(0.0), RescaledRate(0.0), WindowedRate(StarRate(), 0.3, 0.1), LoopRate(0.9)):
        process = Remask(base, rate)
        canvas = free(base.noise(torch.zeros(40, 6, dtype=torch.int64), at(0.7, 40), rng=rng(1, 40)).z)
        ours, theirs = (p.step(pred, canvas, at(0.4, 40), at(0.7, 40), rng=rng(2, 40)).z for p in (process, base))
        assert torch.equal(ours, theirs)
        noised = NoisySample(canvas.z, at(0.7, 40), torch.zeros_like(canvas.z))
        bounds = (p.nelbo(pred, noised, at(0.4, 40)) for p in (process, base))
        torch.testing.assert_close(*bounds, rtol=1e-4, atol=1e-5)


@every_base
def test_the_star_forgets_where_it_was(base: Masked | Interpolating) -> None:
    """x̃ ~ p(x | z_t), then z_s ~ q_s(· | x̃): by the tables."""
    s, t, draws = 0.4, 0.7, 20_000
    x = guess(4, 1, 1)
    for z in range(V):
        clean = base.marginal(t)[:, z] * x.x[0, 0].exp()
        if float(clean.sum()) == 0:
            continue
        p = clean / clean.sum() @ base.marginal(s)
        pred = TablePrediction(x.x.expand(1, draws, V))
        found = Remask(base, StarRate()).step(pred, free(torch.full((1, draws), z)), at(s), at(t), rng=rng(z)).z
        assert tokens.chi_square(found, p) > CHANCE


@given(seed=st.integers(0, 10**6), t=st.floats(0.2, 0.9))
def test_what_is_given_stays(seed: int, t: float) -> None:
    g = torch.Generator().manual_seed(seed)
    z, fixed = torch.randint(0, V, (3, 8), generator=g), torch.rand(3, 8, generator=g) < 0.5
    for base in BASES:
        if isinstance(base, Interpolating) and base.mixing == Interpolating(VOCAB).mixing:
            z = z.clamp(max=MASK - 1)
        canvas = Remask(base, StarRate()).step(
            guess(seed, 3, 8), Canvas(z, fixed), at(0.1, 3), at(t, 3), rng=rng(seed, 3)
        )
        assert torch.equal(canvas.z[fixed], z[fixed])


# --- rates ---


def moment(s: float, t: float) -> _RemaskStep:
    return _RemaskStep(at(s), at(t), at(s), at(min(1.0, s / (1 - t))))  # the linear schedule


def test_rates_by_hand() -> None:
    written = torch.ones(1, 3, dtype=torch.bool)
    now = moment(0.3, 0.4)  # σ_max = 0.3/0.6
    for rate, sigma in (
        (CappedRate(0.2), 0.2),
        (CappedRate(0.9), 0.5),
        (RescaledRate(0.1), 0.05),
        (StarRate(), 0.3),
        (LoopRate(0.2), 0.0),
    ):
        assert float(rate(now, written, None)) == pytest.approx(sigma)
        assert rate.blind
    assert float(LoopRate(0.2)(moment(0.4, 0.4), written, None)) == pytest.approx(0.2)
    assert float(WindowedRate(CappedRate(0.2), start_time=0.5, end_time=0.3)(now, written, None)) == pytest.approx(0.2)
    for window in (
        WindowedRate(CappedRate(0.2), start_time=0.39, end_time=0.3),
        WindowedRate(CappedRate(0.2), start_time=0.5, end_time=0.41),
    ):
        assert float(window(now, written, None)) == 0


def test_confidence_deals_out_the_rate() -> None:
    written = torch.tensor([[True, True, False, True], [False] * 4])
    confidence = torch.tensor([[0.9, 0.1, 0.0, 0.5], [0.0] * 4])
    now = _RemaskStep(*(value.expand(2, 1) for value in moment(0.3, 0.4)))
    found = ConfidenceRate(CappedRate(0.2))(now, written, confidence)
    expected = (-confidence[0][written[0]]).double().exp()
    torch.testing.assert_close(found[0][written[0]], 0.2 * expected / expected.sum())
    assert float(found[0, 2]) == 0
    assert torch.equal(found[1], torch.zeros(4).double())
    torch.testing.assert_close(
        ConfidenceRate(CappedRate(0.3))(now, written, None)[0], torch.tensor([0.1, 0.1, 0, 0.1]).double()
    )
    assert not ConfidenceRate().blind
    assert not WindowedRate(ConfidenceRate()).blind


def test_the_probability_of_what_is_written_is_kept_in_mind() -> None:
    """And decides what is forgotten: what was drawn with a low one."""
    process, rows = Remask(Masked(VOCAB), ConfidenceRate(RescaledRate(1.0))), 4000
    log_x = torch.tensor([[0.95, 0.05, 0, 0, 0], [0.4, 0.3, 0.3, 0, 0]]).double().log()
    pred = TablePrediction(log_x.expand(rows, 2, V))
    canvas = process.step(pred, free(torch.full((rows, 2), MASK)), at(0.5, rows), at(1.0, rows), rng=rng(0, rows))
    shown = canvas.z != MASK
    assert canvas.confidence is not None
    said = log_x.exp()[None].expand(rows, 2, V).gather(-1, canvas.z.clamp(max=MASK - 1)[..., None]).squeeze(-1)
    torch.testing.assert_close(canvas.confidence[shown].double(), said[shown], rtol=1e-5, atol=0)
    both = shown.all(-1)
    later = process.step(pred, canvas, at(0.5, rows), at(0.5, rows), rng=rng(1, rows)).z == MASK
    weight = (-canvas.confidence.double()).softmax(-1)[both]
    for column in range(2):
        expected = float(weight[:, column].mean())
        found = float(later[both][:, column].double().mean())
        assert found == pytest.approx(expected, abs=4 / float(both.sum()) ** 0.5)


# --- the bound of a chain ---


def brute(base: Masked | Interpolating, x: Tensor, z: int, s: float, t: float, again: float) -> Tensor:
    """(V,) the step's law from the tables: Bayes' rule, or with probability `again` drawn clean and noised anew."""
    step = base.transition(s, t)[:, z] * (x @ base.marginal(s))
    clean = base.marginal(t)[:, z] * x
    return (1 - again) * step / step.sum() + again * clean / clean.sum() @ base.marginal(s)


@every_base
@given(seed=st.integers(0, 999), s=st.floats(0.05, 0.5), t=st.floats(0.55, 0.95), again=st.floats(0, 1))
def test_the_price_of_a_step_is_its_kl(
    base: Masked | Interpolating, seed: int, s: float, t: float, again: float
) -> None:
    lost = 1 - float(base.marginal(s)[0, 0]) + float(base.marginal(s)[1, 0])  # 1 − α_s
    process = Remask(base, CappedRate(min(1.0, again * lost)))
    said = guess(seed, 1, 1)
    for x, z in product(range(2), range(V)):
        if float(base.marginal(t)[x, z]) == 0:
            continue
        noised = NoisySample(torch.tensor([[z]]), at(t), torch.tensor([[x]]))
        found = float(process.nelbo(said, noised, at(s)))
        q, p = (brute(base, g, z, s, t, again) for g in (torch.eye(V, dtype=torch.float64)[x], said.x[0, 0].exp()))
        assert found == pytest.approx(float((torch.xlogy(q, q) - torch.xlogy(q, p)).sum()), rel=1e-3, abs=2e-5)


@every_base
def test_gradients_are_finite(base: Masked | Interpolating) -> None:
    x = torch.randint(0, 4, (6, 8), generator=torch.Generator().manual_seed(0))
    noised = base.noise(x, at(0.6, 6), rng=rng(0, 6))
    raw = torch.randn(6, 8, V, generator=torch.Generator().manual_seed(1)).requires_grad_()
    log_x = raw.index_fill(-1, torch.tensor([MASK]), -torch.inf).log_softmax(-1)
    Remask(base, RescaledRate(0.5)).nelbo(TablePrediction(log_x), noised, at(0.5, 6)).sum().backward()
    assert raw.grad is not None
    assert bool(raw.grad.isfinite().all())
    assert bool((raw.grad != 0).any())


@pytest.mark.parametrize("rate", [StarRate(), CappedRate(0.3), RescaledRate(0.5)], ids=repr)
def test_the_bound_of_a_chain_is_one(rate: RemaskRate) -> None:
    """One step is that of the process; more remasking costs, and with every step: there is no limit."""
    toy, base = tokens.ToyLanguage.of(), Masked(tokens.VOCAB)
    oracle, process = tokens.Oracle(toy, base), Remask(base, rate)
    assert tokens._enumerated_bound(process, oracle, steps=1) == pytest.approx(
        tokens._enumerated_bound(base, oracle, steps=1), abs=1e-6
    )
    chain = {n: tokens._enumerated_bound(process, oracle, steps=n) for n in (8, 32)}
    assert toy.entropy < tokens._enumerated_bound(base, oracle, steps=8) < chain[8] < chain[32]


def test_the_star_weighs_masked_tokens_by_the_signal() -> None:
    noised, pred = NoisySample(torch.full((1, 4), MASK), at(0.8), torch.tensor([[0, 1, 2, 3]])), guess(5, 1, 4)
    found = Remask(Masked(VOCAB), StarRate()).nelbo(pred, noised, at(0.3))
    torch.testing.assert_close(found, 0.7 * pred.nll(noised.z == MASK, noised.target), check_dtype=False)


def test_it_trains_as_a_chain(build: object, vocab: Vocab) -> None:
    """`Objective(Bound(steps=T))` with the wrapper in the model: finite, and larger than without."""
    losses = []
    for process in (Masked(vocab), Remask(Masked(vocab), StarRate())):
        model = build(process=process)  # type: ignore[operator]
        batch = Batch.of(torch.randint(0, 6, (64, 5), generator=torch.Generator().manual_seed(0)))
        losses.append(float(Objective(Bound(steps=32))(model, batch, rng=rng(0, 64)).mean.detach()))
    assert 0 < losses[0] < losses[1] < float("inf")


# --- a whole way ---


@pytest.mark.parametrize("rate", [CappedRate(0.05), RescaledRate(0.1), WindowedRate(StarRate(), 0.5, 0.05)], ids=repr)
def test_so_many_are_masked_as_the_time_says(rate: RemaskRate) -> None:
    process, rows, length = Remask(Masked(VOCAB), rate), 2000, 8
    steps = list(Ancestral(20)(_Even(), process, free(torch.zeros(rows, length, dtype=torch.int64)), rng=rng(0, rows)))
    assert len(steps) == 21
    for i, canvas in enumerate(steps):
        masked = float((canvas.z == MASK).double().mean())
        assert masked == pytest.approx(1 - i / 20, abs=4 * 0.5 / (rows * length) ** 0.5)
    assert bool((steps[-1].z != MASK).all())


def test_confidence_masks_more_than_the_time_says_and_still_ends() -> None:
    process, rows = Remask(Masked(VOCAB), ConfidenceRate()), 500
    steps = list(Ancestral(20)(_Even(), process, free(torch.zeros(rows, 8, dtype=torch.int64)), rng=rng(0, rows)))
    assert float((steps[10].z == MASK).double().mean()) > 0.55
    assert bool((steps[-1].z != MASK).all())


class _Even:
    block = None

    def predict(self, z: Tensor, t: Tensor, context: Context) -> TablePrediction:
        return TablePrediction(torch.tensor([0.25, 0.25, 0.25, 0.25, 0]).log().expand(*z.shape, V))

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return context


def test_padding_and_prompts_are_left_alone() -> None:
    z = torch.tensor([[1, 2, 0, 0, 3, 3]])
    canvas = Canvas(z, torch.tensor([[True, True, False, False, True, True]]), Context(pad=z == 3))
    for base in BASES:
        end = final_canvas(Ancestral(6)(_Even(), Remask(base, StarRate()), canvas, rng=rng(0)))
        assert end.z[0, [0, 1, 4, 5]].tolist() == [1, 2, 3, 3]


# --- what it is not ---


def test_there_is_no_continuous_limit_and_no_transition() -> None:
    process: Process = Remask(Masked(VOCAB), StarRate())
    assert not process.continuous
    noised = NoisySample(torch.full((1, 2), MASK), at(0.5), torch.zeros(1, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"use Bound\(steps=T\)"):
        process.nelbo(guess(0, 1, 2), noised)
    with pytest.raises(ValueError, match="no transition from z_s alone"):
        process.transition(0.2, 0.5)
    with pytest.raises(ValueError, match="depends on the text"):
        Remask(Masked(VOCAB), ConfidenceRate()).nelbo(guess(0, 1, 2), noised, at(0.2))


def test_the_rest_is_the_process_s() -> None:
    for base in BASES:
        process, x = Remask(base, StarRate()), torch.randint(0, 4, (2, 5), generator=torch.Generator().manual_seed(0))
        assert process.vocab is base.vocab
        assert process.leaves_noise == base.leaves_noise
        assert torch.equal(process.marginal(0.3), base.marginal(0.3))
        assert torch.equal(process.prior_kl(x), base.prior_kl(x))
        for ours, theirs in zip(*(p.noise(x, at(0.5, 2), rng=rng(0, 2)) for p in (process, base)), strict=True):
            assert ours is theirs or torch.equal(ours, theirs)
        assert torch.equal(process.prior(free(x), rng=rng(0, 2)).z, base.prior(free(x), rng=rng(0, 2)).z)
        noised = base.noise(x, at(0.5, 2), rng=rng(0, 2))
        assert torch.equal(process.undetermined(noised), base.undetermined(noised))


def test_errors() -> None:
    for bad in (-0.1, 1.1):
        for rate in (CappedRate, RescaledRate, LoopRate):
            with pytest.raises(ValueError, match="a probability lies between 0 and 1"):
                rate(bad)
    with pytest.raises(ValueError, match="time falls from 1 to 0"):
        WindowedRate(StarRate(), start_time=0.1, end_time=0.5)
    with pytest.raises(ValueError, match="direct=False"):
        Remask(replace(Interpolating(VOCAB), direct=True))
    with pytest.raises(ValueError, match="only Masked reveals tokens"):
        Remask(Interpolating(VOCAB), ConfidenceRate())
    assert Linear() == Masked(VOCAB).schedule
