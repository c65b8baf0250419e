"""The laws: every process and sampler against exact enumeration on a toy language.

The toy has three words and sequences of three, with an arbitrary joint distribution; its best denoiser is known by
enumeration (`Oracle`), so that bounds must equal the entropy and samplers must reproduce the joint. Texts of varying
length and vectors have toys of their own. `redraft check` runs all laws on the built-in processes, or on those of a
user's file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from redraft.laws import sentences as check_insertion
from redraft.laws.row import P_MIN, Row, at_least, chi_square, equal, integral
from redraft.laws.tokens import DRAWS, _improper
from redraft.ops import rng
from redraft.processes import (
    Insertion,
    Masked,
)
from redraft.samplers import Ancestral, Entropy, Sampler, Unmask
from redraft.types import Context, Noised


def insertion_laws(process: Insertion) -> Iterator[Row]:
    toy = check_insertion.Sentences.of()
    yield from _lost_and_found(process)
    yield from _growing_bound(process, check_insertion.Oracle(toy, process))
    samplers: dict[str, tuple[Sampler, bool]] = {
        "tau-leaping reproduces lengths and words": (Ancestral(steps=64), False),
        "tau-leaping by counts reproduces them": (Ancestral(steps=64), True),
        "so does revealing the surest first": (Unmask(64, Entropy(temperature=1.0)), False),
    }
    for law, (sampler, counted) in samplers.items():
        oracle = check_insertion.Oracle(toy, process, counted)
        yield at_least(process, law, _sentence_p(oracle, sampler), P_MIN)
    yield from _all_at_once(process, toy)


def _lost_and_found(process: Insertion) -> Iterator[Row]:
    """Tokens are missing, masked and clean as the tables say, and the gaps tell how many are missing."""
    times, word = (0.15, 0.5, 0.9), torch.zeros(1, DRAWS, dtype=torch.int64)
    tables = [process.marginal(t) for t in times] + [process.transition(0.15, 0.5), process.transition(0.5, 0.9)]
    yield equal(process, "tables are distributions", max(_improper(table) for table in tables), 0, 1e-9)
    composed = process.marginal(0.15)[: check_insertion.WORDS] @ process.transition(0.15, 0.5)
    gap = float((composed - process.marginal(0.5)[: check_insertion.WORDS]).abs().max())
    yield equal(process, "marginals compose", gap, 0, 1e-9)
    draws = [process.noise(word, torch.full((1, 1), t), rng=rng(2)) for t in (0.0, *times, 1.0)]
    clean, *between, noise = [_states(process, drawn) for drawn in draws]
    yield equal(process, "time zero is clean", float((clean == 0).sum()), DRAWS, 0)
    yield equal(process, "the prior is reached", float((noise == process.vocab.size).sum()), DRAWS, 0)
    worst = min(chi_square(z, process.marginal(t)[0]) for z, t in zip(between, times, strict=True))
    yield at_least(process, "draws match marginals", worst, P_MIN)


def _states(process: Insertion, noised: Noised) -> Tensor:
    """(n,) what became of each token of a row: its id in z, V if it is missing; as the gaps tell."""
    assert noised.pad is not None
    assert noised.gaps is not None
    return torch.cat([noised.z[~noised.pad], torch.full((int(noised.gaps.sum()),), process.vocab.size)])


def _growing_bound(process: Insertion, oracle: check_insertion.Oracle) -> Iterator[Row]:
    H, worse = oracle.toy.entropy, replace(oracle, blur=0.3)
    exact = integral(lambda t: check_insertion.expected(oracle, t))
    yield equal(process, "bound = entropy, length included", exact, H, 1e-3)
    more = integral(lambda t: check_insertion.expected(worse, t))
    yield at_least(process, "bound rises for a worse denoiser", float(more), H + 0.01)


def _all_at_once(process: Insertion, toy: check_insertion.Sentences) -> Iterator[Row]:
    """All tokens inserted in one moment: mask noise on a text whose length is drawn first."""
    process = replace(process, insert_schedule=check_insertion.AtOnce())
    ways, oracle = check_insertion.Ways.of(toy, process), check_insertion.Oracle(toy, process, counted=True, blur=0.3)
    there, masked = (ways.states != check_insertion.MISSING).all(-1), Masked(process.vocab, process.unmask_schedule)
    worst = 0.0
    for t in (0.2, 0.7):
        noised = Noised(*(a[there] for a in ways.at(t) if a is not None))
        pred = oracle(noised.z, noised.t, Context(pad=noised.pad))
        gap = process.nelbo(pred, noised).sum(-1) - masked.nelbo(pred, noised).sum(-1)
        worst = max(worst, float(gap.abs().max()))
    yield equal(process, "all at once: the bound of mask noise", worst, 0, 1e-6)
    p = _sentence_p(replace(oracle, blur=0.0), Ancestral(steps=64))
    yield at_least(process, "all at once: sampling reproduces the joint", p, P_MIN)


def _sentence_p(oracle: check_insertion.Oracle, sampler: Sampler) -> float:
    """The p-value of sampled sentences; what is no sentence has probability zero."""
    p = torch.cat([oracle.toy.p, torch.zeros(1, dtype=torch.float64)])
    return chi_square(check_insertion.written(oracle, sampler, rng(7, DRAWS)), p)
