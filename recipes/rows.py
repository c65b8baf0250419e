"""Rows that recipes print as they are finished, and trainings of so many minutes: see `redraft.compare`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redraft.compare import (
    TIMED,
    Budget,
    Fitted,
    RowFile,
    commit,
    cpu,
    derived,
    fitted,
    require_units,
    seconds_per_step,
)
from redraft.compare import machine_name as machine
from redraft.runs import Run

Trained = Fitted
__all__ = [
    "TIMED",
    "Rows",
    "Trained",
    "commit",
    "cpu",
    "derived",
    "machine",
    "require_units",
    "seconds_per_step",
    "trained",
]


@dataclass(frozen=True)
class Rows(RowFile):
    """A file of rows, each of which is printed when it is new."""

    def add(self, name: str, measure: Callable[[], dict[str, Any]]) -> bool:
        new = super().add(name, measure)
        if new:
            print(json.dumps(self.held()[name]), flush=True)
        return new


def trained(run: Run, out: Path, minutes: float, before: Sequence[Fitted] = ()) -> Fitted:
    """Trains for so many minutes of one core, or goes on where it was stopped; `before`: what it is built on."""
    return fitted(run, out, Budget(minutes=minutes), before)
