"""The methods of a comparison: recipes to train, stage by stage, and models that are already trained."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, Protocol

from redraft.evaluation.comparison.budget import Budget, TrainedMethod, train_under_budget
from redraft.models.checkpoints import serialization
from redraft.models.parts.error_head import ErrorHeadConfig
from redraft.tasks.engine.model import TextModel
from redraft.training.runs import metrics
from redraft.training.runs.run import Run

_EVALUATIONS = 8  # times that held-out text is measured during a training, for the learning curve
_CURVES = ("valid_excess_bits_per_char", "valid_bits_per_char")  # the first of these that a log has


class Method(Protocol):
    """A way to get a trained model, one of several that are compared."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str:
        """Identifies the method; independent of budget and seed."""
        ...

    @property
    def run(self) -> Run:
        """The run of the model that is measured, before budget and seed are set."""
        ...

    def seeds(self, count: int) -> Sequence[int]:
        """The seeds of `count` training runs; a model that is already trained has one."""
        ...

    def train(self, out: Path, budget: Budget, seed: int, *, quiet: bool) -> TrainedMethod:
        """Train in a directory below `out`, or return the model if it is already trained."""
        ...

    def directory(self, out: Path, seed: int) -> Path:
        """The directory of the trained model."""
        ...

    def commands(self, out: Path, seed: int, steps: Sequence[int]) -> Iterator[str]:
        """The command lines that train it on its own, with these steps for the stages."""
        ...

    def curve(self, out: Path, seed: int) -> list[list[float]]:
        """The learning curve: [step, held-out bits per character], above the true entropy if that is known."""
        ...


@dataclass(frozen=True)
class TrainingRecipe:
    """A run to train, after the runs it is built on, such as that of its codec."""

    name: str
    names: tuple[str, ...]  # preset or "file.py:function" of each stage
    stages: tuple[Run, ...]  # runs in the order of training; the last one is measured

    @property
    def digest(self) -> str:
        return serialization.digest(self.stages)

    @property
    def run(self) -> Run:
        return self.stages[-1]

    @property
    def budget_fractions(self) -> tuple[float, ...]:
        """Fraction of the budget for each stage: 1/3 for a codec; 1/6 for an error head on a trained model."""
        if len(self.stages) == 1:
            return (1.0,)
        return (1 / 3, 2 / 3) if self.run.model.part(ErrorHeadConfig) is None else (5 / 6, 1 / 6)

    def seeds(self, count: int) -> Sequence[int]:
        return range(count)

    def train(self, out: Path, budget: Budget, seed: int, *, quiet: bool) -> TrainedMethod:
        """Train the stages in order, each on its fraction of the budget, and resume where interrupted."""
        trained: list[TrainedMethod] = []
        for stage, (run, fraction) in enumerate(zip(self.stages, self.budget_fractions, strict=True)):
            run = replace(run, seed=seed, base=run.base if stage == 0 else str(self._directory(out, seed, stage - 1)))
            trained.append(
                train_under_budget(
                    run,
                    self._directory(out, seed, stage),
                    budget.part(fraction),
                    trained[-1:],
                    evaluations=_EVALUATIONS,
                    steps_file=self._home(out) / f"budget-{stage}.json",  # shared: all seeds take the same steps
                    quiet=quiet,
                )
            )
        return trained[-1]

    def directory(self, out: Path, seed: int) -> Path:
        return self._directory(out, seed, len(self.stages) - 1)

    def commands(self, out: Path, seed: int, steps: Sequence[int]) -> Iterator[str]:
        base = ""
        for stage, (name, count) in enumerate(zip(self.names, steps, strict=True)):
            directory = quote(f"{self._directory(out, seed, stage)}-alone")
            yield f"train {quote(name)} --steps {count} --seed {seed} --out {directory}{base}"
            base = f" --base {directory}"

    def curve(self, out: Path, seed: int) -> list[list[float]]:
        return _logged_curve(self.directory(out, seed))

    def _home(self, out: Path) -> Path:
        return out / self.name.replace("/", "_").replace(":", "_")

    def _directory(self, out: Path, seed: int, stage: int) -> Path:
        last = stage == len(self.stages) - 1
        return self._home(out) / (f"seed-{seed}" if last else f"seed-{seed}-before")


@dataclass(frozen=True)
class PretrainedMethod:
    """A model that is already trained, so it is only measured."""

    name: str
    model: TextModel

    @property
    def run(self) -> Run:
        if self.model.run is None:
            raise ValueError(f"{self.name} has no run, so its data and its sampler are unknown; give a run instead")
        return self.model.run

    @property
    def digest(self) -> str:
        return f"{self.run.digest} at step {self.model.step}"

    def seeds(self, count: int) -> Sequence[int]:
        return (self.run.seed,)

    def train(self, out: Path, budget: Budget, seed: int, *, quiet: bool) -> TrainedMethod:
        run = replace(self.run, steps=self.model.step or self.run.steps)
        return TrainedMethod(run, self.model.lm, None, _precision(self.model.path))

    def directory(self, out: Path, seed: int) -> Path:
        return self.model.path or Path(self.name)

    def commands(self, out: Path, seed: int, steps: Sequence[int]) -> Iterator[str]:
        return iter(())

    def curve(self, out: Path, seed: int) -> list[list[float]]:
        return _logged_curve(self.directory(out, seed))


def _logged_curve(directory: Path) -> list[list[float]]:
    """Read the learning curve from the log of a run."""
    log: list[dict[str, Any]] = metrics.read_metrics(directory)
    key = next((key for key in _CURVES if any(key in line for line in log)), None)
    return [[line["step"], line[key]] for line in log if key in line]


def _precision(path: Path | None) -> str:
    """Return the name of the precision that a run was trained in."""
    file = Path() if path is None else path / "run.json"
    if not file.is_file():
        return "not recorded"
    return str(json.loads(file.read_text("utf-8")).get("precision", {}).get("name", "not recorded"))
