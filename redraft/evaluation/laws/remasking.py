"""Laws of remasking: whatever the rate, marginals and joint stay."""

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
    _enumerated_bound,
    _kept_marginals,
    _reverse_step,
    _ToyLanguage,
    _uneven_guess,
)
from redraft.evaluation.laws.law import _P_MIN, Law, _law_at_least, _law_equal
from redraft.evaluation.laws.sampling import sampling_p_value


def _remask_laws(process: Remask, toy: _ToyLanguage) -> Iterator[Law]:
    """Whatever the rate: marginals stay, a chain's bound is a bound, and the joint is reached, if more slowly."""
    base, oracle = process.process, Oracle(toy, process.process)
    yield _kept_marginals(process, 0.4, 0.7)
    still, guess = replace(process, rate=CappedRate(0.0)), _uneven_guess(base.vocab.size)
    noisy = base.noise(toy.sequences, torch.full((len(toy.p), 1), 0.7), rng=rng(1, len(toy.p))).z.view(1, -1)
    ours, theirs = (_reverse_step(p, noisy, guess, 0.4, 0.7) for p in (still, base))
    yield _law_equal(process, "rate zero: the step of the process", float((ours != theirs).sum()), 0, 0)
    one, more = ({p: _enumerated_bound(p, oracle, steps=n) for p in (process, base)} for n in (1, 8))
    yield _law_equal(process, "one step: the bound of the process", one[process], one[base], 1e-6)
    yield _law_at_least(process, "more steps: no less than its bound", more[process], more[base])
    p = sampling_p_value(process, oracle, Ancestral(steps=256), rng(8, _DRAWS // 8))
    yield _law_at_least(process, "remasking reproduces the joint", p, _P_MIN)
