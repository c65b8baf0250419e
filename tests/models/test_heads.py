"""Heads: x̂ is never the mask, keeps what is visible, and is normalized unless it is a score."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, strategies as st

from redraft.core import Batch, Interpolating, Masked, MaskNoise, Vocab, rng
from redraft.models import DiffusionLM, Score, Shift, Softmax, Subs
from redraft.training import Bound, Objective, TokenCrossEntropy, likelihood

V = 5


def random_rows(seed: int, rows: int = 12) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, V, generator=g), torch.randint(0, V, (rows,), generator=g), torch.rand(rows, generator=g))


@given(seed=st.integers(0, 10**6), mask=st.integers(0, V - 1))
def test_substitution(seed: int, mask: int) -> None:
    (raw, z, t), process = random_rows(seed), Masked(Vocab(V, mask=mask))
    before = raw.clone()
    x = Subs().estimate(raw, z, t, process).softmax(-1)
    assert torch.allclose(x.sum(-1), torch.ones(len(z)))
    assert torch.equal(x[:, mask], torch.zeros(len(z))), "the clean token is never the mask"
    seen = z != mask
    assert torch.equal(x[seen], torch.nn.functional.one_hot(z[seen], V).float()), "a visible token is exactly itself"
    others = torch.arange(V) != mask
    assert torch.allclose(x[~seen][:, others], raw[~seen][:, others].softmax(-1))
    assert torch.equal(raw, before), "the logits must not be changed in place"


@given(seed=st.integers(0, 10**6))
def test_the_halves_of_the_substitution_can_be_switched_off(seed: int) -> None:
    (raw, z, t), process = random_rows(seed), Masked(Vocab(V, mask=V - 1))
    assert torch.equal(Subs(zero_mask=False, carry_over=False).estimate(raw, z, t, process), raw)
    no_mask = Subs(carry_over=False).estimate(raw, z, t, process)
    assert torch.equal(no_mask[:, :-1], raw[:, :-1])
    assert torch.equal(no_mask[:, -1], torch.full((len(z),), -torch.inf))
    carried = Subs(zero_mask=False).estimate(raw, z, t, process)
    assert torch.equal(carried[z == V - 1], raw[z == V - 1])


def test_heads_speak_float32() -> None:
    raw, z, t = random_rows(0)
    process = Masked(Vocab(V, mask=V - 1))
    for head in (Softmax(), Subs(), Shift(), Score()):
        assert head.estimate(raw.bfloat16(), z, t, process).dtype == torch.float32
    assert torch.equal(Softmax().estimate(raw, z, t, process), raw)


def test_shift_reads_the_state_before() -> None:
    positions = torch.tensor([[0, 1, 3]])
    assert Shift().source(positions).tolist() == [[-1, 0, 2]]  # −1: before the first
    assert Subs().source(positions) is positions


def test_shift_leaves_the_weights_to_the_head_within() -> None:
    raw, z, t = random_rows(1)
    process = Masked(Vocab(V, mask=V - 1))
    for inner in (Subs(), Softmax()):
        assert torch.equal(Shift(inner).estimate(raw, z, t, process), inner.estimate(raw, z, t, process))


# --- scores ---


@given(seed=st.integers(0, 10**6), mask=st.integers(0, V - 1))
def test_a_score_is_an_x_with_a_free_sum(seed: int, mask: int) -> None:
    (raw, z, t), process = random_rows(seed), Masked(Vocab(V, mask=mask))
    x = Score().estimate(raw, z, t, process).exp()
    hidden, others = z == mask, torch.arange(V) != mask
    torch.testing.assert_close(x[hidden][:, others], raw[hidden][:, others].exp() / (V - 1))
    assert torch.equal(x[~hidden], torch.nn.functional.one_hot(z[~hidden], V).float()), "a visible token is itself"
    assert torch.equal(x[:, mask], torch.zeros(len(z)))
    even = Score().estimate(torch.zeros_like(raw), z, t, process)
    torch.testing.assert_close(even.logsumexp(-1), torch.zeros(len(z))), "raw zeros are the even guess"


def test_the_sum_of_uniform_noise_cannot_be_free() -> None:
    raw, z, t = random_rows(2)
    with pytest.raises(ValueError, match="do not determine the sum"):
        Score(Subs(carry_over=False)).estimate(raw, z, t, Interpolating(Vocab(V, mask=0)))
    masks = Interpolating(Vocab(V, mask=0), mixing=MaskNoise())
    assert torch.equal(Score().estimate(raw, z, t, masks), Score().estimate(raw, z, t, Masked(Vocab(V, mask=0))))


def test_only_scores_are_free() -> None:
    assert [h.normalized for h in (Softmax(), Subs(), Shift(), Score(), Shift(Score()), Score(Shift()))] == (
        [True] * 3 + [False] * 3
    )
    assert Score(Shift()).source(torch.tensor([[2]])).tolist() == [[1]]


def test_the_model_leaves_the_sum_free(build: Callable[..., DiffusionLM]) -> None:
    """Its loss is that of the written-down weights, and training moves the sum toward one."""
    model = build(head=Score())
    batch = Batch.of(torch.randint(0, 6, (16, 6), generator=torch.Generator().manual_seed(0)))
    z = torch.full_like(batch.tokens, 6)
    everywhere = torch.ones_like(z, dtype=torch.bool)

    def off() -> float:
        """How far the sums are from one, in the mean."""
        with torch.no_grad():
            return float(model.predict(z, torch.full((16, 1), 0.5)).at(everywhere).logsumexp(-1).abs().mean())

    assert off() > 0.05
    pred = model.predict(z, torch.full((16, 1), 0.5))
    log_x = pred.x
    assert not pred.normalized
    price = log_x.exp().sum(-1) - 1 - log_x.gather(-1, batch.tokens[..., None]).squeeze(-1)
    torch.testing.assert_close(pred.nll(everywhere, batch.tokens), price, rtol=1e-4, atol=1e-5)
    before, optimizer = off(), torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(60):
        optimizer.zero_grad()
        Objective(TokenCrossEntropy())(model, batch, rng=rng(step, 16)).mean.backward()
        optimizer.step()
    assert off() < before / 2


def test_the_likelihood_of_a_score_model_counts_its_sum(build: Callable[..., DiffusionLM]) -> None:
    """By number of masks and by times: the same bound, which is worse than that of the same x̂ normalized."""
    batch = Batch.of(torch.randint(0, 6, (64, 5), generator=torch.Generator().manual_seed(1)))
    free, one = build(head=Score()), build(head=Subs())
    counted, timed = (likelihood(free, [batch], draws=16, bound=bound) for bound in (None, Bound()))
    error = (counted.row_variance.sum() + timed.row_variance.sum()).sqrt() / counted.row_tokens.sum() / math.log(2)
    assert abs(counted.bits_per_token - timed.bits_per_token) < 4 * float(error)
    assert counted.bits_per_token > likelihood(one, [batch], draws=16).bits_per_token + 0.01
