"""`python -m bench.decoding`: seconds per text against LLaDA's published decoder, quality against tokens per forward.

Both sides have the same trained weights in fp32 and run in turn, on one thread; seconds are CPU seconds, so that other
work on the machine does not count. Weights are the presets' own training on the stories;
what is not found under --runs is trained first (about five minutes each on one core) and kept there. Rows go to
bench/results/decoding.jsonl, of which `python -m bench.table` makes a table in docs/bench.md.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.core import build
from bench.limit import machine
from bench.race import Job, Row, compared, report, tell
from redraft import presets
from redraft.evaluate import grammatical, unigram_entropy
from redraft.model import DiffusionLM
from redraft.networks import BlockCausal
from redraft.samplers import (
    Ancestral,
    AnyOrder,
    Blocks,
    Confidence,
    ConfidenceThreshold,
    Entropy,
    EntropyBound,
    FrechetProfile,
    Klass,
    LeftToRight,
    Margin,
    Revoke,
    Sampler,
    Unmask,
)
from redraft.types import Canvas
from redraft.write import Opened, Record, fill, opened, profiled

RESULTS = Path(__file__).parent / "results" / "decoding.jsonl"
FULL_GOAL, BLOCKS_GOAL = 6.0, 20.0  # times fewer seconds per text
QUALITY_GOAL = 0.02  # grammatical share, at most so much below the reference
OVERHEAD_GOAL = 0.3  # milliseconds per network call, or 8 %
BATCH = 64


# --- the published decoder ---


@dataclass(frozen=True)
class Reference:
    """LLaDA's `generate` (Nie et al. 2025): one pass over the canvas per step, all logits, float64 Gumbel noise.

    As published, but for one thing that makes it better: the mask itself is never drawn.
    """

    steps: int
    block: int
    temperature: float = 1.0
    by_confidence: bool = False  # "low_confidence"; else "random"
    draws_everywhere: bool = True  # as published; False: noise and softmax at masked positions alone

    def __call__(self, model: DiffusionLM, canvas: Canvas, seed: int) -> Tensor:
        *_, end = self.walk(model, canvas, seed)
        return end

    @torch.no_grad()
    def walk(self, model: DiffusionLM, canvas: Canvas, seed: int) -> Iterator[Tensor]:
        """The canvas after each step."""
        generator, mask = torch.Generator().manual_seed(seed), model.config.vocab.masked
        z = canvas.z.masked_fill(~canvas.fixed, mask)
        begin, length = int(canvas.fixed[0].sum()), z.shape[1]
        for lo in range(begin, length, self.block):
            hi = min(lo + self.block, length)
            steps = max(1, round(self.steps * (hi - lo) / (length - begin)))
            for count in _transfers(hi - lo, steps):
                z = self._step(model, z, hi, count, mask, generator)
                yield z

    def _step(
        self, model: DiffusionLM, z: Tensor, hi: int, count: int, mask: int, generator: torch.Generator
    ) -> Tensor:
        logits = model.network.logits(model.network(z))[..., : model.config.vocab.size]
        logits[..., mask] = -torch.inf
        hidden = z == mask
        said = logits if self.draws_everywhere else logits[hidden]
        drawn, sure = self._drawn(said, generator)
        if not self.draws_everywhere:
            drawn, sure = (torch.zeros(z.shape, dtype=a.dtype).masked_scatter(hidden, a) for a in (drawn, sure))
        sure[:, hi:] = -torch.inf
        sure = torch.where(hidden, sure, -torch.inf)
        written = z.clone()
        for row in range(len(z)):
            best = sure[row].topk(count).indices
            written[row, best] = drawn[row, best]
        return written

    def _drawn(self, logits: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Tokens by Gumbel's trick, exp(logit)/(−log u)^T, and how sure each is."""
        wide = logits.double()
        noise = (-torch.rand(wide.shape, dtype=torch.float64, generator=generator).log()) ** self.temperature
        drawn = (wide.exp() / noise).argmax(-1)
        if not self.by_confidence:
            return drawn, torch.rand(drawn.shape, dtype=torch.float64, generator=generator)
        return drawn, F.softmax(wide, -1).gather(-1, drawn[..., None]).squeeze(-1)


def _transfers(masked: int, steps: int) -> list[int]:
    """How many tokens each step writes: even, the remainder first."""
    return [masked // steps + (i < masked % steps) for i in range(min(steps, masked))]


# --- models ---


def trained(name: str, runs: Path) -> Opened:
    """A preset on the stories, trained as the preset says; what is there already is used."""
    from redraft.train import fit

    if not (runs / name).is_dir():
        print(f"training {name} into {runs / name}", file=sys.stderr)
        fit(getattr(presets, name)(), runs / name, quiet=True)
    return opened(runs / name)


def blank(it: Opened, rows: int) -> Canvas:
    """Room for whole stories."""
    assert it.run is not None
    given = it.model.config.vocab.bos is not None
    return it.model.canvas(new=it.run.framing.length - given, rows=rows)


@dataclass(frozen=True)
class Quality:
    """What texts are worth, and what they cost."""

    share: float  # grammatical
    error: float
    entropy: float  # of words within a text, nats
    diversity: float  # of the words of all texts
    tokens: float  # per text

    @classmethod
    def of(cls, texts: Sequence[str], tokens: float) -> Quality:
        share = grammatical(texts).share
        return cls(share, math.sqrt(share * (1 - share) / len(texts)), *unigram_entropy(texts), tokens)

    @property
    def row(self) -> Row:
        names = ("share", "error", "entropy", "diversity")
        return {f"{name if name != 'share' else 'grammatical'}": round(getattr(self, name), 4) for name in names}


def by_reference(it: Opened, reference: Reference, texts: int) -> Quality:
    """Quality of the reference's texts; a batch at a time, which does not change their law."""
    found: list[str] = []
    while len(found) < texts:
        canvas = blank(it, min(BATCH, texts - len(found)))
        found += it.model.text(replace(canvas, z=reference(it.model, canvas, seed=len(found))))
    return Quality.of(found, sum(len(it.tokenizer.encode(text)) for text in found) / len(found))


def by_sampler(it: Opened, sampler: Sampler, texts: int) -> tuple[Quality, Record]:
    record = fill(it.model, sampler, blank(it, texts), batch=BATCH, seed=1)
    return Quality.of(record.texts, record.new_tokens / texts), record


# --- quality against tokens per forward ---

STEPS = (8, 12, 17, 23, 34, 68)
CURVES: dict[str, list[tuple[str, Sampler]]] = {
    "ancestral": [(f"steps={n}", Ancestral(n)) for n in (16, 32, 64)],
    "any-order": [(f"steps={n}", Unmask(n, AnyOrder())) for n in STEPS],
    "left-to-right": [(f"steps={n}", Unmask(n, LeftToRight(1.0))) for n in STEPS],
    "confidence": [(f"steps={n}", Unmask(n, Confidence(1.0))) for n in STEPS],
    "margin": [(f"steps={n}", Unmask(n, Margin(1.0))) for n in STEPS],
    "entropy": [(f"steps={n}", Unmask(n, Entropy(1.0))) for n in STEPS],
    "threshold": [(f"threshold={c}", Unmask(None, ConfidenceThreshold(c, 1.0))) for c in (0.3, 0.5, 0.7, 0.9, 0.97)],
    "frechet": [(f"margin={m}", Unmask(None, FrechetProfile(m, 1.0))) for m in (-0.5, 0.0, 0.5)],
    "entropy-bound": [(f"bound={h}", Unmask(None, EntropyBound(h, 1.0))) for h in (0.02, 0.1, 0.3, 1.0, 2.0)],
    "klass": [(f"threshold={c}", Unmask(None, Klass(c, temperature=1.0))) for c in (0.5, 0.9)],
    "revoke": [(f"draft={c}", Unmask(None, Revoke(c, temperature=1.0))) for c in (0.3, 0.6)],
}


@dataclass(frozen=True)
class Point:
    """One setting of a sampler on the curve."""

    pick: str
    setting: str
    sampler: Sampler
    quality: Quality
    nfe: float

    @property
    def tokens_per_forward(self) -> float:
        """Words of the text alone: the end tokens behind it are not counted."""
        return self.quality.tokens / self.nfe

    @property
    def row(self) -> Row:
        cost = {"nfe": round(self.nfe, 2), "tokens_per_forward": round(self.tokens_per_forward, 3)}
        return {"curve": self.pick, "setting": self.setting} | cost | self.quality.row


def curve(it: Opened, texts: int) -> Iterator[Point]:
    for pick, settings in CURVES.items():
        for setting, sampler in settings:
            quality, record = by_sampler(it, sampler, texts)
            yield Point(pick, setting, sampler, quality, record.nfe)


def fastest(points: Sequence[Point], least: float, diverse: float) -> Point:
    """The setting with the fewest calls whose texts are as good and as diverse as those of the reference."""
    good = [p for p in points if p.quality.share >= least and p.quality.diversity >= diverse]
    if not good:
        raise SystemExit(f"no sampler writes {least:.1%} right stories; are the weights trained?")
    return min(good, key=lambda point: point.nfe)


# --- seconds per text ---


def cpu_seconds(job: Job) -> float:
    begin = time.process_time()
    job()
    return time.process_time() - begin


def rounds(jobs: Sequence[Job], count: int, warm: int = 1) -> list[tuple[float, ...]]:
    """The CPU seconds of each job, taken in turn, `count` times."""
    for job in [*jobs] * warm:
        job()
    return [tuple(map(cpu_seconds, jobs)) for _ in range(count)]


def timed(it: Opened, sampler: Sampler, rows: int = 1) -> Callable[[], Record]:
    """Each call writes other texts, from the canvas to the record."""
    seeds = iter(range(10**9))
    return lambda: fill(it.model, sampler, blank(it, rows), seed=next(seeds), batch=rows)


def timed_reference(it: Opened, reference: Reference, rows: int = 1) -> Callable[[], list[str]]:
    seeds = iter(range(10**9))

    def run() -> list[str]:
        canvas = blank(it, rows)
        return it.model.text(replace(canvas, z=reference(it.model, canvas, next(seeds))))

    return run


def full(it: Opened, ar: Opened, texts: int, pairs: int, points: Sequence[Point]) -> Iterator[Row]:
    """A bidirectional model: as good as the reference at one token per step, in how much less time?"""
    length = int((~blank(it, 1).fixed).sum())
    reference = Reference(length, length)
    theirs = by_reference(it, reference, texts)
    ours = fastest(points, theirs.share - QUALITY_GOAL, theirs.diversity - 0.05)
    quality, record = by_sampler(it, ours.sampler, texts)
    jobs = [
        timed(it, ours.sampler),
        timed_reference(it, reference),
        timed_reference(it, replace(reference, draws_everywhere=False)),
        timed(it, Unmask(length, AnyOrder())),
        timed(ar, ar.sampler),
    ]
    times = rounds(jobs, pairs)
    name = f"{ours.pick}({ours.setting})"
    median = [sorted(t[i] for t in times)[len(times) // 2] for i in range(len(jobs))]
    yield report(
        f"LLaDA's decoder / ours, full attention, {length} tokens, batch 1",
        FULL_GOAL,
        at_most=False,
        ratio=1 / compared(times)["ratio"],
        ours_seconds=median[0],
        theirs_seconds=median[1],
        sampler=name,
        nfe=record.nfe,
        tokens_per_forward=quality.tokens / record.nfe,
        theirs_tokens_per_forward=theirs.tokens / length,
    )
    yield report(
        "its grammatical share below the reference's",
        QUALITY_GOAL,
        ratio=theirs.share - quality.share,
        stderr=math.hypot(theirs.error, quality.error),
        ours=quality.row,
        theirs=theirs.row,
        texts=texts,
    )
    parts = {"draws at masked positions alone": (1, 2), "output layer there alone, our draws": (2, 3)}
    for what, (before, after) in (parts | {"fewer calls": (3, 0)}).items():
        yield report(f"of it: {what}", None, ratio=median[before] / median[after], at_most=False)
    quality_ar, record_ar = by_sampler(ar, ar.sampler, texts)
    yield report(
        "autoregressive model with its cache / ours, seconds per text, batch 1",
        None,
        ratio=median[4] / median[0],
        at_most=False,
        ours_seconds=median[0],
        theirs_seconds=median[4],
        ar=quality_ar.row | {"nfe": record_ar.nfe},
    )
    yield from throughput(it, ar, ours.sampler, reference, max(1, pairs // 4))


def throughput(
    it: Opened, ar: Opened, sampler: Sampler, reference: Reference, pairs: int, rows: int = 16
) -> Iterator[Row]:
    """The same for many texts at a time."""
    times = rounds([timed(it, sampler, rows), timed_reference(it, reference, rows), timed(ar, ar.sampler, rows)], pairs)
    for name, other in (("LLaDA's decoder", 1), ("autoregressive model", 2)):
        found = compared(times, other)
        yield report(f"{name} / ours, batch {rows}", None, ratio=1 / found.pop("ratio"), at_most=False, **found)


def blocks(it: Opened, texts: int) -> Iterator[Row]:
    """The trained block-causal model: quality with the exact cache and without it is the same, text by text."""
    assert isinstance(it.sampler, Blocks)
    sampler = Blocks(Unmask(None, EntropyBound(0.1, 1.0)), stop=True)
    same = [fill(it.model, replace(sampler, cache=cache), blank(it, 16), seed=2).texts for cache in (True, False)]
    quality, record = by_sampler(it, sampler, texts)
    more = {"nfe": record.nfe, "tokens_per_forward": quality.tokens / record.nfe} | quality.row
    equal = sum(a == b for a, b in zip(*same, strict=True)) / len(same[0])
    yield report("block-causal texts equal with the exact cache and without", 1.0, ratio=equal, at_most=False, **more)


SIZES = {"2 × 128, vocabulary 375": (375, 128, 2, 64), "6 × 384, vocabulary 8192": (8192, 384, 6, 12)}


def long_blocks(pairs: int, length: int = 512, block: int = 8) -> Iterator[Row]:
    """Length 512: one token per step on both sides, so both draw from the same law; fresh weights.

    All steps of the reference cost the same, so the first ones are timed.
    """
    for size, (vocab, width, layers, first) in SIZES.items():
        model, canvas = build(vocab, width, layers, BlockCausal(block)), _empty(length)
        walk, sampler = partial(Reference(length, block).walk, model, canvas, 0), Blocks(Unmask(block, AnyOrder()))
        times = [
            (
                cpu_seconds(partial(fill, model, sampler, canvas)),
                cpu_seconds(lambda walk=walk, first=first: list(islice(walk(), first))) * length / first,
            )
            for _ in range(pairs)
        ]
        found = compared(times)
        yield report(
            f"LLaDA's decoder / ours, block-causal with exact cache, {length} tokens, batch 1, one per step, {size}",
            BLOCKS_GOAL if width == 384 else None,
            at_most=False,
            ratio=1 / found.pop("ratio"),
            steps_timed=first,
            **found,
        )


def same_calls(length: int = 256, steps: int = 64) -> Iterator[Row]:
    """Full attention, as many calls on both sides: what output layer and draws at masked positions alone save."""
    vocab, width, layers, _ = SIZES["6 × 384, vocabulary 8192"]
    model, sampler, reference = build(vocab, width, layers), Unmask(steps, AnyOrder()), Reference(steps, length)
    for rows in (1, 4):
        canvas = _empty(length, rows)
        times = rounds([partial(fill, model, sampler, canvas), partial(reference, model, canvas, 0)], 1, warm=0)
        found = compared(times)
        name = f"LLaDA's decoder / ours, as many calls, 6 × 384, vocabulary 8192, {length} tokens, batch {rows}"
        yield report(name, None, ratio=1 / found.pop("ratio"), at_most=False, **found)


def overhead(it: Opened) -> Iterator[Row]:
    """What the engine adds to its network calls, the record included."""
    large = Opened(build(8192))
    for name, model, canvas in (
        ("2 × 128, 68 tokens", it.model, blank(it, 1)),
        ("6 × 384, 256 tokens, vocabulary 8192", large.model, _empty(256)),
    ):
        for pick, sampler in (("any-order", Unmask(32, AnyOrder())), ("entropy-bound", Unmask(None, EntropyBound()))):
            fill(model, sampler, canvas)
            with profiled(model, time.process_time) as spent:
                whole = cpu_seconds(partial(fill, model, sampler, canvas))
            known = sum(part.seconds for part in spent.parts.values())
            calls = spent.parts["network"].calls
            per_call, share = 1000 * (whole - known) / calls, whole / known - 1
            allowed = max(OVERHEAD_GOAL, 0.08 * 1000 * known / calls)
            row = report(
                f"engine overhead in ms per call, {pick}, {name}",
                round(allowed, 3),
                ratio=per_call,
                share=share,
                calls=calls,
            )
            yield row


def _empty(length: int, rows: int = 1) -> Canvas:
    return Canvas(torch.zeros(rows, length, dtype=torch.int64), torch.zeros(rows, length, dtype=torch.bool))


def rows(runs: Path, texts: int, pairs: int) -> Iterator[Row]:
    yield machine("python -m bench.decoding") | {"precision": "fp32", "seconds": "CPU, one thread", "texts": texts}
    mdlm, ar, bd3 = (trained(name, runs) for name in ("mdlm_tiny", "ar_tiny", "bd3_tiny"))
    yield from overhead(mdlm)
    yield from long_blocks(max(1, pairs // 8))
    yield from same_calls()
    points = []
    for point in curve(mdlm, texts):
        points.append(point)
        yield point.row
    yield from full(mdlm, ar, 4 * texts, pairs, points)
    yield from blocks(bd3, texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/bench"), help="where trained models are kept")
    parser.add_argument(
        "--texts", type=int, default=256, help="texts per point of the curve; quality has 4 times as many"
    )
    parser.add_argument("--pairs", type=int, default=16, help="timed rounds")
    asked = parser.parse_args()
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    sys.exit(tell(rows(asked.runs, asked.texts, asked.pairs), RESULTS))


if __name__ == "__main__":
    main()
