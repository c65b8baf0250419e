"""Which drawbacks does Diffusion-LM have: many steps, vectors that collapse, noise levels that teach nothing?

    python recipes/continuous.py drawbacks              # five CPU minutes of training, about eight of measuring
    python recipes/continuous.py drawbacks --only levels

`levels` has what can be read from the noisy vectors and from the denoiser's x̂ at each noise level, as `redraft levels`
prints it: where z gives every word away, or x̂ knows nothing, training teaches nothing. `steps` rows write stories in
8 to 1000 steps. `collapse` rows train word vectors of free length by the squared error, with the rounding term and
without: the squared error alone is least where all vectors are one, so their mean distance falls.

Minutes are CPU minutes of one core. Rows go to recipes/results/drawbacks.jsonl as they are finished, models to
runs/drawbacks. Answer: docs/results/claims.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from results_pages.tables import cell, markdown, right
from rows import Measure, Rows, Trained, add_places, measure_all, trained
from torch import Tensor

from redraft.apps import Chart, Curve, Point, Svg, chart_picture
from redraft.core import Batch, Rng, rng
from redraft.decoding import Ancestral
from redraft.evaluation import noise_levels, write_and_judge
from redraft.models import DiffusionLM, PredictX
from redraft.training import Objective, SquaredError, first_batches, load_rows, presets
from redraft.training.runs import variations

STEPS = (8, 16, 32, 64, 125, 250, 500, 1000)
WRITTEN = 64  # stories
LEVELS, ROWS = 31, 64  # of the table of noise levels
COLLAPSING, PARTS = 600, 6  # training steps, and how often distances are measured


def levels_row(made: Trained) -> dict[str, Any]:
    run, model = made.run, made.model.eval()
    batches = first_batches(load_rows(run.data, "valid", run.tokenizer, run.framing), ROWS)
    times = [max(i / (LEVELS - 1), 1e-6) for i in range(LEVELS)]
    table = noise_levels.accuracy_by_noise(model, batches, times)
    return {**made.cost(), "levels": [level._asdict() for level in table]}


def steps_row(made: Trained, steps: int) -> dict[str, Any]:
    written, _ = write_and_judge(made.model, made.run, Ancestral(steps), WRITTEN)
    return {**made.cost(), **written}


def collapse_row(rounding: bool, steps: int) -> dict[str, Any]:
    """Train vectors of free length by the squared error, and measure their mean distance."""
    run = variations._with_codec(presets.diffusion_lm_tiny(), unit=False, neighbor_fraction=0.0)
    run = variations._with_head(run, PredictX(), SquaredError())
    torch.manual_seed(0)
    model, objective = DiffusionLM(run.model, run.tokenizer), Objective(SquaredError())
    assert model.codec is not None
    assert model.codec.table is not None
    optimizer = torch.optim.Adam(objective.trained_parameters(model), 3e-3)
    batches = first_batches(load_rows(run.data, "train", run.tokenizer, run.framing), steps * run.batch, run.batch)
    distances = [float(torch.pdist(model.codec.table.detach()).mean())]
    for step, batch in enumerate(batches):
        keys = rng(step, len(batch.tokens))
        loss = objective(model, batch, rng=keys).mean if rounding else squared_error(model, objective, batch, keys)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % (steps // PARTS) == 0:
            distances.append(float(torch.pdist(model.codec.table.detach()).mean()))
    return {"steps": steps, "distances": distances, "of_the_start": distances[-1] / distances[0]}


def squared_error(model: DiffusionLM, objective: Objective, batch: Batch, keys: Rng) -> Tensor:
    """The diffusion term alone."""
    for_time, for_noise = keys.split(2)
    times, clean = objective.loss.grid(objective.times(batch, rng=for_time)), model.read(batch)
    noised = model.process.noise(clean.x, times.t, rng=for_noise)
    return objective.loss(model.process, model.predict(noised.z, noised.t), noised, times).mean()


def jobs(out: Path, minutes: float) -> Iterator[tuple[str, Measure]]:
    made = cache(lambda: trained(presets.diffusion_lm_tiny(), out / "diffusion_lm", minutes))
    yield "levels", lambda: levels_row(made())
    for steps in STEPS:
        yield f"{steps} steps", lambda steps=steps: steps_row(made(), steps)
    yield "collapse without rounding", partial(collapse_row, False, COLLAPSING)
    yield "collapse with rounding", partial(collapse_row, True, COLLAPSING)


# --- the page ---


def tables(results: Path) -> dict[str, str]:
    rows = Rows(results / "drawbacks.jsonl").read()
    if not rows:
        return {"drawbacks": "*No rows yet; this makes them:* `python recipes/continuous.py drawbacks`"}
    lines = [
        [f"{steps:,}", right(row := rows.get(f"{steps} steps")), cell(row, lambda row: f"{row['unigram_entropy']:.2f}")]
        for steps in STEPS
    ]
    return {"drawbacks": markdown(["steps of Diffusion-LM", "right stories, %", "entropy, nats"], lines)}


def pictures(results: Path) -> dict[str, Svg]:
    """What z and x̂ tell at each noise level; right stories by steps; distances of vectors by training steps."""
    rows = Rows(results / "drawbacks.jsonl").read()
    table = rows["levels"]["levels"] if "levels" in rows else []
    read = {"accuracy": "read from z", "denoised_accuracy": "read from x̂"}
    known = tuple(Curve.through(said, ((row["logsnr"], 100 * row[key]) for row in table)) for key, said in read.items())
    levels = [row["logsnr"] for row in table] or [0.0, 1.0]
    steps = ((n, rows[f"{n} steps"]) for n in STEPS if f"{n} steps" in rows)
    shares = tuple(Point(n, 100 * row["share"], 100 * row["share_stderr"]) for n, row in steps)
    apart = tuple(
        Curve.through(f"{name} rounding", ((i * row["steps"] / PARTS, d) for i, d in enumerate(row["distances"])))
        for name in ("with", "without")
        if (row := rows.get(f"collapse {name} rounding")) is not None
    )
    ends = (min(levels), max(levels))
    by_steps, by_level = (Curve("Diffusion-LM", shares),), "right words, %"
    return {
        "levels": chart_picture([Chart("What a noise level tells", "log-SNR", by_level, known, x_range=ends, top=100)]),
        "drawbacks": chart_picture(
            [
                Chart("Writing takes steps", "steps", "right stories, %", by_steps, x_log=True, top=100),
                Chart("Vectors collapse", "training steps", "mean distance of two words", apart),
            ]
        ),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="CPU minutes of the training")
    add_places(parser, "runs/drawbacks")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    measure_all(Rows(options.results / "drawbacks.jsonl"), jobs(options.out, options.minutes), options.only)
