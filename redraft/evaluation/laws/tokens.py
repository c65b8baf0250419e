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
    DRAWS,
    LENGTH,
    VOCAB,
    WORDS,
    Oracle,
    ToyLanguage,
    _frequencies,
    bound_terms,
    enumerated_bound,
    integrated_bound,
    kept_marginals,
    reverse_step,
    uneven_guess,
)
from redraft.evaluation.laws.law import (
    P_MIN,
    Law,
    chi_square,
    distribution_error,
    law_at_least,
    law_equal,
    process_name,
)
from redraft.evaluation.laws.remasking import remask_laws
from redraft.evaluation.laws.sampling import sampling_laws


def laws(process: TokenProcess) -> Iterator[Law]:
    """All laws of tokens on one process."""
    toy = ToyLanguage.of()
    if isinstance(process, Remask):
        yield from remask_laws(process, toy)
        return
    yield from forward_laws(process)
    yield from reverse_laws(process)
    yield from bound_laws(process, toy)
    yield from closed_form_laws(process, toy)
    yield from block_laws(process, toy)
    yield from sampling_laws(process, toy)
    if isinstance(process, Masked) or (isinstance(process, Interpolating) and process.mixing == UniformNoise()):
        yield from score_laws(process)


def built_in() -> list[TokenProcess]:
    return [
        Masked(VOCAB),
        Masked(VOCAB, Cosine()),
        Interpolating(Vocab(WORDS), mixing=UniformNoise()),
        # equal steps of this schedule are those that suit the square-root ends of hybrid noise
        Interpolating(VOCAB, CosineSquared(), HybridNoise(0.2)),
        Markov(VOCAB, AbsorbingRates()),
        Markov(VOCAB, BandedRates(0.8)),
        Remask(Masked(VOCAB), RescaledRate(0.3)),
        Remask(Masked(VOCAB), StarRate()),
        Remask(Interpolating(Vocab(WORDS)), StarRate()),
    ]


def forward_laws(process: TokenProcess) -> Iterator[Law]:
    times = (0.15, 0.5, 0.9)
    tables = [process.marginal(t) for t in times] + [process.transition(s, t) for s, t in ((0.15, 0.5), (0.5, 0.9))]
    yield law_equal(process, "tables are distributions", max(distribution_error(table) for table in tables), 0, 1e-9)
    gap = max(
        float((process.marginal(s) @ process.transition(s, t) - process.marginal(t)).abs().max())
        for s, t in ((0.15, 0.5), (0.5, 0.9), (0.15, 0.9))
    )
    yield law_equal(process, "marginals compose", gap, 0, 1e-9)
    x = torch.arange(WORDS)[:, None].repeat(1, DRAWS)
    clean = process.noise(x, torch.zeros(WORDS, 1), rng=rng(1, WORDS)).z
    yield law_equal(process, "time zero is clean", float((clean != x).double().mean()), 0, 0)
    worst = min(
        chi_square(process.noise(x, torch.full((WORDS, 1), t), rng=rng(2, WORDS)).z[w], process.marginal(t)[w])
        for t in times
        for w in range(WORDS)
    )
    yield law_at_least(process, "draws match marginals", worst, P_MIN)
    yield from _reach(process, x)


def _reach(process: TokenProcess, x: Tensor) -> Iterator[Law]:
    """KL(q_1(· | x) ‖ prior), with the prior's frequencies counted, equals `prior_kl` and is finite."""
    blank = Canvas(torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool))
    prior = _frequencies(process.prior(blank, rng=rng(3, WORDS)).z, process.vocab.size)
    counted = max(float(_kl(process.marginal(1.0)[w], prior)) for w in range(WORDS))
    stated = float(process.prior_kl(x[:, :1]).max())
    agree = math.isfinite(counted) and math.isfinite(stated) and abs(counted - stated) < 1e-2
    yield Law("the prior is reached", process_name(process), agree, counted, stated, "=", 1e-2)


def reverse_laws(process: TokenProcess) -> Iterator[Law]:
    """`step` against Bayes' rule from the tables."""
    s, t, V = 0.4, 0.7, process.vocab.size
    guess = uneven_guess(V)
    worst = 1.0
    for z in range(V):
        p = process.transition(s, t)[:, z] * (guess @ process.marginal(s))
        if p.sum() > 0:
            worst = min(worst, chi_square(reverse_step(process, torch.full((1, DRAWS), z), guess, s, t), p))
    yield law_at_least(process, "step is Bayes' rule", worst, P_MIN)
    yield kept_marginals(process, s, t)


def bound_laws(process: TokenProcess, toy: ToyLanguage) -> Iterator[Law]:
    H, oracle = toy.entropy, Oracle(toy, process)
    chain = [enumerated_bound(process, oracle, steps=n) for n in (1, 4, 16, 64, 256)]
    drops = [a - b for a, b in pairwise(chain)]
    yield law_at_least(process, "T-step bound falls with T", min(drops), 0.0)
    yield law_equal(process, "T-step bound → entropy", chain[-1], H, 1e-2)
    if process.continuous:
        yield law_equal(process, "bound = entropy", integrated_bound(process, oracle), H, 1e-3)
        worse = integrated_bound(process, replace(oracle, blur=0.3))
        yield law_at_least(process, "bound rises for a worse denoiser", float(worse), H + 0.01)
        for other in _with_schedules(process):
            again = integrated_bound(other, Oracle(toy, other, blur=0.3))
            again = again._replace(error=again.error + worse.error)
            yield law_equal(other, "bound does not depend on the schedule", again, float(worse), 1e-3)


def closed_form_laws(process: TokenProcess, toy: ToyLanguage) -> Iterator[Law]:
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
        bound_terms(ours, oracle, time, s) - bound_terms(theirs, oracle, time, s) for s in (None, 0 * time, time / 2)
    ]
    yield law_equal(ours, law, float(torch.stack(gaps).abs().max()), 0, 1e-5)


def block_laws(process: TokenProcess, toy: ToyLanguage) -> Iterator[Law]:
    for size in (1, 2, LENGTH) if process.continuous else ():
        oracle = Oracle(toy, process, block=size)
        yield law_equal(
            process, f"blocks of {size}: bound = entropy", integrated_bound(process, oracle), toy.entropy, 1e-3
        )
    if isinstance(process, Masked):
        start, end = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        nll = bound_terms(process, Oracle(toy, process, block=1), start, end)[0]
        gap = float((nll + toy.p.log()).abs().max())
        yield law_equal(process, "blocks of 1, one step = autoregressive likelihood", gap, 0, 1e-6)


def score_laws(process: Masked | Interpolating) -> Iterator[Law]:
    """SEDD: the score entropy of the ratios of x̂ is the bound, and Tweedie's step is Bayes' rule."""
    s, t, V, limit = 0.4, 0.7, process.vocab.size, sedd.limiting_distribution(process)
    x, z = (a[None] for a in (process.marginal(t)[:WORDS] > 0).nonzero(as_tuple=True))
    late, early = (torch.tensor([[u]], dtype=torch.float64) for u in (t, s))
    kept, before = process.schedule.keep(late), process.schedule.keep(early)
    log_x = uneven_guess(V).log().expand(1, z.shape[1], V)
    ratios = sedd.score_ratios(log_x, z, kept, limit)
    entropy = -process.schedule.slope(late) / kept * sedd.score_entropy(ratios, z, x, -kept.log(), limit)
    gap = (entropy - process.nelbo(TablePrediction(log_x), NoisySample(z, late, x))).abs().max()
    yield law_equal(process, "score entropy = bound", float(gap), 0, 1e-5)
    tweedie = sedd.clip_and_normalize(sedd.tweedie_probs(ratios, z, before.log() - kept.log(), limit))
    bayes = sedd.clip_and_normalize(process.transition(s, t).T[z] * (uneven_guess(V) @ process.marginal(s)))
    yield law_equal(process, "Tweedie's step is Bayes' rule", float((tweedie - bayes).abs().max()), 0, 1e-9)


def _kl(p: Tensor, q: Tensor) -> Tensor:
    return torch.where(p > 0, p * (p.log() - q.log()), 0.0).sum()


def _with_schedules(process: TokenProcess) -> Iterator[TokenProcess]:
    """The same process with the other exact schedules, if it has a `schedule` to change."""
    if is_dataclass(process) and any(f.name == "schedule" for f in fields(process)):
        others: list[Schedule] = [Linear(), Cosine(), CosineSquared(), Polynomial(2.0)]
        for schedule in others:
            if schedule != getattr(process, "schedule"):  # noqa: B009
                yield replace(process, schedule=schedule)
