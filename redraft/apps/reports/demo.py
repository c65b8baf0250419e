"""The demo: a diffusion model learns to write small stories, is compared with the truth, and leaves a report.

    runs/demo/   the run itself (checkpoints, metrics.jsonl), ar/ (the baseline),
                 report.html  result.json  writing.svg

The stories come from a grammar with known probabilities, so "how good" has an exact answer. If it is interrupted, the
next call resumes; finished training is not repeated.
"""

from __future__ import annotations

import json as jsonlib
import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from shlex import quote

from rich.console import Console

from redraft.apps.reports import demo_console, findings, page, pictures
from redraft.apps.reports.demo_sections import _sections
from redraft.apps.reports.findings import _DemoModel, _DemoResults, _DemoTexts, _ModelScores
from redraft.apps.reports.page import _Section
from redraft.apps.reports.watch import Frame
from redraft.training import presets
from redraft.training.runs.run import Run


def demo(
    out: Path = Path("runs/demo"), *, seed: int = 0, minutes: float = 4.0, json: bool = False, quiet: bool = False
) -> None:
    """Train, measure, write and report: the whole story in a few minutes.

    Args:
        out: directory for the run, report.html, result.json and writing.svg
        seed: seed of the weights, the noise and the texts
        minutes: approximate training time on two cores; it sets the number of steps, so that a seed gives the same
            model on a slower machine
        json: print result.json as one line on stdout
        quiet: print no progress and no explanations
    """
    console = Console(stderr=json, quiet=quiet)
    ours, baseline = _runs(seed, minutes)
    demo_console._print_heading(
        console, "1/4  Learning", f"masked diffusion, {ours.steps} steps of {ours.batch} stories"
    )
    model = _DemoModel.fit(ours, out, quiet)
    demo_console._print_heading(console, "2/4  A baseline", f"the same network, left to right, {baseline.steps} steps")
    causal = _DemoModel.fit(baseline, out / "ar", quiet)
    demo_console._print_heading(
        console,
        "3/4  Against the truth",
        f"{findings._HELD_OUT} unseen stories, {findings._WRITTEN} stories written by each",
    )
    clock = time.perf_counter()
    found = _DemoResults(_ModelScores.of(model, seed), _ModelScores.of(causal, seed), seed)
    demo_console._print_figures(console, found)
    demo_console._print_heading(
        console, "4/4  Writing", "the first stories, gaps filled, and one story from noise to text"
    )
    pieces = _DemoTexts.of(found)
    demo_console._print_texts(console, pieces, model.model)
    seconds = time.perf_counter() - clock
    commands = _next_commands(out, pieces.gaps[0].template)
    _leave(out, found, _sections(found, pieces, seconds, commands), pieces.frames)
    demo_console._print_next_steps(console, out, commands)
    if json:
        print(jsonlib.dumps(found.result()), flush=True)


def _runs(seed: int, minutes: float) -> tuple[Run, Run]:
    """The diffusion model, and the autoregressive baseline for a quarter of its steps; both measured as they learn."""
    if not minutes > 0:
        raise ValueError(f"minutes={minutes:g}; training needs some time, say --minutes 4")
    ours, baseline = presets.mdlm_tiny(), presets.ar_tiny()
    steps = max(1, round(ours.steps * minutes / 4))
    return _adjusted(ours, steps, seed), _adjusted(baseline, max(1, steps // 4), seed)


def _adjusted(run: Run, steps: int, seed: int) -> Run:
    """The run with other steps and seed, measured eight times for the curve."""
    return replace(run, steps=steps, seed=seed, eval_every=max(1, steps // 8))


def _next_commands(out: Path, template: str) -> tuple[page.Command, ...]:
    """Commands that work as they stand, from the directory where the demo was called."""
    path = os.path.relpath(Path(sys.executable).with_name("redraft"))
    redraft, run, longer = "redraft" if shutil.which("redraft") else path, quote(str(out)), quote(f"{out}-long")
    return (
        page.Command("Play with it in a browser", f"{redraft} play {run}"),
        page.Command("Watch it write", f"{redraft} generate {run} --watch"),
        page.Command("Fill gaps", f"{redraft} infill {run} {quote(template)}"),
        page.Command("Measure it again", f"{redraft} eval {run} --split test"),
        page.Command("Learn four times as long", f"{redraft} demo --minutes 16 --out {longer}"),
        page.Command("Learn from text of your own", f"{redraft} train mdlm_tiny --data my.txt --out runs/mine"),
    )


def _leave(out: Path, found: _DemoResults, parts: list[_Section], written: tuple[Frame, ...]) -> None:
    (out / "result.json").write_text(jsonlib.dumps(found.result(), indent=1) + "\n")
    (out / "writing.svg").write_text(pictures.picture(written), "utf-8")
    model = found.ours.trained
    summary = (
        f"A masked diffusion model of {model.parameters / 1e6:.1f} million weights has learnt to write small stories. "
        "They come from a grammar with known probabilities, so everything here can be held against the truth."
    )
    footer = f"Run {model.run.digest}, seed {found.seed}, by redraft demo. The figures are in result.json."
    title = f"From noise to stories, learnt in {page._format_duration(model.seconds)}"
    page._write_page(out / "report.html", title, summary, parts, footer)
