"""What every sampler of tokens promises, whatever the network says: no mask is left, given text stays, ties go left."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from redraft.core import (
    Canvas,
    CappedRate,
    Context,
    HybridNoise,
    Interpolating,
    Masked,
    MaskNoise,
    Pick,
    Prediction,
    Process,
    Remask,
    StarRate,
    TablePrediction,
    Vocab,
    rng,
)
from redraft.decoding import (
    SAMPLER_NAMES,
    Ancestral,
    AnyOrder,
    Blocks,
    Confidence,
    ConfidenceThreshold,
    ConstantScore,
    Entropy,
    EntropyBound,
    Euler,
    FactorThreshold,
    FirstHitting,
    FrechetProfile,
    GuidedStar,
    Klass,
    LeftToRight,
    Margin,
    MultiBlock,
    Sampler,
    SelfCorrection,
    SlidingWindow,
    Unmask,
    WideInNarrowOut,
    final_canvas,
    named_sampler,
)

VOCAB = Vocab(6, eos=4, mask=2)  # in the middle, where it is easily forgotten
MASKED, HYBRID = Masked(VOCAB), Interpolating(VOCAB, mixing=HybridNoise(0.3))
PICKS: list[Pick] = [
    *(kind(temperature) for kind in (Confidence, Margin, Entropy, LeftToRight) for temperature in (0.0, 1.0)),
    *(ConfidenceThreshold(0.4, 1.0), FactorThreshold(1.0, 1.0), FrechetProfile(0.0, 0.7), EntropyBound(0.5, 1.0)),
    *(Klass(0.3, 1.0, 1), WideInNarrowOut(0.2, 0.6), AnyOrder(0.5)),
]
SAMPLERS: list[tuple[Sampler, Process]] = [
    *((named_sampler(name), MASKED) for name in SAMPLER_NAMES),
    *((Unmask(3, pick), MASKED) for pick in PICKS),
    *((MultiBlock(pick, 3, 0.3, 0.6, stop=True), MASKED) for pick in PICKS[-6:]),
    *((Blocks(inner, decode_block=3, stop=True), MASKED) for inner in (Unmask(2), Ancestral(4), FirstHitting())),
    (Unmask(4, stop=True), MASKED),
    (SlidingWindow(Unmask(3), window=5, stride=2), MASKED),
    (GuidedStar(5, guide=ConstantScore()), MASKED),
    *((Ancestral(5), Remask(process, rate)) for process in (MASKED, HYBRID) for rate in (CappedRate(0.3), StarRate())),
    *((sampler, HYBRID) for sampler in (Ancestral(5), SelfCorrection(Ancestral(4)))),
    *((sampler, Interpolating(VOCAB, mixing=MaskNoise())) for sampler in (Ancestral(5), Euler(6))),
]


@dataclass(frozen=True)
class Says:
    """Something else of every token wherever it stands, and never the mask; some tokens are impossible."""

    seed: int
    sharp: float
    block: int | None = None

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        table = torch.randn(8, 6, 6, generator=torch.Generator().manual_seed(self.seed)) * self.sharp
        place = torch.arange(z.shape[1]) if context.positions is None else context.positions
        log_p = table[place % 8, z]
        log_p = log_p.masked_fill(log_p < -2 * self.sharp, -torch.inf)
        log_p[..., VOCAB.masked], log_p[..., 0] = -torch.inf, log_p[..., 0].clamp(min=-4.0)
        return TablePrediction(log_p.log_softmax(-1))

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return context


@pytest.mark.parametrize(("sampler", "process"), SAMPLERS, ids=lambda value: str(value)[:80])
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10**6), sharp=st.sampled_from([0.0, 1.0, 30.0]), length=st.integers(1, 9))
def test_no_mask_is_left_and_given_text_stays(
    sampler: Sampler, process: Process, seed: int, sharp: float, length: int
) -> None:
    fixed = torch.rand(3, length, generator=torch.Generator().manual_seed(seed)) < 0.3
    canvas = Canvas(torch.full((3, length), 1).masked_fill(~fixed, VOCAB.masked), fixed)
    done = final_canvas(sampler(Says(seed, sharp), process, canvas, rng=rng(seed, 3)))
    assert not bool((done.z == VOCAB.masked).any())
    assert torch.equal(done.z[fixed], canvas.z[fixed])
    assert int(done.z.min()) >= 0
    assert int(done.z.max()) < VOCAB.size


@dataclass(frozen=True)
class Undecided(Says):
    """All tokens but the mask are equally likely everywhere."""

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        log_p = torch.zeros(*z.shape, 6)
        log_p[..., VOCAB.masked] = -torch.inf
        return TablePrediction(log_p.log_softmax(-1))


COLD = [
    Confidence(),
    Margin(),
    Entropy(),
    LeftToRight(),
    ConfidenceThreshold(2.0),
    FactorThreshold(0.0),
    FrechetProfile(),
]


@pytest.mark.parametrize("pick", [*COLD, EntropyBound(0.0), Klass(), WideInNarrowOut(0.9, 0.0)], ids=repr)
def test_ties_go_to_the_lowest_index(pick: Pick) -> None:
    """Of equally likely tokens the first is written, and of equally good places the leftmost."""
    fixed = torch.tensor([[True, False, False, False, False], [False, False, True, False, False]])
    canvas = Canvas(torch.full((2, 5), 1).masked_fill(~fixed, VOCAB.masked), fixed)
    canvases = list(Unmask(None, pick)(Undecided(0, 1.0), MASKED, canvas, rng=rng(0, 2)))
    for before, after in pairwise(canvases):
        hidden, new = before.z == VOCAB.masked, (before.z == VOCAB.masked) & (after.z != VOCAB.masked)
        first = hidden.cumsum(-1) <= new.sum(-1, keepdim=True)
        assert torch.equal(new, hidden & first)
    assert set(canvases[-1].z[~fixed].tolist()) == {0}
