"""What is compared: recipes to be trained, stage by stage, and models that are trained already."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, Protocol

from redraft.evaluation.comparison.budget import Budget, TrainedMethod, train_under_budget
from redraft.models.checkpoints import serialization
from redraft.tasks.engine.model import TextModel
from redraft.training.runs import metrics
from redraft.training.runs.run import Run

_MOMENTS = 8  # of a training at which held-out text is measured, for the curve
_CURVES = ("valid_excess_bits_per_char", "valid_bits_per_char")  # the first that a log has


class Method(Protocol):
    """One that is compared with others."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str:
        """What it is, without budget and seed."""
        ...

    @property
    def run(self) -> Run:
        """What is measured, as far as it is known before the training."""
        ...

    def seeds(self, count: int) -> Sequence[int]: ...

    def fitted(self, out: Path, budget: Budget, seed: int, *, quiet: bool) -> TrainedMethod: ...

    def place(self, out: Path, seed: int) -> Path:
        """The directory of the trained model."""
        ...

    def commands(self, out: Path, seed: int, steps: Sequence[int]) -> Iterator[str]:
        """The command lines that train it alone, the steps of each stage given."""
        ...

    def curve(self, out: Path, seed: int) -> list[list[float]]:
        """(step, bits per character of held-out text, above the truth where that is known) on the way."""
        ...


@dataclass(frozen=True)
class TrainingRecipe:
    """A run to be trained, after the runs that it is built on: a codec, a base."""

    name: str
    names: tuple[str, ...]  # the presets of the stages
    stages: tuple[Run, ...]  # the last one is measured

    @property
    def digest(self) -> str:
        return serialization.digest(self.stages)

    @property
    def run(self) -> Run:
        return self.stages[-1]

    @property
    def shares(self) -> tuple[float, ...]:
        """Shares of the budget: a third for a codec; a sixth for an error layer on a model."""
        if len(self.stages) == 1:
            return (1.0,)
        return (5 / 6, 1 / 6) if self.run.model.errors else (1 / 3, 2 / 3)

    def seeds(self, count: int) -> Sequence[int]:
        return range(count)

    def fitted(self, out: Path, budget: Budget, seed: int, *, quiet: bool) -> TrainedMethod:
        """All stages, one after the other, each with its share of the budget; where it was stopped, it goes on."""
        made: list[TrainedMethod] = []
        for number, (run, share) in enumerate(zip(self.stages, self.shares, strict=True)):
            run = replace(run, seed=seed, base=run.base if number == 0 else str(self._place(out, seed, number - 1)))
            note = self._home(out) / f"budget-{number}.json"  # other seeds take as many steps
            place, part = self._place(out, seed, number), budget.part(share)
            made.append(train_under_budget(run, place, part, made[-1:], moments=_MOMENTS, timed=note, quiet=quiet))
        return made[-1]

    def place(self, out: Path, seed: int) -> Path:
        return self._place(out, seed, len(self.stages) - 1)

    def commands(self, out: Path, seed: int, steps: Sequence[int]) -> Iterator[str]:
        base = ""
        for number, (name, count) in enumerate(zip(self.names, steps, strict=True)):
            place = quote(f"{self._place(out, seed, number)}-alone")
            yield f"train {quote(name)} --steps {count} --seed {seed} --out {place}{base}"
            base = f" --base {place}"

    def curve(self, out: Path, seed: int) -> list[list[float]]:
        return _logged_curve(self.place(out, seed))

    def _home(self, out: Path) -> Path:
        return out / self.name.replace("/", "_").replace(":", "_")

    def _place(self, out: Path, seed: int, number: int) -> Path:
        last = number == len(self.stages) - 1
        return self._home(out) / (f"seed-{seed}" if last else f"seed-{seed}-before")


@dataclass(frozen=True)
class PretrainedMethod:
    """A model that is trained already: it is only measured."""

    name: str
    it: TextModel

    @property
    def run(self) -> Run:
        if self.it.run is None:
            raise ValueError(f"{self.name} is a model without its run, which says how it reads and writes; name a run")
        return self.it.run

    @property
    def digest(self) -> str:
        return f"{self.run.digest} at step {self.it.step}"

    def seeds(self, count: int) -> Sequence[int]:
        return (self.run.seed,)

    def fitted(self, out: Path, budget: Budget, seed: int, *, quiet: bool) -> TrainedMethod:
        run = replace(self.run, steps=self.it.step or self.run.steps)
        return TrainedMethod(run, self.it.lm, None, _precision(self.it.path))

    def place(self, out: Path, seed: int) -> Path:
        return self.it.path or Path(self.name)

    def commands(self, out: Path, seed: int, steps: Sequence[int]) -> Iterator[str]:
        return iter(())

    def curve(self, out: Path, seed: int) -> list[list[float]]:
        return _logged_curve(self.place(out, seed))


def _logged_curve(place: Path) -> list[list[float]]:
    """The curve of a log."""
    log: list[dict[str, Any]] = metrics.read_metrics(place)
    key = next((key for key in _CURVES if any(key in line for line in log)), None)
    return [[line["step"], line[key]] for line in log if key in line]


def _precision(path: Path | None) -> str:
    file = Path() if path is None else path / "run.json"
    if not file.is_file():
        return "not recorded"
    return str(json.loads(file.read_text("utf-8")).get("precision", {}).get("name", "not recorded"))
