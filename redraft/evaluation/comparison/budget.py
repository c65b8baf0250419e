"""Training under a budget of CPU minutes or steps, with its actual cost.

A budget in minutes is turned into a number of steps: a few steps are timed on one core, and the number that fits is
stored beside the run. CPU time is used, so that other work on the machine does not shorten the training.
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

_WARMUP_STEPS, TIMED_STEPS = 4, 20  # steps before the clock starts, and while it runs


@dataclass(frozen=True)
class Budget:
    """What each training run may cost: either CPU minutes on one core, or steps."""

    minutes: float | None = None  # CPU minutes on one core; None for a budget in steps
    steps: int | None = None  # training steps; None for a budget in minutes
    device: str = "auto"  # where to train, see `redraft.fit`

    def __post_init__(self) -> None:
        if (self.minutes is None) == (self.steps is None):
            raise ValueError("a budget is either CPU minutes on one core or steps; give exactly one of the two")

    def __str__(self) -> str:
        return f"{self.steps:,} steps" if self.minutes is None else f"{self.minutes:g} CPU minutes"

    def part(self, fraction: float) -> Budget:
        """Return a fraction of this budget, at least one step."""
        if self.minutes is not None:
            return replace(self, minutes=self.minutes * fraction)
        assert self.steps is not None
        return replace(self, steps=max(1, round(self.steps * fraction)))


@dataclass(frozen=True)
class TrainedMethod:
    """A trained model, with its run and what the training cost."""

    run: Run
    model: DiffusionLM
    minutes: float | None  # CPU minutes on one core; None if the budget was in steps
    precision: str  # name of the training precision, such as "fp32"
    earlier: tuple[dict[str, Any], ...] = ()  # records of earlier stages, such as the training of the codec

    def stages(self) -> tuple[dict[str, Any], ...]:
        """Return a record of each training stage that produced the weights, with its configuration."""
        run, last = self.run, {"minutes": self.minutes, "precision": self.precision}
        last |= {"steps": run.steps, "batch": run.batch, "seed": run.seed, "config": serialization.to_json(run)}
        return (*self.earlier, {"run": run.digest, **last})

    def cost(self) -> dict[str, Any]:
        """Return the part of a result row that describes the training: its cost and its stages."""
        run = {"run": self.run.digest, "minutes": self.minutes, "steps": self.run.steps, "batch": self.run.batch}
        return {**run, "stages": list(self.stages())}


def train_under_budget(
    run: Run,
    out: Path,
    budget: Budget,
    earlier_stages: Sequence[TrainedMethod] = (),
    *,
    evaluations: int = 1,
    steps_file: Path | None = None,
    quiet: bool = False,
) -> TrainedMethod:
    """Train a run under a budget, or resume it where it was interrupted.

    Args:
        run: the run to train; the budget sets its number of steps
        out: directory of the training
        budget: CPU minutes or steps
        earlier_stages: training runs that this one is built on, such as that of its codec
        evaluations: how often held-out text is measured during training; this time does not count
        steps_file: where the number of steps is stored; runs that share it take the same number. None for
            budget.json in `out`
        quiet: do not print progress
    """
    torch.set_num_threads(1)
    run = _with_eval_points(_with_budget_steps(run, out, budget, steps_file), evaluations)
    model = fit(run, out, device=budget.device, quiet=quiet)
    precision = json.loads((out / "run.json").read_text())["precision"]["name"]
    earlier = tuple(stage for trained in earlier_stages for stage in trained.stages())
    return TrainedMethod(run, model, budget.minutes, precision, earlier)


def _with_eval_points(run: Run, evaluations: int) -> Run:
    """Return the run with held-out text measured this many times, evenly spread over the steps."""
    return run if evaluations == 1 else replace(run, eval_every=max(1, -(-run.steps // evaluations)), eval_rows=64)


def _with_budget_steps(run: Run, out: Path, budget: Budget, steps_file: Path | None = None) -> Run:
    """Return the run with as many steps as fit into the budget; a timed number is stored and used again."""
    if budget.minutes is None:
        assert budget.steps is not None
        return variations.with_budget(run, budget.steps)
    file = steps_file or out / "budget.json"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        steps = max(1, round(60 * budget.minutes / seconds_per_step(run, device=budget.device)))
        file.write_text(json.dumps({"minutes": budget.minutes, "steps": steps}))
    stored = json.loads(file.read_text())
    if stored["minutes"] != budget.minutes:
        raise ValueError(
            f"{file.parent} was trained for {stored['minutes']} minutes, not {budget.minutes}; choose another --out"
        )
    return variations.with_budget(run, stored["steps"])


def seconds_per_step(run: Run, timed_steps: int = TIMED_STEPS, device: str = "auto") -> float:
    """Return the CPU seconds of a training step.

    It is the difference between a longer and a shorter training, so that start-up costs cancel. A first short training
    warms the process up.
    """
    seconds = []
    for steps in (_WARMUP_STEPS, _WARMUP_STEPS, _WARMUP_STEPS + timed_steps):
        with TemporaryDirectory() as folder, cpu_timer() as clock:
            fit(variations.with_budget(run, steps), folder, device=device, quiet=True)
        seconds.append(clock.seconds)
    return (seconds[2] - seconds[1]) / timed_steps
