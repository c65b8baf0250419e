"""Tokens come from `Prediction.draw` alone: whoever draws jointly is obeyed by every sampler."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from redraft.core import (
    Canvas,
    CappedRate,
    Context,
    Draw,
    Interpolating,
    Masked,
    Prediction,
    Process,
    Remask,
    Rng,
    TablePrediction,
    Vocab,
    rng,
)
from redraft.decoding import (
    Ancestral,
    AnyOrder,
    Blocks,
    Confidence,
    Entropy,
    FirstHitting,
    Margin,
    Sampler,
    Unmask,
    final_canvas,
)

VOCAB = Vocab(4, mask=3)
EVEN = torch.tensor([1 / 3, 1 / 3, 1 / 3, 0.0]).log()


@dataclass(frozen=True)
class Same(Draw):
    """One number for all positions of a row: their tokens are equal, each as likely as the others."""

    log_x: Tensor
    u: Tensor

    def tokens(self, kept: Tensor | None = None) -> Tensor:
        tokens = (self.u * 3).long()
        return tokens if kept is None else tokens[kept]


@dataclass(frozen=True)
class Alike(TablePrediction):
    """Says of each position that nothing is known, and draws a row of equal tokens, also if one stands there."""

    z: Tensor | None = None

    @property
    def joint(self) -> bool:
        return True

    def draw(self, where: Tensor, *, rng: Rng, temperature: float = 1.0) -> Draw:
        assert self.z is not None
        said = torch.where(self.z < 3, self.z, -1).amax(-1, keepdim=True)
        u = torch.where(said >= 0, (said + 0.5) / 3, rng.once())
        return Same(self.at(where), u.expand_as(where)[where])


@dataclass(frozen=True)
class Choir:
    """Agrees with a token that stands there already, unless it is deaf (noise that is no mask)."""

    deaf: bool = False
    block: int | None = None

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        return Alike(EVEN.expand(*z.shape, 4), z=torch.full_like(z, 3) if self.deaf else z)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return context


@dataclass(frozen=True)
class Says(Choir):
    """The same of every position."""

    p: tuple[float, ...] = ()

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        return TablePrediction(torch.tensor(self.p).log().expand(*z.shape, len(self.p)))


MASKED = Masked(VOCAB)
CASES: list[tuple[Sampler, Process]] = [
    (Ancestral(3), MASKED),
    (FirstHitting(), MASKED),
    (Ancestral(3), Remask(MASKED, CappedRate(0.2))),
    *((Unmask(2, pick), MASKED) for pick in (AnyOrder(), Confidence(), Confidence(1.0), Margin(0.5), Entropy())),
    (Blocks(Unmask(2), decode_block=3), MASKED),
    (Ancestral(1), Interpolating(VOCAB, direct=True)),
]


@pytest.mark.parametrize(("sampler", "process"), CASES, ids=repr)
def test_a_joint_draw_is_obeyed(sampler: Sampler, process: Process) -> None:
    canvas = Canvas(torch.zeros(40, 7, dtype=torch.int64), torch.zeros(40, 7, dtype=torch.bool))
    z = final_canvas(sampler(Choir(deaf=isinstance(process, Interpolating)), process, canvas, rng=rng(0, 40))).z
    assert torch.equal(z, z[:, :1].expand_as(z)), "the tokens of a row are equal"
    assert set(z[:, 0].tolist()) == {0, 1, 2}, "and rows differ"


@given(seed=st.integers(0, 10**6), temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]))
def test_what_is_dropped_changes_nothing(seed: int, temperature: float) -> None:
    g = torch.Generator().manual_seed(seed)
    pred, where = (
        TablePrediction(torch.randn(3, 6, 5, generator=g).log_softmax(-1)),
        torch.rand(3, 6, generator=g) < 0.7,
    )
    drawn = pred.draw(where, rng=rng(seed, 3), temperature=temperature)
    kept = torch.rand(int(where.sum()), generator=g) < 0.5
    assert torch.equal(drawn.tokens(kept), drawn.tokens()[kept])
    assert torch.equal(drawn.log_x, pred.at(where))
    fewer = where.masked_scatter(where, kept)
    assert torch.equal(pred.draw(fewer, rng=rng(seed, 3), temperature=temperature).tokens(), drawn.tokens(kept))


def test_the_likeliest_token_of_equals_is_the_first() -> None:
    drawn = TablePrediction(EVEN.expand(2, 5, 4)).draw(torch.ones(2, 5, dtype=torch.bool), rng=rng(0, 2), temperature=0)
    assert drawn.tokens().tolist() == [0] * 10


@pytest.mark.parametrize("sampler", [Unmask(2), Unmask(2, AnyOrder()), Ancestral(2), Blocks(Unmask(2), decode_block=3)])
def test_a_canvas_remembers_how_likely_its_tokens_were(sampler: Sampler) -> None:
    p = (0.5, 0.3, 0.2, 0.0)
    fixed = torch.arange(6).expand(4, 6) == 2
    canvas = Canvas(torch.zeros(4, 6, dtype=torch.int64), fixed)
    done = final_canvas(sampler(Says(p=p), MASKED, canvas, rng=rng(0, 4)))
    assert done.confidence is not None
    assert torch.allclose(done.confidence, torch.where(fixed, 0.0, torch.tensor(p)[done.z]))


def test_the_mask_token_is_never_written() -> None:
    canvas = Canvas(torch.zeros(1, 6, dtype=torch.int64), torch.zeros(1, 6, dtype=torch.bool))
    for sampler in (Unmask(2), Ancestral(2)):
        with pytest.raises(ValueError, match=r"the mask token is never written.*use the head Subs"):
            final_canvas(sampler(Says(p=(0.1, 0.1, 0.1, 0.7)), MASKED, canvas, rng=rng(0)))
