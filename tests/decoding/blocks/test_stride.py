"""Strides: text of any length through a window, exact where the language remembers no more than the window keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from redraft.core import Canvas, Context, Interpolating, Masked, Prediction, Rng, Vocab, rng
from redraft.decoding import Ancestral, Blocks, Confidence, FirstHitting, Sampler, SlidingWindow, Unmask, final_canvas
from redraft.evaluation.laws import tokens
from redraft.models import BlockCausal, Causal, DiffusionLM

Build = Callable[..., DiffusionLM]
Ragged = Callable[[int, int, int], Canvas]
Promises = Callable[[Sampler, DiffusionLM, Canvas, Rng], Canvas]
RowsAlone = Callable[[Sampler, DiffusionLM], None]
CHANCE = 1e-4
INNER = [Ancestral(3), FirstHitting(), Unmask(2), Unmask(3, Confidence(1.0)), Blocks(Unmask(2), decode_block=2)]
SHAPES = [(4, 2), (4, 4), (3, 1), (20, 5)]


def blank(rows: int, length: int) -> Canvas:
    return Canvas(torch.zeros(rows, length, dtype=torch.int64), torch.zeros(rows, length, dtype=torch.bool))


@pytest.mark.parametrize("inner", INNER, ids=repr)
@pytest.mark.parametrize(("window", "stride"), SHAPES)
def test_promises(
    build: Build, ragged: Ragged, assert_promises: Promises, inner: Sampler, window: int, stride: int
) -> None:
    assert_promises(SlidingWindow(inner, window, stride), build(), ragged(6, 9, 2), rng(0, 6))


def test_a_row_is_written_as_it_would_be_alone(build: Build, assert_rows_alone: RowsAlone) -> None:
    assert_rows_alone(SlidingWindow(Ancestral(3), window=4, stride=2), build())


class Seen:
    """A denoiser that remembers what it was shown."""

    def __init__(self, model: DiffusionLM) -> None:
        self.model, self.block, self.absorb = model, model.block, model.absorb
        self.shown: list[Tensor] = []

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        self.shown.append(z)
        return self.model.predict(z, t, context)


def test_the_network_sees_windows_of_what_is_written(build: Build) -> None:
    """Eleven tokens, windows of five, strides of two: they begin at 0, 2, 4, 6, and all but the first have a prompt."""
    seen = Seen(build())
    canvases = list(
        SlidingWindow(FirstHitting(), window=5, stride=2)(seen, seen.model.process, blank(1, 11), rng=rng(0))
    )
    text = canvases[-1].z[0]
    assert [z.shape[1] for z in seen.shown] == [5] * 11, "one call per token"
    firsts = [0, 5, 7, 9]
    for lo, first in zip((2, 4, 6), firsts[1:], strict=True):
        assert seen.shown[first][0, :3].tolist() == text[lo : lo + 3].tolist()
        assert (seen.shown[first][0, 3:] == 6).all()
    for before, after in pairwise(canvases):
        kept = before.z != 6
        assert torch.equal(after.z[kept], before.z[kept]), "what is written stays"


def test_a_short_text_is_one_window(build: Build) -> None:
    model, keys = build(), rng(3, 4)
    whole = final_canvas(SlidingWindow(Ancestral(4), window=8, stride=4)(model, model.process, blank(4, 6), rng=keys)).z
    assert torch.equal(whole, final_canvas(Ancestral(4)(model, model.process, blank(4, 6), rng=keys.fold(0))).z)


def test_prompts_longer_than_the_window(build: Build) -> None:
    model = build()
    canvas = blank(2, 12)
    canvas = replace(canvas, fixed=torch.arange(12).expand(2, 12) < 9)
    seen = Seen(model)
    end = final_canvas(SlidingWindow(Ancestral(2), window=4, stride=2)(seen, model.process, canvas, rng=rng(0, 2)))
    assert (end.z[:, :9] == 0).all()
    assert (end.z[:, 9:] != 6).all()
    assert seen.shown[0].shape[1] == 4, "nothing is asked of windows that are given"


def test_stop_ends_a_row(build: Build) -> None:
    model = build(process=Masked(Vocab(7, mask=6, eos=2)))
    end = final_canvas(
        SlidingWindow(Ancestral(3), 4, 2, stop=True)(model, model.process, blank(50, 12), rng=rng(0, 50))
    ).z
    for row in end.tolist():
        first = row.index(2) if 2 in row else len(row)
        assert set(row[first:]) <= {2}
    assert sum(2 in row for row in end.tolist()) > 25


# --- a language with a short memory ---


def chain(length: int) -> Tensor:
    """(2^length,) the law of a stationary chain of two words."""
    start, step = torch.tensor([0.6, 0.4]).double(), torch.tensor([[0.8, 0.2], [0.3, 0.7]]).double()
    words = torch.tensor(list(product(range(2), repeat=length)))
    p = start[words[:, 0]]
    for i in range(length - 1):
        p = p * step[words[:, i], words[:, i + 1]]
    return p


@pytest.mark.parametrize(
    ("process", "sampler"),
    [
        (Masked(Vocab(3, mask=2)), Ancestral(64)),
        (Interpolating(Vocab(3, mask=2)), Ancestral(64)),
    ],
    ids=repr,
)
def test_a_chain_of_seven_through_windows_of_three(process: Masked | Interpolating, sampler: Sampler) -> None:
    """A word depends on the one before it: windows that keep one word lose nothing, those that keep none do."""
    toy = tokens.ToyLanguage(torch.tensor(list(product(range(2), repeat=3))), chain(3))
    oracle, keys = tokens.Oracle(toy, process), rng(0, 4000)
    p_values = []
    for stride in (2, 3):
        z = final_canvas(
            SlidingWindow(sampler, 3, stride)(oracle, process, blank(4000, 7 if stride == 2 else 6), rng=keys)
        ).z
        number = (z * 2 ** torch.arange(z.shape[1] - 1, -1, -1)).sum(-1)
        p_values.append(tokens.chi_square(number, chain(z.shape[1])))
    assert p_values[0] > CHANCE
    assert p_values[1] < CHANCE


@pytest.mark.parametrize("pattern", [BlockCausal(2), Causal(6)], ids=repr)
def test_networks_of_blocks_write_through_windows_too(
    build: Build, ragged: Ragged, assert_promises: Promises, pattern: BlockCausal | Causal
) -> None:
    """A window is a row of its own whose first tokens are given: what `Blocks` writes there."""
    model, inner = build(pattern), Blocks(Ancestral(2))
    assert_promises(SlidingWindow(inner, 4, 2), model, ragged(6, 9, 2), rng(0, 6))
    z = final_canvas(SlidingWindow(inner, 4, 2)(model, model.process, blank(5, 8), rng=rng(1, 5))).z
    for lo in (0, 2, 4):
        held = torch.arange(4) < (0 if lo == 0 else 2)
        given = Canvas(torch.where(held, z[:, lo : lo + 4], 0), held.expand(5, 4).clone())
        assert final_canvas(inner(model, model.process, given, rng=rng(1, 5).fold(lo))).z.equal(z[:, lo : lo + 4])


def test_errors(build: Build) -> None:
    for window, stride in ((4, 5), (4, 0)):
        with pytest.raises(ValueError, match="the stride must be at least 1 and at most the window"):
            SlidingWindow(Ancestral(1), window, stride)
    for pattern in (BlockCausal(2), Causal(6)):
        model = build(pattern)
        with pytest.raises(ValueError, match=r"one block after another; use Blocks\(sampler\), or SlidingWindow"):
            final_canvas(SlidingWindow()(model, model.process, blank(1, 3), rng=rng(0)))
