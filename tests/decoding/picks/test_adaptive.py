"""Adaptive picks: as many tokens as the rule allows, always some, and the ends at which they are other decoders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from redraft.core import Canvas, Context, Insertion, Masked, Pick, Prediction, Rng, TablePrediction, Vocab, rng
from redraft.decoding import (
    SAMPLER_NAMES,
    Blocks,
    Confidence,
    ConfidenceThreshold,
    CriticPick,
    Entropy,
    EntropyBound,
    FactorThreshold,
    FrechetProfile,
    Klass,
    LeftToRight,
    Sampler,
    TimePace,
    Unmask,
    WideInNarrowOut,
    final_canvas,
    named_sampler,
)
from redraft.models import DiffusionLM, Full, TransformerConfig, from_json, to_json

Build = Callable[..., DiffusionLM]
Ragged = Callable[[int, int, int], Canvas]
Promises = Callable[[Sampler, DiffusionLM, Canvas, Rng], Canvas]
RowsAlone = Callable[[Sampler, DiffusionLM], None]
MASK = 6
ADAPTIVE: list[Pick] = [
    *(ConfidenceThreshold(0.3), FrechetProfile(-0.5), EntropyBound(2.0), Klass(0.2, 0.5, 1), WideInNarrowOut(0.2, 0.4)),
    *(
        ConfidenceThreshold(0.5, 1.0),
        EntropyBound(1.0, 0.7),
        Klass(temperature=1.0),
        WideInNarrowOut(0.3, 0.9, rounds=2),
    ),
]
every_pick = pytest.mark.parametrize("pick", ADAPTIVE, ids=repr)


@pytest.fixture(scope="module")
def placed(build: Build, tiny: TransformerConfig) -> DiffusionLM:
    """With learned positions no two masks look the same."""
    return build(Full(), replace(tiny, rotary=None, positions=16))


def hidden(canvas: Canvas) -> Tensor:
    """(B,) how many tokens are masked."""
    return ((canvas.z == MASK) & ~canvas.fixed).sum(-1)


# --- what all of them promise ---


@given(seed=st.integers(0, 10**6), steps=st.sampled_from([None, 1, 3, 8]), pick=st.sampled_from(ADAPTIVE))
def test_promises(
    build: Build, ragged: Ragged, assert_promises: Promises, seed: int, steps: int | None, pick: Pick
) -> None:
    assert_promises(Unmask(steps, pick), build(), ragged(4, 8, seed), rng(seed, 4))


@every_pick
def test_a_row_is_written_as_if_alone(placed: DiffusionLM, assert_rows_alone: RowsAlone, pick: Pick) -> None:
    assert_rows_alone(Unmask(None, pick), placed)
    assert_rows_alone(Unmask(4, pick), placed)


@every_pick
@pytest.mark.parametrize("steps", [None, 3, 5])
def test_every_step_makes_progress_and_the_last_one_ends_it(
    placed: DiffusionLM, ragged: Ragged, pick: Pick, steps: int | None
) -> None:
    canvases = list(Unmask(steps, pick)(placed, placed.process, ragged(20, 9, 3), rng=rng(0, 20)))
    assert steps is None or len(canvases) <= steps + 1
    assert int(hidden(canvases[-1]).sum()) == 0
    assert all(int(hidden(canvas).sum()) > 0 for canvas in canvases[:-1]), "nothing is done after the end"
    if not isinstance(pick, WideInNarrowOut):
        for before, after in pairwise(canvases):
            assert ((hidden(after) < hidden(before)) | (hidden(before) == 0)).all()


@every_pick
def test_blocks_take_them(placed: DiffusionLM, ragged: Ragged, assert_promises: Promises, pick: Pick) -> None:
    assert_promises(Blocks(Unmask(None, pick), decode_block=3), placed, ragged(5, 9, 4), rng(0, 5))


@every_pick
def test_a_config_remembers_them(pick: Pick) -> None:
    assert from_json(to_json(Unmask(None, pick, TimePace(), stop=True))) == Unmask(None, pick, TimePace(), stop=True)


# --- the ends ---


def same(model: DiffusionLM, canvas: Canvas, one: Sampler, other: Sampler) -> bool:
    """Whether two samplers write the same, step by step."""
    rows = len(canvas.z)
    each = (list(sampler(model, model.process, canvas, rng=rng(1, rows))) for sampler in (one, other))
    return all(torch.equal(a.z, b.z) for a, b in zip(*each, strict=True))


@pytest.mark.parametrize(
    "pick", [ConfidenceThreshold(1.01), FrechetProfile(1.0), Klass(divergence=0.0), WideInNarrowOut(2.0, 0.0)], ids=repr
)
def test_an_impossible_rule_is_greedy_one_by_one(placed: DiffusionLM, ragged: Ragged, pick: Pick) -> None:
    canvas = ragged(30, 9, 5)
    assert same(placed, canvas, Unmask(None, pick), Unmask(9, Confidence()))
    assert same(placed, canvas, Unmask(None, pick), Unmask(None, Confidence()))


@pytest.mark.parametrize("pick", [ConfidenceThreshold(0.0), EntropyBound(float("inf"))], ids=repr)
def test_a_rule_that_allows_all_is_one_step(placed: DiffusionLM, ragged: Ragged, pick: Pick) -> None:
    assert len(list(Unmask(None, pick)(placed, placed.process, ragged(5, 9, 0), rng=rng(0, 5)))) == 2


def test_entropy_without_a_bound_is_one_by_one(placed: DiffusionLM, ragged: Ragged) -> None:
    assert same(placed, ragged(30, 9, 6), Unmask(None, EntropyBound(0.0)), Unmask(None, Entropy()))


def test_nothing_taken_back_is_the_threshold(placed: DiffusionLM, ragged: Ragged) -> None:
    canvas = ragged(30, 9, 7)
    for draft in (0.2, 0.35, 0.6):
        assert same(placed, canvas, Unmask(None, WideInNarrowOut(draft, 0.0)), Unmask(None, ConfidenceThreshold(draft)))
        assert same(
            placed, canvas, Unmask(None, WideInNarrowOut(draft, rounds=0)), Unmask(None, ConfidenceThreshold(draft))
        )


@pytest.mark.parametrize("history", [1, 2, 4])
def test_calm_needs_its_history(history: int) -> None:
    """What never changes is calm, and all of it is written as soon as it was so for long enough."""
    pick = Klass(threshold=0.0, divergence=1.0, history=history)
    left = [int(hidden(c)) for c in Unmask(None, pick)(Says(torch.rand(1, 9, 7)), PROCESS, blank(1, 9), rng=rng(0))]
    assert left == [*range(9, 8 - history, -1), 0]


# --- the rules, by definition ---


@dataclass(frozen=True)
class Says:
    """Always the same: weights (B, L, V), the mask's left out."""

    weights: Tensor
    block: int | None = None
    heard: list[Tensor] = field(default_factory=list)

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        self.heard.append(t)
        p = self.weights.double().index_fill(-1, torch.tensor([MASK]), 0)
        return TablePrediction((p / p.sum(-1, keepdim=True)).log())

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        raise NotImplementedError


PROCESS = Masked(Vocab(7, mask=MASK))


def blank(rows: int, length: int) -> Canvas:
    return Canvas(torch.zeros(rows, length, dtype=torch.int64), torch.zeros(rows, length, dtype=torch.bool))


def sharp(seed: int, length: int) -> Tensor:
    """(1, L, 7) weights of very different sharpness."""
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(1, length, 7, generator=g) * 6 * torch.rand(1, length, 1, generator=g)).exp()


def first(pick: Pick, said: Says, length: int) -> list[int]:
    """The positions that the first step reveals."""
    _, after, *_ = Unmask(None, pick)(said, PROCESS, blank(1, length), rng=rng(0))
    return (after.z[0] != MASK).nonzero().flatten().tolist()


@given(seed=st.integers(0, 10**6), length=st.integers(1, 12), level=st.floats(0, 1))
def test_the_rules_are_what_they_say(seed: int, length: int, level: float) -> None:
    said = Says(sharp(seed, length))
    p = said.predict(blank(1, length).z, torch.ones(1, 1), Context()).x[0].exp()
    c = [round(float(v) * 2**16) / 2**16 for v in p.amax(-1)]
    h = [round(float(v) * 2**16) / 2**16 for v in torch.special.entr(p).sum(-1)]
    surest, calmest = sorted(range(length), key=lambda i: -c[i]), sorted(range(length), key=lambda i: h[i])
    above = [i for i in surest if c[i] >= level]
    assert first(ConfidenceThreshold(level), said, length) == sorted(above or surest[:1])
    many = [n for n in range(1, length + 1) if sum(c[i] for i in surest[:n]) - (n - 1) - (1 - c[surest[n - 1]]) > 0]
    assert first(FrechetProfile(), said, length) == sorted(surest[: max(many, default=1)])
    many = [n for n in range(1, length + 1) if sum(h[i] for i in calmest[:n]) - h[calmest[n - 1]] <= level + 1e-12]
    assert first(EntropyBound(level), said, length) == sorted(calmest[: max(many)])


def test_equal_confidences_are_the_factor_rule() -> None:
    """Fréchet's profile takes n of equal confidence c as long as c > 1 − 1/(n + 1)."""
    for c in (0.4, 0.55, 0.7, 0.76, 0.81, 0.9, 0.95):
        weights = torch.tensor([c, 1 - c, 0, 0, 0, 0, 0]).expand(1, 12, 7)
        many = max([n for n in range(1, 13) if c > 1 - 1 / (n + 1)], default=1)
        assert len(first(FrechetProfile(), Says(weights), 12)) == many
        if c != 0.9:  # 1 − 1/10, which floats are not sure about
            assert len(first(FactorThreshold(), Says(weights), 12)) == many


def test_what_is_taken_back_was_unlikely_when_it_was_written() -> None:
    c = torch.tensor([0.95, 0.99, 0.7, 0.95, 0.97, 0.65, 0.98])
    rest = ((1 - c) / 5)[:, None].expand(7, 6).clone()
    rest[:, 0] = c
    said = Says(torch.cat([rest, torch.zeros(7, 1)], -1)[None])
    canvases = Unmask(None, WideInNarrowOut(0.6, 0.9))(said, PROCESS, blank(1, 7), rng=rng(0))
    masked = [(z.z[0] == MASK).nonzero().flatten().tolist() for z in canvases]
    assert masked == [[0, 1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6], [2, 5], [5], []]
    alone = Unmask(None, WideInNarrowOut(0.6, 0.9, neighbors=0))
    assert [int(hidden(z)) for z in alone(said, PROCESS, blank(1, 7), rng=rng(0))] == [7, 2, 1, 0]
    given = Canvas(torch.zeros(1, 7, dtype=torch.int64), torch.arange(7)[None] == 2)
    fixed = [int(hidden(z)) for z in alone(said, PROCESS, given, rng=rng(0))]
    assert fixed == [6, 1, 0], "what is given is never taken back"
    assert [int(hidden(z)) for z in Unmask(1, WideInNarrowOut(0.6, 0.9))(said, PROCESS, blank(1, 7), rng=rng(0))] == [
        7,
        0,
    ]


def test_the_network_sees_the_time_at_which_so_many_are_masked() -> None:
    """Also if the pick reveals more than it was asked for; rows have their own times."""
    said = Says(torch.ones(2, 6, 7))
    canvas = Canvas(torch.zeros(2, 6, dtype=torch.int64), torch.arange(6) >= torch.tensor([[6], [3]]))
    final_canvas(Unmask(None, LeftToRight())(said, PROCESS, canvas, rng=rng(0, 2)))
    times = torch.stack([t.amax(-1) for t in said.heard[:3]])
    assert torch.allclose(times, torch.tensor([[1, 1], [5 / 6, 2 / 3], [4 / 6, 1 / 3]], dtype=torch.float64))


# --- the end token ---


def ends_at(token: int) -> Masked:
    return Masked(Vocab(7, mask=MASK, eos=token))


@pytest.mark.parametrize("pick", [Confidence(1.0), LeftToRight(1.0), ConfidenceThreshold(0.4, 1.0)], ids=repr)
def test_the_text_up_to_the_end_token_is_the_same_without_the_rest(
    placed: DiffusionLM, ragged: Ragged, pick: Pick
) -> None:
    canvas, end = ragged(60, 9, 8), 2
    canvas = replace(canvas, fixed=canvas.context.pad)  # no given token behind an end
    whole, less = (
        [*Unmask(None, pick, stop=stop)(placed, ends_at(end), canvas, rng=rng(2, 60))] for stop in (False, True)
    )
    assert len(less) <= len(whole)
    cut = 0
    for a, b, pad in zip(whole[-1].z, less[-1].z, canvas.context.pad, strict=True):
        ends = ((a == end) & ~pad).nonzero().flatten().tolist()
        upto = ends[0] + 1 if ends else len(a)
        assert a[:upto].tolist() == b[:upto].tolist()
        assert b[upto:][~pad[upto:]].tolist() == [end] * int((~pad[upto:]).sum())
        cut += upto < int((~pad).sum())
    assert cut > 5, "the test has cases"


def test_rows_that_have_ended_cost_nothing() -> None:
    said = Says(torch.tensor([0.0, 0.0, 1.0, 0, 0, 0, 0]).expand(1, 8, 7))
    final_canvas(Unmask(None, LeftToRight(), stop=True)(said, ends_at(2), blank(1, 8), rng=rng(0)))
    assert len(said.heard) == 1


# --- paces ---


@given(tokens=st.integers(0, 40), steps=st.integers(1, 45), nearest=st.booleans(), end=st.sampled_from(["0", "0.001"]))
def test_the_pace_of_time(tokens: int, steps: int, nearest: bool, end: str) -> None:
    """Dream's number: ⌊masked·(1 − s/t)⌋, and all that is left in the last step."""
    canvas = Canvas(torch.zeros(1, tokens + 1, dtype=torch.int64), torch.arange(tokens + 1)[None] == tokens)
    sampler = Unmask(steps, LeftToRight(), TimePace(float(end), nearest))
    left = [int(hidden(c)) for c in sampler(Says(torch.ones(1, tokens + 1, 7)), PROCESS, canvas, rng=rng(0))]
    expected = [tokens]
    times = [1 - (1 - Fraction(end)) * k / steps for k in range(steps + 1)]
    for i, (t, s) in enumerate(pairwise(times)):
        if expected[-1] == 0:
            break
        exact = expected[-1] * (1 - s / t)
        many = round(exact) if nearest else int(exact)
        expected.append(0 if i == steps - 1 else expected[-1] - many)
    assert left == expected


def test_a_step_that_reveals_nothing_asks_nothing() -> None:
    asked = []

    class Counting(TablePrediction):
        def at(self, where: Tensor) -> Tensor:
            asked.append(int(where.sum()))
            return super().at(where)

    class Source(Says):
        def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
            return Counting(super().predict(z, t, context).x)

    final_canvas(Unmask(6, Confidence(), TimePace())(Source(torch.ones(1, 3, 7)), PROCESS, blank(1, 3), rng=rng(0)))
    assert asked == [3, 2], "two of six steps reveal anything"


# --- a critic ---


@dataclass(frozen=True)
class Dislikes:
    """A critic that finds a token the worse the larger it is."""

    def error_logits(self, x: Tensor, context: Context) -> Tensor:
        return x.float()


@dataclass(frozen=True)
class Fickle:
    """A critic that judges by the whole text, in no way that makes sense."""

    def error_logits(self, x: Tensor, context: Context) -> Tensor:
        return (x.cumsum(-1).flip(-1) * 7919 + torch.arange(x.shape[1]) * 31) % 17 / 17


def test_a_critic_decides() -> None:
    weights = torch.nn.functional.one_hot(torch.tensor([[3, 0, 5, 1, 4]]), 7)
    canvases = list(Unmask(None, CriticPick(Dislikes()))(Says(weights), PROCESS, blank(1, 5), rng=rng(0)))
    order = [int((a.z != b.z).nonzero()[0, 1]) for a, b in pairwise(canvases)]
    assert order == [1, 3, 0, 4, 2]


def test_a_critic_may_change_its_mind(placed: DiffusionLM, ragged: Ragged, assert_promises: Promises) -> None:
    """With `remask` the number of tokens grows as without, but which ones they are is decided anew."""
    canvas = ragged(20, 9, 9)
    sampler = Unmask(4, CriticPick(Fickle(), remask=True))
    assert_promises(sampler, placed, canvas, rng(0, 20))
    canvases = list(sampler(placed, placed.process, canvas, rng=rng(0, 20)))
    plain = list(Unmask(4, CriticPick(Fickle()))(placed, placed.process, canvas, rng=rng(0, 20)))
    assert [hidden(c).tolist() for c in canvases] == [hidden(c).tolist() for c in plain]
    again = [((a.z != MASK) & (b.z == MASK)).sum() for a, b in pairwise(canvases)]
    assert sum(map(int, again)) > 0, "some token was masked again"


# --- names and errors ---


@pytest.mark.parametrize("name", SAMPLER_NAMES)
def test_every_name_writes(placed: DiffusionLM, ragged: Ragged, assert_promises: Promises, name: str) -> None:
    assert_promises(named_sampler(name), placed, ragged(3, 8, 1), rng(0, 3))


def test_errors(build: Build) -> None:
    for wrong in (
        lambda: ConfidenceThreshold(float("nan")),
        lambda: FrechetProfile(2.0),
        lambda: EntropyBound(-1.0),
        lambda: Klass(history=0),
        lambda: WideInNarrowOut(neighbors=-1),
        lambda: WideInNarrowOut(temperature=-1.0),
        lambda: TimePace(2.0),
        lambda: LeftToRight(float("inf")),
    ):
        with pytest.raises(ValueError, match=r"must be|use 0 for the most likely token"):
            wrong()
    grows = Insertion(Vocab(7, mask=MASK, pad=0))
    canvas = replace(blank(1, 2), open=torch.ones(1, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="insertion needs a number of steps"):
        list(Unmask(None)(build(), grows, canvas, rng=rng(0)))
