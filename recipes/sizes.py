"""The cost of each preset: parameters, memory, time of a training step.

    python recipes/sizes.py                                 # measures the rows, each in its own process

The tiny presets are trained for some steps on one core, in fp32. The published ones are counted, not trained, with
placeholder tokenizers of the same size.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rows import TIMED_STEPS, Rows, run_recipe, seconds_per_step
from tables import markdown

from redraft.core import Special, WordTokenizer
from redraft.models import DiffusionLM
from redraft.training import (
    Run,
    TrainStep,
    build_optimizers,
    fit,
)
from redraft.training.presets import (
    PRESETS,
    PUBLISHED,
    TINY,
)

BERT = dict.fromkeys(("lm1b", "qqp", "roc", "xsum", "books", "prose", "reviews"), 30_522)
VOCABULARY = {**BERT, "owt": 50_258, "8b": 126_464, "e2e": 821}  # states of the data that a preset is named after
FP32 = 4  # bytes


# --- counting ---


def preset(name: str) -> Run:
    """A preset; one that reads its tokenizer from a file gets a made-up one of the right size."""
    vocabulary = VOCABULARY.get(name.rsplit("_", 1)[-1])
    if vocabulary is None:
        return PRESETS[name]()
    with_start = name.startswith("diffuseq")  # source and target in one row
    return PRESETS[name](made_up(vocabulary, ("bos", "eos", "mask") if with_start else ("eos", "pad", "mask")))


@cache
def made_up(size: int, specials: tuple[Special, ...]) -> WordTokenizer:
    """Numbered words, the unknown one, and the special tokens."""
    return WordTokenizer(tuple(f"w{i}" for i in range(size - 1 - len(specials))), specials)


def counted(run: Run) -> dict[str, int]:
    """Parameters, and the bytes that training holds for them: weights, averages, gradients and moments, in fp32.

    What a step computes in between (activations) comes on top and grows with the rows of a step.
    """
    with torch.device("meta"):
        step = TrainStep(DiffusionLM(run.model), run.objective)
    everything = list(step.model.parameters())
    learned = sum(p.numel() for p in everything if p.requires_grad)
    adamw, *muon = build_optimizers(step.model, run.optimizer)
    moments = sum(
        count * p.numel()
        for optimizer, count in ((adamw, 2), *((one, 1) for one in muon))
        for group in optimizer.param_groups
        for p in group["params"]
        if p.requires_grad
    )
    total = sum(p.numel() for p in everything)
    return {"parameters": total, "state_bytes": FP32 * (2 * total + learned + moments)}


def published(name: str) -> dict[str, Any]:
    run = preset(name)
    rows = {"vocabulary": run.tokenizer.vocab.size, "batch": run.batch, "length": run.framing.length}
    return {**counted(run), **rows, "steps": run.steps}


# --- measuring ---


def measured(name: str, steps: int) -> dict[str, Any]:
    """A row of a tiny preset, from a process that does nothing else; a base is trained before, for one step."""
    run = preset(name)
    with TemporaryDirectory() as folder:
        if run.base is not None:
            separately(folder, Path(run.base).name, "--base")
        timed = separately(folder, name, "--steps", str(steps))
    return {**counted(run), **timed}


def separately(folder: str, *words: str) -> dict[str, Any]:
    """What `child` gives in a process of its own, on one core."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "REDRAFT_PRECISION": "fp32"}
    command = [sys.executable, str(Path(__file__).resolve()), "--child", *words]
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, check=True)
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def child(name: str, steps: int, *, as_base: bool) -> dict[str, Any]:
    """In a process of its own: trains a base where its preset is looked for, or measures."""
    torch.set_num_threads(1)
    run = replace(preset(name), precision="fp32")
    if as_base:
        fit(replace(run, steps=1, eval_rows=2, samples=0), Path("runs") / name, quiet=True)
        return {}
    seconds = seconds_per_step(run, steps)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"batch": run.batch, "length": run.framing.length, "seconds_per_step": seconds, "peak_bytes": peak}


# --- the page ---


def tables(results: Path) -> dict[str, str]:
    held = Rows(results / "sizes.jsonl").read()
    tiny = ([f"`{name}`", *tiny_cells(held.get(name))] for name in TINY)
    large = ([f"`{name}`", *large_cells(held.get(name))] for name in PUBLISHED)
    head = ["preset", "parameters", "rows × tokens"]
    return {
        "tiny": markdown([*head, "s per step", "tokens/s", "peak memory"], tiny),
        "published": markdown([*head, "vocabulary", "steps", "training state"], large),
    }


def tiny_cells(row: dict[str, Any] | None) -> list[str]:
    if row is None:
        return ["–"] * 5
    speed = row["batch"] * row["length"] / row["seconds_per_step"]
    rows = [millions(row["parameters"]), f"{row['batch']} × {row['length']}", f"{row['seconds_per_step']:.2f}"]
    return [*rows, f"{speed:,.0f}", f"{row['peak_bytes'] / 1e6:,.0f} MB"]


def large_cells(row: dict[str, Any] | None) -> list[str]:
    if row is None:
        return ["–"] * 5
    rows = [millions(row["parameters"]), f"{row['batch']} × {row['length']}", f"{row['vocabulary']:,}"]
    return [*rows, f"{row['steps']:,}", f"{row['state_bytes'] / 1e9:.1f} GB"]


def millions(count: int) -> str:
    return f"{count / 1e6:,.1f} M"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PRESETS, metavar="PRESET", help="presets to measure")
    parser.add_argument("--steps", type=int, default=TIMED_STEPS, help="timed steps")
    parser.add_argument("--results", type=Path, default=Path("recipes/results"), help="directory for the rows")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--base", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child:
        print(json.dumps(child(args.child, args.steps, as_base=args.base)))
    else:
        rows = Rows(args.results / "sizes.jsonl")
        for name in args.only or PRESETS:
            rows.add(name, partial(measured, name, args.steps) if name in TINY else partial(published, name))


if __name__ == "__main__":
    run_recipe(main)
