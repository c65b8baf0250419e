"""How long until a model of your own text becomes readable: trains by the page's commands and records samples.

    python recipes/own_text.py --data my_texts/                             # measures the rows

Each evaluation is a row of recipes/results/own_text.jsonl: steps, CPU minutes of one core (including evaluations), bits
per character of held-out text, and all samples, none selected. An interrupted recipe continues where it stopped.
"""

from __future__ import annotations

import argparse
import io
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Any

import torch
from rows import Rows, run_recipe
from tables import markdown

from redraft.apps import cli
from redraft.models.checkpoints import serialization
from redraft.training import Run

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


def tables(results: Path) -> dict[str, str]:
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


def main(argv: Sequence[str] | None = None) -> None:
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


if __name__ == "__main__":
    run_recipe(main)
