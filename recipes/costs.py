"""What does a preset cost, and how long until a model of your own text becomes readable?

    python recipes/costs.py presets                         # parameters, memory, time of a step
    python recipes/costs.py readable --data my_texts/     # trains by the page's commands and records samples

*Presets.* The tiny presets are trained for some steps on one core, in fp32, each in its own process. The published ones
are counted, not trained, with placeholder tokenizers of the same size. Rows: sizes.jsonl.
*Readable.* Each evaluation is a row of own_text.jsonl: steps, CPU minutes of one core (including evaluations), bits per
character of held-out text, and all samples, none selected. An interrupted recipe continues where it stopped.
Answer: docs/results/presets.md and docs/results/how-long.md.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import torch
from results_pages.tables import markdown
from rows import TIMED_STEPS, Part, Rows, run_part, run_recipe, seconds_per_step

from redraft.apps import cli
from redraft.core import Special, WordTokenizer
from redraft.models import DiffusionLM
from redraft.models.checkpoints import serialization
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

# --- own text ---

COMMANDS = {
    "plain": "mdlm_tiny",
    "larger": "mdlm_tiny --tokenizer bpe:1024 --length 128 --batch 16 --sampler.steps 128 "
    "--model.network.width 192 --model.network.layers 4 --model.network.heads 6",
    "places": "mdlm_tiny --model.network.rotary None",
}


@dataclass
class Lines(io.TextIOBase):
    """A stream that hands on each whole line, as soon as it is written."""

    tell: Callable[[str], None]
    begun: str = field(default="", init=False)

    def write(self, text: str) -> int:
        *whole, self.begun = (self.begun + text).split("\n")
        for line in whole:
            self.tell(line)
        return len(text)


@contextmanager
def metrics(tell: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """The objects that the command line prints with --json are handed on instead, one by one."""
    outside = sys.stdout

    def handed(line: str) -> None:
        with redirect_stdout(outside):
            tell(json.loads(line))

    with redirect_stdout(Lines(handed)):  # type: ignore[type-var]
        yield


def measure(name: str, data: Sequence[str], out: Path, rows: Rows, more: Sequence[str] = ()) -> None:
    """Runs the command; every evaluation becomes a row."""
    known = [row for row in rows.read().values() if row["command"] == name]
    began = process_time() - 60 * max((row["minutes"] for row in known), default=0.0)

    def tell(record: dict[str, Any]) -> None:
        if "samples" in record:
            rows.add(f"{name}, step {record['step']}", lambda: row(name, record, (process_time() - began) / 60, out))

    command = [*shlex.split(COMMANDS[name]), *more]
    with metrics(tell):
        cli.main(["train", *command, "--data", *data, "--out", str(out), "--json"])


def row(name: str, record: Mapping[str, Any], minutes: float, out: Path) -> dict[str, Any]:
    """What is measured, and how it came to be: the run is the one that the command has begun in `out`."""
    figures = {"step": record["step"], "minutes": minutes, "bits_per_char": record["valid_bits_per_char"]}
    begun = json.loads((out / "run.json").read_text("utf-8"))
    run = serialization.from_json(begun["run"])
    assert isinstance(run, Run)
    stage = {"run": run.digest, "precision": begun["precision"]["name"], "seed": run.seed, "config": begun["run"]}
    return {"command": name, **figures, "samples": record["samples"], "stages": [stage]}


# --- the page ---


def readable_tables(results: Path) -> dict[str, str]:
    """For each command its figures, and what it wrote after them."""
    held = Rows(results / "own_text.jsonl").read().values()
    by_command = {name: [row for row in held if row["command"] == name] for name in COMMANDS}
    return {name: "\n\n".join([table(rows), *map(samples, rows[-1:])]) for name, rows in by_command.items()}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    cells = ([f"{row['step']:,}", f"{row['minutes']:.1f}", f"{row['bits_per_char']:.3f}"] for row in rows)
    return markdown(["step", "CPU minutes", "bits per character"], cells)


def samples(row: Mapping[str, Any]) -> str:
    """All texts of an evaluation, each on a line."""
    texts = "\n".join(f"> {' '.join(text.split())}" for text in row["samples"])
    return f"Written at step {row['step']:,}:\n\n```text\n{texts}\n```"


def readable_main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=[], help="files or directories of text")
    parser.add_argument("--out", type=Path, default=Path("runs/own_text"), help="directory for the models")
    parser.add_argument("--results", type=Path, default=Path("recipes/results"), help="directory for the rows")
    args, more = parser.parse_known_args(argv)  # further flags are those of `redraft train`
    torch.set_num_threads(1)
    rows = Rows(args.results / "own_text.jsonl")
    if args.data:
        for name in COMMANDS:
            measure(name, args.data, args.out / name, rows, more)
    else:
        parser.error("give --data: files or directories of text")


# --- sizes ---

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
    command = [sys.executable, str(Path(__file__).resolve()), "presets", "--child", *words]
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


def cost_tables(results: Path) -> dict[str, str]:
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


def cost_main(argv: Sequence[str] | None = None) -> None:
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


# --- the parts ---


PARTS: Mapping[str, Part] = {
    "presets": cost_main,
    "readable": readable_main,
}


def main(argv: Sequence[str] | None = None) -> None:
    run_part(PARTS, argv, __doc__)


if __name__ == "__main__":
    run_recipe(main)
