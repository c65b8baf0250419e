"""Filters: one order, held to a plain reading of it; what is dropped is never written, and something always stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from redraft.core import Canvas, CharTokenizer, Context, Masked, Prediction, TablePrediction, Vocab, rng
from redraft.decoding import (
    Ancestral,
    Blocks,
    Confidence,
    Constrained,
    FirstHitting,
    GuidedSampler,
    LogitFilter,
    Regex,
    Sampler,
    Unmask,
    constrain,
    final_canvas,
    named_sampler,
)
from redraft.models import BlockCausal, DiffusionLM, Full, Score

Build = Callable[..., DiffusionLM]
RowsAlone = Callable[[Sampler, DiffusionLM], None]
MASK = 6
PROCESS = Masked(Vocab(7, mask=MASK))


@dataclass(frozen=True)
class Says:
    """The same weights (V,) everywhere, whatever it sees."""

    p: tuple[float, ...]
    block: int | None = None

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        p = torch.tensor(self.p, dtype=torch.float64)
        return TablePrediction((p / p.sum()).log().expand(*z.shape, len(p)))

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return context


def by_hand(p: list[float], z: list[int], f: LogitFilter) -> list[float]:
    """The documented order, token by token."""

    def normal(q: dict[int, float]) -> dict[int, float]:
        return {k: v / sum(q.values()) for k, v in q.items()}

    q = normal({k: v for k, v in enumerate(p) if v > 0})
    q = normal({k: v ** (f.repetition if k in z else 1) for k, v in q.items()})
    q = normal({k: v ** (1 / f.temperature) for k, v in q.items()})
    order = sorted(q, key=lambda k: (-q[k], k))
    q = normal({k: q[k] for k in order[: f.top_k]})
    order, total, kept = sorted(q, key=lambda k: (-q[k], k)), 0.0, []
    for k in order:
        if total >= f.top_p and kept:
            break
        kept.append(k)
        total += q[k]
    q = normal({k: q[k] for k in kept})
    q = normal({k: v for k, v in q.items() if v >= f.min_p * max(q.values())})
    return [q.get(k, 0.0) for k in range(len(p))]


@given(
    seed=st.integers(0, 10**6),
    repetition=st.sampled_from([0.8, 1.0, 1.7]),
    temperature=st.sampled_from([0.4, 1.0, 2.5]),
    top_k=st.sampled_from([None, 1, 2, 4, 50]),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.1, 0.6]),
)
def test_the_order_is_the_documented_one(
    seed: int, repetition: float, temperature: float, top_k: int | None, top_p: float, min_p: float
) -> None:
    g = torch.Generator().manual_seed(seed)
    p = [*torch.rand(6, generator=g, dtype=torch.float64).pow(3).tolist(), 0.0]
    z, pad = torch.randint(0, 7, (1, 5), generator=g), torch.tensor([[False, False, True, False, False]])
    chosen = LogitFilter(repetition, temperature, top_k, top_p, min_p)
    said = chosen(Says(tuple(p))).predict(z, torch.ones(1, 1), Context(pad=pad)).x[0, 0].exp()
    assert said.tolist() == pytest.approx(by_hand(p, z[~pad].tolist(), chosen), abs=1e-9)


def test_orders_differ() -> None:
    """Temperature before top-p is not top-p before temperature: the order matters and is a promise."""
    z, t = torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1)
    for temperature, left in ((4.0, 2), (0.2, 1)):
        chosen = LogitFilter(temperature=temperature, top_p=0.6)(Says((0.5, 0.3, 0.2, 0.0)))
        assert int((chosen.predict(z, t, Context()).x > -torch.inf).sum()) == left


def test_of_equals_the_first_stay() -> None:
    even = (1.0, 1.0, 1.0, 1.0, 0.0)
    for f, left in (
        (LogitFilter(top_k=2), [0, 1]),
        (LogitFilter(top_p=0.5), [0, 1]),
        (LogitFilter(min_p=1.0), [0, 1, 2, 3]),
    ):
        said = f(Says(even)).predict(torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1), Context()).x[0, 0]
        assert (said > -torch.inf).nonzero().flatten().tolist() == left


def test_no_filter_costs_nothing() -> None:
    said = Says((0.5, 0.5))
    assert LogitFilter()(said) is said


@pytest.mark.parametrize(
    "sampler", [Ancestral(6), FirstHitting(), Unmask(3, Confidence(1.0)), named_sampler("any-order")]
)
def test_what_is_dropped_is_never_written(sampler: Sampler) -> None:
    canvas = Canvas(torch.zeros(30, 8, dtype=torch.int64), torch.zeros(30, 8, dtype=torch.bool))
    said = Says((0.3, 0.25, 0.2, 0.15, 0.07, 0.03, 0.0))
    z = final_canvas(GuidedSampler(sampler, LogitFilter(top_k=3))(said, PROCESS, canvas, rng=rng(0, 30))).z
    assert set(z.flatten().tolist()) == {0, 1, 2}


def test_confidence_is_the_filtered_probability() -> None:
    """As Dream has it; the temperature of a pick leaves confidence alone, as LLaDA has it."""
    canvas = Canvas(torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, 1, dtype=torch.bool))
    said = Says((0.5, 0.3, 0.2, 0.0, 0.0, 0.0, 0.0))
    filtered = final_canvas(GuidedSampler(Unmask(1), LogitFilter(top_k=2))(said, PROCESS, canvas, rng=rng(0)))
    plain = final_canvas(Unmask(1, Confidence(1e-3))(said, PROCESS, canvas, rng=rng(0)))
    assert filtered.confidence is not None
    assert plain.confidence is not None
    assert float(filtered.confidence) == pytest.approx(0.625)
    assert float(plain.confidence) == pytest.approx(0.5)


def test_a_row_is_filtered_as_if_alone(build: Build, assert_rows_alone: RowsAlone) -> None:
    chosen = LogitFilter(repetition=1.5, temperature=0.8, top_k=4, top_p=0.9, min_p=0.05)
    assert_rows_alone(GuidedSampler(Unmask(4, Confidence(1.0)), chosen), build(Full()))


@pytest.mark.parametrize("repetition", [1.0, 3.0])
def test_a_cache_remembers_what_was_said(build: Build, repetition: float) -> None:
    """With blocks the window is all that a filter sees: its cache knows the rest."""
    model, chosen = build(BlockCausal(3)), LogitFilter(repetition=repetition, top_p=0.9)
    canvas = Canvas(torch.zeros(20, 12, dtype=torch.int64), torch.arange(12).expand(20, 12) < 4)
    cached, whole = (
        final_canvas(
            GuidedSampler(Blocks(Ancestral(4), cache=cache), chosen)(model, model.process, canvas, rng=rng(0, 20))
        ).z
        for cache in (True, False)
    )
    assert torch.equal(cached, whole)


def test_repetition_makes_texts_of_more_words() -> None:
    said, canvas = (
        Says((1.0,) * 6 + (0.0,)),
        Canvas(torch.zeros(50, 6, dtype=torch.int64), torch.zeros(50, 6, dtype=torch.bool)),
    )
    kinds = [
        sum(
            len(set(row))
            for row in final_canvas(GuidedSampler(FirstHitting(), f)(said, PROCESS, canvas, rng=rng(0, 50))).z.tolist()
        )
        for f in (LogitFilter(), LogitFilter(repetition=5.0))
    ]
    assert kinds[1] > kinds[0] * 1.2


def test_errors(build: Build) -> None:
    for wrong in (
        {"repetition": 0.0},
        {"temperature": 0.0},
        {"top_k": 0},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"min_p": 2.0},
    ):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))}=.*; it must be"):
            LogitFilter(**wrong)  # type: ignore[arg-type]
    free = build(head=Score())
    with pytest.raises(ValueError, match="predicts unnormalized ratios"):
        LogitFilter(top_k=2)(free).predict(torch.full((1, 3), MASK), torch.ones(1, 3), Context())


def test_a_rule_gets_what_a_filter_would_drop() -> None:
    letters = CharTokenizer("ab", ("eos", "mask"))
    blank = Canvas(torch.full((20, 5), letters.vocab.masked), torch.zeros(20, 5, dtype=torch.bool))
    canvas = constrain(blank, Regex("(ab)+a?"), letters)
    process = Masked(letters.vocab)
    denoise = Constrained(process)(LogitFilter(top_k=1)(Says((0.9, 0.06, 0.04, 0.0))))
    texts = final_canvas(Unmask(3, Confidence(1.0))(denoise, process, canvas, rng=rng(0, 20))).z
    assert set(texts[:, :2].flatten().tolist()) == {0, 1}
    assert texts[:, 0].tolist() == [0] * 20
    assert texts[:, 1].tolist() == [1] * 20
