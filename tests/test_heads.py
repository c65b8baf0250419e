"""Heads: x̂ is normalised, never the mask, and keeps what is visible."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from redraft.heads import Shift, Softmax, Subs
from redraft.processes.masked import Masked
from redraft.types import Vocab

V = 5


def random_rows(seed: int, rows: int = 12) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, V, generator=g), torch.randint(0, V, (rows,), generator=g), torch.rand(rows, generator=g))


@given(seed=st.integers(0, 10**6), mask=st.integers(0, V - 1))
def test_substitution(seed: int, mask: int) -> None:
    (raw, z, t), process = random_rows(seed), Masked(Vocab(V, mask=mask))
    before = raw.clone()
    x = Subs().weights(raw, z, t, process).softmax(-1)
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
    assert torch.equal(Subs(zero_mask=False, carry_over=False).weights(raw, z, t, process), raw)
    no_mask = Subs(carry_over=False).weights(raw, z, t, process)
    assert torch.equal(no_mask[:, :-1], raw[:, :-1])
    assert torch.equal(no_mask[:, -1], torch.full((len(z),), -torch.inf))
    carried = Subs(zero_mask=False).weights(raw, z, t, process)
    assert torch.equal(carried[z == V - 1], raw[z == V - 1])


def test_heads_speak_float32() -> None:
    raw, z, t = random_rows(0)
    process = Masked(Vocab(V, mask=V - 1))
    for head in (Softmax(), Subs(), Shift()):
        assert head.weights(raw.bfloat16(), z, t, process).dtype == torch.float32
    assert torch.equal(Softmax().weights(raw, z, t, process), raw)


def test_shift_reads_the_state_before() -> None:
    positions = torch.tensor([[0, 1, 3]])
    assert Shift().source(positions).tolist() == [[0, 0, 2]]  # nothing stands before the first
    assert Subs().source(positions) is positions


def test_shift_leaves_the_weights_to_the_head_within() -> None:
    raw, z, t = random_rows(1)
    process = Masked(Vocab(V, mask=V - 1))
    for inner in (Subs(), Softmax()):
        assert torch.equal(Shift(inner).weights(raw, z, t, process), inner.weights(raw, z, t, process))
