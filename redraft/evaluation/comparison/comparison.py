"""A comparison of methods under one budget: one row per training, and summaries over seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from redraft.evaluation.comparison.budget import Budget
from redraft.evaluation.comparison.measurement import MeasurementSize, _measure_model
from redraft.evaluation.comparison.methods import Method
from redraft.evaluation.comparison.row_file import RowFile
from redraft.evaluation.judges import Judge
from redraft.training.runs.memory import parameter_count

_ROWS_FILE, _SETTINGS_FILE = "rows.jsonl", "settings.json"


@dataclass(frozen=True)
class Comparison:
    """Methods to compare, the budget of each training, how much is measured, and the directory of the results."""

    methods: tuple[Method, ...]
    budget: Budget  # cost of each training
    seeds: int  # number of training runs per method
    size: MeasurementSize  # numbers of rows and texts to measure for each model
    out: Path  # directory of the results
    judge: Judge | None = None  # model that scores the generated texts; None for none
    judge_name: str | None = None  # how the user named the judge

    def __post_init__(self) -> None:
        names = [method.name for method in self.methods]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"{repeated[0]} is named twice; name each method once")

    @property
    def jobs(self) -> Iterator[tuple[str, Method, int]]:
        """Yield (row name, method, seed) of every row, seed by seed, so that all methods appear early."""
        most = max(len(method.seeds(self.seeds)) for method in self.methods)
        for index in range(most):
            for method in self.methods:
                if index < len(seeds := method.seeds(self.seeds)):
                    yield f"{method.name} seed {seeds[index]}", method, seeds[index]

    @property
    def row_file(self) -> RowFile:
        return RowFile(self.out / _ROWS_FILE)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows that have been measured so far."""
        measured = self.row_file.read()
        return [measured[name] for name, _, _ in self.jobs if name in measured]

    def measure(self, tell: Callable[[str], None], after_row: Callable[[], object], *, quiet: bool) -> None:
        """Train and measure the missing rows.

        Args:
            tell: called with a line of progress
            after_row: called after each new row
            quiet: do not print training progress
        """
        self._require_same_settings()
        jobs, measured = list(self.jobs), self.row_file.read()
        for name, method, _ in jobs:
            if name in measured and measured[name]["recipe"] != method.digest:
                raise ValueError(
                    f"{self.row_file.file} has a row of another {name}; choose another --out, or remove that line"
                )
        for index, (name, method, seed) in enumerate(jobs, 1):
            if name not in measured:
                tell(f"{index} of {len(jobs)}: {name}, {self.budget}")
                self.row_file.add(name, lambda method=method, seed=seed: self._measure_row(method, seed, tell, quiet))  # type: ignore[misc]
                after_row()

    def _measure_row(self, method: Method, seed: int, tell: Callable[[str], None], quiet: bool) -> dict[str, Any]:
        trained = method.train(self.out, self.budget, seed, quiet=quiet)
        tell(f"{method.name} seed {seed}: measuring after {trained.run.steps:,} steps")
        heading = {
            "method": method.name,
            "seed": seed,
            "recipe": method.digest,
            "parameters": parameter_count(trained.run.model),
            "process": type(trained.run.model.process).__name__,
            "text": text_description(method),
        }
        figures = _measure_model(trained.model, trained.run, self.size, seed=seed, judge=self.judge)
        return {**heading, **trained.cost(), **figures, "curve": method.curve(self.out, seed)}

    def _require_same_settings(self) -> None:
        """Raise if `out` holds rows measured with other settings, since their figures cannot be compared."""
        settings = {"budget": str(self.budget), **asdict(self.size), "judge": self.judge_name}
        settings = json.loads(json.dumps(settings))  # tuples become lists, as in the file
        file = self.out / _SETTINGS_FILE
        if not file.exists():
            self.out.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(settings) + "\n", "utf-8")
        stored = json.loads(file.read_text("utf-8"))
        if wrong := [f"{key} {stored.get(key)}, not {v}" for key, v in settings.items() if stored.get(key) != v]:
            raise ValueError(f"{self.out} holds another comparison ({'; '.join(wrong)}); choose another --out")


def text_description(method: Method) -> str:
    """Return a short description of the text a method is measured on; bits of different texts cannot be compared."""
    run = method.run
    data, framing = type(run.data).__name__, type(run.framing).__name__
    return data if not run.framing.conditional else f"{data} by {framing}"


# --- summaries over seeds ---


def summaries(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Summarize the rows of each method by means over seeds; the method with the fewest bits comes first.

    `between` is the standard error of the mean over seeds, None for a single seed. `within` is the mean standard error
    of a single seed's figure, over the choice of rows and noise, or of texts. All seeds share their rows, so `within`
    does not shrink with more seeds.
    """
    names = list(dict.fromkeys(row["method"] for row in rows))
    by_method = [_summary(name, [row for row in rows if row["method"] == name]) for name in names]
    return sorted(by_method, key=lambda summary: float(summary["bits"]["mean"]))


def _summary(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = rows[0]
    bits = "excess" if all("excess" in row for row in rows) else "bits_per_char"
    points = [p for p in first["written"] if all(p in row["written"] for row in rows)]
    return {
        "method": name,
        "seeds": [row["seed"] for row in rows],
        "steps": [row["steps"] for row in rows],
        "minutes": first["minutes"],
        "bits_of": "bits per character above the truth" if bits == "excess" else "bits per character",
        "bits": _mean_over_seeds(rows, bits),
        "bits_per_char": _mean_over_seeds(rows, "bits_per_char"),
        **({"reconstruction": _mean_over_seeds(rows, "reconstruction")} if "reconstruction" in first else {}),
        "written": {point: _text_summary([row["written"][point] for row in rows]) for point in points},
        **{key: first[key] for key in ("parameters", "process", "text")},
    }


def _text_summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarize the quality and cost of texts written with one number of steps."""
    names = ("share", "attributes", "generative_perplexity", "unigram_entropy", "nfe", "seconds_per_sample")
    means = {name: _mean_over_seeds(rows, name) for name in names if name in rows[0]}
    return {**means, "sampler": rows[0]["sampler"]}


def _mean_over_seeds(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, float | None]:
    """Return the mean of a figure over seeds, with its errors between and within seeds (see `summaries`)."""
    values = [float(row[name]) for row in rows]
    errors = [float(row[f"{name}_stderr"]) for row in rows if f"{name}_stderr" in row]
    between = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return {"mean": fmean(values), "between": between, "within": fmean(errors) if errors else None}
