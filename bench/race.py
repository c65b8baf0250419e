"""Interleaved timing: the compared programs run in turn, so that a slow moment of the machine affects both."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

Job = Callable[[], Any]
Clock = Callable[[], float]
Row = dict[str, Any]  # one JSON line


def seconds(job: Job, clock: Clock = time.perf_counter) -> float:
    begin = clock()
    job()
    return clock() - begin


def rounds(jobs: Sequence[Job], count: int, warm: int = 1, clock: Clock = time.perf_counter) -> list[tuple[float, ...]]:
    """The seconds of each job, taken in turn, `count` times."""
    for _ in range(warm):
        for job in jobs:
            job()
    return [tuple(seconds(job, clock) for job in jobs) for _ in range(count)]


def compared(times: Sequence[tuple[float, ...]], other: int = 1) -> dict[str, float]:
    """The median ratio of the first job to another one, and both medians in seconds."""
    ours, theirs = (statistics.median(lap[side] for lap in times) for side in (0, other))
    ratio = statistics.median(lap[0] / lap[other] for lap in times)
    return {"ratio": ratio, "ours_seconds": ours, "theirs_seconds": theirs}


def race(ours: Job, theirs: Job, pairs: int, warm: int = 1, clock: Clock = time.perf_counter) -> dict[str, float]:
    """Median ratio of `pairs` interleaved runs, and both medians in seconds."""
    return compared(rounds([ours, theirs], pairs, warm, clock))


def report(bench: str, goal: float | None, *, ratio: float, at_most: bool = True, **more: Any) -> Row:
    """A row of the benchmark; a bench without a goal is for orientation only."""
    ok = None if goal is None else (ratio <= goal if at_most else ratio >= goal)
    head = {"bench": bench, "ratio": float(f"{ratio:.4g}"), "goal": goal, "at_most": at_most, "ok": ok}
    return head | {n: round(v, 6) if isinstance(v, float) else v for n, v in more.items()}


def tell(rows: Iterable[Row], file: Path | None = None) -> int:
    """Prints each row as it comes; a file gets all of them at the end. The exit code: 1 if a goal was missed."""
    printed = []
    for row in rows:
        printed.append(row)
        print(_json(row), flush=True)
    if file is not None:
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(_json(row) + "\n" for row in printed), encoding="utf-8")
    return int(any(row.get("ok") is False for row in printed))


def _json(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False)
