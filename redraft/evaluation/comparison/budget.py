"""Training under a budget: so many minutes of one core, or so many steps, and what it cost.

Minutes are CPU time, so that other work on the machine does not shorten them: a few steps are timed, and their number
is then fixed and kept beside the run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from redraft.evaluation.comparison.row_file import cpu_timer
from redraft.models.checkpoints import serialization
from redraft.models.diffusion_lm import DiffusionLM
from redraft.training.loop import fit
from redraft.training.runs import variations
from redraft.training.runs.run import Run

_WARM, TIMED_STEPS = 4, 20  # steps before and while the clock runs


@dataclass(frozen=True)
class Budget:
    """What each training may cost: minutes of one core, or steps; one of the two."""

    minutes: float | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        if (self.minutes is None) == (self.steps is None):
            raise ValueError("a budget is in minutes of one core or in steps; give one of the two")

    def __str__(self) -> str:
        return f"{self.steps:,} steps" if self.minutes is None else f"{self.minutes:g} CPU minutes"

    def part(self, share: float) -> Budget:
        """A share of it, at least one step."""
        if self.minutes is not None:
            return Budget(minutes=self.minutes * share)
        assert self.steps is not None
        return Budget(steps=max(1, round(self.steps * share)))


@dataclass(frozen=True)
class TrainedMethod:
    """A model and what its training cost."""

    run: Run
    model: DiffusionLM
    minutes: float | None  # of one core; None: the budget was in steps
    precision: str
    before: tuple[dict[str, Any], ...] = ()  # the stages that came first: a codec, a base

    def stages(self) -> tuple[dict[str, Any], ...]:
        """Each training that decided the weights, and its configuration."""
        run, last = self.run, {"minutes": self.minutes, "precision": self.precision}
        last |= {"steps": run.steps, "batch": run.batch, "seed": run.seed, "config": serialization.to_json(run)}
        return (*self.before, {"run": run.digest, **last})

    def cost(self) -> dict[str, Any]:
        """How the row came to be."""
        run = {"run": self.run.digest, "minutes": self.minutes, "steps": self.run.steps, "batch": self.run.batch}
        return {**run, "stages": list(self.stages())}


def train_under_budget(
    run: Run,
    out: Path,
    budget: Budget,
    before: Sequence[TrainedMethod] = (),
    *,
    moments: int = 1,
    timed: Path | None = None,
    quiet: bool = False,
) -> TrainedMethod:
    """Trains under a budget, or goes on where it was stopped.

    Args:
        run: what to train; its number of steps follows from the budget
        out: directory of the training
        budget: what it may cost
        before: what it is built on
        moments: how often held-out text is measured on the way; the budget does not count it
        timed: a note that several trainings share, so that other seeds take as many steps; None: a note in `out`
        quiet: print no progress
    """
    torch.set_num_threads(1)
    run = _with_eval_points(with_budget_steps(run, out, budget, timed), moments)
    model = fit(run, out, quiet=quiet)
    precision = json.loads((out / "run.json").read_text())["precision"]["name"]
    return TrainedMethod(
        run, model, budget.minutes, precision, tuple(stage for made in before for stage in made.stages())
    )


def _with_eval_points(run: Run, moments: int) -> Run:
    """The same run, whose held-out text is measured so many times."""
    return run if moments == 1 else replace(run, eval_every=max(1, -(-run.steps // moments)), eval_rows=64)


def with_budget_steps(run: Run, out: Path, budget: Budget, timed: Path | None = None) -> Run:
    """As many steps as fit into the budget: measured once, then kept in the directory of the run, or in a note."""
    if budget.minutes is None:
        assert budget.steps is not None
        return variations.with_budget(run, budget.steps)
    note = timed or out / "budget.json"
    if not note.exists():
        note.parent.mkdir(parents=True, exist_ok=True)
        steps = max(1, round(60 * budget.minutes / seconds_per_step(run)))
        note.write_text(json.dumps({"minutes": budget.minutes, "steps": steps}))
    kept = json.loads(note.read_text())
    if kept["minutes"] != budget.minutes:
        raise ValueError(
            f"{note.parent} was trained for {kept['minutes']} minutes, not {budget.minutes}; choose another --out"
        )
    return variations.with_budget(run, kept["steps"])


def seconds_per_step(run: Run, timed: int = TIMED_STEPS) -> float:
    """The difference of a longer and a shorter training, so that all that is done once does not count.

    Nor does what a process does once: another short one goes before.
    """
    spent = []
    for steps in (_WARM, _WARM, _WARM + timed):
        with TemporaryDirectory() as folder, cpu_timer() as clock:
            fit(variations.with_budget(run, steps), folder, quiet=True)
        spent.append(clock.seconds)
    return (spent[2] - spent[1]) / timed
