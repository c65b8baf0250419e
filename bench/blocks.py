"""`python -m bench.blocks`: a block-causal model with its exact cache against LLaDA's published decoder, 512 tokens.

Both sides have random weights and write one token per step, so they sample from the same distribution. Every step of
both is timed, in CPU seconds on one thread; this takes about three minutes. Rows go to bench/results/blocks.jsonl, from
which `make results` makes a table in docs/results/bench.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from bench.core import build
from bench.limit import machine
from bench.race import Row, report, tell
from bench.reference import Reference, empty
from bench.texts import cpu_seconds
from redraft.decoding import AnyOrder, Blocks, Unmask
from redraft.models import BlockCausal
from redraft.tasks import sample_canvases

RESULTS = Path(__file__).parent / "results" / "blocks.jsonl"
GOAL = 20.0  # times fewer seconds per text
BLOCK = BlockCausal().block
SIZES = {"2 × 128, vocabulary 375": (375, 128, 2, None), "6 × 384, vocabulary 8192": (8192, 384, 6, GOAL)}


def rows(length: int, pairs: int) -> Iterator[Row]:
    yield machine("python -m bench.blocks") | {"precision": "fp32", "seconds": "CPU, one thread"}
    for size, (vocab, width, layers, goal) in SIZES.items():
        model, canvas = build(vocab, width, layers, BlockCausal(BLOCK)), empty(length)
        sampler, reference = Blocks(Unmask(BLOCK, AnyOrder())), Reference(length, BLOCK)
        sample_canvases(model, sampler, empty(2 * BLOCK))  # whatever happens once
        ours, uncached = (
            min(cpu_seconds(partial(sample_canvases, model, some, canvas)) for _ in range(pairs))
            for some in (sampler, Blocks(sampler.sampler, cache=False))
        )
        theirs = min(cpu_seconds(partial(reference, model, canvas, 0)) for _ in range(1 if goal else pairs))
        name = f"block-causal with exact cache, {length} tokens, batch 1, one per step, {size}"
        seconds = {"ours_seconds": ours, "uncached_seconds": uncached, "theirs_seconds": theirs}
        yield report(f"LLaDA's decoder / ours, {name}", goal, ratio=theirs / ours, at_most=False, **seconds)
        yield report("of it: output layer and draws", None, ratio=theirs / uncached, at_most=False)
        yield report("of it: the cache", None, ratio=uncached / ours, at_most=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=2, help="timed rounds; the best counts")
    args = parser.parse_args()
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    sys.exit(tell(rows(args.length, args.pairs), RESULTS))


if __name__ == "__main__":
    main()
