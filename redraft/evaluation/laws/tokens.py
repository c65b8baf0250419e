"""The laws of tokens: every process and sampler against exact enumeration on a toy language.

The toy has three words and sequences of three, with an arbitrary joint distribution; its best denoiser is known by
enumeration (`Oracle`), so bounds must equal the entropy and samplers must reproduce the joint.
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
    _bound_terms,
    _enumerated_bound,
    _frequencies,
    _integrated_bound,
    _kept_marginals,
    _reverse_step,
    _ToyLanguage,
    _uneven_guess,
)
from redraft.evaluation.laws.law import (
    _P_MIN,
    Law,
    _chi_square,
    _distribution_error,
    _law_at_least,
    _law_equal,
    _process_name,
)
from redraft.evaluation.laws.remasking import _remask_laws
from redraft.evaluation.laws.sampling import _sampling_laws


def _laws(process: TokenProcess) -> Iterator[Law]:
    """All laws of tokens on one process."""
    toy = _ToyLanguage.of()
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
        # equal steps of this schedule are those that suit the square-root ends of hybrid noise
        Interpolating(VOCAB, CosineSquared(), HybridNoise(0.2)),
        Markov(VOCAB, AbsorbingRates()),
        Markov(VOCAB, BandedRates(0.8)),
        Remask(Masked(VOCAB), RescaledRate(0.3)),
        Remask(Masked(VOCAB), StarRate()),
        Remask(Interpolating(Vocab(_WORDS)), StarRate()),
    ]


def _forward_laws(process: TokenProcess) -> Iterator[Law]:
    times = (0.15, 0.5, 0.9)
    tables = [process.marginal(t) for t in times] + [process.transition(s, t) for s, t in ((0.15, 0.5), (0.5, 0.9))]
    yield _law_equal(process, "tables are distributions", max(_distribution_error(table) for table in tables), 0, 1e-9)
    gap = max(
        float((process.marginal(s) @ process.transition(s, t) - process.marginal(t)).abs().max())
        for s, t in ((0.15, 0.5), (0.5, 0.9), (0.15, 0.9))
    )
    yield _law_equal(process, "marginals compose", gap, 0, 1e-9)
    x = torch.arange(_WORDS)[:, None].repeat(1, _DRAWS)
    clean = process.noise(x, torch.zeros(_WORDS, 1), rng=rng(1, _WORDS)).z
    yield _law_equal(process, "time zero is clean", float((clean != x).double().mean()), 0, 0)
    worst = min(
        _chi_square(process.noise(x, torch.full((_WORDS, 1), t), rng=rng(2, _WORDS)).z[w], process.marginal(t)[w])
        for t in times
        for w in range(_WORDS)
    )
    yield _law_at_least(process, "draws match marginals", worst, _P_MIN)
    yield from _reach(process, x)


def _reach(process: TokenProcess, x: Tensor) -> Iterator[Law]:
    """KL(q_1(· | x) ‖ prior), with the prior's frequencies counted, equals `prior_kl` and is finite."""
    blank = Canvas(torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool))
    prior = _frequencies(process.prior(blank, rng=rng(3, _WORDS)).z, process.vocab.size)
    counted = max(float(_kl(process.marginal(1.0)[w], prior)) for w in range(_WORDS))
    stated = float(process.prior_kl(x[:, :1]).max())
    agree = math.isfinite(counted) and math.isfinite(stated) and abs(counted - stated) < 1e-2
    yield Law("the prior is reached", _process_name(process), agree, counted, stated, "=", 1e-2)


def _reverse_laws(process: TokenProcess) -> Iterator[Law]:
    """`step` against Bayes' rule from the tables."""
    s, t, V = 0.4, 0.7, process.vocab.size
    guess = _uneven_guess(V)
    worst = 1.0
    for z in range(V):
        p = process.transition(s, t)[:, z] * (guess @ process.marginal(s))
        if p.sum() > 0:
            worst = min(worst, _chi_square(_reverse_step(process, torch.full((1, _DRAWS), z), guess, s, t), p))
    yield _law_at_least(process, "step is Bayes' rule", worst, _P_MIN)
    yield _kept_marginals(process, s, t)


def _bound_laws(process: TokenProcess, toy: _ToyLanguage) -> Iterator[Law]:
    H, oracle = toy.entropy, Oracle(toy, process)
    chain = [_enumerated_bound(process, oracle, steps=n) for n in (1, 4, 16, 64, 256)]
    drops = [a - b for a, b in pairwise(chain)]
    yield _law_at_least(process, "T-step bound falls with T", min(drops), 0.0)
    yield _law_equal(process, "T-step bound → entropy", chain[-1], H, 1e-2)
    if process.continuous:
        yield _law_equal(process, "bound = entropy", _integrated_bound(process, oracle), H, 1e-3)
        worse = _integrated_bound(process, replace(oracle, blur=0.3))
        yield _law_at_least(process, "bound rises for a worse denoiser", float(worse), H + 0.01)
        for other in _with_schedules(process):
            again = _integrated_bound(other, Oracle(toy, other, blur=0.3))
            again = again._replace(error=again.error + worse.error)
            yield _law_equal(other, "bound does not depend on the schedule", again, float(worse), 1e-3)


def _closed_form_laws(process: TokenProcess, toy: _ToyLanguage) -> Iterator[Law]:
    """If one process is another in disguise, every sequence has the same bound at every time."""
    ours: Interpolating | Markov
    match process:
        case Interpolating(mixing=HybridNoise() as hybrid):
            law, ours = "without uniform noise = mask noise", replace(process, mixing=replace(hybrid, p_u=0.0))
        case Markov(jumps=AbsorbingRates()) | Interpolating(mixing=MaskNoise()):
            law, ours = "equals the closed form of mask noise", process
        case _:
            return
    theirs, time = Masked(process.vocab, ours.schedule), torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    oracle = Oracle(toy, theirs, blur=0.3)
    gaps = [
        _bound_terms(ours, oracle, time, s) - _bound_terms(theirs, oracle, time, s) for s in (None, 0 * time, time / 2)
    ]
    yield _law_equal(ours, law, float(torch.stack(gaps).abs().max()), 0, 1e-5)


def _block_laws(process: TokenProcess, toy: _ToyLanguage) -> Iterator[Law]:
    for size in (1, 2, _LENGTH) if process.continuous else ():
        oracle = Oracle(toy, process, block=size)
        yield _law_equal(
            process, f"blocks of {size}: bound = entropy", _integrated_bound(process, oracle), toy.entropy, 1e-3
        )
    if isinstance(process, Masked):
        start, end = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        nll = _bound_terms(process, Oracle(toy, process, block=1), start, end)[0]
        gap = float((nll + toy.p.log()).abs().max())
        yield _law_equal(process, "blocks of 1, one step = autoregressive likelihood", gap, 0, 1e-6)


def _score_laws(process: Masked | Interpolating) -> Iterator[Law]:
    """SEDD: the score entropy of the ratios of x̂ is the bound, and Tweedie's step is Bayes' rule."""
    s, t, V, limit = 0.4, 0.7, process.vocab.size, sedd.limiting_distribution(process)
    x, z = (a[None] for a in (process.marginal(t)[:_WORDS] > 0).nonzero(as_tuple=True))
    late, early = (torch.tensor([[u]], dtype=torch.float64) for u in (t, s))
    kept, before = process.schedule.keep(late), process.schedule.keep(early)
    log_x = _uneven_guess(V).log().expand(1, z.shape[1], V)
    ratios = sedd.score_ratios(log_x, z, kept, limit)
    entropy = -process.schedule.slope(late) / kept * sedd.score_entropy(ratios, z, x, -kept.log(), limit)
    gap = (entropy - process.nelbo(TablePrediction(log_x), NoisySample(z, late, x))).abs().max()
    yield _law_equal(process, "score entropy = bound", float(gap), 0, 1e-5)
    tweedie = sedd.clip_and_normalize(sedd.tweedie_probs(ratios, z, before.log() - kept.log(), limit))
    bayes = sedd.clip_and_normalize(process.transition(s, t).T[z] * (_uneven_guess(V) @ process.marginal(s)))
    yield _law_equal(process, "Tweedie's step is Bayes' rule", float((tweedie - bayes).abs().max()), 0, 1e-9)


def _kl(p: Tensor, q: Tensor) -> Tensor:
    return torch.where(p > 0, p * (p.log() - q.log()), 0.0).sum()


def _with_schedules(process: TokenProcess) -> Iterator[TokenProcess]:
    """The same process with the other exact schedules, if it has a `schedule` to change."""
    if is_dataclass(process) and any(f.name == "schedule" for f in fields(process)):
        others: list[Schedule] = [Linear(), Cosine(), CosineSquared(), Polynomial(2.0)]
        for schedule in others:
            if schedule != getattr(process, "schedule"):  # noqa: B009
                yield replace(process, schedule=schedule)
