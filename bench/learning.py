"""`make bench-long`: checks that every tiny token preset learns in a few hundred steps; one JSON line each.

The ratio is its bits per character over those of word frequencies.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

import redraft
from bench.race import Row, report, tell
from redraft.core import Batch
from redraft.training import (
    Objective,
    Run,
    first_batches,
    fit,
    load_rows,
)
from redraft.training.presets import (
    TINY,
)

STEPS, ROWS = 200, 64


def learning(names: Sequence[str], steps: int = STEPS) -> Iterator[Row]:
    for preset in names:
        bits, frequency = learned(replace(TINY[preset](), steps=steps, eval_every=steps, eval_rows=ROWS, samples=0))
        name = f"{preset} / words by frequency"
        yield report(name, 1.0, ratio=bits / frequency, bits_per_char=bits, by_frequency=frequency, steps=steps)


def learned(run: Run) -> tuple[float, float]:
    """Bits per character of unseen text: of the trained model, and of words by their frequency there."""
    unseen = first_batches(load_rows(run.data, "test", run.tokenizer, run.framing), ROWS)
    with tempfile.TemporaryDirectory() as folder:
        bound = redraft.training.likelihood(fit(run, Path(folder), quiet=True), unseen)
    return bound.bits_per_char, by_frequency(unseen) / float(bound.row_chars.sum())


def by_frequency(batches: Sequence[Batch]) -> float:
    """Bits of all tokens together, each alone."""
    counts = torch.cat([batch.tokens[batch.learn] for batch in batches]).bincount().double()
    return float(-torch.special.xlogy(counts, counts / counts.sum()).sum() / redraft.training.NATS_PER_BIT)


def of_tokens() -> list[str]:
    """The tiny presets whose noise works on tokens and that need no other run before."""
    made = {name: make() for name, make in TINY.items()}
    return [n for n, run in made.items() if run.model.codec is None and isinstance(run.objective, Objective)]


if __name__ == "__main__":
    sys.exit(tell(learning(sys.argv[1:] or of_tokens())))
