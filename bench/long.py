"""`make bench-long`: kills trainings at many moments and resumes them; one JSON line per kind of interruption.

The runs are those of the tests, a second each. A goal of 1 means that every run ended with the same bits as the
uninterrupted one: weights, averages, moments and log. A run that cannot be resumed counts as missed too.
"""

from __future__ import annotations

import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from bench.race import Row, report, tell
from redraft.apps.cli.user_code import load_module

child = load_module(Path(__file__).parents[1] / "tests" / "train_child.py")
KILLED = -signal.SIGKILL
RICH = {"micro_batches": 2, "muon": 0.02, "dropout": 0.1, "time": 8}


def during_save(lives: Any, deaths: int = 200) -> Iterator[Row]:
    """Run after run, each life killed before one of the first file operations of its saves."""
    chance, run = random.Random(0), RICH | {"save_every": 1}
    died = lost = runs = equal = 0
    while died < deaths:
        out, runs, code = lives.folder / f"save-{runs}", runs + 1, KILLED
        while code == KILLED:
            code = lives.live(out, run, **({"save": chance.randint(1, 80)} if died < deaths else {}))
            died, lost = died + (code == KILLED), lost + (code not in (0, KILLED))
        equal += code == 0 and child.end(out) == child.end(lives.whole(run))
    more = {"deaths": died, "runs": runs, "lives_that_could_not_go_on": lost}
    yield report("bitwise resume after kill -9 during save", 1.0, ratio=equal / runs, at_most=False, **more)


def at_a_step(lives: Any, deaths: int = 20) -> Iterator[Row]:
    """Every run killed once, some time after some step."""
    chance, equal = random.Random(1), 0
    for number in range(deaths):
        out, run = lives.folder / f"step-{number}", RICH if number % 2 else {}
        killed = lives.live(out, run, after=[chance.randint(1, 18), chance.uniform(0, 0.03)]) == KILLED
        equal += killed and lives.live(out, run) == 0 and child.end(out) == child.end(lives.whole(run))
    yield report("bitwise resume after kill -9 at a step", 1.0, ratio=equal / deaths, at_most=False, deaths=deaths)


def of_a_worker(folder: Path, deaths: int = 10) -> Iterator[Row]:
    """One of two workers killed at some step; torchrun starts both anew. Bits are those of two unbroken workers."""
    chance, equal = random.Random(2), 0
    whole = folder / "workers"
    for number in range(deaths):
        out = folder / f"worker-{number}"
        job = {"out": str(out), "kill": chance.randint(1, 18), "rank": number % 2}
        child.torchrun(folder, [{"out": str(whole)}, job], restarts=1)
        samples = [n for ranks in child.taken(out).values() for taken in ranks.values() for n in taken]
        equal += child.end(out) == child.end(whole) and len(samples) == len(set(samples)) == 160
    yield report("bitwise resume after kill -9 of a worker", 1.0, ratio=equal / deaths, at_most=False, deaths=deaths)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        lives = child.Lives(Path(folder))
        code = tell(chain(during_save(lives), at_a_step(lives), of_a_worker(Path(folder))))
        lives.close()
    sys.exit(code)


if __name__ == "__main__":
    main()
