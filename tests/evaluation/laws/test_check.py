"""The laws hold for what we ship, and catch what is broken."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from conftest import redraft_here
from torch import Tensor

import redraft
from redraft.core import (
    Canvas,
    Context,
    Cosine,
    Exponential,
    Interpolating,
    Linear,
    Markov,
    Masked,
    NoisySample,
    Prediction,
    Rng,
    Schedule,
    TablePrediction,
    TokenProcess,
    sample_categorical,
)
from redraft.decoding import Ancestral, AnyOrder, Unmask
from redraft.evaluation.laws import suite, tokens
from redraft.evaluation.laws.law import _Integral, _integrate
from redraft.evaluation.laws.sampling import _order_laws, _sampling_p_value
from redraft.evaluation.laws.schedules import _every_schedule

BROKEN = '''
from dataclasses import dataclass
import redraft
from redraft.core.processes.masked import Masked

@dataclass(frozen=True)
class Wrong(redraft.TokenProcess):
    """Mask noise that delegates everything, but {what}."""
    vocab: redraft.Vocab
    def _inner(self): return Masked(self.vocab{schedule})
    def prior(self, canvas, *, rng): return self._inner().prior(canvas, rng=rng)
    def prior_kl(self, x): return 0.0 * x
    def noise(self, x, t, *, pad=None, rng): return self._inner().noise(x, t, pad=pad, rng=rng)
    def step(self, pred, canvas, s, t, *, rng): return self._inner().step(pred, canvas, {step}, t, rng=rng)
    def nelbo(self, pred, noised, s=None): return {weight} * self._inner().nelbo(pred, noised, s)
    def undetermined(self, noised): return self._inner().undetermined(noised)
    def marginal(self, t): return self._inner().marginal(t)
    def transition(self, s, t): return self._inner().transition(s, t)
    leaves_noise = False
'''


def broken(**changes: str) -> str:
    return BROKEN.format(**{"what": "", "schedule": "", "step": "s", "weight": "1.0"} | changes)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return redraft_here("check", *arguments)


@pytest.fixture(scope="module")
def rows() -> list[tokens.Law]:
    return list(suite.check_process(Masked(tokens.VOCAB)))


def test_every_law_holds_for_mask_noise(rows: list[tokens.Law]) -> None:
    assert [r for r in rows if not r.ok] == []
    assert len({r.law for r in rows}) >= 18


@pytest.mark.parametrize("process", [p for p in tokens._built_in() if isinstance(p, Interpolating | Markov)], ids=repr)
def test_the_laws_hold_for_noise_on_visible_tokens(process: Interpolating | Markov) -> None:
    """Sampling too, for one of them; all of them by `redraft check`."""
    toy = tokens.ToyLanguage.of()
    rows = [*tokens._forward_laws(process), *tokens._reverse_laws(process), *tokens._bound_laws(process, toy)]
    rows += tokens._closed_form_laws(process, toy)
    if isinstance(process, Interpolating) and process.vocab.mask is not None:
        rows += tokens._sampling_laws(process, toy)
    assert [r for r in rows if not r.ok] == []
    assert len({r.law for r in rows}) >= 12


@dataclass(frozen=True)
class Ordinary(tokens.Oracle):
    """p(x[l] | all of z), its own token included: what one would take for the best denoiser."""

    def _likelihood(self, noisy: Tensor, exact: Tensor, l: int) -> Tensor:
        return noisy.prod(1)


@pytest.mark.parametrize("process", [Interpolating(tokens.VOCAB), Markov(tokens.VOCAB)], ids=repr)
def test_a_visible_token_must_not_vote_for_itself(process: Interpolating | Markov) -> None:
    """The step brings z in by itself: with the ordinary posterior it counts twice. For mask noise both are the same."""
    toy = tokens.ToyLanguage.of()
    assert tokens._enumerated_bound(process, Ordinary(toy, process)) > toy.entropy + 0.3
    assert (
        _sampling_p_value(process, Ordinary(toy, process), Ancestral(64), tokens.rng(1, tokens._DRAWS)) < tokens.P_MIN
    )
    masked = Masked(tokens.VOCAB)
    assert tokens._enumerated_bound(masked, Ordinary(toy, masked)) == pytest.approx(toy.entropy, abs=1e-6)


def test_values_are_the_theory_s(rows: list[tokens.Law]) -> None:
    by_law = {r.law: r for r in rows}
    entropy = tokens.ToyLanguage.of().entropy
    assert by_law["bound = entropy"].value == pytest.approx(entropy, abs=1e-6)
    assert by_law["bound = entropy"].expected == entropy
    # one step draws all positions at once: the sum of the marginal entropies
    toy = tokens.ToyLanguage.of()
    marginals = torch.stack([torch.bincount(toy.sequences[:, l], toy.p) for l in range(tokens._LENGTH)])
    independent = float(-(marginals * marginals.log()).sum())
    process = Masked(tokens.VOCAB)
    assert tokens._enumerated_bound(process, tokens.Oracle(toy, process), steps=1) == pytest.approx(
        independent, abs=1e-6
    )


def test_a_jump_at_the_clean_end_is_paid_for() -> None:
    """The last jump is one step, so the bound stands a little above the entropy; the smaller the jump the less."""
    toy = tokens.ToyLanguage.of()
    bounds = []
    for low in (0.2, 0.01):
        process = Masked(tokens.VOCAB, Exponential(low, 12.0))
        assert process.leaves_noise
        # e^-12 is not zero: the prior is not reached, and the bound says so
        assert tokens._enumerated_bound(process, tokens.Oracle(toy, process)) == float("inf")
        bounds.append(tokens._enumerated_bound(_Forgetful(process), tokens.Oracle(toy, process)))
    assert toy.entropy + 0.01 < bounds[0] < toy.entropy + 0.05
    assert bounds[1] == pytest.approx(toy.entropy, abs=2e-3)


class _Forgetful(TokenProcess):
    """A process whose prior term is left out."""

    def __init__(self, inner: Masked) -> None:
        self.inner, self.vocab = inner, inner.vocab

    def prior(self, canvas: Canvas, *, rng: Rng) -> Canvas:
        return self.inner.prior(canvas, rng=rng)

    def prior_kl(self, x: Tensor) -> Tensor:
        return 0.0 * x

    def noise(self, x: Tensor, t: Tensor, *, pad: Tensor | None = None, rng: Rng) -> NoisySample:
        return self.inner.noise(x, t, pad=pad, rng=rng)

    def step(self, pred: Prediction, canvas: Canvas, s: Tensor, t: Tensor, *, rng: Rng) -> Canvas:
        return self.inner.step(pred, canvas, s, t, rng=rng)

    def nelbo(self, pred: Prediction, noised: NoisySample, s: Tensor | None = None) -> Tensor:
        return self.inner.nelbo(pred, noised, s)

    def undetermined(self, noised: NoisySample) -> Tensor:
        return self.inner.undetermined(noised)

    def marginal(self, t: float) -> Tensor:
        return self.inner.marginal(t)

    def transition(self, s: float, t: float) -> Tensor:
        return self.inner.transition(s, t)

    @property
    def leaves_noise(self) -> bool:
        return self.inner.leaves_noise


@pytest.mark.parametrize(
    ("changes", "law"),
    [
        ({"what": "a wrong posterior", "step": "0.8 * s"}, "step is Bayes' rule"),
        ({"what": "a wrong bound weight", "weight": "0.95"}, "bound = entropy"),
        ({"what": "a prior that is not reached", "schedule": ", redraft.Linear(0.05)"}, "the prior is reached"),
    ],
)
def test_broken_processes_are_caught(tmp_path: Path, changes: dict[str, str], law: str) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(broken(**changes))
    result = run(file, "--json")
    assert result.returncode == 1, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert {"law", "process", "ok", "value", "expected"} <= set(rows[0])
    assert law in {r["law"] for r in rows if not r["ok"]}
    assert {r["process"] for r in rows} == {"Wrong"}


def test_the_same_delegate_unbroken_passes(tmp_path: Path) -> None:
    file = tmp_path / "right.py"
    file.write_text(broken(what="nothing"))
    result = run(file)
    assert (result.returncode, result.stderr) == (0, "")
    assert all(line.startswith("ok") for line in result.stdout.splitlines())


@pytest.mark.parametrize("length", [2, 4, 5])
def test_one_by_one_is_exact_whatever_the_schedule(length: int) -> None:
    """Three words are what `redraft check` does."""
    rows = list(_order_laws(Masked(tokens.VOCAB), tokens.ToyLanguage.of(length=length)))
    assert [row for row in rows if not row.ok] == []
    assert len({row.process for row in rows}) == len(_every_schedule())


def test_no_schedule_is_forgotten() -> None:
    offered = (getattr(redraft.core, name) for name in redraft.core.__all__)
    kinds = {kind for kind in offered if isinstance(kind, type) and issubclass(kind, Schedule)}
    assert {type(schedule) for schedule in _every_schedule()} == kinds - {Schedule}


def test_two_at_a_time_is_caught() -> None:
    """Tokens that depend on each other, drawn at once: what a schedule with uneven steps did."""
    toy, process = tokens.ToyLanguage.of(), Masked(tokens.VOCAB, Cosine())
    p = _sampling_p_value(process, tokens.Oracle(toy, process), Unmask(2, AnyOrder()), tokens.rng(7, tokens._DRAWS))
    assert p < tokens.P_MIN


def test_a_biased_sampler_is_caught() -> None:
    """Picking by confidence sharpens the joint; so does a chain of too few steps."""
    toy, process, keys = tokens.ToyLanguage.of(), Masked(tokens.VOCAB), tokens.rng(1, tokens._DRAWS)
    oracle = tokens.Oracle(toy, process)
    assert _sampling_p_value(process, oracle, Unmask(steps=3), keys) == 0
    assert _sampling_p_value(process, oracle, Ancestral(steps=1), keys) < tokens.P_MIN


def test_the_oracle_is_bayes_rule_by_hand() -> None:
    toy, process = tokens.ToyLanguage.of(), Masked(tokens.VOCAB, Linear())
    m = tokens.VOCAB.masked
    x = tokens.Oracle(toy, process).predict(torch.tensor([[1, m, m]]), torch.tensor([[0.5]]), Context()).x.exp()[0]
    fits = toy.sequences[:, 0] == 1
    second = torch.bincount(toy.sequences[fits, 1], toy.p[fits], minlength=4)
    assert torch.allclose(x[1], second / second.sum())


@pytest.mark.parametrize(
    ("f", "exact"),
    [
        (lambda t: t**-0.5, 2.0),
        (lambda t: (1 - t) ** -0.5, 2.0),
        (lambda t: -t.log(), 1.0),
        (lambda t: 1 / (1 + (50 * (t - 0.5)) ** 2), math.atan(25) / 25),  # a narrow peak: hard, and known to be
    ],
)
def test_integrals_know_how_exact_they_are(f: Callable[[Tensor], Tensor], exact: float) -> None:
    found = _integrate(f)
    assert abs(float(found) - exact) <= max(found.error, 1e-6)


def test_bounds_are_integrated_far_better_than_they_must_be(rows: list[tokens.Law]) -> None:
    found = [row for row in rows if row.error]
    assert len(found) == 7
    assert max(row.error / row.tolerance for row in found) < 0.01
    assert max(abs(row.value - row.expected) for row in found) < 1e-8


def test_an_integral_that_may_be_off_proves_nothing() -> None:
    process, value = Masked(tokens.VOCAB), torch.tensor(1.0)
    assert tokens._law_equal(process, "", _Integral(value, 1e-4), 1.0, 1e-3).ok
    assert not tokens._law_equal(process, "", _Integral(value, 2e-3), 1.0, 1e-3).ok


def test_chi_square_knows_right_from_wrong() -> None:
    p = torch.tensor([0.5, 0.3, 0.2, 0.0]).double()
    draws = sample_categorical(p.log().expand(5000, -1), tokens.rng(0, 5000).uniform(1)[:, 0])
    assert tokens.chi_square(draws, p) > 0.01
    assert tokens.chi_square(draws, torch.tensor([0.4, 0.4, 0.2, 0.0]).double()) < 1e-6
    assert tokens.chi_square(torch.tensor([3]), p) == 0  # an impossible state


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n", "defines no subclass of redraft.TokenProcess"),
        ("import redraft\nclass P(redraft.TokenProcess):\n    pass\n", "does not define leaves_noise, marginal"),
        ("x = (\n", "line 1"),
        (broken().replace("    def _inner", "    size: int\n    def _inner"), "cannot make Wrong"),
    ],
)
def test_wrong_files_get_one_clear_line(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "file.py"
    file.write_text(text)
    result = run(file)
    assert result.returncode == 2
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_missing_file_gets_one_clear_line(tmp_path: Path) -> None:
    result = run(tmp_path / "nowhere.py")
    assert (result.returncode, result.stdout) == (2, "")
    assert "nowhere.py" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_known_predictions_answer_everywhere() -> None:
    log_p = torch.log_softmax(torch.randn(2, 3, 4), -1)
    where = torch.tensor([[True, False, True], [False, False, True]])
    target = torch.ones(2, 3, dtype=torch.int64)
    pred = TablePrediction(log_p)
    assert torch.equal(pred.at(where), log_p[where])
    assert torch.equal(pred.nll(where, target)[where], -log_p[..., 1][where])
    assert float(pred.nll(where, target)[~where].abs().sum()) == 0
