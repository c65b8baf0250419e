"""Gibbs sampling: what a step leaves unchanged, and what the cheaper variants change."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from redraft.core import (
    Context,
    Gaussian,
    Masked,
    Prediction,
    TablePrediction,
    VariancePreserving,
    Vocab,
    rng,
)
from redraft.core.schedules.transforms import PiecewiseLogSnr
from redraft.decoding import Ancestral, AnyOrder, EntropyBound, Gibbs, Unmask, final_canvas
from redraft.evaluation.laws.enumeration import VOCAB, Oracle, ToyLanguage, chi_square
from redraft.evaluation.laws.law import P_MIN
from redraft.evaluation.laws.sampling import _blank_canvas
from redraft.models.diffusion_lm import DiffusionLM
from redraft.tasks.canvases import sample_canvases
from redraft.training import presets

WORDS = 3
AT_ONCE = Unmask(1, AnyOrder())  # every token independently: far from the joint
MASKED = Masked(VOCAB)


def _sequences(toy: ToyLanguage, sampler: Gibbs | Unmask, rows: int, seed: int = 0) -> Tensor:
    length = toy.sequences.shape[1]
    z = final_canvas(sampler(Oracle(toy, MASKED), MASKED, _blank_canvas(rows, length), rng=rng(seed, rows))).z
    return (z * WORDS ** torch.arange(length - 1, -1, -1)).sum(-1)


def _pairs() -> ToyLanguage:
    """Two words that nearly always agree, and a third that is free."""
    toy = ToyLanguage.of()
    agree = (toy.sequences[:, 0] == toy.sequences[:, 1]).double()
    p = 0.05 + agree
    return ToyLanguage(toy.sequences, p / p.sum())


def test_a_step_with_one_token_leaves_the_joint_unchanged() -> None:
    """Exact samples stay exact; and a bad draft becomes exact, whereas it is far from the joint before."""
    toy = ToyLanguage.of()
    exact, rows = Unmask(None, AnyOrder()), 20_000
    for steps in (4, 5, 6, 9):  # three of them write the draft
        assert chi_square(_sequences(toy, Gibbs(exact, steps), rows), toy.p) >= P_MIN
    assert chi_square(_sequences(toy, AT_ONCE, rows), toy.p) < P_MIN
    assert chi_square(_sequences(toy, Gibbs(AT_ONCE, 200), rows), toy.p) >= P_MIN


def test_the_kernel_of_a_step_is_invariant_by_enumeration() -> None:
    """p K = p for the redraw of each position, with x̂ of the oracle at the time that the sampler gives it."""
    toy = ToyLanguage.of()
    for l in range(toy.sequences.shape[1]):
        z = toy.sequences.clone()
        z[:, l] = VOCAB.masked
        x = (
            Oracle(toy, MASKED)
            .predict(z, MASKED.time_when_masked(torch.tensor([[1 / 3]]).double()), Context())
            .x[:, l, :WORDS]
            .exp()
        )
        same = (toy.sequences[:, None] == toy.sequences[None]).long().sum(-1) + (
            toy.sequences[:, None, l] != toy.sequences[None, :, l]
        ).long() == toy.sequences.shape[1]
        kernel = torch.where(same, x[:, toy.sequences[:, l]], 0.0)
        torch.testing.assert_close(kernel.sum(1), torch.ones(len(toy.p)).double())
        torch.testing.assert_close(toy.p @ kernel, toy.p)


def test_two_tokens_per_step_have_a_bias_that_one_token_has_not() -> None:
    """On pairs that nearly always agree: total variation of 0.0 with one token, of a third with two."""
    toy, rows = _pairs(), 20_000

    def distance(tokens: int) -> float:
        index = _sequences(toy, Gibbs(Unmask(None, AnyOrder()), 60, tokens), rows)
        return float((torch.bincount(index, minlength=len(toy.p)) / rows - toy.p).abs().sum() / 2)

    one, two = distance(1), distance(2)
    assert one < 0.02
    assert 0.05 < two < 0.5


@dataclass(frozen=True)
class _Zipf:
    """A denoiser of independent words with probabilities ∝ 1/rank."""

    vocab: Vocab = Vocab(9, mask=8)
    block: int | None = None

    @property
    def p(self) -> Tensor:
        return (1 / torch.arange(1, 9).double()) / (1 / torch.arange(1, 9).double()).sum()

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        log_p = torch.cat([self.p.log(), torch.tensor([-torch.inf]).double()])
        return TablePrediction(log_p.expand(*z.shape, -1))

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return context


def _entropy(p: Tensor) -> float:
    return float(-(p * p.log()).nansum())


def test_random_positions_keep_the_entropy_and_unlikely_ones_sharpen_it() -> None:
    """Redrawing by 1/p tends towards p², which lists of equal options would hide; words by Zipf's law show it."""
    zipf, rows, length = _Zipf(), 400, 16
    process = Masked(zipf.vocab)
    truth, squared = _entropy(zipf.p), _entropy(zipf.p**2 / (zipf.p**2).sum())

    def measured(sampler: Gibbs) -> float:
        z = final_canvas(sampler(zipf, process, _blank_canvas(rows, length), rng=rng(0, rows))).z
        return _entropy(torch.bincount(z.flatten(), minlength=8) / z.numel())

    draft = Unmask(None, EntropyBound(0.1, temperature=1.0))
    assert abs(measured(Gibbs(draft, 200)) - truth) < 0.03
    assert abs(measured(Gibbs(draft, 400, positions="unlikely")) - squared) < 0.1
    assert truth - squared > 0.4


def test_rows_count_their_own_calls_and_do_not_depend_on_the_batch() -> None:
    torch.manual_seed(0)
    run = presets.mdlm_tiny()
    model = DiffusionLM(run.model, run.tokenizer).eval()
    canvas = model.canvas(["One day", "One winter morning, Anna felt"], new=8)
    texts = [sample_canvases(model, Gibbs(steps=12), canvas, batch=batch).texts for batch in (1, 2)]
    assert texts[0] == texts[1]
    calls = sample_canvases(model, Gibbs(Unmask(None, AnyOrder()), steps=12), canvas).nfe
    assert calls == 12  # eight for the draft, so four Gibbs steps
    for draft in (Unmask(None, AnyOrder()), Unmask(64)):
        assert sample_canvases(model, Gibbs(draft, steps=3), canvas).nfe == 3  # the draft alone, in fewer steps


def test_wrong_settings_and_wrong_noise_are_told() -> None:
    with pytest.raises(ValueError, match="tokens=0; a step redraws at least one token"):
        Gibbs(tokens=0)
    with pytest.raises(ValueError, match="positions='low'; choose 'random' or 'unlikely'"):
        Gibbs(positions="low")  # type: ignore[arg-type]
    vectors = Gaussian(VOCAB, VariancePreserving(PiecewiseLogSnr((1.0, -6.0))))
    with pytest.raises(ValueError, match="Gibbs is for mask noise, not Gaussian"):
        next(Gibbs(Ancestral(2))(Oracle(ToyLanguage.of(), MASKED), vectors, _blank_canvas(1, 3), rng=rng(0, 1)))
    assert math.isclose(Gibbs().with_setting("steps", 9).steps, 9)
