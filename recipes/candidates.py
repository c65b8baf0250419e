"""Minimum Bayes risk: the gain of `redraft rewrite --candidates`, for 1, 5 and 10 candidates.

    redraft train genie_summary_tiny --steps 300 --save-every 100 --keep-checkpoints 3 --out runs/genie_summary
    python recipes/candidates.py --model runs/genie_summary_early --sources 24    # a copy with only step 100

A model trained on pairs answers unseen sources of its own task. Of several candidates, the one most similar to all of
them is kept, as in DiffuSeq. Rows go to recipes/results/candidates.jsonl; existing rows are not measured again.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rows import Rows, cpu_timer, run_recipe
from tables import markdown

from redraft.core import bleu, minimum_bayes_risk
from redraft.tasks import TextModel, open_model, rewrite
from redraft.training import StoryAttributes, StorySummaries

COUNTS = (1, 5, 10)


def answered(model: TextModel, sources: int) -> tuple[list[list[str]], float]:
    """All candidates for each source, in the order in which `candidates=…` would draw them; CPU seconds for each."""
    task = task_of(model)
    with cpu_timer() as clock:
        records = [rewrite(model, task.pair("test", i).source, n=max(COUNTS)) for i in range(sources)]
    return [[each.text for each in record] for record in records], clock.seconds / sources / max(COUNTS)


def row(model: TextModel, texts: Sequence[Sequence[str]], seconds: float, count: int) -> dict[str, Any]:
    task = task_of(model)
    pairs = [task.pair("test", i) for i in range(len(texts))]
    kept = [minimum_bayes_risk(list(group[:count])) for group in texts]
    judged = [task.check(pair.source, text) for pair, text in zip(pairs, kept, strict=True)]
    facts, exact = ([getattr(each, name) for each in judged] for name in ("share", "exact"))
    return {
        "run": model.name,
        "step": model.step,
        "sources": len(texts),
        "bleu": bleu(kept, [pair.target for pair in pairs]),
        **_mean("facts", facts),
        **_mean("exact", exact),
        "seconds_per_text": seconds * count,
        "example": kept[0],
    }


def task_of(model: TextModel) -> StoryAttributes | StorySummaries:
    """The task that the model was trained on."""
    if model.run is None or not isinstance(model.run.data, StoryAttributes | StorySummaries):
        raise SystemExit(
            f"{model.display_name} was trained on no task of the stories; use genie_summary_tiny or diffuseq_tiny"
        )
    return model.run.data


def _mean(name: str, values: Sequence[float]) -> dict[str, float]:
    mean = sum(values) / len(values)
    return {name: mean, f"{name}_stderr": math.sqrt(sum((value - mean) ** 2 for value in values)) / len(values)}


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    heads = ("model", "candidates", "BLEU", "facts right", "all right", "CPU s")
    lines = []
    for name, held in rows.items():
        shares = [f"{100 * held[key]:.1f} ± {100 * held[f'{key}_stderr']:.1f} %" for key in ("facts", "exact")]
        model, count = name.split(", ")
        label = f"`{model}`, {held['step']:,} steps"
        lines.append([label, count, f"{100 * held['bleu']:.1f}", *shares, f"{held['seconds_per_text']:.1f}"])
    return markdown(heads, lines)


def tables(results: Path) -> dict[str, str]:
    return {"candidates": table(Rows(results / "candidates.jsonl").read())}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a model trained on pairs")
    parser.add_argument("--sources", type=int, default=64)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args(argv)
    rows = Rows(args.results / "candidates.jsonl")
    if args.model is not None and any(f"{args.model.name}, {count}" not in rows.read() for count in COUNTS):
        model = open_model(args.model)
        texts, seconds = answered(model, args.sources)
        for count in COUNTS:
            rows.add(f"{args.model.name}, {count}", partial(row, model, texts, seconds, count))


if __name__ == "__main__":
    run_recipe(main)
