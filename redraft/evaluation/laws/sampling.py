"""Laws of sampling: samplers reproduce the joint distribution (χ² tests)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from redraft.core.canvas import Canvas
from redraft.core.processes.base import TokenProcess
from redraft.core.processes.masked import Masked
from redraft.core.randomness import Rng, rng
from redraft.core.schedules.tokens import Linear
from redraft.decoding.blocks.blocks import Blocks
from redraft.decoding.picks.adaptive import EntropyBound
from redraft.decoding.picks.order import AnyOrder, LeftToRight, Margin
from redraft.decoding.samplers.ancestral import Ancestral, FirstHitting
from redraft.decoding.samplers.base import Sampler, final_canvas
from redraft.decoding.samplers.unmask import Unmask
from redraft.evaluation.laws.enumeration import (
    _DRAWS,
    _WORDS,
    Oracle,
    ToyLanguage,
)
from redraft.evaluation.laws.law import P_MIN, Law, _law_at_least, chi_square
from redraft.evaluation.laws.schedules import _every_schedule


def _sampling_laws(process: TokenProcess, toy: ToyLanguage) -> Iterator[Law]:
    """Check that exact samplers reproduce the joint distribution of the language."""
    samplers: dict[str, tuple[Sampler, int | None]] = {"ancestral sampling": (Ancestral(steps=128), None)}
    for size in (1, 2):
        samplers[f"blocks of {size}: sampling"] = (Blocks(Ancestral(steps=48)), size)
    if isinstance(process, Masked):
        samplers["first hitting"] = (FirstHitting(), None)
        samplers["autoregressive sampling"] = (Blocks(Ancestral(steps=1)), 1)
    for law, (sampler, block) in samplers.items():
        p = _sampling_p_value(process, Oracle(toy, process, block), sampler, rng(7, _DRAWS))
        yield _law_at_least(process, f"{law} reproduces the joint", p, P_MIN)
    if isinstance(process, Masked):
        yield from _order_laws(process, toy)


def _order_laws(process: Masked, toy: ToyLanguage) -> Iterator[Law]:
    """Check that revealing one token at a time, in any order, is exact for every schedule.

    The order may depend on the predictions, but not on the tokens that are drawn.
    """
    for pick in (LeftToRight(1.0), Margin(1.0), EntropyBound(0.0, 1.0)):
        p = _sampling_p_value(process, Oracle(toy, process), Unmask(None, pick), rng(7, _DRAWS // 4))
        yield _law_at_least(process, f"one at a time, {type(pick).__name__}: reproduces the joint", p, P_MIN)
    for schedule in _every_schedule() if process.schedule == Linear() else [process.schedule]:
        other = replace(process, schedule=schedule)
        p = _sampling_p_value(other, Oracle(toy, other), Unmask(toy.sequences.shape[1], AnyOrder()), rng(7, _DRAWS))
        yield _law_at_least(other, "one at a time, any order: reproduces the joint", p, P_MIN)


def _sampling_p_value(process: TokenProcess, oracle: Oracle, sampler: Sampler, keys: Rng) -> float:
    """Return the p-value of a χ² test of sampled sequences against the joint; 0 if a token is not a word."""
    length = oracle.toy.sequences.shape[1]
    z = final_canvas(sampler(oracle, process, _blank_canvas(len(keys.key), length), rng=keys)).z
    if bool((z >= _WORDS).any()):
        return 0.0
    index = (z * _WORDS ** torch.arange(length - 1, -1, -1)).sum(-1)
    return chi_square(index, oracle.toy.p)


def _blank_canvas(rows: int, length: int) -> Canvas:
    """Return a canvas of tokens on which nothing is given."""
    z = torch.zeros(rows, length, dtype=torch.int64)
    return Canvas(z, torch.zeros_like(z, dtype=torch.bool))
