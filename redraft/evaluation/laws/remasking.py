"""Laws of remasking: at any rate, marginals and the joint distribution are unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from redraft.core.processes.remasking import CappedRate, Remask
from redraft.core.randomness import rng
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.evaluation.laws.enumeration import (
    _DRAWS,
    Oracle,
    ToyLanguage,
    _enumerated_bound,
    _reverse_marginal_law,
    _reverse_step,
    _uneven_prediction,
)
from redraft.evaluation.laws.law import P_MIN, Law, _law_at_least, _law_equal
from redraft.evaluation.laws.sampling import _sampling_p_value


def _remask_laws(process: Remask, toy: ToyLanguage) -> Iterator[Law]:
    """Check that remasking keeps the marginals, bound and joint distribution of its base process.

    With several steps the bound is looser, and the joint is reached more slowly.
    """
    base, oracle = process.process, Oracle(toy, process.process)
    yield _reverse_marginal_law(process, 0.4, 0.7)
    rate_zero, x = replace(process, rate=CappedRate(0.0)), _uneven_prediction(base.vocab.size)
    noisy = base.noise(toy.sequences, torch.full((len(toy.p), 1), 0.7), rng=rng(1, len(toy.p))).z.view(1, -1)
    actual, expected = (_reverse_step(p, noisy, x, 0.4, 0.7) for p in (rate_zero, base))
    yield _law_equal(process, "rate zero: step of the base process", float((actual != expected).sum()), 0, 0)
    one_step, eight_steps = ({p: _enumerated_bound(p, oracle, steps=n) for p in (process, base)} for n in (1, 8))
    yield _law_equal(process, "one step: bound of the base process", one_step[process], one_step[base], 1e-6)
    yield _law_at_least(process, "8 steps: at least the base bound", eight_steps[process], eight_steps[base])
    p = _sampling_p_value(process, oracle, Ancestral(steps=256), rng(8, _DRAWS // 8))
    yield _law_at_least(process, "remasking reproduces the joint", p, P_MIN)
