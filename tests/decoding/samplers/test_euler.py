"""Euler steps: where they are the ancestral ones, and that they reach the joint."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from redraft.core import (
    Canvas,
    Cosine,
    Geometric,
    HybridNoise,
    Interpolating,
    Linear,
    Markov,
    Masked,
    Rng,
    Schedule,
    Vocab,
    rng,
)
from redraft.decoding import Euler, final_canvas
from redraft.evaluation.laws import tokens
from redraft.evaluation.laws.sampling import _sampling_p_value
from redraft.models import DiffusionLM, Subs

Build = Callable[..., DiffusionLM]
CHANCE = 1e-4


@pytest.mark.parametrize(
    "process",
    [
        Masked(tokens.VOCAB),
        Masked(tokens.VOCAB, Cosine()),
        Interpolating(tokens.VOCAB, Geometric(1e-4, 20.0)),
        Interpolating(tokens.VOCAB),
    ],
    ids=tokens._process_name,
)
def test_many_steps_reproduce_the_joint(process: Masked | Interpolating) -> None:
    oracle = tokens.Oracle(tokens.ToyLanguage.of(), process)
    assert _sampling_p_value(process, oracle, Euler(96), rng(2, 2000)) > CHANCE


@pytest.mark.parametrize("schedule", [Linear(), Cosine()], ids=repr)
def test_rates_of_the_moment(schedule: Schedule) -> None:
    """A mask stays with probability 1 − Δt·rate, which is that of the ancestral step if the schedule is linear."""
    process, rows, steps = Masked(tokens.VOCAB, schedule), 4000, 5
    oracle = tokens.Oracle(tokens.ToyLanguage.of(), process)
    blank = torch.zeros(rows, tokens._LENGTH, dtype=torch.int64)
    canvas = Canvas(blank, torch.zeros_like(blank, dtype=torch.bool))
    expected, ancestral = 1.0, 0.0
    for i, step in enumerate(Euler(steps)(oracle, process, canvas, rng=rng(0, rows))):
        masked = float((step.z == tokens.VOCAB.mask).double().mean())
        assert masked == pytest.approx(expected, abs=4 * 0.5 / (rows * tokens._LENGTH) ** 0.5)
        late, early = (torch.tensor(1 - n / steps, dtype=torch.float64) for n in (i, i + 1))
        ancestral = max(ancestral, abs(expected - float(1 - schedule.keep(late))))
        if i < steps:
            share = schedule.rate(late) / steps if i < steps - 1 else schedule.share(early, late)
            expected *= 1 - float(share)
    assert (ancestral < 1e-9) == (schedule == Linear())


def test_promises(
    build: Build, ragged: Callable[[int, int, int], Canvas], assert_promises: Callable[..., Canvas], vocab: Vocab
) -> None:
    for process, head in (
        (Masked(vocab, Linear(1e-3)), Subs()),
        (Interpolating(vocab, Geometric(1e-4, 20.0)), Subs(carry_over=False)),
    ):
        assert_promises(Euler(6), build(process=process, head=head), ragged(4, 8, 1), rng(0, 4))


def test_errors(build: Build, vocab: Vocab) -> None:
    z = torch.zeros(1, 3, dtype=torch.int64)
    canvas, keys, model = Canvas(z, torch.zeros_like(z, dtype=torch.bool)), rng(0), build()
    with pytest.raises(ValueError, match="Markov noise has no limiting distribution"):
        _run(Euler(3), model, Markov(vocab), canvas, keys)
    with pytest.raises(ValueError, match="has no fixed limiting distribution"):
        _run(Euler(3), model, Interpolating(vocab, mixing=HybridNoise(0.1)), canvas, keys)
    with pytest.raises(ValueError, match="at least one step"):
        Euler(0)


def _run(sampler: Euler, model: DiffusionLM, process: Markov | Interpolating, canvas: Canvas, keys: Rng) -> None:
    final_canvas(sampler(model, process, canvas, rng=keys))
