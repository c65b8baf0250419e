"""Unmasking: promises, an even number of tokens per step, the surest first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from redraft.core import (
    Canvas,
    Context,
    IndependentReveal,
    Interpolating,
    Masked,
    Pick,
    Prediction,
    Rng,
    Schedule,
    TablePrediction,
    Vocab,
    rng,
)
from redraft.decoding import (
    AnyOrder,
    Confidence,
    Entropy,
    LeftToRight,
    Margin,
    RankedPick,
    Sampler,
    Unmask,
    final_canvas,
)
from redraft.evaluation.laws.schedules import _every_schedule
from redraft.models import DiffusionLM, Full, TransformerConfig

Build = Callable[..., DiffusionLM]
Ragged = Callable[[int, int, int], Canvas]
Promises = Callable[[Sampler, DiffusionLM, Canvas, Rng], Canvas]
RowsAlone = Callable[[Sampler, DiffusionLM], None]
PValue = Callable[[Tensor, Tensor], float]
MASK = 6
CHANCE = 1e-4
RANKED = [Confidence(), Confidence(1.0), Margin(), Margin(0.7), Entropy(), Entropy(1.0)]
PICKS = [*RANKED, AnyOrder(), LeftToRight(), LeftToRight(1.0), IndependentReveal()]
every_pick = pytest.mark.parametrize("pick", PICKS, ids=repr)


@pytest.fixture(scope="module")
def placed(build: Build, tiny: TransformerConfig) -> DiffusionLM:
    """With learned positions no two masks look the same; with rotary ones all masks of an empty row do."""
    return build(Full(), replace(tiny, rotary=None, positions=16))


@given(seed=st.integers(0, 10**6), steps=st.integers(1, 12), pick=st.sampled_from(PICKS))
def test_promises(build: Build, ragged: Ragged, assert_promises: Promises, seed: int, steps: int, pick: Pick) -> None:
    assert_promises(Unmask(steps, pick), build(), ragged(4, 8, seed), rng(seed, 4))


@pytest.mark.parametrize("pick", [Confidence(), Margin(1.0), Entropy(0.5)], ids=repr)
def test_a_row_is_written_as_if_alone(placed: DiffusionLM, assert_rows_alone: RowsAlone, pick: Pick) -> None:
    assert_rows_alone(Unmask(4, pick), placed)


def test_threads_do_not_change_the_text(placed: DiffusionLM, ragged: Ragged) -> None:
    model, canvas, before = placed, ragged(20, 9, 0), torch.get_num_threads()
    written = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            written.append(final_canvas(Unmask(4, Confidence(1.0))(model, model.process, canvas, rng=rng(0, 20))).z)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*written)


def llada(tokens: int, steps: int) -> list[int]:
    """How many tokens LLaDA reveals at each step: equal numbers, the remainder one by one to the first steps."""
    base, remainder = divmod(tokens, steps)
    return [base + (i < remainder) for i in range(steps)]


@given(
    rows=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    steps=st.integers(1, 45),
    seed=st.integers(0, 99),
    schedule=st.sampled_from(_every_schedule()),
)
def test_an_even_number_of_tokens_at_each_step(rows: list[int], steps: int, seed: int, schedule: Schedule) -> None:
    """Whatever the schedule, also if rows have different numbers of holes."""
    length = max(rows) + 1
    log_p = torch.randn(len(rows), length, 7, generator=torch.Generator().manual_seed(seed))
    denoise = Constant(log_p.index_fill(-1, torch.tensor([MASK]), -torch.inf).log_softmax(-1))
    canvas = Canvas(
        torch.zeros(len(rows), length, dtype=torch.int64), torch.arange(length) >= torch.tensor(rows)[:, None]
    )
    canvases = Unmask(steps)(denoise, Masked(Vocab(7, mask=MASK), schedule), canvas, rng=rng(seed, len(rows)))
    left = torch.stack([((c.z == MASK) & ~canvas.fixed).sum(-1) for c in canvases])
    assert len(left) - 1 == min(steps, max(rows)), "it ends when nothing is left"
    for row, tokens in enumerate(rows):
        assert (-left[:, row].diff()).tolist() == llada(tokens, steps)[: len(left) - 1]


@pytest.mark.parametrize("schedule", _every_schedule(), ids=repr)
def test_the_network_is_told_a_time_at_which_so_many_are_masked(schedule: Schedule) -> None:
    """As far as the schedule has one; never time zero, which would mean that the tokens are given."""
    asked: list[Tensor] = []
    words = torch.arange(7) != MASK
    denoise = Constant((words / words.sum()).log().expand(1, 10, 7), heard=asked)
    canvas = Canvas(torch.zeros(1, 10, dtype=torch.int64), torch.zeros(1, 10, dtype=torch.bool))
    final_canvas(Unmask(10, AnyOrder())(denoise, Masked(Vocab(7, mask=MASK), schedule), canvas, rng=rng(0)))
    lost = 1 - schedule.keep(torch.stack(asked)[:, 0, 0])
    expected = torch.arange(10, 0, -1).double() / 10
    assert torch.allclose(lost, expected.clamp(1 - schedule.start, 1 - schedule.end), atol=1e-9)
    assert all(bool((t > 0).all()) for t in asked)


# --- picks ---


@dataclass(frozen=True)
class Constant:
    """A denoiser that always says the same, and keeps the times it was told."""

    log_p: Tensor
    block: int | None = None
    heard: list[Tensor] = field(default_factory=list)

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        self.heard.append(t)
        return TablePrediction(self.log_p)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        raise NotImplementedError


PROCESS = Masked(Vocab(4, mask=3))
# the likeliest token, the margin and the entropy put these four positions in different orders
POSITIONS = torch.tensor(
    [[0.50, 0.50, 0.00, 0.0], [0.45, 0.30, 0.25, 0.0], [0.60, 0.20, 0.20, 0.0], [0.52, 0.46, 0.02, 0.0]]
)
ORDERS = {
    Confidence(): sorted(range(4), key=lambda i: -float(POSITIONS[i].max())),
    Margin(): sorted(range(4), key=lambda i: -float(POSITIONS[i].topk(2).values.diff().abs())),
    Entropy(): sorted(range(4), key=lambda i: float(torch.special.entr(POSITIONS[i]).sum())),
}


def order(pick: Pick, keys: Rng) -> list[int]:
    """The positions in the order of their reveal."""
    blank = Canvas(torch.zeros(1, 4, dtype=torch.int64), torch.zeros(1, 4, dtype=torch.bool))
    canvases = list(Unmask(4, pick)(Constant(POSITIONS.log()[None]), PROCESS, blank, rng=keys))
    return [int((a.z != b.z).nonzero()[0, 1]) for a, b in pairwise(canvases)]


@pytest.mark.parametrize("pick", list(ORDERS), ids=repr)
def test_the_surest_position_comes_first(pick: RankedPick) -> None:
    assert order(pick, rng(0)) == ORDERS[pick]
    assert len({tuple(o) for o in ORDERS.values()}) == 3, "the three orders differ"


def test_equal_positions_are_revealed_from_the_left(build: Build) -> None:
    """All masks of an empty row look the same to a rotary network: only then is a row's text its own."""
    model = build()
    for pick in ORDERS:
        for length in range(2, 10):
            blank = Canvas(torch.zeros(3, length, dtype=torch.int64), torch.zeros(3, length, dtype=torch.bool))
            _, first, *_ = Unmask(length, pick)(model, model.process, blank, rng=rng(0, 3))
            assert (first.z != MASK).nonzero()[:, 1].tolist() == [0, 0, 0]


@pytest.mark.parametrize("pick", list(ORDERS), ids=repr)
def test_without_temperature_the_likeliest_token_is_written_whatever_the_key(build: Build, pick: RankedPick) -> None:
    blank = Canvas(torch.zeros(1, 4, dtype=torch.int64), torch.zeros(1, 4, dtype=torch.bool))
    denoise = Constant(POSITIONS.log()[None])
    for seed in range(5):
        assert final_canvas(Unmask(2, pick)(denoise, PROCESS, blank, rng=rng(seed))).z.tolist() == [[0, 0, 0, 0]]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature_sharpens_or_flattens_the_draw(temperature: float, p_value: PValue) -> None:
    rows, p = 5_000, torch.tensor([0.5, 0.3, 0.2, 0.0])
    blank = Canvas(torch.zeros(rows, 1, dtype=torch.int64), torch.zeros(rows, 1, dtype=torch.bool))
    sampler = Unmask(1, Confidence(temperature))
    z = final_canvas(sampler(Constant(p.log().expand(rows, 1, 4)), PROCESS, blank, rng=rng(0, rows))).z
    expected = (p.log() / temperature).softmax(-1)[:3]
    assert p_value(z.flatten().bincount(minlength=3), expected * rows) > CHANCE


def around(hidden: Tensor) -> Canvas:
    return Canvas(torch.zeros_like(hidden, dtype=torch.int64), ~hidden)


@given(seed=st.integers(0, 10**6), part=st.floats(0, 1), pick=st.sampled_from(RANKED))
def test_a_pick_takes_the_share_rounded_up_and_its_best(seed: int, part: float, pick: RankedPick) -> None:
    g = torch.Generator().manual_seed(seed)
    hidden = torch.rand(3, 8, generator=g) < 0.6
    pred = TablePrediction(torch.randn(3, 8, 5, generator=g).log_softmax(-1))
    share = torch.full((3, 1), part, dtype=torch.float64)
    where, tokens, *_ = pick(pred, around(hidden), hidden, share, rng=rng(seed, 3))
    assert not (where & ~hidden).any()
    assert where.sum(-1).tolist() == (hidden.sum(-1) * part - 1e-6).ceil().clamp(min=0).tolist()
    assert len(tokens) == where.sum()
    if pick.temperature == 0:
        assert torch.equal(tokens, pred.x[where].argmax(-1))
        score = pick.score(pred.draw(torch.ones_like(hidden), rng=rng(0, 3), temperature=0)).view(3, 8)
        for row in range(3):
            taken, kept = score[row][where[row]], score[row][hidden[row] & ~where[row]]
            assert not len(taken) or not len(kept) or taken.min() >= kept.max()


@every_pick
def test_nothing_hidden_asks_nothing(pick: Pick) -> None:
    pred = Mock(spec=Prediction)
    nowhere = torch.zeros(2, 3, dtype=torch.bool)
    where, tokens, *_ = pick(pred, around(nowhere), nowhere, torch.ones(2, 1), rng=rng(0, 2))
    assert not where.any()
    assert (len(tokens), tokens.dtype) == (0, torch.int64)
    assert not pred.mock_calls


# --- errors ---


def test_errors(build: Build) -> None:
    with pytest.raises(ValueError, match="steps=0; a sampler needs at least one step"):
        Unmask(0)
    canvas = Canvas(torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"is for mask noise.*use Ancestral"):
        next(Unmask()(build(), Interpolating(Vocab(2)), canvas, rng=rng(0)))
