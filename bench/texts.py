"""Quality and time of the texts of a decoder."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench.race import Job, Row
from bench.reference import Reference
from redraft.core import Canvas
from redraft.decoding import Sampler
from redraft.evaluation import grammar_score, unigram_entropy
from redraft.tasks import TextModel, TextResults, sample_canvases
from redraft.training import STORY_LANGUAGE

BATCH = 64


def blank(model: TextModel, rows: int) -> Canvas:
    """Room for whole stories."""
    assert model.run is not None
    given = model.lm.config.vocab.bos is not None
    return model.lm.canvas(new=model.run.framing.length - given, rows=rows)


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
        share = grammar_score(texts, STORY_LANGUAGE).share
        return cls(share, math.sqrt(share * (1 - share) / len(texts)), *unigram_entropy(texts), tokens)

    @property
    def row(self) -> Row:
        names = ("share", "error", "entropy", "diversity")
        return {f"{name if name != 'share' else 'grammatical'}": round(getattr(self, name), 4) for name in names}


def by_reference(model: TextModel, reference: Reference, texts: int) -> Quality:
    """Quality of the reference's texts; a batch at a time, which does not change their law."""
    written: list[str] = []
    while len(written) < texts:
        canvas = blank(model, min(BATCH, texts - len(written)))
        written += model.lm.text(replace(canvas, z=reference(model.lm, canvas, seed=len(written))))
    return Quality.of(written, sum(len(model.tokenizer.encode(text)) for text in written) / len(written))


def by_sampler(model: TextModel, sampler: Sampler, texts: int, seed: int = 1) -> tuple[Quality, TextResults]:
    """Quality of a sampler's texts, and what they cost."""
    record = sample_canvases(model.lm, sampler, blank(model, texts), batch=BATCH, seed=seed)
    return Quality.of(record.texts, record.new_tokens / texts), record


def cpu_seconds(job: Job) -> float:
    begin = time.process_time()
    job()
    return time.process_time() - begin


def rounds(jobs: Sequence[Job], count: int, warm: int = 1) -> list[tuple[float, ...]]:
    """The CPU seconds of each job, taken in turn, `count` times."""
    for job in [*jobs] * warm:
        job()
    return [tuple(map(cpu_seconds, jobs)) for _ in range(count)]


def timed(model: TextModel, sampler: Sampler, rows: int = 1) -> Callable[[], TextResults]:
    """Each call writes other texts, from the canvas to the record."""
    seeds = iter(range(10**9))
    return lambda: sample_canvases(model.lm, sampler, blank(model, rows), seed=next(seeds), batch=rows)


def timed_reference(model: TextModel, reference: Reference, rows: int = 1) -> Callable[[], list[str]]:
    seeds = iter(range(10**9))

    def run() -> list[str]:
        canvas = blank(model, rows)
        return model.lm.text(replace(canvas, z=reference(model.lm, canvas, next(seeds))))

    return run
