"""Several methods under one budget: rows as they are finished, and what they say together."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from redraft.evaluation.comparison.budget import Budget
from redraft.evaluation.comparison.measurement import MeasurementSize, measure_model
from redraft.evaluation.comparison.methods import Method
from redraft.evaluation.comparison.row_file import RowFile
from redraft.evaluation.judges import Judge
from redraft.training.runs.memory import parameter_count

_ROWS_FILE, _SETTINGS_FILE = "rows.jsonl", "settings.json"


@dataclass(frozen=True)
class Comparison:
    """What is compared, at which price, and where its rows go."""

    methods: tuple[Method, ...]
    budget: Budget
    seeds: int
    effort: MeasurementSize
    out: Path
    judge: Judge | None = None
    judge_name: str | None = None

    def __post_init__(self) -> None:
        names = [method.name for method in self.methods]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"{twice[0]} is named twice; name each method once")

    @property
    def jobs(self) -> Iterator[tuple[str, Method, int]]:
        """The rows to be, one seed after the other, so that all methods are seen early."""
        most = max(len(method.seeds(self.seeds)) for method in self.methods)
        for number in range(most):
            for method in self.methods:
                if number < len(seeds := method.seeds(self.seeds)):
                    yield f"{method.name} seed {seeds[number]}", method, seeds[number]

    @property
    def ledger(self) -> RowFile:
        return RowFile(self.out / _ROWS_FILE)

    def rows(self) -> list[dict[str, Any]]:
        """Those that are measured so far."""
        held = self.ledger.held()
        return [held[name] for name, _, _ in self.jobs if name in held]

    def measure(self, tell: Callable[[str], None], done: Callable[[], object], *, quiet: bool) -> None:
        """Trains and measures what is missing; `done` is called after each row."""
        self._claim()
        jobs, held = list(self.jobs), self.ledger.held()
        for name, method, _ in jobs:
            if name in held and held[name]["recipe"] != method.digest:
                raise ValueError(f"{self.ledger.file} has another {name}; choose another --out, or remove that line")
        for number, (name, method, seed) in enumerate(jobs, 1):
            if name not in held:
                tell(f"{number} of {len(jobs)}: {name}, {self.budget}")
                self.ledger.add(name, lambda method=method, seed=seed: self._row(method, seed, tell, quiet))  # type: ignore[misc]
                done()

    def _row(self, method: Method, seed: int, tell: Callable[[str], None], quiet: bool) -> dict[str, Any]:
        made = method.fitted(self.out, self.budget, seed, quiet=quiet)
        tell(f"{method.name} seed {seed}: measuring after {made.run.steps:,} steps")
        about = {
            "method": method.name,
            "seed": seed,
            "recipe": method.digest,
            "parameters": parameter_count(made.run.model),
            "process": type(made.run.model.process).__name__,
            "text": text_description(method),
        }
        found = measure_model(made.model, made.run, self.effort, seed=seed, judge=self.judge)
        return {**about, **made.cost(), **found, "curve": method.curve(self.out, seed)}

    def _claim(self) -> None:
        """Rows measured otherwise cannot be compared with those of this command: they need another place."""
        said = {"budget": str(self.budget), **asdict(self.effort), "judge": self.judge_name}
        said = json.loads(json.dumps(said))  # as it is read again
        file = self.out / _SETTINGS_FILE
        if not file.exists():
            self.out.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(said) + "\n", "utf-8")
        held = json.loads(file.read_text("utf-8"))
        if wrong := [f"{key} {held.get(key)}, not {value}" for key, value in said.items() if held.get(key) != value]:
            raise ValueError(f"{self.out} holds another comparison ({'; '.join(wrong)}); choose another --out")


def text_description(method: Method) -> str:
    """The text that a method is measured on, in a few words; bits of different texts cannot be compared."""
    run = method.run
    data, framing = type(run.data).__name__, type(run.framing).__name__
    return data if not run.framing.asked else f"{data} by {framing}"


# --- what the rows say together ---


def summaries(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One per method, best bits first: means over seeds.

    An error between seeds is the standard error of their mean, None for one seed. An error within is that of one
    seed's figure, over other rows and noise (of texts: other texts); rows are the same for all seeds, so it does not
    fall with their number.
    """
    names = list(dict.fromkeys(row["method"] for row in rows))
    found = [_summary(name, [row for row in rows if row["method"] == name]) for name in names]
    return sorted(found, key=lambda each: float(each["bits"]["mean"]))


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
        "bits": mean_over_seeds(rows, bits),
        "bits_per_char": mean_over_seeds(rows, "bits_per_char"),
        **({"reconstruction": mean_over_seeds(rows, "reconstruction")} if "reconstruction" in first else {}),
        "written": {point: _written([row["written"][point] for row in rows]) for point in points},
        **{key: first[key] for key in ("parameters", "process", "text")},
    }


def _written(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = ("share", "attributes", "generative_perplexity", "unigram_entropy", "nfe", "seconds_per_sample")
    found = {name: mean_over_seeds(rows, name) for name in names if name in rows[0]}
    return {**found, "sampler": rows[0]["sampler"]}


def mean_over_seeds(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, float | None]:
    """The mean of a figure over seeds, with its errors between and within them."""
    values = [float(row[name]) for row in rows]
    errors = [float(row[f"{name}_stderr"]) for row in rows if f"{name}_stderr" in row]
    between = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return {"mean": fmean(values), "between": between, "within": fmean(errors) if errors else None}
