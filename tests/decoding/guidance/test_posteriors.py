"""Guidance of the next state under uniform and hybrid noise, against Bayes' rule written out in tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from redraft import (
    Ancestral,
    Canvas,
    ClassifierFree,
    Constrained,
    Context,
    Denoiser,
    Guidance,
    Interpolating,
    Masked,
    Prediction,
    Regex,
    Vocab,
    constrain,
    rng,
)
from redraft.core import CharTokenizer, Condition, HybridNoise, MaskNoise, TablePrediction
from redraft.decoding import FirstOrderClassifier, LogitFilter, TokenClassifier, final_canvas
from redraft.decoding.guidance.base import _MixedPrediction
from redraft.evaluation import Oracle
from redraft.evaluation.laws.enumeration import ToyLanguage

UNIFORM, HYBRID = Interpolating(Vocab(3)), Interpolating(Vocab(4, mask=3), mixing=HybridNoise(0.3))
PROCESSES = pytest.mark.parametrize("process", [UNIFORM, HYBRID], ids=["uniform", "hybrid"])
S, T = 0.4, 0.7


@dataclass(frozen=True)
class Said:
    """A denoiser that says one thing with its label, and another without."""

    size: int
    block: int | None = None

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        return TablePrediction(self.table(context.condition.label is not None).expand(len(z), *z.shape[1:], self.size))

    def table(self, given: bool) -> Tensor:
        """(L, V) log-probabilities, none on the mask."""
        log_p = torch.randn(2, self.size, generator=torch.Generator().manual_seed(int(given)))
        return (log_p if self.size == 3 else log_p.index_fill(1, torch.tensor([3]), -torch.inf)).log_softmax(-1)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return context


def bayes(process: Interpolating, log_x: Tensor, z: Tensor) -> Tensor:
    """(L, V) p(z_s | z_t) ∝ q(z_t | z_s)·q(z_s | x̂), from the tables of the process."""
    into = process.transition(S, T)[:, z].T  # (L, V): from each y to the token that is there
    weights = into * (log_x.double().exp() @ process.marginal(S))
    return weights / weights.sum(-1, keepdim=True)


def canvas_of(z: list[int], rows: int = 1) -> Canvas:
    ids = torch.tensor([z] * rows)
    return Canvas(
        ids,
        torch.zeros_like(ids, dtype=torch.bool),
        Context(condition=Condition(label=torch.zeros(rows, dtype=torch.int64))),
    )


def linear(x: Tensor, t: Tensor, context: Context) -> Tensor:
    """log p(y | z), linear in the one-hot tokens."""
    weights = torch.randn(2, 4, generator=torch.Generator().manual_seed(7))[:, : x.shape[-1]]
    return (x * weights).sum((-1, -2))


def odds(size: int, z: Tensor) -> Tensor:
    """(L, V) log p(y | z with each token at each place)"""
    found = torch.zeros(2, size)
    for place, token in product(range(2), range(size)):
        tried = z.clone()
        tried[place] = token
        found[place, token] = linear(torch.nn.functional.one_hot(tried, size)[None].float(), z, Context())[0]
    return found.double()


def stepped(process: Interpolating, guidance: Guidance, z: list[int], rows: int = 20_000) -> Tensor:
    """(L, V) how often each token came next."""
    canvas, s, t = canvas_of(z, rows), torch.full((rows, 1), S), torch.full((rows, 1), T)
    pred = guidance(Said(process.vocab.size)).predict(canvas.z, canvas.time(t), canvas.context)
    after = process.step(pred, canvas, s, t, rng=rng(0, rows)).z
    return torch.stack([column.bincount(minlength=process.vocab.size) for column in after.T]) / rows


def near(found: Tensor, expected: Tensor) -> None:
    assert (found - expected).abs().max() < 4 * (0.25 / 20_000) ** 0.5
    assert not found[expected == 0].any()


@PROCESSES
@pytest.mark.parametrize("z", [[0, 2], [1, 1], [0, -1]])
def test_classifier_free_mixes_posteriors(process: Interpolating, z: list[int]) -> None:
    z = [token % process.vocab.size for token in z]
    said, ids = Said(process.vocab.size), torch.tensor(z)
    without, given = (bayes(process, said.table(flag), ids).log() for flag in (False, True))
    near(stepped(process, ClassifierFree(2.5), z), (-1.5 * without + 2.5 * given).softmax(-1))
    log_x = (-1.5 * said.table(False) + 2.5 * said.table(True)).nan_to_num(-torch.inf).log_softmax(-1)
    near(stepped(process, ClassifierFree(2.5, posteriors=False), z), bayes(process, log_x, ids))


@PROCESSES
def test_given_tokens_are_not_guided(process: Interpolating) -> None:
    canvas = replace(canvas_of([0, 2], 64), fixed=torch.tensor([[True, False]]).expand(64, -1))
    s, t = torch.full((64, 1), S), torch.full((64, 1), T)
    pred = ClassifierFree(2.5)(Said(process.vocab.size)).predict(canvas.z, canvas.time(t), canvas.context)
    after = process.step(pred, canvas, s, t, rng=rng(0, 64)).z
    assert (after[:, 0] == 0).all()
    assert (after[:, 1] != 2).any()


@PROCESSES
@pytest.mark.parametrize("kind", [TokenClassifier, FirstOrderClassifier])
def test_classifiers_weigh_posteriors(process: Interpolating, kind: Callable[..., Guidance]) -> None:
    """p(z_s | z_t)·p(y | z_t with z_s here)^γ; the first order is exact for what is linear."""
    z = [2, process.vocab.size - 1]
    plain = bayes(process, Said(process.vocab.size).table(True), torch.tensor(z))
    near(
        stepped(process, kind(linear, 1.7), z),
        (plain.log() + 1.7 * odds(process.vocab.size, torch.tensor(z))).softmax(-1),
    )


@PROCESSES
def test_the_ends_of_the_scale_are_the_branches(process: Interpolating) -> None:
    said, canvas = Said(process.vocab.size), canvas_of([0, 1], 64)

    def written(guidance: Guidance) -> Tensor:
        return final_canvas(Ancestral(5)(guidance(said), process, canvas, rng=rng(2, 64))).z

    def plain(denoise: Denoiser) -> Denoiser:
        return denoise

    bare = replace(canvas, context=Context())
    assert torch.equal(written(ClassifierFree(1.0)), written(plain))
    assert torch.equal(written(ClassifierFree(0.0)), final_canvas(Ancestral(5)(said, process, bare, rng=rng(2, 64))).z)
    for kind in (TokenClassifier, FirstOrderClassifier):
        assert kind(linear, 0.0)(said) is said
    assert not torch.equal(written(TokenClassifier(linear, 3.0)), written(plain))


def test_mask_noise_is_guided_by_x() -> None:
    """As published: the rate at which tokens appear stays as it is."""
    z, said = [3, 3], Said(4)
    mixed = ClassifierFree(2.0)(said)
    for process in (Masked(HYBRID.vocab), Interpolating(HYBRID.vocab, mixing=MaskNoise())):
        canvas, s, t = canvas_of(z, 4000), torch.full((4000, 1), S), torch.full((4000, 1), T)
        after = process.step(mixed.predict(canvas.z, canvas.time(t), canvas.context), canvas, s, t, rng=rng(0, 4000)).z
        assert float((after == 3).float().mean()) == pytest.approx(S / T, abs=0.03)


def test_the_posterior_is_udlm_s_own() -> None:
    """Against the table that the published code gives for its own x̂."""
    io = load_file(Path(__file__).parents[2] / "golden" / "udlm" / "io.safetensors")
    z, t, process = io["xt"], io["t"][:, None].double(), Interpolating(Vocab(io["log_p_x0"].shape[-1]))
    early, late = (process.mix(time.expand(z.shape).flatten()) for time in (t - 0.05, t))
    found = process.posterior(io["log_p_x0"].flatten(0, 1), z.flatten(), early, late).exp()
    assert torch.allclose(found.float(), io["posterior_s_eq_t_minus_0.05"].flatten(0, 1), atol=1e-6)


TOY = ToyLanguage.of(length=2)
ODD = TOY.sequences.sum(-1) % 2 == 1


@dataclass(frozen=True)
class Exactly:
    """p(the sum is odd | noisy z), by enumeration."""

    process: Interpolating

    def __call__(self, x: Tensor, t: Tensor, context: Context) -> Tensor:
        q = self.process.marginal(float(t.flatten()[0]))
        z = x.argmax(-1)
        joint = TOY.p * torch.stack([q[TOY.sequences[:, i]][:, z[:, i]] for i in range(2)]).prod(0).T  # (B, N)
        return ((joint * ODD).sum(-1) / joint.sum(-1)).clamp(min=1e-30).log()


def distance(process: Interpolating, steps: int) -> float:
    """Between p(x | y) and what so many guided steps write; by tables, nothing is drawn."""
    size = process.vocab.size
    states = torch.tensor(list(product(range(size), repeat=2)))
    guided = TokenClassifier(Exactly(process))(Oracle(TOY, process))
    prior = process.marginal(1.0)[0]
    p = prior[states].prod(-1)
    for i in range(steps, 0, -1):
        t, s = (
            torch.full((len(states), 1), min(max(j / steps, 1e-9), 1 - 1e-9), dtype=torch.float64) for j in (i, i - 1)
        )
        early, late = (process.mix(time.expand(-1, 2).flatten()) for time in (s, t))
        pred = guided.predict(states, t.expand(-1, 2), Context())
        state_log_probs = partial(process.posterior, z=states.flatten(), early=early, late=late)
        log_p = pred.next_log_probs(state_log_probs, torch.ones_like(states, dtype=torch.bool))  # type: ignore[attr-defined]
        kernel = log_p.exp().view(len(states), 2, size)
        p = p @ (kernel[:, 0, :, None] * kernel[:, 1, None, :]).flatten(1)
    wanted = torch.zeros(size, size, dtype=torch.float64)
    wanted[tuple(TOY.sequences.T)] = TOY.p * ODD / (TOY.p * ODD).sum()
    return float((p - wanted.flatten()).abs().sum() / 2)


@pytest.mark.parametrize(("process", "steps", "power"), [(UNIFORM, 96, 1.0), (HYBRID, 384, 0.5)])
def test_small_steps_with_the_exact_classifier_write_the_conditional(
    process: Interpolating, steps: int, power: float
) -> None:
    """The distance falls as 1/steps; hybrid noise begins and ends as √t, so there as 1/√steps."""
    few, many = distance(process, steps // 8), distance(process, steps)
    assert many < 1.2 * few / 8**power
    assert many < 0.03


class _Joint(TablePrediction):
    @property
    def joint(self) -> bool:
        return True


def test_one_branch_is_enough_to_refuse() -> None:
    log_x = torch.zeros(1, 2, 3)
    plain = TablePrediction(log_x.log_softmax(-1))
    for other, message in ((_Joint(log_x), "put Constrained outside"), (TablePrediction(log_x, False), "use Subs or")):
        for branches in ((plain, other), (other, plain)):
            with pytest.raises(ValueError, match=message):
                _MixedPrediction(*branches, scale=2.0)


def test_filters_act_on_every_branch_and_rules_on_x() -> None:
    """From the inside out: conditions, classifiers, filters, rules."""
    said, canvas = Said(3), canvas_of([0, 2])
    t, where = torch.full((1, 1), T), torch.ones(1, 2, dtype=torch.bool)
    early, late = (UNIFORM.mix(torch.full((2,), time)) for time in (S, T))

    def state_log_probs(log_x: Tensor) -> Tensor:
        return UNIFORM.posterior(log_x, canvas.z[0], early, late)

    def asked(denoise: Denoiser) -> Tensor:
        pred = denoise.predict(canvas.z, canvas.time(t), canvas.context)
        return pred.next_log_probs(state_log_probs, where)  # type: ignore[attr-defined]

    free, filtering, judged = ClassifierFree(2.0), LogitFilter(top_k=2), TokenClassifier(linear, 0.5)
    kept = [state_log_probs(filtering.apply(said.table(flag), None)) for flag in (False, True)]
    assert torch.allclose(asked(filtering(free(said))), (2 * kept[1] - kept[0]).log_softmax(-1))
    whole = (
        2 * state_log_probs(said.table(True)) - state_log_probs(said.table(False)) + 0.5 * odds(3, canvas.z[0])
    ).log_softmax(-1)
    assert torch.allclose(asked(judged(free(said))), whole, atol=1e-6)
    letters = CharTokenizer("ab", ("eos",))
    ruled = constrain(canvas_of([0, 0], 50), Regex("ab|b"), letters)
    process = Interpolating(letters.vocab)
    done = final_canvas(Ancestral(4)(Constrained(process)(judged(free(said))), process, ruled, rng=rng(0, 50))).z
    assert {tuple(row) for row in done.tolist()} <= {(0, 1), (1, 2)}
