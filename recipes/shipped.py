"""Trains the model that comes with the package: a small model of the embedded stories, trained longer than the demo's.

    python recipes/shipped.py

This takes about 25 minutes of one core; an interrupted recipe continues where it stopped. The row goes to
recipes/results/shipped.jsonl, the run to runs/shipped, the model with its card to redraft/models/shipped/story.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rows import Rows, run_recipe

import redraft
from redraft.evaluation import grammar_score
from redraft.models import DiffusionLM
from redraft.models.checkpoints import serialization
from redraft.models.shipped import STORY
from redraft.tasks import sample_canvases
from redraft.training import (
    STORY_LANGUAGE,
    Run,
    blank_canvases,
    excess_bits,
    first_batches,
    fit,
    likelihood,
    load_rows,
    presets,
)

STEPS = 12_000
HELD_OUT, WRITTEN = 256, 1000  # stories of the test stream, and stories written

CARD = """# story

The model that comes with Redraft: masked diffusion over the words of the embedded stories, {parameters:,} parameters.
It writes and fills stories of the grammar `redraft.training.STORY_LANGUAGE` and knows its {words} words, no others.

    redraft generate
    redraft infill "One spring day, [[4]] walked to the [[1]]."

| measured on | figure |
|---|---|
| bits per character, {held_out} held-out stories | {bits_per_char:.4f} |
| above the truth, bits per character | {excess:.4f} ± {excess_stderr:.4f} |
| of {written:,} stories written in {nfe:.0f} network calls each, right by the grammar | {percent:.0f} % |

Made by `python recipes/shipped.py` ({steps:,} steps of {batch} stories, {precision}); the run is {run}, the row is in
recipes/results/shipped.jsonl. The stories and the weights are part of Redraft, under its license.
"""


def story(steps: int = STEPS) -> Run:
    return replace(presets.mdlm_tiny(), steps=steps, precision="fp32")


def measured(run: Run, model: DiffusionLM) -> dict[str, Any]:
    """The bound against the truth, and how many of its stories are right."""
    unseen = first_batches(load_rows(run.data, "test", run.tokenizer, run.framing), HELD_OUT)
    bound = likelihood(model, unseen)
    truth = [STORY_LANGUAGE.log_prob(run.data.document("test", i)) for i in range(HELD_OUT)]  # type: ignore[union-attr]
    written = sample_canvases(model, run.sampler, blank_canvases(model, run.framing, WRITTEN, unseen[0]))
    above, stderr = excess_bits(bound, truth)
    return {
        "run": run.digest,
        "steps": run.steps,
        "batch": run.batch,
        "precision": run.precision,
        "stages": [{"run": run.digest, "steps": run.steps, "seed": run.seed, "config": serialization.to_json(run)}],
        "parameters": sum(p.numel() for p in model.parameters()),
        "words": len(STORY_LANGUAGE.words()),
        "held_out": HELD_OUT,
        "bits_per_char": bound.bits_per_char,
        "excess": above,
        "excess_stderr": stderr,
        "written": WRITTEN,
        "nfe": written.nfe,
        "grammatical": grammar_score(written.texts, STORY_LANGUAGE).share,
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", type=Path, default=Path("runs/shipped"))
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--model", type=Path, default=Path(redraft.__file__).parent / "shipped" / STORY)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    run = story(options.steps)
    model = fit(run, options.out)
    rows = Rows(options.results / "shipped.jsonl")
    rows.add(STORY, lambda: measured(run, model))
    row = rows.read()[STORY]
    if row["run"] != run.digest:
        raise ValueError(f"{rows.file} holds a row of another run; remove it, or choose another --results")
    made = redraft.export(options.out / STORY, model, run, CARD.format(percent=100 * row["grammatical"], **row))
    shutil.rmtree(options.model, ignore_errors=True)
    shutil.move(made, options.model)


if __name__ == "__main__":
    run_recipe(main)
