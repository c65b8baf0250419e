"""Self-correction: errors go, what is given stays, and rows that are done cost nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from redraft.core import (
    AbsorbingRates,
    Canvas,
    Context,
    HybridNoise,
    Interpolating,
    Markov,
    Masked,
    NoiseDistribution,
    Prediction,
    TablePrediction,
    TokenProcess,
    UniformNoise,
    Vocab,
    rng,
)
from redraft.decoding import Ancestral, Sampler, SelfCorrection, final_canvas
from redraft.evaluation.laws import tokens
from redraft.models import DiffusionLM, Subs

Build = Callable[..., DiffusionLM]
Ragged = Callable[[int, int, int], Canvas]
VOCAB = Vocab(5, mask=4)
PROCESS = Interpolating(VOCAB, mixing=HybridNoise(0.2))


@dataclass
class Twins:
    """A language in which every token of a text is the same: the others say what a token ought to be."""

    sure: float = 0.99  # against the 4.7 % of wrong tokens that are expected at the time 0.01
    block: int | None = None
    times: list[float] = field(default_factory=list)
    rows: Counter[int] = field(default_factory=Counter)

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        self.times.append(float(t.max()))
        votes = torch.nn.functional.one_hot(z, 5).double()
        others = votes.sum(1, keepdim=True) - votes
        others[..., 4] = -torch.inf
        likeliest = torch.nn.functional.one_hot(others.argmax(-1), 5)
        p = self.sure * likeliest + (1 - self.sure) / 4 * (torch.arange(5) < 4)
        return _Counted(p.log(), rows=self.rows)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        raise AssertionError


@dataclass(frozen=True)
class _Counted(TablePrediction):
    rows: Counter[int] = field(default_factory=Counter)

    def at(self, where: Tensor) -> Tensor:
        self.rows.update(where.any(-1).nonzero().flatten().tolist())
        return super().at(where)


def text(*rows: list[int], fixed: list[int] | None = None) -> Canvas:
    z = torch.tensor(rows)
    given = torch.zeros_like(z, dtype=torch.bool)
    given[:, fixed or []] = True
    return Canvas(z, given)


def test_errors_are_mended_one_at_a_time() -> None:
    canvas = text([1, 1, 2, 1, 1, 3, 1])
    canvases = list(SelfCorrection(steps=20).correct(Twins(), PROCESS, canvas, rng=rng(0)))
    wrong = [int((c.z != 1).sum()) for c in canvases]
    assert wrong[:2] == [1, 0]
    assert len(canvases) < 20, "it stops when nothing differs"
    assert canvases[-1].z.tolist() == [[1] * 7]


def test_several_at_once() -> None:
    corrected = list(SelfCorrection(tokens=2).correct(Twins(), PROCESS, text([1, 1, 2, 1, 1, 3, 1]), rng=rng(0)))
    assert int((corrected[0].z != 1).sum()) == 0


def test_what_is_given_stays_wrong() -> None:
    canvas = text([1, 1, 2, 1, 1, 3, 1], fixed=[2])
    end = final_canvas(SelfCorrection().correct(Twins(), PROCESS, canvas, rng=rng(0)))
    assert end.z.tolist() == [[1, 1, 2, 1, 1, 1, 1]]


def test_a_row_that_is_done_costs_nothing() -> None:
    twins = Twins(sure=1.0)
    canvas = text([0] * 6, [1, 1, 1, 1, 1, 2], [3, 3, 2, 2, 2, 2])
    final_canvas(SelfCorrection(steps=10).correct(twins, PROCESS, canvas, rng=rng(0, 3)))
    assert [twins.rows[i] for i in range(3)] == [1, 2, 3]


def test_the_network_is_told_a_low_level() -> None:
    twins = Twins()
    final_canvas(SelfCorrection(noise_level=0.03).correct(twins, PROCESS, text([1, 1, 2, 1]), rng=rng(0)))
    assert twins.times == pytest.approx([0.03] * len(twins.times))


def test_patience_ends_it() -> None:
    """An even guess agrees with what stands there no better after many steps than after one."""
    canvas = text([0, 1, 2, 3, 0, 1, 2, 3])
    for patience in (1, 4):
        corrector = SelfCorrection(steps=200, temperature=5.0, patience=patience)
        count = len(list(corrector.correct(Twins(sure=0.0), PROCESS, canvas, rng=rng(0))))
        assert patience <= count < 60


def test_it_follows_the_inner_sampler(build: Build, vocab: Vocab, ragged: Ragged) -> None:
    process = Interpolating(vocab, mixing=HybridNoise(0.3))
    model, canvas = build(process=process, head=Subs(carry_over=False)), ragged(4, 9, 0)
    first, _ = rng(0, 4).split(2)
    inner = list(Ancestral(5)(model, process, canvas, rng=first))
    whole = list(SelfCorrection(Ancestral(5), steps=7)(model, process, canvas, rng=rng(0, 4)))
    assert [c.z.tolist() for c in whole[:6]] == [c.z.tolist() for c in inner]
    assert 6 < len(whole) <= 13


def test_promises(
    build: Build,
    vocab: Vocab,
    ragged: Ragged,
    assert_promises: Callable[..., Canvas],
    assert_rows_alone: Callable[[Sampler, DiffusionLM], None],
) -> None:
    model = build(process=Interpolating(vocab, mixing=HybridNoise(0.3)), head=Subs(carry_over=False))
    sampler = SelfCorrection(Ancestral(3), steps=3, tokens=2, temperature=1.0)
    assert_promises(sampler, model, ragged(5, 9, 2), rng(0, 5))
    assert_rows_alone(sampler, model)


@pytest.mark.parametrize("mixing", [UniformNoise(), HybridNoise(0.2)], ids=repr)
def test_what_it_believes_is_the_true_posterior(mixing: NoiseDistribution) -> None:
    """Enumerated: x̂ · q_t(z | x) is p(x | z) of the toy language; x̂ alone would spoil right tokens."""
    toy, t = tokens.ToyLanguage.of(), 0.05
    process = Interpolating(Vocab(tokens._WORDS + 1, mask=tokens._WORDS), mixing=mixing)
    table = process.marginal(t)
    x = toy.sequences
    likelihood = table[x[:, None, :], x[None, :, :]].prod(-1)  # (N, N) q_t(z | x), here for z without masks
    joint = toy.p[:, None] * likelihood
    truth = torch.zeros(len(x), x.shape[1], process.vocab.size, dtype=torch.float64)
    for l in range(x.shape[1]):
        truth[:, l].index_add_(1, x[:, l], (joint / joint.sum(0)).T)
    times = torch.full(x.shape, t, dtype=torch.float64)
    log_x = tokens.Oracle(toy, process).predict(x, times[:, :1], Context()).x
    believed = (log_x.flatten(0, 1) + process.channel(x.flatten(), times.flatten())).softmax(-1)
    assert torch.allclose(believed.view_as(truth), truth, atol=1e-9)
    right = (x[:, None] == x[None, :]).double()  # of x (first) and z (second)
    spoilt = [
        float((joint[..., None] * right * (best != x)).sum() / (joint[..., None] * right).sum())
        for best in (log_x.argmax(-1), believed.view_as(truth).argmax(-1))
    ]
    assert spoilt[0] > 0.25
    assert spoilt[1] < 0.02


@pytest.mark.parametrize("process", [Masked(VOCAB), Markov(VOCAB, AbsorbingRates())], ids=repr)
def test_mask_noise_never_doubts_a_token(process: Masked | Markov) -> None:
    with pytest.raises(ValueError, match=f"{type(process).__name__} never changes a visible token"):
        next(SelfCorrection().correct(Twins(), process, text([1, 1, 2]), rng=rng(0)))


def test_nothing_to_correct_is_no_error() -> None:
    assert list(SelfCorrection().correct(Twins(), PROCESS, text([1, 2], fixed=[0, 1]), rng=rng(0))) == []


@pytest.mark.parametrize(
    "wrong", [{"temperature": 0.0}, {"noise_level": 0.0}, {"tokens": 0}, {"patience": 0}, {"steps": 0}]
)
def test_wrong_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"use a temperature above 0|at least one step"):
        SelfCorrection(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("mixing", [UniformNoise(), HybridNoise(0.2)], ids=repr)
def test_the_channel_in_closed_form_is_that_of_the_tables(mixing: NoiseDistribution) -> None:
    process, z = Interpolating(VOCAB, mixing=mixing), torch.arange(4).repeat(2)
    t = torch.tensor([0.1, 0.7], dtype=torch.float64).repeat_interleave(4)
    assert torch.allclose(process.channel(z, t), TokenProcess.channel(process, z, t))
