"""Insertion: missing tokens are counted, given ones stay, the bound is a likelihood, samplers write the language."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from conftest import GOLDEN, randomize
from hypothesis import given, strategies as st
from safetensors.torch import load_file
from torch import Tensor

from redraft.core import (
    Batch,
    Canvas,
    CategoricalGaps,
    CharTokenizer,
    Context,
    Cosine,
    CosineSquared,
    Exponential,
    Insertion,
    Linear,
    Masked,
    NoisySample,
    PoissonGaps,
    Polynomial,
    Prediction,
    Rng,
    TablePrediction,
    Vocab,
    poisson_kl,
    rng,
    sample_poisson,
    thin_counts,
)
from redraft.core.processes.insertion import _insert_masks
from redraft.decoding import (
    Ancestral,
    Blocks,
    Confidence,
    Entropy,
    FirstHitting,
    Margin,
    Sampler,
    SlidingWindow,
    Unmask,
    final_canvas,
)
from redraft.evaluation.laws import insertion, suite, tokens as check
from redraft.evaluation.laws.insertion import (
    _LONGEST,
    _SENTENCE_VOCAB,
    _InsertAtOnce,
    _NoisedSentences,
    _sampled_sentences,
    _sentence_integrand,
    _SentenceLanguage,
    _SentenceOracle,
)
from redraft.evaluation.laws.law import _quadrature
from redraft.models import (
    Causal,
    DiffusionLM,
    DiffusionLMConfig,
    Shift,
    Subs,
    TransformerConfig,
    VariableHole,
)
from redraft.models.networks.layers import _GapHead
from redraft.tasks import sample_canvases
from redraft.tasks.engine.trace import _generated_mask
from redraft.training import Bound, Objective, StratifiedTimes, TokenCrossEntropy, likelihood, load

CHANCE = 1e-4
PAD, MASK = 6, 7
WORDS = Vocab(8, mask=MASK, pad=PAD)
LETTERS = CharTokenizer("abcdef", ("pad", "mask"))
PROCESS = Insertion(WORDS, Polynomial(2.0), Linear())
SQUARE = Insertion(_SENTENCE_VOCAB, Polynomial(2.0), Polynomial(2.0))
seeds = st.integers(0, 10**6)


def column(t: float, rows: int) -> Tensor:
    return torch.full((rows, 1), t, dtype=torch.float64)


def random_rows(seed: int, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """Tokens and padding; the first row is full, the last one empty."""
    g = torch.Generator().manual_seed(seed)
    size = torch.randint(0, length + 1, (rows, 1), generator=g)
    size[0], size[-1] = length, 0
    pad = torch.arange(length) >= size
    return torch.randint(0, 6, (rows, length), generator=g).masked_fill(pad, PAD), pad


# --- noise ---


def test_a_token_that_has_arrived_is_masked_or_right() -> None:
    table = PROCESS.marginal(0.6)[:6, :6]  # of words
    assert float(table.sum() - table.diagonal().sum()) == PROCESS.error_rate(0.6) == 0


@given(seed=seeds, t=st.floats(0, 1))
def test_gaps_and_tokens_make_up_the_text(seed: int, t: float) -> None:
    x, pad = random_rows(seed, 5, 9)
    noised = PROCESS.noise(x, column(t, 5), pad=pad, rng=rng(seed, 5))
    assert noised.pad is not None and noised.gaps is not None and noised.open is not None  # noqa: PT018
    for i in range(5):
        size, text = int((~noised.pad[i]).sum()), x[i][~pad[i]].tolist()
        gaps = noised.gaps[i].tolist()
        assert noised.pad[i].tolist() == [j >= size for j in range(9)]
        assert sum(gaps) + size == len(text)
        assert gaps[size + 1 :] == [0] * (9 - size)
        places = [sum(gaps[: j + 1]) + j for j in range(size)]  # where each token of z stands in x
        assert noised.target[i, :size].tolist() == [text[p] for p in places]
        assert all(z in (MASK, text[p]) for z, p in zip(noised.z[i, :size].tolist(), places, strict=True))
        assert noised.open[i].tolist() == [j <= size and t > 0 for j in range(10)] or len(text) == 0


@given(seed=seeds, t=st.floats(0.05, 0.95))
def test_prompts_stay_and_nothing_is_missing_inside_them(seed: int, t: float) -> None:
    """x = given given free free given free: the gap at the start and the one inside the prompt are closed."""
    x = torch.tensor([[0, 1, 2, 3, 4, 5]])
    free = torch.tensor([[False, False, True, True, False, True]])
    noised = PROCESS.noise(x, torch.where(free, column(t, 1), 0.0), rng=rng(seed))
    assert noised.pad is not None and noised.gaps is not None and noised.open is not None  # noqa: PT018
    z = noised.z[0][~noised.pad[0]].tolist()
    assert [token for token in z if token in (0, 1, 4)] == [0, 1, 4]
    assert noised.gaps[0, :2].tolist() == [0, 0]
    assert noised.open[0, :2].tolist() == [False, False]
    assert noised.open[0, 2 : len(z) + 1].all()
    assert float(noised.t) == t
    assert noised.arrived is not None
    assert int(noised.arrived) == len(z) - 3, "what is given did not arrive"


def test_nothing_is_learned_of_a_row_that_is_given() -> None:
    x = torch.tensor([[0, 1, 2]])
    noised = PROCESS.noise(x, torch.zeros(1, 3), rng=rng(0))
    assert torch.equal(noised.z, x)
    gaps = torch.full((1, 4), 2.0, requires_grad=True)
    nats = PROCESS.nelbo(TablePrediction(torch.zeros(1, 3, 8), missing=PoissonGaps.of(gaps)), noised)
    nats.sum().backward()
    assert nats.tolist() == [[0.0] * 4]
    assert gaps.grad is not None
    assert gaps.grad.tolist() == [[0.0] * 4]


def test_how_many_are_masked_and_missing() -> None:
    """Linear schedules: t·(−log t) of the tokens are masked (Kim et al. 2025), t are missing."""
    process, draws = Insertion(WORDS), 200_000
    for t in (0.1, 0.5, 0.9):
        noised = process.noise(torch.zeros(1, draws, dtype=torch.int64), column(t, 1), rng=rng(3))
        assert noised.gaps is not None
        masked, missing = int((noised.z == MASK).sum()) / draws, int(noised.gaps.sum()) / draws
        expected_mask = -t * torch.tensor(t).log().item()
        assert masked == pytest.approx(expected_mask, abs=5 * (expected_mask / draws) ** 0.5)
        assert missing == pytest.approx(t, abs=5 * (t / draws) ** 0.5)
        assert process.marginal(t)[0].tolist() == pytest.approx(
            [1 - t - expected_mask, 0, 0, 0, 0, 0, 0, expected_mask, t], abs=1e-6
        )


def test_one_time_per_row() -> None:
    with pytest.raises(ValueError, match="one time per row"):
        PROCESS.noise(torch.zeros(1, 2, dtype=torch.int64), torch.tensor([[0.5, 0.7]]), rng=rng(0))


# --- the canvas grows ---


@given(seed=seeds)
def test_inserted_masks_move_the_rest(seed: int) -> None:
    """Against lists: every token keeps what belongs to it, a new one is a mask to be written in an open gap."""
    g = torch.Generator().manual_seed(seed)
    z, pad = random_rows(seed, 6, 7)
    limit = (~pad).sum(-1) + torch.randint(0, 8, (6,), generator=g).minimum(pad.sum(-1))
    room = pad & (torch.arange(7) < limit[:, None])
    fixed = torch.where(pad, ~room, torch.rand(6, 7, generator=g) < 0.5)
    gaps_open = (torch.rand(6, 8, generator=g) < 0.7) & (torch.arange(8) <= (~pad).sum(-1, keepdim=True))
    count = torch.randint(0, 4, (6, 8), generator=g) * gaps_open
    inside = (torch.rand(6, 7, generator=g) < 0.5) & ~pad
    canvas = Canvas(z, fixed, Context(pad=pad), open=gaps_open).with_constraints(no_end_token=inside)
    after = _insert_masks(canvas, count, WORDS)
    assert after.context.pad is not None and after.open is not None  # noqa: PT018
    assert after.context.constraints.no_end_token is not None
    for i in range(6):
        left, tokens, doors, no_end = int(room[i].sum()), [], [], []
        for gap in range(int((~pad[i]).sum()) + 1):
            new = min(int(count[i, gap]), left)
            left -= new
            follows = gap < (~pad[i]).sum()
            tokens += [(MASK, False)] * new
            no_end += [follows and bool(inside[i, gap] | fixed[i, gap])] * new  # no end before a given token
            doors += [bool(gaps_open[i, gap])] * (new + 1)
            if follows:
                tokens.append((int(z[i, gap]), bool(fixed[i, gap])))
                no_end.append(bool(inside[i, gap]))
        size = len(tokens)
        assert after.context.pad[i].tolist() == [j >= size for j in range(7)]
        assert list(zip(after.z[i, :size].tolist(), after.fixed[i, :size].tolist(), strict=True)) == tokens
        assert after.open[i].tolist() == doors + [False] * (7 - size)
        assert after.context.constraints.no_end_token[i].tolist() == no_end + [False] * (7 - size)
        assert int((after.context.pad[i] & ~after.fixed[i]).sum()) == left
        assert (after.z[i, size:] == PAD).all()


def test_a_canvas_must_say_where() -> None:
    canvas = Canvas(torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"DiffusionLM.canvas and .infill make one"):
        PROCESS.prior(canvas, rng=rng(0))
    with pytest.raises(ValueError, match=r"open has shape \(1, 2\); 2 tokens have 3 gaps"):
        replace(canvas, open=canvas.fixed)


def test_the_last_step_inserts_nothing() -> None:
    """What would arrive then would stay masked."""
    full = torch.ones(1, 4, dtype=torch.bool)
    start = Canvas(
        torch.full((1, 4), PAD), ~full, Context(pad=full), open=torch.tensor([[True, False, False, False, False]])
    )
    said = TablePrediction(torch.zeros(1, 4, 8), missing=PoissonGaps.of(torch.full((1, 5), 100.0)))
    for s, size in ((0.5, 4), (0.0, 0)):
        after = PROCESS.step(said, start, column(s, 1), column(1.0, 1), rng=rng(0))
        assert after.context.pad is not None
        assert int((~after.context.pad).sum()) == size


# --- predictions of gaps ---


@pytest.mark.parametrize("mean", [0.0, 1e-4, 0.7, 40.0, 2000.0])
def test_poisson_counts(mean: float) -> None:
    """Mean and variance, also where e^−mean is zero in any float; `most` is the limit, a mean of zero gives none."""
    n = 50_000
    drawn = sample_poisson(torch.full((1, n), mean), rng(4).uniform(n), 10_000).double()
    assert drawn.mean().item() == pytest.approx(mean, abs=5 * (mean / n) ** 0.5)
    assert drawn.var().item() == pytest.approx(mean, abs=0.05 * mean + 1e-4)
    assert int(sample_poisson(torch.full((1, n), mean), rng(4).uniform(n), 3).max()) == min(3, int(drawn.max()))


def test_thinned_counts() -> None:
    count = torch.tensor([[3, 0, 1000]]).repeat(2000, 1)
    kept = thin_counts(count, column(0.25, 2000), rng(5, 2000))
    assert (kept <= count).all()
    assert kept.double().mean(0).tolist() == pytest.approx([0.75, 0, 250], rel=0.05)
    assert kept[:, 2].double().var().item() == pytest.approx(1000 * 0.25 * 0.75, rel=0.15)
    assert torch.equal(thin_counts(count, column(1.0, 2000), rng(5, 2000)), count)
    assert int(thin_counts(torch.zeros_like(count), column(0.5, 2000), rng(5, 2000)).sum()) == 0


def test_arrivals_are_poisson_or_a_thinned_count() -> None:
    rows, share = 20_000, column(0.3, 20_000)
    arrived = PoissonGaps.of(torch.full((rows, 1), 4.0)).draw(share, rng=rng(1, rows)).double()
    # Poisson(1.2), though never more than the gaps there are: here one
    assert float((arrived > 0).double().mean()) == pytest.approx(1 - 2.718281828**-1.2, abs=0.015)
    p = torch.tensor([0.2, 0.0, 0.5, 0.3])
    counts = CategoricalGaps(p.log().expand(rows, 2, 4)).draw(share, rng=rng(2, rows)).double()
    q = 0.3  # P(k) = Σ_g p(g)·binomial(k; g, q)
    none = 0.2 + 0.5 * (1 - q) ** 2 + 0.3 * (1 - q) ** 3
    assert counts.mean().item() == pytest.approx(q * 1.9, abs=0.015)
    assert float((counts == 0).double().mean()) == pytest.approx(none, abs=0.015)
    assert float(torch.corrcoef(counts.T)[0, 1]) == pytest.approx(0, abs=0.03), "gap by gap"


def test_what_a_count_costs() -> None:
    count = torch.tensor([[0, 3]])
    assert PoissonGaps.of(torch.tensor([[0.5, 2.0]])).nll(count).tolist() == [
        pytest.approx([0.5, 2 - 3 * 0.6931472 + 1.7917595], abs=1e-5)
    ]
    log_p = torch.randn(1, 2, 4, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    assert CategoricalGaps(log_p).nll(count).tolist() == [[-log_p[0, 0, 0].item(), -log_p[0, 1, 3].item()]]
    assert CategoricalGaps(log_p).mean[0, 0].item() == pytest.approx(
        sum(k * log_p[0, 0, k].exp().item() for k in range(4))
    )


def test_a_gap_that_is_called_closed_costs_a_finite_loss() -> None:
    """An expected count may underflow while its logarithm does not: training met a loss of infinity there."""
    config = TransformerConfig(width=8, layers=1, heads=2, time=8, gaps=4)
    layer = _GapHead(config, 4)
    with torch.no_grad():
        layer.initialize()
        layer.output.bias.fill_(-200.0)
    gaps = PoissonGaps(layer(torch.randn(1, 3, 8), None))
    assert gaps.mean.tolist() == [[0.0] * 3]
    noised = NoisySample(torch.zeros(1, 2, dtype=torch.int64), column(0.5, 1), torch.zeros(1, 2, dtype=torch.int64))
    opened = torch.ones(1, 3, dtype=torch.bool)
    noised = noised._replace(gaps=torch.tensor([[0, 2, 0]]), open=opened, arrived=torch.tensor([[2]]))
    nats = PROCESS.nelbo(TablePrediction(torch.zeros(1, 2, 8), missing=gaps), noised)
    assert float(nats.detach().sum()) == pytest.approx(4.0 * (-2 + 2 * (200 - math.log(4) + math.log(2 / 3))))
    nats.sum().backward()
    assert layer.output.bias.grad is not None
    assert layer.output.bias.grad.item() == pytest.approx(-8.0), "it still learns that something is missing"
    assert bool(gaps.nll(noised.gaps).isfinite().all())


# --- the bound ---


def integral(oracle: _SentenceOracle) -> float:
    time, weight = _quadrature(48)
    return float(weight @ _sentence_integrand(oracle, time))


@dataclass(frozen=True)
class Loose(Insertion):
    """The paper's loss as if it were a likelihood: m − g + g·log(g/m) for each gap."""

    def nelbo(self, pred: TablePrediction, noised: NoisySample, s: Tensor | None = None) -> Tensor:  # type: ignore[override]
        assert noised.gaps is not None
        wrong = poisson_kl(noised.gaps.double(), pred.gaps.mean) - (
            pred.gaps.mean - noised.gaps - torch.xlogy(noised.gaps, pred.gaps.mean)
        )
        return super().nelbo(pred, noised) + self.insert_schedule.rate(noised.t) * wrong


def test_the_tight_bound_is_the_entropy_and_the_paper_s_is_not() -> None:
    """{ab, ba}, each half the time: log 2, where the paper's loss gives 2 log 2."""
    toy = _SentenceLanguage.of()
    pair = _SentenceLanguage(torch.tensor([[0, 1, 3], [1, 0, 3]]), torch.full((2,), 0.5, dtype=torch.float64))
    log2 = torch.tensor(2.0).log().item()
    for schedules in ((Linear(), Linear()), (Polynomial(2.0), Polynomial(3.0)), (CosineSquared(), Linear())):
        process = Insertion(_SENTENCE_VOCAB, *schedules)
        assert integral(_SentenceOracle(pair, process)) == pytest.approx(log2, abs=1e-4)
        assert integral(_SentenceOracle(toy, process)) == pytest.approx(toy.entropy, abs=1e-4)
    assert integral(_SentenceOracle(pair, Loose(_SENTENCE_VOCAB))) == pytest.approx(2 * log2, abs=1e-3)
    assert integral(_SentenceOracle(toy, Loose(_SENTENCE_VOCAB))) - toy.entropy == pytest.approx(0.8305, abs=1e-3)
    one = _SentenceLanguage(torch.tensor([[0, 3, 3], [3, 3, 3]]), torch.tensor([0.3, 0.7], dtype=torch.float64))
    assert integral(_SentenceOracle(one, Loose(_SENTENCE_VOCAB))) == pytest.approx(one.entropy, abs=1e-4), (
        "no gap of two: no difference"
    )


@pytest.mark.parametrize("tokens", [1, 2, 5, 9])
def test_gaps_relative_to_the_average_cost_nothing_in_all(tokens: int) -> None:
    """Over all times and numbers k of tokens that are there, rate·G·log(G/(k + 1)) has the mean 0, G = n − k."""
    time, weight = _quadrature(64)
    there = torch.arange(tokens, dtype=torch.float64)
    gone = tokens - there
    for schedule in (Linear(), Polynomial(2.0), CosineSquared()):
        chance = torch.distributions.Binomial(tokens, schedule.keep(time)[:, None]).log_prob(there).exp()
        added = (chance * gone * (gone / (there + 1)).log()).sum(-1) * schedule.rate(time)
        assert float(weight @ added) == pytest.approx(0.0, abs=1e-6)


@given(seed=seeds, t=st.floats(0.05, 0.95))
def test_gaps_of_a_known_text_cost_nothing_at_any_time(seed: int, t: float) -> None:
    """A text of equal tokens and known length: the average gap is the best guess, and no draw of z changes the cost."""
    noised = PROCESS.noise(torch.zeros(4, 12, dtype=torch.int64), column(t, 4), rng=rng(seed, 4))
    assert noised.gaps is not None and noised.open is not None and noised.arrived is not None  # noqa: PT018
    average = torch.where(noised.open, noised.gaps.sum(-1, keepdim=True) / (noised.arrived + 1.0), 0.0)
    sure = torch.full((4, 12, 8), -torch.inf)
    sure[..., 0] = 0.0
    nats = PROCESS.nelbo(TablePrediction(sure, missing=PoissonGaps.of(average.clamp(min=1e-30))), noised)
    assert nats.sum(-1).tolist() == pytest.approx([0.0] * 4, abs=1e-4)


def test_the_bound_rises_with_any_error() -> None:
    toy = _SentenceLanguage.of()
    assert integral(_SentenceOracle(toy, SQUARE, counted=True)) == pytest.approx(toy.entropy, abs=1e-4)
    assert [integral(_SentenceOracle(toy, SQUARE, blur=b)) > toy.entropy + 0.05 for b in (0.003, 0.1)] == [True, True]


def test_all_at_once_is_mask_noise_on_a_known_length() -> None:
    process, toy = Insertion(_SENTENCE_VOCAB, _InsertAtOnce(), Cosine()), _SentenceLanguage.of()
    x, pad = toy.x.repeat(40, 1), toy.pad.repeat(40, 1)
    noised = process.noise(x, column(0.6, len(x)), pad=pad, rng=rng(0, len(x)))
    assert noised.gaps is not None
    assert int(noised.gaps.sum()) == 0
    assert torch.equal(noised.target.masked_fill(pad, 3), x)
    pred = _SentenceOracle(toy, process, blur=0.2).predict(noised.z, noised.t, Context(pad=noised.pad))
    mask_noise = Masked(_SENTENCE_VOCAB, Cosine())
    assert torch.equal(process.nelbo(pred, noised)[:, :-1], mask_noise.nelbo(pred, noised))
    share = float((noised.z == _SENTENCE_VOCAB.masked).sum() / (~pad).sum())
    assert share == pytest.approx(1 - float(mask_noise.marginal(0.6)[0, 0]), abs=0.04)


def test_draws_of_time_near_zero_tame_the_noise() -> None:
    """E[(weight·integrand)²] of linear schedules, where the rate is 1/t: with t = u² twenty times smaller."""
    process, toy = Insertion(_SENTENCE_VOCAB), _SentenceLanguage.of()
    ways, oracle = _NoisedSentences.of(toy, process), _SentenceOracle(toy, process)
    time, weight = _quadrature(64)
    noised, p = ways.at(*time.tolist()), torch.stack([ways.p(toy, process, t) for t in time.tolist()])
    nats = (
        process.nelbo(oracle.predict(noised.z, noised.t, Context(pad=noised.pad)), noised).double().sum(-1).view_as(p)
    )
    seen = (p * torch.where(p > 0, nats, 0.0) ** 2).sum(-1) * weight * (time > 1e-6)
    tamed = float((seen * StratifiedTimes(power=2.0).weight(time)).sum())
    assert float(seen.sum()) > 20 * tamed


def test_continuous_time_only() -> None:
    noised = PROCESS.noise(torch.zeros(1, 2, dtype=torch.int64), column(0.5, 1), rng=rng(0))
    with pytest.raises(ValueError, match=r"use Bound\(\) without steps"):
        PROCESS.nelbo(TablePrediction(torch.zeros(1, 2, 8)), noised, column(0.4, 1))


# --- the laws ---


def test_every_law_holds() -> None:
    rows = list(suite.check_process(SQUARE))
    assert [r for r in rows if not r.ok] == []
    assert len({r.law for r in rows}) == 12


def test_the_laws_catch_a_loose_bound() -> None:
    failed = [
        r.law
        for r in insertion._bound_laws(SQUARE, _SentenceOracle(_SentenceLanguage.of(), Loose(_SENTENCE_VOCAB)))
        if not r.ok
    ]
    assert failed == ["bound = entropy, length included"]


@dataclass(frozen=True)
class Hasty(Insertion):
    """Inserts as if each step were a little longer."""

    def step(self, pred, canvas, s, t, *, rng):  # type: ignore[no-untyped-def]
        return super().step(pred, canvas, torch.where(s > 0, 0.9 * s, s), t, rng=rng)


@dataclass(frozen=True)
class Forgetful(Insertion):
    """Opens every gap, also beside what is written."""

    def noise(self, x, t, *, pad=None, rng):  # type: ignore[no-untyped-def]
        noised = super().noise(x, t, pad=pad, rng=rng)
        return noised._replace(gaps=noised.gaps.clamp(max=0))


def test_the_laws_catch_a_wrong_step_and_a_wrong_count() -> None:
    oracle = _SentenceOracle(_SentenceLanguage.of(), Hasty(_SENTENCE_VOCAB, Polynomial(2.0), Polynomial(2.0)))
    p = torch.cat([oracle.toy.p, torch.zeros(1, dtype=torch.float64)])
    assert check.chi_square(_sampled_sentences(oracle, Ancestral(16), rng(7, 4000)), p) < CHANCE
    failed = [r.law for r in insertion._forward_laws(Forgetful(_SENTENCE_VOCAB)) if not r.ok]
    assert failed == ["the prior is reached", "draws match marginals"]


@pytest.mark.parametrize("sampler", [Unmask(32, Margin(1.0)), Unmask(32, Entropy(1.0))], ids=repr)
def test_any_order_of_revealing_writes_the_language(sampler: Sampler) -> None:
    """Scores that do not depend on the drawn token: one mask after the other has the law of chance."""
    oracle = _SentenceOracle(_SentenceLanguage.of(), SQUARE, counted=True)
    p = torch.cat([oracle.toy.p, torch.zeros(1, dtype=torch.float64)])
    assert check.chi_square(_sampled_sentences(oracle, sampler, rng(5, 4000)), p) > CHANCE


# --- networks ---


def config(counts: bool = False, **changes: object) -> DiffusionLMConfig:
    network = TransformerConfig(width=16, layers=2, heads=2, hidden=32, time=8, gaps=12, gap_counts=counts)
    return DiffusionLMConfig(PROCESS, replace(network, **changes))


@pytest.fixture(scope="module", params=[False, True], ids=["expected", "counted"])
def writer(request: pytest.FixtureRequest) -> DiffusionLM:
    model = randomize(DiffusionLM(config(request.param), LETTERS), 0)
    with torch.no_grad():  # some gaps of about one token, as after training
        model.network.gaps.output.bias.copy_(torch.linspace(2, -12, 13) if request.param else torch.tensor([-2.5]))
    return model


def test_counts_relative_to_the_share_missing_have_no_pole() -> None:
    """A gap that is always left e^raw open gains e^raw tokens over the whole way, however many steps it has."""
    model = randomize(DiffusionLM(config(gap_fraction=True), LETTERS), 0)
    with torch.no_grad():
        model.network.gaps.output.weight.zero_()
        model.network.gaps.output.bias.fill_(-3.0)
    z, pad = torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 2, dtype=torch.bool)
    for steps in (8, 512):
        time = torch.linspace(1, 0, steps + 1, dtype=torch.float64)
        gained = torch.zeros(1, 3)
        with torch.no_grad():
            for t, s in pairwise(time[:, None, None]):
                mean = model.predict(z, t, Context(pad=pad)).gaps.mean
                gained = gained + PROCESS.insert_schedule.share(s, t).float() * mean
        assert torch.allclose(gained, torch.full((1, 3), -3.0).exp(), rtol=1e-4)


def test_configurations_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="leave out gap_counts"):
        config(counts=True, gap_fraction=True)
    with pytest.raises(ValueError, match="gaps=None with Insertion; set gaps"):
        config(gaps=None)
    with pytest.raises(ValueError, match="gaps=12 with Masked"):
        replace(config(), process=Masked(WORDS))
    with pytest.raises(ValueError, match="insertion needs a network that sees the time"):
        config(time=None)
    with pytest.raises(ValueError, match="insertion needs a network that sees the time"):
        replace(config(), head=Shift())
    with pytest.raises(ValueError, match="need full attention"):
        config(pattern=Causal(MASK), time=None)
    with pytest.raises(ValueError, match="give the vocabulary pad or eos"):
        Insertion(Vocab(8, mask=MASK))
    for schedules in ((Exponential(), Linear()), (Linear(0.1), Linear()), (Linear(), Exponential())):
        with pytest.raises(ValueError, match="insertion needs schedules that begin at 1"):
            Insertion(WORDS, *schedules)


def test_a_new_network_expects_one_token_in_every_gap() -> None:
    said = DiffusionLM(config()).predict(torch.zeros(2, 3, dtype=torch.int64), column(0.5, 2)).gaps.mean
    assert said.tolist() == [pytest.approx([1.0] * 4)] * 2


def test_other_models_say_nothing_of_gaps() -> None:
    model = DiffusionLM(DiffusionLMConfig(Masked(WORDS), TransformerConfig(width=16, layers=1, heads=2)))
    with pytest.raises(ValueError, match="does not predict gaps"):
        _ = model.predict(torch.zeros(1, 2, dtype=torch.int64), column(0.5, 1)).gaps
    with pytest.raises(ValueError, match="has no head for gaps"):
        model.network.with_gaps(torch.zeros(1, 2, dtype=torch.int64), None)


def test_padding_and_neighbors_do_not_matter(writer: DiffusionLM) -> None:
    """A row among longer ones, or on a wider canvas, is told the same as alone; the end slot is always there."""
    x, pad = random_rows(3, 6, 9)
    together = writer.predict(x, column(0.4, 6), Context(pad=pad))
    wide = writer.predict(
        torch.nn.functional.pad(x, (0, 4), value=PAD),
        column(0.4, 6),
        Context(pad=torch.nn.functional.pad(pad, (0, 4), value=True)),
    )
    for i, size in enumerate((~pad).sum(-1).tolist()):
        alone = writer.predict(x[i : i + 1, :size], column(0.4, 1))
        for pred in (together, wide):
            assert torch.allclose(pred.gaps.mean[i, : size + 1], alone.gaps.mean[0], atol=1e-5)
            assert torch.allclose(pred.x[i, :size], alone.x[0], atol=1e-5)


def test_one_pass_answers_all_questions(writer: DiffusionLM) -> None:
    calls = []
    handle = writer.network.blocks[0].register_forward_pre_hook(lambda *_: calls.append(1))
    x, pad = random_rows(0, 3, 5)
    noised = PROCESS.noise(x, column(0.5, 3), pad=pad, rng=rng(0, 3))
    PROCESS.nelbo(writer.predict(noised.z, noised.t, Context(pad=noised.pad)), noised)
    handle.remove()
    assert len(calls) == 1


@pytest.mark.parametrize("term", [Bound(), TokenCrossEntropy()], ids=repr)
def test_the_gradient_reaches_every_weight(writer: DiffusionLM, term: Bound | TokenCrossEntropy) -> None:
    x, pad = random_rows(0, 4, 6)
    writer.zero_grad()
    Objective(term)(writer, Batch.of(x, pad), rng=rng(0, 4)).mean.backward()
    # the bound sees a distribution through its mean, which moves with all of it
    assert [n for n, p in writer.named_parameters() if p.grad is None or not p.grad.any()] == []
    writer.zero_grad()


@dataclass(frozen=True)
class Learned:
    """A network in the oracle's place."""

    toy: _SentenceLanguage
    process: Insertion
    model: DiffusionLM

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        with torch.no_grad():
            return self.model.predict(z, t, context)


def test_a_network_learns_lengths_and_words() -> None:
    """The toy language, 200 steps: the bound, integrated exactly, comes near the entropy; `likelihood` estimates it."""
    toy, steps = _SentenceLanguage.of(), 200
    network = TransformerConfig(width=32, layers=1, heads=2, time=16, gaps=_LONGEST)
    torch.manual_seed(0)
    model = DiffusionLM(DiffusionLMConfig(SQUARE, network))
    adam, keys, objective = torch.optim.AdamW(model.parameters(), 1e-2), rng(0, 128), Objective(TokenCrossEntropy())
    before = integral(Learned(toy, SQUARE, model))  # type: ignore[arg-type]
    for step in range(steps):
        adam.param_groups[0]["lr"] = 0.01 * min(1, 2 * (1 - step / steps))
        index = torch.searchsorted(toy.p.cumsum(0), keys.fold(step).uniform(1)[:, 0]).clamp(max=len(toy.p) - 1)
        objective(model, Batch.of(toy.x[index], toy.pad[index]), rng=keys.fold(steps + step)).mean.backward()
        adam.step()
        adam.zero_grad()
    after = integral(Learned(toy, SQUARE, model))  # type: ignore[arg-type]
    assert before > toy.entropy + 1
    assert toy.entropy < after < toy.entropy + 0.4
    found = likelihood(model, [Batch.of(toy.x, toy.pad)], draws=32)
    error = float((toy.p**2 @ found.row_variance).sqrt())
    assert float(toy.p @ found.row_nats) == pytest.approx(after, abs=4 * error)
    assert error < 0.4


# --- text ---


def test_a_canvas_has_room(writer: DiffusionLM) -> None:
    canvas = writer.canvas(["ab", ""], new=3)
    assert canvas.open is not None and canvas.context.pad is not None  # noqa: PT018
    assert canvas.z.tolist() == [[0, 1, PAD, PAD, PAD], [PAD] * 5]
    assert canvas.fixed.tolist() == [[True, True, False, False, False], [False, False, False, True, True]]
    assert canvas.context.pad.tolist() == [[False, False, True, True, True], [True] * 5]
    assert canvas.open.tolist() == [[False, False, True, False, False, False], [True] + [False] * 5]
    assert writer.text(canvas) == ["ab", ""]


def test_a_text_does_not_outgrow_learned_positions() -> None:
    model = randomize(DiffusionLM(config(positions=6), LETTERS), 0)
    canvas = model.canvas(["ab", "abc"], new=9)
    assert canvas.z.shape == (2, 5)
    assert (~canvas.fixed).sum(-1).tolist() == [3, 2]
    end = final_canvas(Ancestral(8)(model, model.process, canvas, rng=rng(0, 2)))
    assert end.context.pad is not None
    assert not end.context.pad.any(), "an untrained network fills all the room there is"


def test_holes_of_both_kinds(writer: DiffusionLM) -> None:
    """a[[2]]b[[*]]c: two tokens exactly between a and b, any number up to four between b and c."""
    canvas = writer.compose(["a[[2]]b[[*]]c"] * 50, room=4)
    sizes = set()
    for sampler in (Ancestral(16), Unmask(16), Unmask(8, Confidence(1.0))):
        end = final_canvas(sampler(writer, writer.process, canvas, rng=rng(1, 50)))
        assert end.context.pad is not None
        for row, pad in zip(end.z.tolist(), end.context.pad.tolist(), strict=True):
            text = [token for token, empty in zip(row, pad, strict=True) if not empty]
            assert (text[0], text[3], text[-1]) == (0, 1, 2)
            assert 5 <= len(text) <= 9
            assert MASK not in text, "no mask is left"
            sizes.add(len(text))
        assert _generated_mask(canvas, end, WORDS).sum(-1).tolist() == ((~end.context.pad).sum(-1) - 3).tolist()
    assert len(sizes) > 2, "holes of different lengths"


def test_a_row_is_written_as_it_would_be_alone(writer: DiffusionLM) -> None:
    templates = ["a[[*]]b", "[[*]]", "abc[[*]]", "[[1]]a[[*]]b[[*]]", "fed"] * 4
    canvas, keys = writer.compose(templates, room=5), rng(7, 20)
    for sampler in (Ancestral(8), Unmask(8)):
        together = writer.text(final_canvas(sampler(writer, writer.process, canvas, rng=keys)))
        for i, template in enumerate(templates):
            single = sampler(writer, writer.process, writer.compose([template], room=5), rng=Rng(keys.key[i : i + 1]))
            assert writer.text(final_canvas(single)) == [together[i]]
        assert together == sample_canvases(writer, sampler, canvas, seed=7, batch=3).texts


def test_what_cannot_grow_refuses(writer: DiffusionLM) -> None:
    canvas, keys = writer.canvas("a", new=3), rng(0)
    for sampler, reason in (
        (Blocks(Ancestral(4), decode_block=2), "insertion moves later tokens, so it has no blocks"),
        (SlidingWindow(Ancestral(4), 4, 2), "insertion moves later tokens, so it needs the whole text"),
        (FirstHitting(), "FirstHitting is for mask noise, not Insertion"),
    ):
        with pytest.raises(ValueError, match=reason):
            final_canvas(sampler(writer, writer.process, canvas, rng=keys))
    with pytest.raises(ValueError, match=r"VariableHole\(-1\)"):
        VariableHole(-1)


# --- the original ---


def golden(variant: str) -> tuple[dict[str, Tensor], dict[str, float]]:
    folder = GOLDEN / f"flexmdm_{variant}"
    return load_file(folder / "io.safetensors"), json.loads((folder / "expected.json").read_text())["scalars"]


def retold(io: dict[str, Tensor]) -> tuple[Insertion, NoisySample]:
    """The original's draw as ours, from its hitting times; its time τ is 1 − t."""
    process, tau = Insertion(Vocab(40, mask=38, pad=39)), io["t"][:, None]
    missing, hidden = tau < io["insertion_time"], (tau >= io["insertion_time"]) & (tau < io["unmasking_time"])
    pad = io["x1"] == 39
    given = torch.zeros_like(pad)
    return process, process.packed(io["x1"], 1 - tau.double(), missing & ~pad, hidden & ~pad, given, pad)


@pytest.mark.parametrize("variant", ["expectation", "distribution"])
def test_the_original_s_draws(variant: str) -> None:
    io, _ = golden(variant)
    process, noised = retold(io)
    assert noised.gaps is not None and noised.pad is not None and noised.open is not None  # noqa: PT018
    assert torch.equal(noised.z, io["xt"])
    assert torch.equal((~noised.pad).sum(-1), io["xt_length"])
    assert torch.equal(noised.gaps * noised.open, io["gaps"] * io["gaps_mask"])
    assert torch.equal(noised.open, io["gaps_mask"].bool())
    assert torch.equal(process.undetermined(noised), io["mask_indices"].bool())
    masked = process.undetermined(noised)
    assert torch.equal(noised.target[masked], io["unmasked_targets"][masked])
    rate = process.insert_schedule.rate(noised.t).float()
    assert torch.allclose(rate.expand_as(io["insert_weight"]), io["insert_weight"], rtol=1e-4)
    assert torch.allclose(rate.expand_as(io["unmask_weight"]), io["unmask_weight"], rtol=1e-4)
    assert torch.allclose(rate * io["expected_gaps"], io["length_rate"], rtol=1e-4)


@pytest.mark.parametrize("variant", ["expectation", "distribution"])
def test_the_original_s_network(variant: str) -> None:
    """Through the model's own door: the logits it says and the counts it expects, as far as the text goes."""
    io, _ = golden(variant)
    model = load(GOLDEN / f"flexmdm_{variant}")
    _, noised = retold(io)
    assert noised.open is not None and noised.pad is not None  # noqa: PT018
    with torch.no_grad():
        pred = replace_head(model).predict(noised.z, noised.t.float(), Context(pad=noised.pad))
    assert torch.allclose(pred.gaps.mean[noised.open], io["expected_gaps"][noised.open], rtol=1e-4, atol=2e-5)
    said = io["token_logits"].log_softmax(-1)
    masked = io["mask_indices"].bool()
    assert torch.allclose(pred.at(masked), said[masked], rtol=1e-4, atol=2e-5)
    if variant == "distribution":
        assert isinstance(pred.gaps, CategoricalGaps)
        counts = io["length_posterior_logits"].log_softmax(-1)
        assert torch.allclose(pred.gaps.log_p[noised.open], counts[noised.open], rtol=1e-4, atol=2e-5)


def replace_head(model: DiffusionLM) -> DiffusionLM:
    """The original leaves the mask among its predictions."""
    model.config = replace(model.config, head=Subs(zero_mask=False))
    return model


def test_the_original_s_losses() -> None:
    """Its insertion loss is the loose one: ours is smaller by rate·g·log g, and m is relative to the average gap.

    Both per 3 rows of 16 tokens.
    """
    io, scalars = golden("expectation")
    process, noised = retold(io)
    assert noised.gaps is not None and noised.open is not None and noised.arrived is not None  # noqa: PT018
    pred, cells = (
        TablePrediction(io["token_logits"].log_softmax(-1), missing=PoissonGaps.of(io["expected_gaps"])),
        3 * 16,
    )
    rate, g, m = process.insert_schedule.rate(noised.t), noised.gaps.double(), io["expected_gaps"].double()
    unmask = float(process.unmasking.nelbo(pred, noised).sum()) / cells
    theirs = float((rate * poisson_kl(g, m))[noised.open].sum()) / cells
    assert unmask == pytest.approx(scalars["unmask_loss"], rel=1e-4)
    assert theirs == pytest.approx(scalars["insertion_loss"], rel=1e-4)
    assert unmask + theirs == pytest.approx(scalars["total_loss"], rel=1e-4)
    ours = float(process.nelbo(pred, noised).sum()) / cells
    average = g.sum(-1, keepdim=True) / (noised.arrived + 1)
    less = float((rate * (torch.xlogy(g, g) - torch.xlogy(g, average))).sum()) / cells
    assert ours == pytest.approx(unmask + theirs - less, rel=1e-4)


def test_the_original_s_loss_of_counts() -> None:
    """Its cross-entropy is averaged over all gaps before it is weighted; ours weighs each gap by itself."""
    io, scalars = golden("distribution")
    process, noised = retold(io)
    assert noised.gaps is not None and noised.open is not None  # noqa: PT018
    price = CategoricalGaps(io["length_posterior_logits"].log_softmax(-1)).nll(noised.gaps)
    rate = process.insert_schedule.rate(noised.t).expand_as(price)
    theirs = float((rate[noised.open] * price[noised.open].mean()).sum()) / (3 * 16)
    assert theirs == pytest.approx(scalars["insertion_loss"], rel=1e-4)
    ours = float((rate * price)[noised.open].sum()) / (3 * 16)
    assert ours != pytest.approx(theirs, rel=1e-2)
