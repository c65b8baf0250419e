"""Ancestral sampling and first hitting: promises, cost, and the law that they draw from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from redraft.core import (
    Canvas,
    Context,
    Cosine,
    Exponential,
    Interpolating,
    Linear,
    Masked,
    Prediction,
    Rng,
    Schedule,
    TablePrediction,
    Vocab,
    rng,
)
from redraft.decoding import Ancestral, FirstHitting, Sampler, final_canvas
from redraft.models import DiffusionLM, Full, TransformerConfig

Build = Callable[..., DiffusionLM]
Ragged = Callable[[int, int, int], Canvas]
Promises = Callable[[Sampler, DiffusionLM, Canvas, Rng], Canvas]
RowsAlone = Callable[[Sampler, DiffusionLM], None]
PValue = Callable[[Tensor, Tensor], float]
MASK = 6
CHANCE = 1e-4
every_sampler = pytest.mark.parametrize("sampler", [Ancestral(1), Ancestral(5), FirstHitting()], ids=repr)


@given(
    seed=st.integers(0, 10**6), steps=st.integers(1, 12), schedule=st.sampled_from([Linear(), Cosine(), Exponential()])
)
def test_promises(
    build: Build, ragged: Ragged, assert_promises: Promises, seed: int, steps: int, schedule: Schedule
) -> None:
    model, canvas = build(process=Masked(Vocab(7, mask=MASK), schedule)), ragged(4, 8, seed)
    for sampler in (Ancestral(steps), FirstHitting()):
        assert_promises(sampler, model, canvas, rng(seed, 4))


@every_sampler
@pytest.mark.parametrize("timed", [False, True])
def test_a_row_is_written_as_if_alone(
    build: Build, tiny: TransformerConfig, assert_rows_alone: RowsAlone, sampler: Sampler, timed: bool
) -> None:
    assert_rows_alone(sampler, build(Full(), replace(tiny, time=8 if timed else None)))


@every_sampler
def test_threads_do_not_change_the_text(build: Build, ragged: Ragged, sampler: Sampler) -> None:
    model, canvas, before = build(), ragged(20, 9, 0), torch.get_num_threads()
    written = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            written.append(final_canvas(sampler(model, model.process, canvas, rng=rng(0, 20))).z)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*written)


def test_canvases_go_from_noise_to_text(build: Build) -> None:
    model, canvas = build(), Canvas(torch.zeros(3, 6, dtype=torch.int64), torch.zeros(3, 6, dtype=torch.bool))
    for sampler, count in ((Ancestral(4), 5), (FirstHitting(), 7)):
        masks = [(c.z == MASK).sum(-1) for c in sampler(model, model.process, canvas, rng=rng(0, 3))]
        assert len(masks) == count
        assert masks[0].tolist() == [6, 6, 6]
        assert masks[-1].tolist() == [0, 0, 0]
        assert all((late <= early).all() for early, late in pairwise(masks))
    hits = [(c.z == MASK).sum(-1).tolist() for c in FirstHitting()(model, model.process, canvas, rng=rng(0, 3))]
    assert hits == [[n] * 3 for n in range(6, -1, -1)], "one token per row and step"


@pytest.mark.parametrize("rows", [1, 2, 6])
@pytest.mark.parametrize("sampler", [Ancestral(1000), FirstHitting()], ids=repr)
def test_a_row_costs_at_most_a_call_per_token(build: Build, rows: int, sampler: Sampler) -> None:
    """A thousand steps over a handful of tokens: rows in which nothing changes are not run."""
    model, holes = build(), torch.arange(rows) % 4 + 2
    z = torch.arange(rows)[:, None].expand(-1, 8).contiguous()  # column 0 is given and says which row it is
    fixed = (torch.arange(8) == 0) | (torch.arange(8) > holes[:, None])
    calls: Counter[int] = Counter()
    model.network.register_forward_pre_hook(lambda _, args: calls.update(args[0][:, 0].tolist()))
    final_canvas(sampler(model, model.process, Canvas(z, fixed), rng=rng(0, rows)))
    for row, n in enumerate(holes.tolist()):
        assert 1 <= calls[row] <= n
        assert isinstance(sampler, Ancestral) or calls[row] == n


def test_nothing_to_write_costs_nothing(build: Build) -> None:
    model, canvas = build(), Canvas(torch.zeros(2, 3, dtype=torch.int64), torch.ones(2, 3, dtype=torch.bool))
    model.network.register_forward_pre_hook(lambda *_: pytest.fail("the network was asked"))
    for sampler in (Ancestral(4), FirstHitting()):
        assert torch.equal(final_canvas(sampler(model, model.process, canvas, rng=rng(0, 2))).z, canvas.z)


# --- the law ---


@dataclass(frozen=True)
class Oracle:
    """The exact denoiser of a joint law of two tokens of three kinds; id 3 is the mask."""

    joint: Tensor  # (3, 3)
    block: int | None = None

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        first = torch.cat([self.joint.T, self.joint.sum(1)[None]])[z[:, 1]]  # given the second, or the mask
        second = torch.cat([self.joint, self.joint.sum(0)[None]])[z[:, 0]]
        p = torch.stack([first, second], 1)
        return TablePrediction(torch.cat([p, torch.zeros_like(p[..., :1])], -1).log().log_softmax(-1))

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        raise NotImplementedError


JOINT = torch.tensor([[0.30, 0.02, 0.03], [0.05, 0.20, 0.05], [0.01, 0.09, 0.25]])


def drawn(sampler: Sampler, schedule: Schedule, rows: int) -> Tensor:
    """How often each of the nine texts was written."""
    canvas = Canvas(torch.zeros(rows, 2, dtype=torch.int64), torch.zeros(rows, 2, dtype=torch.bool))
    z = final_canvas(sampler(Oracle(JOINT), Masked(Vocab(4, mask=3), schedule), canvas, rng=rng(0, rows))).z
    return (z[:, 0] * 3 + z[:, 1]).bincount(minlength=9)


@pytest.mark.parametrize("schedule", [Linear(), Cosine()], ids=repr)
@pytest.mark.parametrize("sampler", [FirstHitting(), Ancestral(200)], ids=repr)
def test_samples_follow_the_joint_law(sampler: Sampler, schedule: Schedule, p_value: PValue) -> None:
    rows = 5_000
    assert p_value(drawn(sampler, schedule, rows), JOINT * rows) > CHANCE


def test_one_step_draws_each_token_for_itself(p_value: PValue) -> None:
    rows = 5_000
    counts, apart = drawn(Ancestral(1), Linear(), rows), JOINT.sum(1)[:, None] * JOINT.sum(0)
    assert p_value(counts, apart * rows) > CHANCE
    assert p_value(counts, JOINT * rows) < 1e-9, "the test above can tell"


def test_each_masked_position_is_as_likely_to_be_hit_next(p_value: PValue) -> None:
    rows = 5_000
    canvas = Canvas(torch.zeros(rows, 2, dtype=torch.int64), torch.zeros(rows, 2, dtype=torch.bool))
    _, first, _ = FirstHitting()(Oracle(JOINT), Masked(Vocab(4, mask=3)), canvas, rng=rng(0, rows))
    assert p_value((first.z != 3).sum(0), torch.full((2,), rows / 2)) > CHANCE


# --- errors ---


@pytest.mark.parametrize("steps", [0, -3])
def test_a_sampler_needs_a_step(steps: int) -> None:
    with pytest.raises(ValueError, match=f"steps={steps}; a sampler needs at least one step"):
        Ancestral(steps)


def test_first_hitting_knows_mask_noise_only(build: Build) -> None:
    canvas = Canvas(torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"is for mask noise.*use Ancestral"):
        next(FirstHitting()(build(), Interpolating(Vocab(2)), canvas, rng=rng(0)))
