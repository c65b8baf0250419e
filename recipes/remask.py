"""MDLM, ReMDM, star and G-Star on the same weights: how many stories are right at how many steps.

    redraft train mdlm_tiny && redraft train gstar_tiny
    python recipes/remask.py runs/gstar_tiny --out remask.jsonl

One JSON line per method and number of steps, appended as it is measured; what the file holds already is not measured
again, so that a stopped run goes on. The model of `gstar_tiny` is that of `mdlm_tiny` with one more layer, which only
G-Star reads.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import redraft
from redraft import config, evaluate
from redraft.processes.star import Cap, Star, Switch
from redraft.samplers.ancestral import Ancestral
from redraft.samplers.base import Sampler
from redraft.samplers.revise import Blind, Remasked, Revise

KEY = ("name", "run", "seed", "steps", "samples")  # what makes a row
Key: TypeAlias = tuple[str | int, ...]


def methods(steps: int) -> dict[str, Sampler]:
    """ReMDM's rate is far above the 0.008 of its paper, which has a thousand steps and more."""
    return {
        "mdlm": Ancestral(steps),
        "remdm": Remasked(Ancestral(steps), Cap(0.05)),
        "star": Remasked(Ancestral(steps), Switch(Star(), on=0.55, off=0.05)),
        "star_exact": Revise(steps, guide=Blind()),
        "gstar": Revise(steps),
    }


def rows(directory: Path, steps: list[int], samples: int, seed: int, held: set[Key]) -> Iterator[str]:
    """The lines that are missing."""
    run = config.from_json(json.loads((directory / "run.json").read_text())["run"])
    model, name = redraft.load(directory), config.digest(run)
    canvas = model.canvas(new=run.framing.length, rows=samples)
    for count in steps:
        for method, sampler in methods(count).items():
            if (method, name, seed, count, samples) in held:
                continue
            made = evaluate.generate(model, sampler, canvas, seed=seed, batch=250)
            share = evaluate.grammatical(made.texts).share
            more = {
                "steps": count,
                "samples": samples,
                "stderr": math.sqrt(share * (1 - share) / samples),
                "nfe": made.nfe,
                "seconds": made.seconds,
                "unigram_entropy": evaluate.unigram_entropy(made.texts)[1],
            }
            yield json.dumps(evaluate.record(method, share, run=name, seed=seed, **more))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path, help="directory of a run with an error layer, say runs/gstar_tiny")
    parser.add_argument("--out", type=Path, default=Path("remask.jsonl"))
    parser.add_argument("--steps", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    told = parser.parse_args()
    lines = told.out.read_text().splitlines() if told.out.exists() else []
    held = {tuple(row[part] for part in KEY) for row in map(json.loads, lines)}
    for line in rows(told.model, told.steps, told.samples, told.seed, held):
        with told.out.open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)


if __name__ == "__main__":
    main()
