"""The page of one run: what it learnt, how it writes, what it costs. The demo's page is its bigger sister."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from redraft.apps.reports import charts, page, samples
from redraft.apps.reports.page import _Section
from redraft.apps.reports.watch import Frame, frames
from redraft.core.canvas import Canvas
from redraft.decoding.samplers.base import Sampler
from redraft.tasks.engine.loop import DecodingLoop
from redraft.tasks.engine.model import TextModel
from redraft.tasks.engine.result import TextResults
from redraft.training.data.loader import first_batches, load_rows
from redraft.training.data.sources import KnownDistribution
from redraft.training.heldout import HeldOut, Likelihood, excess_bits, likelihood
from redraft.training.runs import metrics
from redraft.training.runs.memory import parameter_count
from redraft.training.runs.run import Run
from redraft.training.samples import blank_canvases

_MOST_SHOWN = 6  # texts


@dataclass(frozen=True)
class ReportSizes:
    """How much is measured and written."""

    rows: int = 256  # held-out rows
    draws: int = 4  # noise levels of each
    texts: int = 32
    seed: int = 0


@dataclass(frozen=True)
class RunReport:
    """What the page tells of a run."""

    it: TextModel
    run: Run
    log: tuple[dict[str, Any], ...]
    sizes: ReportSizes
    likelihood: Likelihood
    excess: tuple[float, float] | None  # bits per character above the truth, and the standard error
    truth: float | None  # bits per character of the same rows under the truth
    written: TextResults
    frames: tuple[Frame, ...]  # the first text being written

    @classmethod
    def of(cls, it: TextModel, sizes: ReportSizes = ReportSizes()) -> RunReport:
        """Measures and writes; the model must be that of a run of ours."""
        if it.run is None or it.path is None:
            raise ValueError(f"{it.place} is a model without its run; a report tells of a run: give its directory")
        run, path = it.run, it.path.parent if it.path.name.startswith("step-") else it.path
        held = HeldOut.of(run.data, "valid", run.tokenizer, run.framing, sizes.rows)
        found = likelihood(it.model, held.batches, draws=sizes.draws, seed=sizes.seed)
        above = None if held.truth is None else excess_bits(found, held.truth.log_probs)
        truth = None if above is None else found.bits_per_char - above[0]
        written, seen = _written(it, run, sizes)
        log = tuple(metrics.read_metrics(path))
        return cls(it, run, log, sizes, found, above, truth, written, tuple(frames(seen, it.model)))

    def curve(self, key: str) -> tuple[tuple[int, float], ...]:
        """The values of a quantity in the log, by step."""
        return tuple((line["step"], line[key]) for line in self.log if key in line)


def _written(it: TextModel, run: Run, sizes: ReportSizes) -> tuple[TextResults, list[Canvas]]:
    """Texts by the run's own sampler, and the canvases of the first one."""
    import torch

    (first,) = first_batches(load_rows(run.data, "valid", run.tokenizer, run.framing), sizes.texts, sizes.texts)
    start = blank_canvases(it.model, run.framing, sizes.texts, first)
    rows = torch.arange(len(start.z), device=start.z.device)
    record = _writing(it, run.sampler, start, rows, sizes.seed).record()
    # a row draws from its own key: alone it becomes the same text as among the others
    return record, list(_writing(it, run.sampler, start.rows(rows[:1]), rows[:1], sizes.seed))


def _writing(it: TextModel, sampler: Sampler, start: Canvas, rows: Any, seed: int) -> DecodingLoop:
    return DecodingLoop(it.model, sampler, start, seed=seed, samples=rows)


def write_report(measured: RunReport, out: Path, command: str = "redraft") -> Path:
    """Writes the page to a file, and returns the file."""
    run, count = measured.run, parameter_count(measured.run.model)
    process = type(run.model.process).__name__
    summary = (
        f"A model of {count / 1e6:.1f} million weights ({process} noise, {run.model.network.layers} layers of "
        f"{run.model.network.width}), after {measured.it.step or run.steps:,} steps of {run.batch} rows."
    )
    footer = f"Run {run.digest}, seed {measured.sizes.seed}, by redraft report."
    title = (measured.it.path or Path("a run")).name
    return page._write_page(out, title, summary, _sections(measured, command), footer)


def _sections(measured: RunReport, command: str) -> Iterator[_Section]:
    yield _Section("", (_headline(measured),))
    if len(measured.frames) > 1:
        yield _Section(
            "From noise to text",
            (page._Playback(measured.frames),),
            "Each column is a place in the text, each row a step of the sampler, from noise at the top to the text at "
            "the bottom. The first text that it wrote, not chosen.",
        )
    if len(measured.curve("train_loss_bits_per_token")) > 1:
        yield _Section(
            "Learning",
            (_curves(measured),),
            "Held-out text, and what training minimises; the two are different quantities.",
        )
    yield _Section(
        f"The first {min(_MOST_SHOWN, len(measured.written))} texts it wrote", (_samples(measured),), "Not chosen."
    )
    yield _Section("The run", (_settings(measured.run),))
    yield _Section("Go on", (page._Commands(_commands(measured.it, command)),))


def _headline(measured: RunReport) -> page._Figures:
    found, written = measured.likelihood, measured.written
    held = f"{'at most' if bool(found.row_variance.any()) else 'exactly'}, {len(found.row_nats)} held-out rows"
    error = found.relative_error
    figures = [
        page._Figure(
            "bits per character", f"{found.bits_per_char:.4f}", f"± {error * found.bits_per_char:.4f}, {held}"
        ),
        page._Figure("bits per token", f"{found.bits_per_token:.4f}", f"± {found.stderr:.4f}"),
    ]
    if measured.excess is not None:
        over, stderr = measured.excess
        truth = f"± {stderr:.4f}; the truth has {measured.truth:.4f}"
        figures.insert(0, page._Figure("above the truth", page._format_number(f"{over:.4f}"), truth))
    if (share := _possible(measured)) is not None:
        figures.append(page._Figure("texts right", f"{share:.0%}", f"of {len(written)}, every word of them"))
    figures.append(page._Figure("network calls", f"{written.nfe:.1f}", "for a text"))
    figures.append(page._Figure("writing", f"{written.tokens_per_second:,.0f}", "tokens a second"))
    return page._Figures(tuple(figures))


def _possible(measured: RunReport) -> float | None:
    from redraft.evaluation.text_metrics import fraction_possible

    known = isinstance(measured.run.data, KnownDistribution) and not measured.run.framing.asked
    return fraction_possible(measured.written.texts, measured.run.data) if known else None  # type: ignore[arg-type]


def _curves(measured: RunReport) -> charts._Charts:
    above = measured.curve("valid_excess_bits_per_char")
    held = above or measured.curve("valid_bits_per_char")
    unit = "bits per character above the truth" if above else "bits per character"
    training = charts._Curve("training", measured.curve("train_loss_bits_per_token"))
    drawn = [charts._Chart("Training", "step", "loss in bits per token", (training,))]
    if len(held) > 1:
        drawn.insert(0, charts._Chart("Held-out text", "step", unit, (charts._Curve("held out", held),)))
    return charts._Charts(tuple(drawn))


def _samples(measured: RunReport) -> page._Samples:
    corpus = None if measured.run.framing.asked else measured.run.data
    return page._Samples(tuple(samples._judged_sample(text, corpus) for text in measured.written.texts[:_MOST_SHOWN]))


def _settings(run: Run) -> page._DataTable:
    rows: Sequence[tuple[str, object]] = (
        ("process", run.model.process),
        ("network", run.model.network),
        ("objective", run.objective),
        ("sampler", run.sampler),
        ("data", run.data),
        ("rows", run.framing),
        ("optimiser", run.optimiser),
        ("seed", run.seed),
    )
    return page._DataTable(("", "value"), tuple((name, _short(value)) for name, value in rows))


def _short(value: object, most: int = 240) -> str:
    said = str(value)
    return said if len(said) <= most else f"{said[:most]}…"


def _commands(it: TextModel, command: str) -> tuple[page.Command, ...]:
    run = quote(os.path.relpath(it.path or "."))
    return (
        page.Command("Play with it in a browser", f"{command} play {run}"),
        page.Command("Watch it write", f"{command} generate {run} --watch"),
        page.Command("Measure it again", f"{command} eval {run} --split test"),
        page.Command("Its settings and curves in the terminal", f"{command} show {run}"),
    )
