"""Rows that recipes print and store as they finish, and training under a budget (`redraft.evaluation.comparison`)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redraft.evaluation import (
    TIMED_STEPS,
    Budget,
    PretrainedMethod,
    RowFile,
    TrainedMethod,
    cpu_timer,
    filed_digest,
    require_units,
    seconds_per_step,
    train_under_budget,
)
from redraft.models import CheckpointError
from redraft.tasks import open_model
from redraft.training import Run

Trained = TrainedMethod
Measure = Callable[[], dict[str, Any]]
Part = Callable[[Sequence[str]], None]  # the main function of a part of a recipe
RESULTS = Path(__file__).parent / "results"
__all__ = [
    "RESULTS",
    "TIMED_STEPS",
    "Budget",
    "Measure",
    "Part",
    "Rows",
    "Trained",
    "add_places",
    "cpu_timer",
    "filed_digest",
    "given",
    "measure_all",
    "require_units",
    "run_part",
    "run_recipe",
    "seconds_per_step",
    "train_under_budget",
    "trained",
]


@dataclass(frozen=True)
class Rows(RowFile):
    """A file of rows, each of which is printed when it is new."""

    def add(self, name: str, measure: Measure) -> bool:
        new = super().add(name, measure)
        if new:
            print(json.dumps(self.read()[name]), flush=True)
        return new


def measure_all(rows: Rows, jobs: Iterable[tuple[str, Measure]], only: Sequence[str] | None = None) -> None:
    """Measures the rows that are asked for and not there yet, one after the other."""
    known = dict(jobs)
    if strange := [name for name in only or () if name not in known]:
        raise ValueError(
            f"--only {strange[0]!r} is not a row here; choose from {', '.join(map(repr, known)) or 'none yet'}"
        )
    for name in only or known:
        rows.add(name, known[name])


def add_places(parser: argparse.ArgumentParser, out: str) -> None:
    """The options of all recipes that train: where things go, and what is wanted."""
    parser.add_argument("--out", type=Path, default=Path(out), help="directory for the models")
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory for the rows")
    parser.add_argument("--only", nargs="+", help="rows to measure")


def run_recipe(main: Callable[[], None]) -> None:
    """Runs a recipe; wrong input, such as a folder that is not there, ends in one line and exit code 2."""
    try:
        main()
    except (OSError, ValueError, CheckpointError) as error:
        message = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.strerror else str(error)
        print(f"{Path(sys.argv[0]).name}: {' '.join(message.split())}", file=sys.stderr)
        raise SystemExit(2) from None


def run_part(parts: Mapping[str, Part], argv: Sequence[str] | None, about: str | None) -> None:
    """Runs the part of a recipe that the first word names; the other words are its options."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=list(parts))
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of the part: PART --help lists them")
    chosen = parser.parse_args(argv)
    parts[chosen.part](chosen.options)


def trained(run: Run, out: Path, minutes: float, before: Sequence[TrainedMethod] = ()) -> TrainedMethod:
    """Trains for this many CPU minutes, or resumes; `before`: the runs that it builds on."""
    return train_under_budget(run, out, Budget(minutes=minutes), before)


def given(base: Path) -> TrainedMethod:
    """A training that is there already, which another one goes on from."""
    return PretrainedMethod(str(base), open_model(base)).train(base, Budget(steps=1), 0, quiet=True)
