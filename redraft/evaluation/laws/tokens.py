"""The laws of token processes, checked by exact enumeration on a toy language.

The language has sequences of three out of three words, with an arbitrary joint distribution. Its best denoiser is known
by enumeration (`Oracle`), so bounds must equal the entropy and samplers must reproduce the joint.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from redraft.core.batch import NoisySample
from redraft.core.canvas import Canvas
from redraft.core.prediction import TablePrediction
from redraft.core.processes import sedd
from redraft.core.processes.base import TokenProcess
from redraft.core.processes.interpolating import HybridNoise, Interpolating, MaskNoise, UniformNoise
from redraft.core.processes.markov import AbsorbingRates, BandedRates, Markov
from redraft.core.processes.masked import Masked
from redraft.core.processes.remasking import Remask, RescaledRate, StarRate
from redraft.core.randomness import rng
from redraft.core.schedules.base import Schedule
from redraft.core.schedules.tokens import Cosine, CosineSquared, Linear, Polynomial
from redraft.core.vocab import Vocab
from redraft.evaluation.laws.enumeration import (
    _DRAWS,
    _LENGTH,
    _WORDS,
    VOCAB,
    Oracle,
    ToyLanguage,
    _bound_terms,
    _enumerated_bound,
    _frequencies,
    _integrated_bound,
    _reverse_marginal_law,
    _reverse_step,
    _uneven_prediction,
)
from redraft.evaluation.laws.law import (
    P_MIN,
    Law,
    _distribution_error,
    _law_at_least,
    _law_equal,
    _process_name,
    chi_square,
)
from redraft.evaluation.laws.remasking import _remask_laws
from redraft.evaluation.laws.sampling import _sampling_laws


def _laws(process: TokenProcess) -> Iterator[Law]:
    """Check all laws of token processes on one process."""
    toy = ToyLanguage.of()
    if isinstance(process, Remask):
        yield from _remask_laws(process, toy)
        return
    yield from _forward_laws(process)
    yield from _reverse_laws(process)
    yield from _bound_laws(process, toy)
    yield from _closed_form_laws(process, toy)
    yield from _block_laws(process, toy)
    yield from _sampling_laws(process, toy)
    if isinstance(process, Masked) or (isinstance(process, Interpolating) and process.mixing == UniformNoise()):
        yield from _score_laws(process)


def _built_in() -> list[TokenProcess]:
    return [
        Masked(VOCAB),
        Masked(VOCAB, Cosine()),
        Interpolating(Vocab(_WORDS), mixing=UniformNoise()),
        # this schedule makes steps small at the ends, where the integrand of hybrid noise behaves like a square root
        Interpolating(VOCAB, CosineSquared(), HybridNoise(0.2)),
        Markov(VOCAB, AbsorbingRates()),
        Markov(VOCAB, BandedRates(0.8)),
        Remask(Masked(VOCAB), RescaledRate(0.3)),
        Remask(Masked(VOCAB), StarRate()),
        Remask(Interpolating(Vocab(_WORDS)), StarRate()),
    ]


def _forward_laws(process: TokenProcess) -> Iterator[Law]:
    """Check marginals, transitions and prior."""
    times = (0.15, 0.5, 0.9)
    tables = [process.marginal(t) for t in times] + [process.transition(s, t) for s, t in ((0.15, 0.5), (0.5, 0.9))]
    yield _law_equal(process, "tables are distributions", max(_distribution_error(table) for table in tables), 0, 1e-9)
    error = max(
        float((process.marginal(s) @ process.transition(s, t) - process.marginal(t)).abs().max())
        for s, t in ((0.15, 0.5), (0.5, 0.9), (0.15, 0.9))
    )
    yield _law_equal(process, "marginals compose", error, 0, 1e-9)
    x = torch.arange(_WORDS)[:, None].repeat(1, _DRAWS)
    clean = process.noise(x, torch.zeros(_WORDS, 1), rng=rng(1, _WORDS)).z
    yield _law_equal(process, "time zero is clean", float((clean != x).double().mean()), 0, 0)
    worst = min(
        chi_square(process.noise(x, torch.full((_WORDS, 1), t), rng=rng(2, _WORDS)).z[w], process.marginal(t)[w])
        for t in times
        for w in range(_WORDS)
    )
    yield _law_at_least(process, "draws match marginals", worst, P_MIN)
    yield from _prior_law(process, x)


def _prior_law(process: TokenProcess, x: Tensor) -> Iterator[Law]:
    """Check that `prior_kl` is finite and equals KL(q_1(· | x) ‖ prior), computed from frequencies of prior draws."""
    blank = Canvas(torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool))
    prior = _frequencies(process.prior(blank, rng=rng(3, _WORDS)).z, process.vocab.size)
    measured = max(float(_kl(process.marginal(1.0)[w], prior)) for w in range(_WORDS))
    declared = float(process.prior_kl(x[:, :1]).max())
    ok = math.isfinite(measured) and math.isfinite(declared) and abs(measured - declared) < 1e-2
    yield Law("the prior is reached", _process_name(process), ok, measured, declared, "=", 1e-2)


def _reverse_laws(process: TokenProcess) -> Iterator[Law]:
    """Check `step` against Bayes' rule, computed from the tables."""
    s, t, V = 0.4, 0.7, process.vocab.size
    x = _uneven_prediction(V)
    worst = 1.0
    for z in range(V):
        p = process.transition(s, t)[:, z] * (x @ process.marginal(s))
        if p.sum() > 0:
            worst = min(worst, chi_square(_reverse_step(process, torch.full((1, _DRAWS), z), x, s, t), p))
    yield _law_at_least(process, "step is Bayes' rule", worst, P_MIN)
    yield _reverse_marginal_law(process, s, t)


def _bound_laws(process: TokenProcess, toy: ToyLanguage) -> Iterator[Law]:
    """Check the bound, in steps and in continuous time, for the best denoiser and a worse one."""
    H, oracle = toy.entropy, Oracle(toy, process)
    bounds = [_enumerated_bound(process, oracle, steps=n) for n in (1, 4, 16, 64, 256)]
    drops = [a - b for a, b in pairwise(bounds)]
    yield _law_at_least(process, "T-step bound falls with T", min(drops), 0.0)
    yield _law_equal(process, "T-step bound → entropy", bounds[-1], H, 1e-2)
    if process.continuous:
        yield _law_equal(process, "bound = entropy", _integrated_bound(process, oracle), H, 1e-3)
        worse = _integrated_bound(process, replace(oracle, blur=0.3))
        yield _law_at_least(process, "bound rises for a worse denoiser", float(worse), H + 0.01)
        for other in _with_schedules(process):
            bound = _integrated_bound(other, Oracle(toy, other, blur=0.3))
            bound = bound._replace(error=bound.error + worse.error)
            yield _law_equal(other, "bound does not depend on the schedule", bound, float(worse), 1e-3)


def _closed_form_laws(process: TokenProcess, toy: ToyLanguage) -> Iterator[Law]:
    """Check that processes equal to mask noise have its bound, for every sequence at every time."""
    general: Interpolating | Markov
    match process:
        case Interpolating(mixing=HybridNoise() as hybrid):
            law, general = "without uniform noise = mask noise", replace(process, mixing=replace(hybrid, p_u=0.0))
        case Markov(jumps=AbsorbingRates()) | Interpolating(mixing=MaskNoise()):
            law, general = "equals the closed form of mask noise", process
        case _:
            return
    masked, t = Masked(process.vocab, general.schedule), torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    oracle = Oracle(toy, masked, blur=0.3)
    errors = [_bound_terms(general, oracle, t, s) - _bound_terms(masked, oracle, t, s) for s in (None, 0 * t, t / 2)]
    yield _law_equal(general, law, float(torch.stack(errors).abs().max()), 0, 1e-5)


def _block_laws(process: TokenProcess, toy: ToyLanguage) -> Iterator[Law]:
    """Check the bound of denoisers that write in blocks."""
    for size in (1, 2, _LENGTH) if process.continuous else ():
        oracle = Oracle(toy, process, block=size)
        yield _law_equal(
            process, f"blocks of {size}: bound = entropy", _integrated_bound(process, oracle), toy.entropy, 1e-3
        )
    if isinstance(process, Masked):
        start, end = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        nll = _bound_terms(process, Oracle(toy, process, block=1), start, end)[0]
        error = float((nll + toy.p.log()).abs().max())
        yield _law_equal(process, "blocks of 1, one step = autoregressive likelihood", error, 0, 1e-6)


def _score_laws(process: Masked | Interpolating) -> Iterator[Law]:
    """Check SEDD's formulas: the score entropy of the ratios of x̂ is the bound, and Tweedie's step is Bayes' rule."""
    s, t, V, limit = 0.4, 0.7, process.vocab.size, process.limiting_distribution
    x, z = (a[None] for a in (process.marginal(t)[:_WORDS] > 0).nonzero(as_tuple=True))
    time_t, time_s = (torch.tensor([[u]], dtype=torch.float64) for u in (t, s))
    keep_t, keep_s = process.schedule.keep(time_t), process.schedule.keep(time_s)
    log_x = _uneven_prediction(V).log().expand(1, z.shape[1], V)
    ratios = sedd.score_ratios(log_x, z, keep_t, limit)
    entropy = -process.schedule.slope(time_t) / keep_t * sedd.score_entropy(ratios, z, x, -keep_t.log(), limit)
    error = (entropy - process.nelbo(TablePrediction(log_x), NoisySample(z, time_t, x))).abs().max()
    yield _law_equal(process, "score entropy = bound", float(error), 0, 1e-5)
    tweedie = sedd.clip_and_normalize(sedd.tweedie_probs(ratios, z, keep_s.log() - keep_t.log(), limit))
    bayes = sedd.clip_and_normalize(process.transition(s, t).T[z] * (_uneven_prediction(V) @ process.marginal(s)))
    yield _law_equal(process, "Tweedie's step is Bayes' rule", float((tweedie - bayes).abs().max()), 0, 1e-9)


def _kl(p: Tensor, q: Tensor) -> Tensor:
    """() KL(p ‖ q) of two (V,) distributions."""
    return torch.where(p > 0, p * (p.log() - q.log()), 0.0).sum()


def _with_schedules(process: TokenProcess) -> Iterator[TokenProcess]:
    """Yield the process with other schedules that reach 0 and 1, if it has a `schedule` field."""
    if is_dataclass(process) and any(f.name == "schedule" for f in fields(process)):
        schedules: list[Schedule] = [Linear(), Cosine(), CosineSquared(), Polynomial(2.0)]
        for schedule in schedules:
            if schedule != getattr(process, "schedule"):  # noqa: B009
                yield replace(process, schedule=schedule)
