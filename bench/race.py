"""Interleaved timing: what is compared runs in turn, so that a slow moment of the machine hits both."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any


def seconds(job: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    job()
    return time.perf_counter() - begin


def race(ours: Callable[[], Any], theirs: Callable[[], Any], pairs: int, warm: int = 1) -> dict[str, float]:
    """Median ratio of `pairs` interleaved runs, and both medians in seconds."""
    for _ in range(warm):
        ours(), theirs()
    times = [(seconds(ours), seconds(theirs)) for _ in range(pairs)]
    a, b = (statistics.median(side) for side in zip(*times, strict=True))
    return {"ratio": statistics.median(x / y for x, y in times), "ours_seconds": a, "theirs_seconds": b}


def report(bench: str, goal: float | None, *, ratio: float, at_most: bool = True, **more: Any) -> bool:
    """One JSON line; a bench without a goal is for orientation only."""
    ok = None if goal is None else (ratio <= goal if at_most else ratio >= goal)
    numbers = {n: round(v, 6) if isinstance(v, float) else v for n, v in more.items()}
    print(json.dumps({"bench": bench, "ratio": float(f"{ratio:.4g}"), "goal": goal, "ok": ok, **numbers}), flush=True)
    return ok is not False
