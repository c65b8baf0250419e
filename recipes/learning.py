"""What makes a tiny model learn more, and write better, in the same minutes?

    python recipes/learning.py training                 # a minute and a half for each training, three seeds
    python recipes/learning.py training --minutes 5 --only "time seed 0, 5 min"

`training` compares `mdlm_tiny` with variations of it: a network that sees time, and further changes on top of that.
Each row has the bits per character above the truth and the share of right stories that 64 network calls write. All
trainings take the number of steps that fit into the minutes of the first one, so that the load of the machine does not
decide; a step with time costs a few per cent more.

Minutes are CPU minutes of one core. Rows go to recipes/results/learning.jsonl as they are finished, models to
runs/learning; an interrupted recipe continues where it stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rows import Budget, Measure, Rows, add_places, measure_all, run_recipe, train_under_budget

from redraft.decoding import AnyOrder, Unmask
from redraft.evaluation import unseen_bits, write_and_judge
from redraft.training import Objective, Run, TokenCrossEntropy, presets
from redraft.training.runs import variations

SEEDS = 3
HELD_OUT = 256  # stories of the test stream
WRITTEN = 256  # stories that a model writes
CALLS = 64


def runs() -> dict[str, Run]:
    """Return the preset, the preset with time, and the latter with one or all of the other changes."""
    preset = replace(presets.mdlm_tiny(), sampler=Unmask(CALLS, AnyOrder()))
    preset = variations.with_network(preset, time=None)
    time = variations.with_network(preset, time=64)
    weighted = replace(time, objective=Objective(TokenCrossEntropy(power=0.5)))
    wider_heads = variations.with_network(weighted, heads=4)
    return {
        "preset": preset,
        "time": time,
        "time, heads, muon, weight": replace(wider_heads, optimizer=replace(preset.optimizer, muon=0.01)),
        "time, warmup": replace(time, optimizer=replace(preset.optimizer, warmup=160)),
        "time, qk_norm": variations.with_network(time, qk_norm=True),
    }


def training_row(run: Run, out: Path, minutes: float) -> dict[str, Any]:
    made = train_under_budget(run, out, Budget(minutes=minutes), steps_file=out.parent / "budget.json")
    written, _ = write_and_judge(made.model, made.run, Unmask(CALLS, AnyOrder()), WRITTEN)
    return {**made.cost(), **unseen_bits(made.model, made.run, HELD_OUT), "written": written}


def training(out: Path, minutes: float) -> Iterator[tuple[str, Measure]]:
    for seed in range(SEEDS):
        for name, run in runs().items():
            row, folder = f"{name} seed {seed}, {minutes:g} min", f"{name.replace(', ', '-')}-{seed}"
            yield row, partial(training_row, replace(run, seed=seed), out / f"{minutes:g}" / folder, minutes)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["training"])
    parser.add_argument("--minutes", type=float, default=1.5, help="CPU minutes per training")
    add_places(parser, "runs/learning")
    asked = parser.parse_args(argv)
    torch.set_num_threads(1)
    measure_all(Rows(asked.results / "learning.jsonl"), training(asked.out, asked.minutes), asked.only)


if __name__ == "__main__":
    run_recipe(main)
