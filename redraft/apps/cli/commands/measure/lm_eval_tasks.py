"""`redraft eval --tasks`: tasks of lm-eval, as figures like all others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redraft.apps.cli.model_flags import Opening
from redraft.apps.cli.output import emit, note
from redraft.apps.cli.progress import Progress

if TYPE_CHECKING:
    from redraft.evaluation.harness.report import Report
    from redraft.tasks.engine.model import Opened

_SILENT = {"TQDM_DISABLE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True)
class _Told:
    """Says by one bar how far the harness is."""

    progress: Progress

    def begin(self, what: str, total: int) -> None:
        self.progress.turn_to(what, total or None)

    def advance(self, count: int) -> None:
        self.progress.advance(count)


def run_tasks(
    path: Path,
    opening: Opening,
    tasks: Sequence[str],
    *,
    include: Path | None,
    limit: int | None,
    shots: int | None,
    chat: bool,
    json: bool,
    length: int,
    **settings: Any,
) -> None:
    """Runs the tasks and prints a figure for each of their metrics; the settings are those of the harness's model."""
    for variable, silent in _SILENT.items():  # read when its packages are imported, some of them with torch
        os.environ.setdefault(variable, silent)
    from redraft.apps.cli.models import open_model
    from redraft.evaluation.harness.tasks import evaluate_tasks, language_model, require_package
    from redraft.evaluation.text_metrics import record

    require_package()
    it = open_model(path, opening)
    note(f"{path}: {'no run' if it.run is None else f'run {it.name}, step {it.step}'}")
    with Progress("importing lm-eval") as progress:
        watch = _Told(progress)
        lm = language_model(it, watch=watch, length=_longest(it, length), **settings)
        found = evaluate_tasks(lm, tasks, include=include, limit=limit, shots=shots, chat=chat, watch=watch)
    _warn(lm.report)
    for name, value, more in found:
        figure = record(name, value, run=it.name, seed=lm.seed, **more)
        emit(figure, json, _line(figure))


def _longest(it: Opened, length: int) -> int | None:
    """Rows of a run stay as they were in training; others have the length that is asked for, if they can."""
    return None if it.run is not None else min(length, it.model.config.network.positions or length)


def _warn(report: Report) -> None:
    if report.unknown > 0.05 * report.tokens:
        share = report.unknown / report.tokens
        note(f"{share:.0%} of the words of these tasks are unknown to the tokenizer, which cannot tell them apart")
    if report.ignored:
        note(f"settings of tasks that mean nothing here and were ignored: {', '.join(sorted(report.ignored))}")


def _line(figure: dict[str, float | str | None]) -> str:
    """A metric, its error over questions, and what the Monte Carlo adds to the log-likelihoods."""
    value = "–" if figure["value"] is None else f"{figure['value']:.4g}"
    error = f" ± {figure['stderr']:.2g}" if figure.get("stderr") else ""
    line = f"{figure['name']!s:<40}{value:>10}{error}   {figure['rows']:,} questions"
    if figure.get("likelihood") == "exact":
        return f"{line}, exact likelihoods"
    if figure.get("likelihood") == "bound":
        line += f", bounds of {figure['calls']} calls ± {figure['nats_stderr']:.2g} nats"
        if figure["undecided"]:
            line += f", {figure['undecided']:.0%} undecided (more --draws)"
    return line
