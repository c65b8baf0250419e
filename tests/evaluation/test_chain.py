"""The T-step bound of `eval` against enumeration, and what MDLM's substitution is worth in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from redraft.core import (
    AbsorbingRates,
    Batch,
    Canvas,
    Interpolating,
    Markov,
    Masked,
    MaskNoise,
    TokenProcess,
    UniformNoise,
    Vocab,
    rng,
)
from redraft.decoding import Ancestral, final_canvas
from redraft.models import DiffusionLM, Softmax, Subs, TransformerConfig
from redraft.training import Bound, Objective, likelihood

Build = Callable[..., DiffusionLM]
MASK = 3
LETTERS = Vocab(4, mask=MASK)
T = 3
X = torch.tensor([[0, 2], [1, 1]])
OPEN = Subs(zero_mask=False, carry_over=False)  # D3PM's parameterization: the network may name the mask


@torch.no_grad()
def enumerated(model: DiffusionLM, process: TokenProcess, direct: bool) -> Tensor:
    """(B,) Σ_i E_z KL(q(z_s | z_t, x) ‖ p(z_s | z_t)) by tables, for each step i of T and every z there is."""
    total, V = torch.zeros(len(X), dtype=torch.float64), process.vocab.size
    for i, z in product(range(1, T + 1), torch.tensor(list(product(range(V), repeat=X.shape[1])))):
        s, t = (i - 1) / T, i / T
        late = process.marginal(t)
        onto, early = (process.transition(s, t), process.marginal(s)) if s else (late, torch.eye(V).double())
        said = model.predict(z[None], torch.full((1, 1), t, dtype=torch.float64)).x.double().softmax(-1)[0]  # (L, V)
        for row, x in enumerate(X):
            q = late[x, z].prod()
            truth, guess = (onto[:, z].T * p for p in (early[x], said @ early))
            if direct and s == 0:
                guess = said
            truth, guess = (p / p.sum(-1, keepdim=True).clamp(min=1e-300) for p in (truth, guess))
            cost = torch.xlogy(truth, truth) - torch.xlogy(truth, guess.clamp(min=1e-300))
            total[row] += float(q * cost.sum()) if q > 0 else 0.0
    return total


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize(
    ("process", "head"),
    [
        (Interpolating(LETTERS, mixing=MaskNoise()), OPEN),
        (Interpolating(LETTERS, mixing=MaskNoise()), Subs(carry_over=False)),
        (Interpolating(LETTERS, mixing=UniformNoise()), Subs(carry_over=False)),
        (Markov(LETTERS, AbsorbingRates()), OPEN),
    ],
)
def test_the_t_step_bound_is_the_enumerated_one(
    build: Build, tiny: TransformerConfig, process: Interpolating | Markov, head: Subs, direct: bool
) -> None:
    """With T − 1 draws every step is visited; only z is left to chance."""
    process = replace(process, direct=direct)
    model = build(network=replace(tiny, time=8), process=process, head=head)
    batch = Batch.of(X.repeat(600, 1))
    found = likelihood(model, [batch], draws=T - 1, bound=Bound(steps=T), texts=[""] * len(batch.tokens))
    nats = found.row_nats.view(600, 2)
    exact = enumerated(model, process, direct)
    assert ((nats.mean(0) - exact).abs() < 4.5 * (nats.std(0) / 600**0.5).clamp(min=1e-6)).all()
    assert (nats.std(0) < exact / 2).all(), "or the comparison says little"


def chain(model: DiffusionLM, head: Subs, process: TokenProcess) -> float:
    """The 1000-step bound of the same weights under another head and process."""
    model.config = replace(model.config, head=head, process=process)
    batch = Batch.of(X.repeat(8, 1))
    return float(likelihood(model, [batch], bound=Bound(steps=1000), texts=[""] * 16).row_nats.sum())


def test_the_halves_of_the_substitution_are_worth_something(build: Build, tiny: TransformerConfig) -> None:
    """As the papers ablate it: D3PM's last step asks x̂ for visible tokens too, and Bayes' rule sees a named mask."""
    d3pm = Interpolating(LETTERS, mixing=MaskNoise(), direct=True)
    model = build(network=replace(tiny, time=8), process=Masked(LETTERS))
    subs = chain(model, Subs(), d3pm)
    assert subs == pytest.approx(chain(model, Subs(), Masked(LETTERS)), rel=1e-4), "with both halves it is MDLM"
    assert chain(model, Subs(carry_over=False), d3pm) > subs + 1
    assert chain(model, OPEN, d3pm) > chain(model, Subs(carry_over=False), d3pm) + 1
    plain = replace(d3pm, direct=False)  # Bayes' rule keeps visible tokens by itself
    assert chain(model, Subs(carry_over=False), plain) == pytest.approx(chain(model, Subs(), plain), rel=1e-6)
    assert chain(model, Subs(zero_mask=False), plain) > chain(model, Subs(), plain) + 1


@pytest.mark.parametrize("loss", [Bound(steps=2), Bound(steps=1)])
def test_the_loss_of_the_last_step_has_a_gradient(build: Build, tiny: TransformerConfig, loss: Bound) -> None:
    for head in (OPEN, Subs()):
        process = Interpolating(LETTERS, mixing=MaskNoise(), direct=True)
        model = build(network=replace(tiny, time=8), process=process, head=head)
        Objective(loss)(model, Batch.of(X.repeat(8, 1)), rng=rng(0, 16)).mean.backward()
        assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("head", [OPEN, Subs(zero_mask=False), Softmax()])
@pytest.mark.parametrize("process", [Interpolating(LETTERS, mixing=MaskNoise()), Markov(LETTERS, AbsorbingRates())])
def test_a_finished_text_has_no_mask(
    build: Build, process: Interpolating | Markov, head: Subs | Softmax, direct: bool
) -> None:
    """Even if the network is sure that every token is the mask."""
    model = build(process=replace(process, direct=direct), head=head)
    with torch.no_grad():  # a large state times a large row of the output layer
        model.network.norm.weight.fill_(10.0)
        model.network.output.weight.mul_(0.01)[MASK] = 10.0
    canvas = Canvas(torch.zeros(64, 5, dtype=torch.int64), torch.zeros(64, 5, dtype=torch.bool))
    pred = model.predict(torch.full((64, 5), MASK), torch.ones(64, 1))
    assert float(pred.x.detach().softmax(-1)[..., MASK].max()) > 0.99
    done = final_canvas(Ancestral(4)(model, model.process, canvas, rng=rng(0, 64)))
    assert not (done.z == MASK).any()
