"""Holes of several tokens filled by an adapted model: the best of all fillings by both of its ways to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
import torch

import redraft
from redraft.core import Context
from redraft.models import DiffusionLM, LoraConfig, Shift
from redraft.models.causal_base import causal_base
from redraft.tasks.infilling import infilling, span_search
from redraft.tasks.infilling.span_search import _SpanSearch
from tests.tasks.test_boundaries import PIECES, model_of, toy

TEXTS = range(len(PIECES))  # ids of the tokens that are text


@pytest.fixture(scope="module")
def adapted() -> DiffusionLM:
    model = model_of(DiffusionLM, lora=LoraConfig(2))
    model = DiffusionLM(replace(model.config, head=Shift()), toy()).eval()
    with torch.no_grad():  # a new adapter changes nothing, and new weights say little
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)
    return model


def ids(text: str) -> list[int]:
    return toy().encode(text)


@torch.no_grad()
def log_p(model: DiffusionLM, row: Sequence[int], begin: int) -> float:
    """log p of the tokens from `begin` on, by one pass of the causal model."""
    states, _ = causal_base(model).network.extend(torch.tensor([list(row)]))
    logits = causal_base(model).network.logits(states[0]).double().log_softmax(-1)
    return sum(float(logits[i - 1, row[i]]) for i in range(begin, len(row)))


@torch.no_grad()
def log_q(model: DiffusionLM, left: Sequence[int], filling: Sequence[int], right: Sequence[int]) -> float:
    mask = model.process.vocab.masked
    z = torch.tensor([[*left, *[mask] * len(filling), *right]])
    t = torch.where(z == mask, (z == mask).double().mean(), 0.0)
    said = model.predict(z, t, Context()).at(z == mask)
    return sum(float(said[i, token]) for i, token in enumerate(filling))


def scores(
    model: DiffusionLM, left: list[int], right: list[int], size: int, weight: float
) -> dict[tuple[int, ...], float]:
    """Of every filling that begins with a space."""
    return {
        filling: log_p(model, [*left, *filling, *right], len(left)) + weight * log_q(model, left, filling, right)
        for filling in product(TEXTS, repeat=size)
        if toy().decode(filling).startswith(" ")
    }


def test_the_best_of_all_fillings(adapted: DiffusionLM, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = ids("<s>b")[-1:] + ids("ab."), ids(" b. a")
    search = _SpanSearch(adapted, left, right, lambda text: text.startswith(" "), " ")
    expected = scores(adapted, left, right, 2, 0.5)
    best = max(expected, key=expected.__getitem__)
    kept = search.best([2])
    assert kept[0].ids == best
    assert 1 < len(kept) <= 16
    for filling in kept:
        assert filling.score == pytest.approx(expected[filling.ids], abs=1e-4)
    # with stages that keep everything, all fillings of both lengths are compared by the causal model alone
    monkeypatch.setattr(span_search, "_STAGES", ((10_000, 1), (10_000, 16)))
    monkeypatch.setattr(span_search, "_BEAM", 10_000)
    both = scores(adapted, left, right, 1, 0.0) | scores(adapted, left, right, 2, 0.0)
    found = {filling.ids: filling.score for filling in search.best([1, 2])}
    assert found == pytest.approx(both, abs=1e-4)


def test_single_holes_between_texts_are_searched(adapted: DiffusionLM, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = list[list[int]]()
    best = _SpanSearch.best

    def recorded(search: _SpanSearch, sizes: Sequence[int]) -> object:
        lengths.append([*sizes])
        return best(search, sizes)

    monkeypatch.setattr(_SpanSearch, "best", recorded)
    (text,) = redraft.infill(adapted, "b [[2]] b.")
    assert text.text == f"b {text.fills[0]} b."
    assert text.fills[0].strip()
    assert lengths == [[2]]
    searched = {
        "b [[1-3]] b.": [[1, 2, 3]],
        "[[2]] b.": [[2]],  # after the start token
        "b [[1]] b.": [],
        "b [[2]]": [],
        "b [[2]] b [[2]] b.": [],
    }
    for template, expected in searched.items():
        lengths.clear()
        redraft.infill(adapted, template)
        assert lengths == expected, template
    redraft.infill(adapted, "b [[2]] b.", top_k=3)  # a setting of the sampler that this replaces
    assert lengths == []
    redraft.infill(adapted, f"b [[1-{infilling._MOST_SPANS + 1}]] b.")  # too many: one length is chosen first
    assert all(len(sizes) == 1 for sizes in lengths)
