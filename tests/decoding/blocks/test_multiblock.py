"""Several blocks at once: sequential at the ends of its thresholds, never stuck, each row as if alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from redraft.core import Canvas, Masked, Pick, Rng, Vocab, rng
from redraft.decoding import (
    AnyOrder,
    Blocks,
    Confidence,
    ConfidenceThreshold,
    EntropyBound,
    Klass,
    MultiBlock,
    Sampler,
    Unmask,
    WideInNarrowOut,
    final_canvas,
)
from redraft.models import BlockCausal, DiffusionLM, Full, TransformerConfig

Build = Callable[..., DiffusionLM]
Ragged = Callable[[int, int, int], Canvas]
MASK = 6
PICKS = [
    ConfidenceThreshold(0.3),
    ConfidenceThreshold(0.3, 1.0),
    EntropyBound(1.0),
    Klass(0.2, 1.0),
    WideInNarrowOut(0.2, 0.4),
]
every_pick = pytest.mark.parametrize("pick", [*PICKS, Confidence(), AnyOrder()], ids=repr)


@pytest.fixture(scope="module")
def model(build: Build, tiny: TransformerConfig) -> DiffusionLM:
    return build(Full(), replace(tiny, rotary=None, positions=16, time=8))


def write(sampler: Sampler, model: DiffusionLM, canvas: Canvas, seed: int = 0) -> Tensor:
    return final_canvas(sampler(model, model.process, canvas, rng=rng(seed, len(canvas.z)))).z


@every_pick
@pytest.mark.parametrize("size", [1, 3, 11])
def test_thresholds_of_one_are_one_block_after_the_other(
    model: DiffusionLM, ragged: Ragged, pick: Pick, size: int
) -> None:
    canvas = ragged(12, 11, 3)
    sequential = write(Blocks(Unmask(None, pick), decode_block=size), model, canvas)
    assert torch.equal(write(MultiBlock(pick, size, add=1, full=1), model, canvas), sequential)


@every_pick
def test_one_block_is_no_blocks(model: DiffusionLM, ragged: Ragged, pick: Pick) -> None:
    canvas, keys = ragged(12, 11, 3), rng(0, 12)
    plain = final_canvas(Unmask(None, pick)(model, model.process, canvas, rng=keys.fold(0))).z
    assert torch.equal(write(MultiBlock(pick, 11), model, canvas), plain)


@given(
    seed=st.integers(0, 10**6),
    pick=st.sampled_from([*PICKS, Confidence()]),
    size=st.integers(1, 9),
    add=st.sampled_from([0.0, 0.5, 1.0]),
    full=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_promises(
    model: DiffusionLM,
    ragged: Ragged,
    assert_promises: Callable[[Sampler, DiffusionLM, Canvas, Rng], Canvas],
    seed: int,
    pick: Pick,
    size: int,
    add: float,
    full: float,
) -> None:
    assert_promises(MultiBlock(pick, size, add, full), model, ragged(4, 8, seed), rng(seed, 4))


def test_a_row_is_written_as_if_alone(
    model: DiffusionLM, assert_rows_alone: Callable[[Sampler, DiffusionLM], None]
) -> None:
    assert_rows_alone(MultiBlock(ConfidenceThreshold(0.3), 2), model)


def test_later_blocks_begin_early_and_are_forced_late(model: DiffusionLM) -> None:
    """Blocks of 4, one token a step: the second is active at 2 of 4, forced at 3 of 4; the network is called once."""
    canvas = Canvas(torch.zeros(1, 12, dtype=torch.int64), torch.zeros(1, 12, dtype=torch.bool))
    passes: list[int] = []
    handle = model.network.blocks[0].register_forward_pre_hook(lambda _, args: passes.append(len(args[0])))
    written = []
    for step in MultiBlock(ConfidenceThreshold(2.0), 4, add=0.5, full=0.75)(model, model.process, canvas, rng=rng(0)):
        written.append((step.z[0] != MASK).view(3, 4).sum(-1).tolist())
    handle.remove()
    assert written == [
        [0, 0, 0],
        [1, 0, 0],
        [2, 0, 0],
        [3, 0, 0],
        [4, 1, 0],
        [4, 2, 0],
        [4, 3, 0],
        [4, 4, 1],
        [4, 4, 2],
        [4, 4, 3],
        [4, 4, 4],
    ]
    assert len(passes) == 10
    sure = MultiBlock(ConfidenceThreshold(0.0), 4, add=0.5, full=1.0)(model, model.process, canvas, rng=rng(0))
    assert [(step.z[0] != MASK).view(3, 4).sum(-1).tolist() for step in sure] == [
        [0, 0, 0],
        [4, 0, 0],
        [4, 4, 0],
        [4, 4, 4],
    ]


def test_a_row_ends_at_its_end_token(build: Build, tiny: TransformerConfig) -> None:
    ended = build(Full(), replace(tiny, rotary=None, positions=16), process=Masked(Vocab(7, mask=MASK, eos=2)))
    canvas = Canvas(torch.zeros(20, 12, dtype=torch.int64), torch.zeros(20, 12, dtype=torch.bool))
    z = write(MultiBlock(ConfidenceThreshold(0.5, 1.0), 3, stop=True), ended, canvas)
    ends = (z == 2).int().cumsum(-1) > 0
    assert bool(ends.any())
    assert bool((z[ends] == 2).all())


def test_what_does_not_fit_is_refused(build: Build) -> None:
    canvas = Canvas(torch.zeros(1, 6, dtype=torch.int64), torch.zeros(1, 6, dtype=torch.bool))
    with pytest.raises(ValueError, match="this network cannot read unfinished blocks"):
        write(MultiBlock(), build(BlockCausal(3)), canvas)
    with pytest.raises(ValueError, match=r"add=1\.5; it must be from 0 to 1"):
        MultiBlock(add=1.5)
