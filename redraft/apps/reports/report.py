"""The page of one run: held-out likelihood, learning curves, generated texts, settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from redraft.apps.reports import charts, page
from redraft.apps.reports.page import _Section
from redraft.apps.reports.watch import Frame, frames
from redraft.core.canvas import Canvas
from redraft.decoding.samplers.base import Sampler
from redraft.tasks.engine.loop import DecodingLoop
from redraft.tasks.engine.model import TextModel
from redraft.tasks.engine.result import TextResults
from redraft.training.data.loader import first_batches, load_rows
from redraft.training.heldout import HeldOut, Likelihood, excess_bits, likelihood
from redraft.training.runs import metrics
from redraft.training.runs.memory import parameter_count
from redraft.training.runs.run import Run
from redraft.training.samples import blank_canvases

_MOST_SHOWN = 6  # maximum number of texts on the page


@dataclass(frozen=True)
class ReportSizes:
    """Amounts to measure and to generate."""

    rows: int = 256  # held-out rows
    draws: int = 4  # noise levels per row
    texts: int = 32  # texts to generate
    seed: int = 0


@dataclass(frozen=True)
class RunReport:
    """The content of the report on a run."""

    model: TextModel
    run: Run
    log: tuple[dict[str, Any], ...]
    sizes: ReportSizes
    likelihood: Likelihood
    excess: tuple[float, float] | None  # bits per character above the truth, and the standard error; None if unknown
    truth: float | None  # true bits per character of the same rows; None if unknown
    generated: TextResults
    frames: tuple[Frame, ...]  # the steps of the first text

    @classmethod
    def of(cls, model: TextModel, sizes: ReportSizes = ReportSizes()) -> RunReport:
        """Measures the model and generates texts; it must come from a training run."""
        if model.run is None or model.path is None:
            name = model.display_name
            raise ValueError(f"{name} is a model without its run, which a report needs; give the directory of a run")
        run, path = model.run, model.path.parent if model.path.name.startswith("step-") else model.path
        held_out = HeldOut.of(run.data, "valid", run.tokenizer, run.framing, sizes.rows)
        estimate = likelihood(model.lm, held_out.batches, draws=sizes.draws, seed=sizes.seed)
        excess = None if held_out.truth is None else excess_bits(estimate, held_out.truth.log_probs)
        truth = None if excess is None else estimate.bits_per_char - excess[0]
        generated, canvases = _generated(model, run, sizes)
        log = tuple(metrics.read_metrics(path))
        return cls(model, run, log, sizes, estimate, excess, truth, generated, tuple(frames(canvases, model.lm)))

    def curve(self, key: str) -> tuple[tuple[int, float], ...]:
        """(step, value) of a quantity in the log."""
        return tuple((line["step"], line[key]) for line in self.log if key in line)


def _generated(model: TextModel, run: Run, sizes: ReportSizes) -> tuple[TextResults, list[Canvas]]:
    """Generates texts with the sampler of the run; returns them and all canvases of the first one."""
    import torch

    (first,) = first_batches(load_rows(run.data, "valid", run.tokenizer, run.framing), sizes.texts, sizes.texts)
    start = blank_canvases(model.lm, run.framing, sizes.texts, first)
    rows = torch.arange(len(start.z), device=start.z.device)
    results = _decoding_loop(model, run.sampler, start, rows, sizes.seed).results()
    # a row draws from its own key, so alone it becomes the same text as in the batch
    return results, list(_decoding_loop(model, run.sampler, start.rows(rows[:1]), rows[:1], sizes.seed))


def _decoding_loop(model: TextModel, sampler: Sampler, start: Canvas, rows: Any, seed: int) -> DecodingLoop:
    return DecodingLoop(model.lm, sampler, start, seed=seed, samples=rows)


def write_report(report: RunReport, out: Path, command: str = "redraft") -> Path:
    """Writes the page to `out` and returns that path."""
    run, count = report.run, parameter_count(report.run.model)
    process = type(run.model.process).__name__
    summary = (
        f"A model of {count / 1e6:.1f} million weights ({process} noise, {run.model.network.layers} layers of "
        f"{run.model.network.width}), after {report.model.step or run.steps:,} steps of {run.batch} rows."
    )
    footer = f"Run {run.digest}, seed {report.sizes.seed}, by redraft report."
    title = (report.model.path or Path("a run")).name
    return page._write_page(out, title, summary, _sections(report, command), footer)


def _sections(report: RunReport, command: str) -> Iterator[_Section]:
    yield _Section("", (_headline(report),))
    if len(report.frames) > 1:
        yield _Section(
            "From noise to text",
            (page._Playback(report.frames),),
            "Each column is a position in the text, each row a step of the sampler, from noise at the top to the text "
            "at the bottom. This is the first generated text, not selected.",
        )
    if len(report.curve("train_loss_bits_per_token")) > 1:
        yield _Section(
            "Learning",
            (_curves(report),),
            "Bits on held-out text, and the training loss, which is a different quantity.",
        )
    yield _Section(f"The first {min(_MOST_SHOWN, len(report.generated))} texts", (_samples(report),), "Not selected.")
    yield _Section("The run", (_settings(report.run),))
    yield _Section("Next steps", (page._Commands(_commands(report.model, command)),))


def _headline(report: RunReport) -> page._Figures:
    estimate, generated = report.likelihood, report.generated
    basis = f"{'at most' if bool(estimate.row_variance.any()) else 'exactly'}, {len(estimate.row_nats)} held-out rows"
    error = estimate.relative_error
    figures = [
        page._Figure(
            "bits per character", f"{estimate.bits_per_char:.4f}", f"± {error * estimate.bits_per_char:.4f}, {basis}"
        ),
        page._Figure("bits per token", f"{estimate.bits_per_token:.4f}", f"± {estimate.stderr:.4f}"),
    ]
    if report.excess is not None:
        excess, stderr = report.excess
        truth = f"± {stderr:.4f}; the truth has {report.truth:.4f}"
        figures.insert(0, page._Figure("above the truth", page._format_number(f"{excess:.4f}"), truth))
    if (fraction := _correct_fraction(report)) is not None:
        figures.append(page._Figure("correct texts", f"{fraction:.0%}", f"of {len(generated)}"))
    figures.append(page._Figure("network calls", f"{generated.nfe:.1f}", "per text"))
    figures.append(page._Figure("generation", f"{generated.tokens_per_second:,.0f}", "tokens per second"))
    return page._Figures(tuple(figures))


def _correct_fraction(report: RunReport) -> float | None:
    """Fraction of generated texts that the corpus can produce; None if its distribution is unknown."""
    from redraft.evaluation.text_metrics import fraction_possible

    distribution = None if report.run.framing.conditional else report.run.distribution
    return None if distribution is None else fraction_possible(report.generated.texts, distribution)


def _curves(report: RunReport) -> charts._Charts:
    excess = report.curve("valid_excess_bits_per_char")
    held_out = excess or report.curve("valid_bits_per_char")
    unit = "bits per character above the truth" if excess else "bits per character"
    training = charts.Curve.through("training", report.curve("train_loss_bits_per_token"))
    shown = [charts.Chart("Training", "step", "loss in bits per token", (training,), y_log=True)]
    if len(held_out) > 1:
        curve = charts.Curve.through("held out", held_out)
        shown.insert(0, charts.Chart("Held-out text", "step", unit, (curve,), y_log=True))
    return charts._Charts(tuple(shown))


def _samples(report: RunReport) -> page._Samples:
    corpus = None if report.run.framing.conditional else report.run.data
    return page._Samples(tuple(page._judged_sample(text, corpus) for text in report.generated.texts[:_MOST_SHOWN]))


def _settings(run: Run) -> page._DataTable:
    rows: Sequence[tuple[str, object]] = (
        ("process", run.model.process),
        ("network", run.model.network),
        ("objective", run.objective),
        ("sampler", run.sampler),
        ("data", run.data),
        ("rows", run.framing),
        ("optimizer", run.optimizer),
        ("seed", run.seed),
    )
    return page._DataTable(("", "value"), tuple((name, _short(value)) for name, value in rows))


def _short(value: object, most: int = 240) -> str:
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}…"


def _commands(model: TextModel, command: str) -> tuple[page.Command, ...]:
    run = quote(os.path.relpath(model.path or "."))
    return (
        page.Command("Try it in a browser", f"{command} play {run}"),
        page.Command("Watch it generate", f"{command} generate {run} --watch"),
        page.Command("Measure it again", f"{command} eval {run} --split test"),
        page.Command("Show its settings and curves in the terminal", f"{command} show {run}"),
    )
