"""Certainty distillation (dParallel): a model learns from its own trajectories to need fewer steps.

    python recipes/certainty.py                             # ten minutes of one core, including the base model
    python recipes/certainty.py --base runs/mdlm_tiny       # with your own base model

The base model writes texts, one or a few tokens per step, and the order of writing is recorded. The student starts from
the base model and sees the partly written canvases. Its loss is the cross-entropy of the tokens that came later, plus
`weight` times the entropy wherever its most likely token is already right (Chen et al. 2025, "dParallel: learnable
parallel decoding"). It is then certain of more tokens at once, but less diverse: both are measured, at several numbers
of tokens per forward pass. No preset uses it. Rows go to recipes/results/certainty.jsonl, models to runs/certainty; an
interrupted recipe continues where it stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rows import Budget, Rows, Trained, cpu_timer, given, run_recipe, train_under_budget
from tables import markdown
from trajectories import TOGETHER, Certainty, Trajectories

from redraft.decoding import EntropyBound, Sampler, Unmask
from redraft.evaluation import grammar_score, unigram_entropy
from redraft.tasks import sample_canvases
from redraft.training import STORY_LANGUAGE, OptimizerConfig, Run, TrainingGoal, export, presets

TEXTS, STEPS, WRITTEN = 512, 400, 256
LEVELS: dict[str, Sampler] = {
    f"bound={bound:g}": Unmask(None, EntropyBound(bound, 1.0)) for bound in (0.02, 0.1, 0.3, 1.0, 2.0)
}


def distilled(run: Run, base: Path, goal: TrainingGoal) -> Run:
    """A student that begins as the base. Rows of the run's own data are counted, not read."""
    optimizer = OptimizerConfig(lr=5e-4, warmup=20, floor=0.0, ema=0.98)
    few = replace(run, eval_rows=16, samples=0, log_every=50, keep_checkpoints=1)
    return replace(few, base=str(base), objective=goal, optimizer=optimizer)


def measured(made: Trained, sampler: Sampler, texts: int) -> dict[str, Any]:
    """How good, how diverse, and how fast."""
    canvas = made.model.canvas(new=made.run.framing.length, rows=texts)
    with cpu_timer() as clock:
        record = sample_canvases(made.model, sampler, canvas, seed=2, batch=TOGETHER)
    inner, diverse = unigram_entropy(record.texts)
    return {
        **made.cost(),
        "tokens_per_forward": record.new_tokens / texts / record.nfe,
        "nfe": record.nfe,
        "grammatical": grammar_score(record.texts, STORY_LANGUAGE).share,
        "entropy": inner,
        "diversity": diverse,
        "different": len(set(record.texts)) / texts,
        "texts": texts,
        "seconds_per_text": clock.seconds / texts,
    }


def measure_all(options: argparse.Namespace) -> None:
    """Base and student at every level, row by row."""
    base = options.base or options.out / "base"
    untrained = presets.mdlm_tiny()
    first = given(base) if options.base else train_under_budget(untrained, base, Budget(steps=untrained.steps))
    file = options.out / "trajectories.safetensors"
    if not file.exists():
        sampler, length = Unmask(None, EntropyBound(0.1, 1.0)), first.run.framing.length
        Trajectories.of(first.model, sampler, options.texts, length).save(file)
    rows = Rows(options.results / "certainty.jsonl")
    for weight in options.weights:
        student = distilled(first.run, base, Certainty(str(file), weight))
        made = train_under_budget(student, options.out / f"{weight:g}", Budget(steps=options.steps), [first])
        shared = options.out / f"student-{weight:g}"
        if not shared.exists():
            export(shared, made.model)
        for who, of in {"before": first, f"after, weight {weight:g}": made}.items():
            for level, sampler in LEVELS.items():
                named = {"model": who, "level": level}
                rows.add(f"{who} {level}", lambda n=named, m=of, s=sampler: n | measured(m, s, options.written))


def table(held: Mapping[str, Mapping[str, Any]]) -> str:
    """Models and levels, as measured."""
    head = ("model", "level", "tokens per forward", "calls", "stories right, %", "entropy of all words, nats")
    return markdown(
        (*head, "different texts, %"),
        (
            (
                row["model"],
                row["level"],
                f"{row['tokens_per_forward']:.2f}",
                f"{row['nfe']:.1f}",
                f"{100 * row['grammatical']:.0f}",
                f"{row['diversity']:.2f}",
                f"{100 * row['different']:.0f}",
            )
            for row in held.values()
        ),
    )


def tables(results: Path) -> dict[str, str]:
    return {"certainty": table(Rows(results / "certainty.jsonl").read())}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, help="directory of a trained masked model; default: train mdlm_tiny")
    parser.add_argument(
        "--weights", type=float, nargs="+", default=[1.0], help="weights of the entropy; one student for each"
    )
    parser.add_argument("--texts", type=int, default=TEXTS, help="number of trajectories")
    parser.add_argument("--steps", type=int, default=STEPS, help="training steps")
    parser.add_argument("--written", type=int, default=WRITTEN, help="texts per measurement")
    parser.add_argument("--out", type=Path, default=Path("runs/certainty"))
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    measure_all(options)


if __name__ == "__main__":
    run_recipe(main)
