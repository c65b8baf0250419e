"""Tables that grow row by row: what a file of JSON lines holds is not measured again, and trainings resume.

Budgets are minutes of one core, by its own clock (CPU time), so that other work on the machine does not shorten them:
a few steps are timed, and their number is then fixed and kept beside the run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from redraft.model import DiffusionLM
from redraft.runs import Run, vary
from redraft.train import fit

WARM, TIMED = 4, 20  # steps before and while the clock runs


@dataclass(frozen=True)
class Rows:
    """A file of JSON lines, one per row of a table, each with a name of its own."""

    file: Path

    def held(self) -> dict[str, dict[str, Any]]:
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return {row["name"]: row for row in map(json.loads, lines)}

    def add(self, name: str, measure: Callable[[], dict[str, Any]]) -> None:
        """Measures the row, unless it is there."""
        if name in self.held():
            return
        row = {"name": name, **measure()}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


@dataclass
class Cpu:
    """Seconds of this process on all cores."""

    seconds: float = 0.0


@contextmanager
def cpu() -> Iterator[Cpu]:
    began, clock = time.process_time(), Cpu()
    yield clock
    clock.seconds = time.process_time() - began


@dataclass(frozen=True)
class Trained:
    """A model and what its training cost."""

    run: Run
    model: DiffusionLM
    minutes: float  # of one core

    def cost(self) -> dict[str, Any]:
        return {"minutes": self.minutes, "steps": self.run.steps, "batch": self.run.batch}


def trained(run: Run, out: Path, minutes: float) -> Trained:
    """Trains for so many minutes of one core, or goes on where it was stopped."""
    torch.set_num_threads(1)
    run = with_budget(run, out, minutes)
    return Trained(run, fit(run, out), minutes)


def with_budget(run: Run, out: Path, minutes: float) -> Run:
    """As many steps as fit into the budget: measured once, then kept in the directory of the run."""
    note = out / "budget.json"
    if not note.exists():
        out.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps({"minutes": minutes, "steps": max(1, round(60 * minutes / seconds_per_step(run)))}))
    kept = json.loads(note.read_text())
    if kept["minutes"] != minutes:
        raise ValueError(f"{out} was trained for {kept['minutes']} minutes, not {minutes}; choose another --out")
    return vary.with_budget(run, kept["steps"])


def seconds_per_step(run: Run, timed: int = TIMED) -> float:
    """The difference of a longer and a shorter training, so that all that is done once does not count.

    Nor does what a process does once: another short one goes before.
    """
    spent = []
    for steps in (WARM, WARM, WARM + timed):
        with TemporaryDirectory() as folder, cpu() as clock:
            fit(vary.with_budget(run, steps), folder, quiet=True)
        spent.append(clock.seconds)
    return (spent[2] - spent[1]) / timed
