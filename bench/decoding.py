"""`python -m bench.decoding`: seconds per text against LLaDA's published decoder, and the overhead of the engine.

Both sides have the same trained weights in fp32 and run in turn, on one thread; seconds are CPU seconds, so other
programs do not count. The models are those of `bench.models`; models that are not found under --runs are trained first
and kept there. Rows go to bench/results/decoding.jsonl, from which `python -m bench.table` makes a table in
docs/results/bench.md. `python -m bench.picks` measures all picks, `python -m bench.blocks` the exact cache.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from bench.core import build
from bench.limit import machine
from bench.models import RUNS, VOCAB, trained, widened
from bench.race import Job, Row, compared, report, tell
from bench.reference import Reference, empty
from bench.texts import Quality, blank, by_reference, by_sampler, cpu_seconds, rounds, timed, timed_reference
from redraft.core import Canvas
from redraft.decoding import AnyOrder, Blocks, EntropyBound, Sampler, Unmask
from redraft.models import DiffusionLM
from redraft.tasks import TextModel, TextResults, profile_model, sample_canvases

RESULTS = Path(__file__).parent / "results" / "decoding.jsonl"
GOAL = 6.0  # times fewer seconds per text
QUALITY_GOAL = 0.02  # grammatical share, at most so much below the reference
OVERHEAD_GOAL, OVERHEAD_SHARE = 0.3, 0.08  # milliseconds per network call, or a share of it
BOUNDS = (0.05, 0.1, 0.2, 0.3, 0.5)  # of `EntropyBound`, which keeps the diversity of the model


# --- what the engine costs ---


def overhead(loaded: TextModel, tries: int = 7) -> Iterator[Row]:
    """What the engine adds to its network calls, the record included: the median of some texts."""
    for name, model, canvas, again in (
        ("2 × 128, 68 tokens", loaded.lm, blank(loaded, 1), tries),
        ("2 × 128, 68 tokens, batch 16", loaded.lm, blank(loaded, 16), tries),
        ("6 × 384, 256 tokens, vocabulary 8192", build(8192), empty(256), 1),
    ):
        for pick, sampler in (("any-order", Unmask(32, AnyOrder())), ("entropy-bound", Unmask(None, EntropyBound()))):
            sample_canvases(model, sampler, canvas)
            spent = sorted(_spent(model, sampler, canvas) for _ in range(again))
            known, engine, calls = spent[len(spent) // 2]
            allowed = max(OVERHEAD_GOAL, 1000 * OVERHEAD_SHARE * known / calls)
            name_of_row = f"engine overhead in ms per call, {pick}, {name}"
            more = {"share": engine / known, "calls": calls, "network_ms": 1000 * known / calls}
            yield report(name_of_row, round(allowed, 3), ratio=1000 * engine / calls, **more)


def _spent(model: DiffusionLM, sampler: Sampler, canvas: Canvas) -> tuple[float, float, int]:
    """CPU seconds of the network, those of all else, and how many calls there were."""
    with profile_model(model, time.process_time) as spent:
        whole = cpu_seconds(partial(sample_canvases, model, sampler, canvas))
    known = sum(part.seconds for part in spent.parts.values())
    return known, whole - known, spent.parts["network"].calls


# --- seconds per text, full attention ---


@dataclass(frozen=True)
class Contest:
    """A bidirectional model beside the autoregressive one of its size."""

    name: str
    ours: TextModel
    ar: TextModel
    goal: float | None

    @property
    def length(self) -> int:
        return int((~blank(self.ours, 1).fixed).sum())

    @property
    def exact(self) -> Sampler:
        """One token per step in any order, as the reference writes."""
        return Unmask(self.length, AnyOrder())

    @property
    def reference(self) -> Reference:
        return Reference(self.length, self.length)


def chosen(contest: Contest, least: float, texts: int) -> tuple[str, Sampler]:
    """The bound with the fewest calls whose texts are good enough; the lowest if none is."""
    for bound in sorted(BOUNDS, reverse=True):
        sampler = Unmask(None, EntropyBound(bound, 1.0), stop=True)
        if bound == min(BOUNDS) or by_sampler(contest.ours, sampler, texts)[0].share >= least:
            return f"entropy-bound(bound={bound})", sampler
    raise AssertionError("there is always a lowest bound")


@dataclass(frozen=True)
class Judged:
    """What the texts of both sides are worth; a larger vocabulary changes neither law, so this is measured once."""

    theirs: Quality
    quality: Quality
    record: TextResults
    ar: Row
    name: str
    sampler: Sampler
    texts: int

    @classmethod
    def of(cls, contest: Contest, texts: int) -> Judged:
        theirs = by_reference(contest.ours, contest.reference, texts)
        name, sampler = chosen(contest, theirs.share, texts)  # as good there, so that chance leaves room elsewhere
        quality, record = by_sampler(contest.ours, sampler, texts, seed=3)  # not the texts that it was chosen by
        beside, ar = by_sampler(contest.ar, contest.ar.sampler, texts)
        return cls(theirs, quality, record, beside.row | {"nfe": ar.nfe}, name, sampler, texts)

    @property
    def row(self) -> Row:
        return report(
            "its grammatical share below the reference's",
            QUALITY_GOAL,
            ratio=self.theirs.share - self.quality.share,
            stderr=math.hypot(self.theirs.error, self.quality.error),
            ours=self.quality.row,
            theirs=self.theirs.row,
            texts=self.texts,
        )


def full(contest: Contest, judged: Judged, pairs: int) -> Iterator[Row]:
    """As good as the reference at one token per step, in how much less time?"""
    times = rounds(_jobs(contest, judged.sampler), pairs)
    median = [sorted(t[i] for t in times)[len(times) // 2] for i in range(len(times[0]))]
    yield report(
        f"LLaDA's decoder / ours, {contest.name}, {contest.length} tokens, batch 1",
        contest.goal,
        at_most=False,
        ratio=1 / compared(times)["ratio"],
        ours_seconds=median[0],
        theirs_seconds=median[1],
        sampler=judged.name,
        nfe=judged.record.nfe,
        tokens_per_forward=judged.quality.tokens / judged.record.nfe,
        theirs_tokens_per_forward=judged.theirs.tokens / contest.length,
    )
    yield from _parts(median)
    yield report(
        f"autoregressive model with its cache / ours, {contest.name}, seconds per text, batch 1",
        None,
        ratio=median[4] / median[0],
        at_most=False,
        ours_seconds=median[0],
        theirs_seconds=median[4],
        ar=judged.ar,
    )


def _jobs(contest: Contest, sampler: Sampler) -> list[Job]:
    """Ours, the reference, the reference with fewer draws, ours with as many calls, the autoregressive model."""
    ours, reference = contest.ours, contest.reference
    return [
        timed(ours, sampler),
        timed_reference(ours, reference),
        timed_reference(ours, replace(reference, draws_everywhere=False)),
        timed(ours, contest.exact),
        timed(contest.ar, contest.ar.sampler),
    ]


def _parts(median: Sequence[float]) -> Iterator[Row]:
    """What the factor is made of; bidirectional models have no exact cache."""
    parts = {"draws at masked positions alone": (1, 2), "output layer there alone, our draws": (2, 3)}
    for what, (before, after) in (parts | {"fewer calls": (3, 0)}).items():
        yield report(f"of it: {what}", None, ratio=median[before] / median[after], at_most=False)


def throughput(contest: Contest, sampler: Sampler, rows: int = 16) -> Iterator[Row]:
    """The same for many texts at a time."""
    ours, ar = contest.ours, contest.ar
    jobs = [timed(ours, sampler, rows), timed_reference(ours, contest.reference, rows), timed(ar, ar.sampler, rows)]
    times = rounds(jobs, 4)
    for name, other in (("LLaDA's decoder", 1), ("autoregressive model", 2)):
        figures = compared(times, other)
        what = f"{name} / ours, {contest.name}, batch {rows}"
        yield report(what, None, ratio=1 / figures.pop("ratio"), at_most=False, **figures)


def same_calls(length: int = 256, steps: int = 64) -> Iterator[Row]:
    """Full attention, as many calls on both sides: what output layer and draws at masked positions alone save."""
    model, sampler, reference = build(8192), Unmask(steps, AnyOrder()), Reference(steps, length)
    canvas = empty(length)
    times = rounds([partial(sample_canvases, model, sampler, canvas), partial(reference, model, canvas, 0)], 1, warm=0)
    figures = compared(times)
    name = f"LLaDA's decoder / ours, as many calls, 6 × 384, vocabulary 8192, {length} tokens, batch 1"
    yield report(name, None, ratio=1 / figures.pop("ratio"), at_most=False, **figures)


def blocks(model: TextModel, texts: int) -> Iterator[Row]:
    """The trained block-causal model: quality with the exact cache and without it is the same, text by text."""
    sampler = Blocks(Unmask(None, EntropyBound(0.1, 1.0)), stop=True)
    same = [
        sample_canvases(model.lm, replace(sampler, cache=cache), blank(model, 16), seed=2).texts
        for cache in (True, False)
    ]
    quality, record = by_sampler(model, sampler, texts)
    more = {"nfe": record.nfe, "tokens_per_forward": quality.tokens / record.nfe} | quality.row
    equal = sum(a == b for a, b in zip(*same, strict=True)) / len(same[0])
    yield report("block-causal texts equal with the exact cache and without", 1.0, ratio=equal, at_most=False, **more)


def rows(runs: Path, texts: int, pairs: int) -> Iterator[Row]:
    yield machine("python -m bench.decoding") | {"precision": "fp32", "seconds": "CPU, one thread", "texts": texts}
    mdlm, ar, bd3 = (trained(name, runs) for name in ("mdlm_tiny", "ar_tiny", "bd3_tiny"))
    yield from overhead(mdlm)
    tiny = Contest("2 × 128, vocabulary 375", mdlm, ar, None)
    judged = Judged.of(tiny, texts)
    yield from full(tiny, judged, pairs)
    wide = Contest(f"2 × 128, vocabulary {VOCAB}", widened(mdlm), widened(ar), GOAL)
    yield from full(wide, judged, max(1, pairs // 2))
    yield judged.row
    yield from throughput(tiny, judged.sampler)
    yield from same_calls()
    yield from blocks(bd3, texts // 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=RUNS, help="directory of the trained models")
    parser.add_argument("--texts", type=int, default=1024, help="texts to score")
    parser.add_argument("--pairs", type=int, default=16, help="timed rounds")
    args = parser.parse_args()
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    sys.exit(tell(rows(args.runs, args.texts, args.pairs), RESULTS))


if __name__ == "__main__":
    main()
