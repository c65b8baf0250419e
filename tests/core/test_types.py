"""The values that travel: canvases keep what is given, losses count what is learned."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from redraft.core import Batch, BatchOrigin, Canvas, Context, Loss, TablePrediction, Vocab

seeds = st.integers(0, 2**31)


def random_canvas(seed: int, rows: int = 3, length: int = 7) -> tuple[Canvas, Tensor]:
    """A canvas with some tokens given, and other tokens to write on it."""
    g = torch.Generator().manual_seed(seed)
    old, new = torch.randint(0, 9, (2, rows, length), generator=g)
    return Canvas(old, torch.rand(rows, length, generator=g) < 0.4), new


@pytest.mark.parametrize("name", ["mask", "bos", "eos", "pad"])
@pytest.mark.parametrize("token", [-1, 5])
def test_special_ids_are_ids_of_the_vocabulary(name: str, token: int) -> None:
    with pytest.raises(ValueError, match=f"{name}={token} is not one of the 5 ids"):
        Vocab(5, **{name: token})


def test_a_vocabulary_without_mask_says_so() -> None:
    assert Vocab(5, mask=0).masked == 0
    with pytest.raises(ValueError, match="has no mask token"):
        _ = Vocab(5).masked


def test_a_batch_learns_all_but_padding() -> None:
    tokens, pad = torch.zeros(2, 3, dtype=torch.int64), torch.tensor([[False, False, True], [False, True, True]])
    assert Batch.of(tokens).learn.all()
    assert torch.equal(Batch.of(tokens, pad).learn, ~pad)


def test_a_moved_batch_keeps_its_place() -> None:
    tokens = torch.zeros(2, 3, dtype=torch.int64)
    batch = Batch(tokens, tokens == 0, origin=BatchOrigin(torch.tensor([7, 8]), first=4, total=16))
    moved = batch.to(torch.device("meta"))
    assert (moved.tokens.device.type, moved.learn.device.type, moved.pad) == ("meta", "meta", None)
    assert moved.origin.sample is not None
    assert moved.origin.sample.device.type == "meta"
    assert (moved.origin.first, moved.origin.total) == (4, 16)


@given(seed=seeds)
def test_writing_changes_all_but_the_fixed_tokens(seed: int) -> None:
    canvas, new = random_canvas(seed)
    before = canvas.z.clone()
    written = canvas.write(new)
    assert torch.equal(written.z[canvas.fixed], before[canvas.fixed])
    assert torch.equal(written.z[~canvas.fixed], new[~canvas.fixed])
    assert torch.equal(canvas.z, before), "the old canvas must stay as it was"


@given(seed=seeds)
def test_given_tokens_sit_at_time_zero(seed: int) -> None:
    canvas, _ = random_canvas(seed)
    t = torch.rand(3, 1, generator=torch.Generator().manual_seed(seed)) + 0.1
    assert torch.equal(canvas.time(t), t * ~canvas.fixed)


@given(seed=seeds, ends=st.tuples(st.integers(0, 7), st.integers(0, 7)).map(sorted))
def test_a_pasted_window_changes_its_columns_only(seed: int, ends: list[int]) -> None:
    (canvas, new), (lo, hi) = random_canvas(seed), ends
    window = canvas.window(lo, hi, Context())
    assert torch.equal(canvas.paste(window, lo).z, canvas.z)
    pasted = canvas.paste(window.write(new[:, lo:hi]), lo)
    columns = torch.arange(7)
    inside = (columns >= lo) & (columns < hi)
    assert torch.equal(pasted.z, torch.where(inside & ~canvas.fixed, new, canvas.z))


def test_a_window_takes_its_padding_along() -> None:
    pad = torch.tensor([[False, False, True, True]])
    canvas = Canvas(torch.zeros(1, 4, dtype=torch.int64), pad, Context(pad=pad))
    window = canvas.window(1, 3, Context())
    assert window.context.pad is not None
    assert window.context.pad.tolist() == [[False, True]]


def test_a_canvas_needs_a_boolean_of_its_shape() -> None:
    z = torch.zeros(2, 3, dtype=torch.int64)
    for fixed in (torch.zeros(2, 2, dtype=torch.bool), torch.zeros(2, 3)):
        with pytest.raises(ValueError, match="a canvas needs fixed"):
            Canvas(z, fixed)


def test_a_context_of_some_rows() -> None:
    pad, clean = torch.eye(3, dtype=torch.bool), torch.arange(9).view(3, 3)
    rows = Context(pad=pad, clean=clean).rows(torch.tensor([2, 0]))
    assert rows.pad is not None
    assert rows.clean is not None
    assert torch.equal(rows.pad, pad[[2, 0]])
    assert torch.equal(rows.clean, clean[[2, 0]])
    assert Context().rows(torch.tensor([0])) == Context()


@given(seed=seeds)
def test_a_known_prediction_answers_in_the_order_of_nonzero(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    log_p = torch.randn(2, 4, 5, generator=g).log_softmax(-1)
    where, target = torch.rand(2, 4, generator=g) < 0.5, torch.randint(0, 5, (2, 4), generator=g)
    known = TablePrediction(log_p)
    rows, loss = known.at(where), known.nll(where, target)
    assert torch.equal(rows, torch.stack([log_p[b, l] for b, l in where.nonzero()]) if where.any() else rows)
    assert len(rows) == where.sum()
    for b in range(2):
        for l in range(4):
            assert loss[b, l] == (-log_p[b, l, target[b, l]] if where[b, l] else 0)


def test_a_loss_divides_by_its_count_or_by_the_total() -> None:
    first, second = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0])
    count = torch.tensor([2, 3])
    loss = Loss.of(count, first=first, second=second)
    assert float(loss.mean.detach()) == pytest.approx(10 / 5)
    assert loss.nats.tolist() == [4.0, 6.0]
    assert float(loss.parts["first"] + loss.parts["second"]) == pytest.approx(float(loss.mean.detach()))
    part = Loss.of(count, torch.tensor(20), first=first.detach(), second=second)
    assert float(part.mean) == pytest.approx(10 / 20)
    loss.mean.backward()
    assert first.grad is not None
    assert first.grad.tolist() == pytest.approx([0.2, 0.2])
    assert not loss.nats.requires_grad


def test_a_batch_without_learned_tokens_costs_nothing() -> None:
    loss = Loss.of(torch.zeros(2, dtype=torch.int64), diffusion=torch.zeros(2))
    assert float(loss.mean) == 0
