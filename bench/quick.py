"""`make bench`: the machine's limit, then the quick ratios, one JSON line each.

The lines are also written to bench/results/quick.jsonl, from which `python -m bench.table` makes the table in
docs/results/bench.md. A missed goal has "ok": false and sets exit code 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from bench import core, engine, limit
from bench.race import Row, tell
from redraft.core import PrecisionError, choose_precision
from redraft.core.hardware.precision import _TYPICAL_SHAPES, _bf16_time_ratio

RESULTS = Path(__file__).parent / "results" / "quick.jsonl"


EMULATED = 10.0  # bf16 / fp32: a CPU without instructions for it would take minutes to say how slow it is


def precisions() -> dict[str, torch.dtype]:
    """Those that work here: `choose` tries bf16 where an illegal instruction cannot hurt, before anything else runs."""
    try:
        choose_precision("bf16")
    except PrecisionError:
        return {"fp32": torch.float32}
    known = {"fp32": torch.float32, "bf16": torch.bfloat16}
    return known if _bf16_time_ratio(_TYPICAL_SHAPES) < EMULATED else {"fp32": torch.float32}


def rows() -> Iterator[Row]:
    choice = choose_precision()
    better = choice.name
    yield limit.machine("make bench") | {"precision": str(choice)}
    limits = {row["limit"]: row for row in limit.limits(precisions())}
    yield from limits.values()
    yield from core.training(better, limits[better]["gflops"])
    yield from core.sampling(better)
    yield from core.long_sampling(better)
    yield from core.exactness(better)
    yield from engine.overhead()


if __name__ == "__main__":
    sys.exit(tell(rows(), RESULTS))
