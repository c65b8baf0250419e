"""The example of a method in one file keeps the laws, learns, writes text, and comes back from its checkpoint.

`redraft check examples/typo.py` itself is run by tests/test_readme.py and, from the wheel, by tests/test_wheel.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import redraft
from redraft.apps.cli.user_code import load_module
from redraft.core import (
    CharTokenizer,
    Context,
    Cosine,
    CosineSquared,
    Exponential,
    NoisySample,
    Polynomial,
    Prediction,
    Schedule,
    TablePrediction,
    TokenProcess,
    Vocab,
    rng,
)
from redraft.core.text.tokenizers import TEXT8
from redraft.evaluation.laws import tokens
from redraft.training import NATS_PER_BIT, Objective, Run, TrainStep, fit, load, load_rows

FILE = Path(__file__).parents[1] / "examples" / "typo.py"
typo = load_module(FILE)


def test_the_laws_hold_on_real_keys_too() -> None:
    """z, x and c side by side, the mask below z and x."""
    process, toy = typo.Typo(tokens.VOCAB, "zxc"), tokens.ToyLanguage.of()
    rows = [*tokens._forward_laws(process), *tokens._reverse_laws(process)]
    assert [row for row in rows if not row.ok] == []
    assert tokens._enumerated_bound(process, tokens.Oracle(toy, process)) == pytest.approx(toy.entropy, abs=1e-5)


class Single(typo.Typo):  # type: ignore[name-defined,misc]
    """Whose bound is rounded to float32, as that of a newcomer's process may be."""

    def nelbo(self, pred: Prediction, noised: NoisySample, s: torch.Tensor | None = None) -> torch.Tensor:
        nats: torch.Tensor = super().nelbo(pred, noised, s)
        return nats.float()


@pytest.mark.parametrize("kind", [typo.Typo, Single])
@pytest.mark.parametrize("schedule", [Cosine(), CosineSquared(), Polynomial(3.0)], ids=repr)
def test_rounding_does_not_decide(kind: type[TokenProcess], schedule: Schedule) -> None:
    """Near t = 0 the noise of these schedules is too little for float64; the bound must not be made of rounding."""
    toy = tokens.ToyLanguage.of()
    process = kind(tokens.VOCAB, schedule=schedule)  # type: ignore[call-arg]
    found = tokens._integrated_bound(process, tokens.Oracle(toy, process))
    assert float(found) == pytest.approx(toy.entropy, abs=1e-5)
    assert found.error < 1e-4


def test_the_ordinary_posterior_is_not_the_best_guess() -> None:
    """What the docstring says: x̂ must not see the letter itself, which Bayes' rule brings in."""
    process, toy = typo.Typo(tokens.VOCAB), tokens.ToyLanguage.of()

    class Ordinary(tokens.Oracle):
        def predict(self, z: torch.Tensor, t: torch.Tensor, context: Context) -> TablePrediction:
            times, which = t.unique(return_inverse=True)
            itself = torch.stack([process.marginal(float(u)) for u in times])[which, :, z]
            return TablePrediction((super().predict(z, t, context).x + itself.log()).log_softmax(-1))

    assert tokens._enumerated_bound(process, Ordinary(toy, process)) > toy.entropy + 0.1


def test_letters_drift_to_neighboring_keys() -> None:
    """After the shortest of walks only neighbors have been reached."""
    letters = CharTokenizer(TEXT8)
    near = typo.Typo(letters.vocab, letters.alphabet).marginal(1e-6)[letters.encode("g")[0]]
    ranked = near.argsort(descending=True).tolist()
    assert letters.decode(ranked[:1]) == "g"
    assert set(letters.decode(ranked[1:7])) == set("tyfhvb")
    assert near[ranked[7]] < 1e-3 * near[ranked[6]]


def test_noise_spares_prompts_and_padding() -> None:
    process, x = typo.Typo(Vocab(9)), torch.arange(8).repeat(2, 1)
    pad = torch.arange(8).expand(2, 8) >= 6
    t = torch.full((2, 8), 0.9).masked_fill(torch.arange(8) < 2, 0.0)
    noised = process.noise(x, t, pad=pad, rng=rng(0, 2))
    kept = process.undetermined(noised).logical_not()
    assert kept.sum(-1).tolist() == [4, 4]
    assert torch.equal(noised.z[kept], x[kept])
    assert not torch.equal(noised.z, x)
    assert process.nelbo(TablePrediction(torch.zeros(2, 8, 9).log_softmax(-1)), noised)[kept].tolist() == [0.0] * 8


def test_what_is_left_at_the_end_is_stated() -> None:
    process = typo.Typo(Vocab(5), schedule=Exponential(low=1e-3, high=1.0))
    end = process.marginal(1.0)
    stated = process.prior_kl(torch.arange(5)[None])[0]
    assert stated.tolist() == pytest.approx((end * (5 * end).log()).sum(-1).tolist())
    assert stated.max() > 0.1
    assert process.leaves_noise
    assert not typo.Typo(Vocab(5)).leaves_noise


@pytest.mark.parametrize("letters", ["qp", "abcd"])
def test_keys_that_cannot_be_reached_are_refused(letters: str) -> None:
    with pytest.raises(ValueError, match="on connected keys"):
        typo.Typo(Vocab(3), letters).marginal(0.5)


def small() -> Run:
    """The run of the example, small enough for seconds: the first letters of each story."""
    run = typo.run()
    network = replace(run.model.network, width=32, layers=1, heads=2, hidden=64)
    optimizer = replace(run.optimizer, warmup=5)
    run = replace(run, model=replace(run.model, network=network), optimizer=optimizer, batch=16)
    return replace(run, framing=replace(run.framing, length=24), steps=40, eval_rows=8, samples=2, eval_every=40)


def bits(model: redraft.DiffusionLM, run: Run) -> float:
    """Of the first stories, at the same times and with the same noise for every model."""
    rows = load_rows(run.data, "valid", run.tokenizer, run.framing).take(range(64))
    with torch.no_grad():
        return float(TrainStep(model, Objective())(rows, rng(0, 64)).mean) / NATS_PER_BIT


def test_it_learns_and_writes(tmp_path: Path) -> None:
    run = small()
    torch.manual_seed(run.seed)
    before = bits(redraft.DiffusionLM(run.model, run.tokenizer), run)
    model = fit(run, tmp_path / "typo", quiet=True)
    after = bits(model, run)
    assert before > 5.0  # 53 keys: almost log2(53) = 5.7
    assert after < before - 1.0
    again = load(tmp_path / "typo", trust=("typo",))
    assert again.config == run.model
    canvas = again.canvas("One ", new=20, rows=2)
    texts = again.text(redraft.decoding.final_canvas(run.sampler(again, again.process, canvas, rng=rng(1, 2))))
    assert all(text.startswith("One ") for text in texts)
    assert texts[0] != texts[1]
