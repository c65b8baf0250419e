"""Tables that grow row by row: what a file of JSON lines holds is not measured again, and trainings resume.

A row says how it came to be: commit, machine, and for each stage of its training the run, steps, batch, seed and
precision. The whole configuration of a run lies beside the rows, in configs/RUN.json, where RUN is its digest: that can
be computed again from the file (`derived`). Rows measured before say `"provenance": "not recorded"`.
An error carries the name of its figure: `share_stderr` beside `share`. A bare `stderr` is refused, since bits per
character once stood beside the error of bits per token.

Budgets are minutes of one core, by its own clock (CPU time), so that other work on the machine does not shorten them:
a few steps are timed, and their number is then fixed and kept beside the run.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from redraft.model import DiffusionLM
from redraft.runs import Run, config, vary
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
        require_units(row)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        for stage in row.get("stages", ()):
            file_config(self.file.parent, stage["run"], stage.pop("config"))
        with self.file.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


def require_units(row: Any) -> None:
    """Every error stands beside the figure that it is the error of."""
    for key, value in row.items() if isinstance(row, dict) else ():
        if key.endswith("stderr") and key[: -len("_stderr")] not in row:
            raise ValueError(f"{key!r} is the error of nothing in this row; name it after its figure: share_stderr")
        require_units(value)


def file_config(results: Path, run: str, described: Any) -> None:
    """Keeps the configuration of a run beside the rows, under its digest."""
    file = results / "configs" / f"{run}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(described, ensure_ascii=False) + "\n", "utf-8")


def derived(results: Path, run: str) -> str:
    """The digest that a filed configuration has: that of its row, unless one of them was changed."""
    found = config.from_json(json.loads((results / "configs" / f"{run}.json").read_text("utf-8")))
    assert isinstance(found, Run)
    return found.digest


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
    precision: str
    before: tuple[dict[str, Any], ...] = ()  # the stages that came first: a codec, a base

    def stages(self) -> tuple[dict[str, Any], ...]:
        """Each training that decided the weights, and its configuration."""
        run, last = self.run, {"minutes": self.minutes, "precision": self.precision}
        last |= {"steps": run.steps, "batch": run.batch, "seed": run.seed, "config": config.to_json(run)}
        return (*self.before, {"run": run.digest, **last})

    def cost(self) -> dict[str, Any]:
        """How the row came to be."""
        run = {"run": self.run.digest, "minutes": self.minutes, "steps": self.run.steps, "batch": self.run.batch}
        return {**run, "commit": commit(), "machine": machine(), "stages": list(self.stages())}


def trained(run: Run, out: Path, minutes: float, before: Sequence[Trained] = ()) -> Trained:
    """Trains for so many minutes of one core, or goes on where it was stopped; `before`: what it is built on."""
    torch.set_num_threads(1)
    run = with_budget(run, out, minutes)
    model = fit(run, out)
    precision = json.loads((out / "run.json").read_text())["precision"]["name"]
    return Trained(run, model, minutes, precision, tuple(stage for made in before for stage in made.stages()))


def commit() -> str:
    """The commit of the code, marked if files differ from it."""
    told = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    found = subprocess.run(told, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "not a git checkout"


def machine() -> str:
    """The CPU by its name, and what is used of it."""
    named = re.search(r"model name\s*:\s*(.+)", _text(Path("/proc/cpuinfo")))
    return f"{named[1] if named else platform.processor()}, {torch.get_num_threads()} thread, torch {torch.__version__}"


def _text(file: Path) -> str:
    return file.read_text() if file.exists() else ""


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
