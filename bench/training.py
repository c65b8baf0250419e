"""`python -m bench.training`: a training step against the plain loop and its own products, `fit`, and `compile`.

All in CPU seconds on one thread, sides in turn, so that other work on the machine slows both. Rows go to
bench/results/training.jsonl.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from bench import core, engine
from bench.limit import machine
from bench.race import Row, compared, report, rounds, tell

RESULTS = Path(__file__).parent / "results" / "training.jsonl"
COMPILED_GOAL = 1.05  # times faster than the same step without `compile`
SHAPES = {"6 × 384, vocabulary 8192": (8192, 384, 6, 4), "2 × 128, vocabulary 27": (27, 128, 2, 32)}
WARM = 3  # steps of each side before the first one counts; a new shape compiles once more


def compiled(pairs: int) -> Iterator[Row]:
    """The same training step with compiled blocks, as `fit` compiles them."""
    for name, (vocab, width, layers, batch) in SHAPES.items():
        tokens = torch.randint(0, vocab, (batch, core.LENGTH))
        models = core.build(vocab, width, layers), core.build(vocab, width, layers)
        for block in models[1].network.blocks:
            block.compile()
        steps = [core.our_step(model, tokens, "fp32") for model in models]
        begin = time.process_time()
        steps[1]()
        more = {"compiling_seconds": time.process_time() - begin}
        speed = compared(rounds(steps, pairs, WARM, time.process_time))
        what = f"training step / with compile, {name}, batch {batch}"
        yield report(what, COMPILED_GOAL, at_most=False, **speed, **more)


def rows(pairs: int) -> Iterator[Row]:
    yield machine("python -m bench.training") | {"precision": "fp32", "seconds": "CPU, one thread"}
    yield from core.training("fp32", None, pairs, clock=time.process_time)
    yield from engine.overhead(clock=time.process_time)
    yield from compiled(pairs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7, help="rounds in which the sides run in turn")
    given = parser.parse_args()
    torch.set_num_threads(1)
    sys.exit(tell(rows(given.pairs), RESULTS))
