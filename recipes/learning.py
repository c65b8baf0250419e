"""What makes a tiny model learn more, and write better, in the same minutes?

    python recipes/learning.py training                 # a minute and a half for each training, three seeds
    python recipes/learning.py training --minutes 5 --only "time seed 0, 5 min"
    python recipes/learning.py writing                  # ways to spend 64 calls on a text, with the same models

`training` compares `mdlm_tiny` with variations of it: a network that sees time, and further changes on top of that.
Each row has the bits per character above the truth and the share of right stories that 64 network calls write. All
trainings take the number of steps that fit into the minutes of the first one, so that the load of the machine does not
decide; a step with time costs a few per cent more.

`writing` compares samplers with the same weights and at most 64 network calls per text: plain unmasking, an adaptive
pick alone and followed by Gibbs steps, ReMDM, star-shaped and guided star-shaped sampling (G-Star, whose error head is
trained for a fifth of the steps). "unlikely" positions and G-Star sharpen; the others do not.

Minutes are CPU minutes of one core. Rows go to recipes/results/learning.jsonl and writing.jsonl as they are finished,
models to runs/learning; an interrupted recipe continues where it stopped.
Answer: docs/results/claims.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from rows import Budget, Measure, Rows, Trained, add_places, measure_all, run_recipe, train_under_budget

from redraft.core import CappedRate, StarRate, WindowedRate
from redraft.decoding import (
    Ancestral,
    AnyOrder,
    EntropyBound,
    Gibbs,
    GuidedStar,
    Sampler,
    Unmask,
    WithRemasking,
)
from redraft.evaluation import unseen_bits, write_and_judge
from redraft.training import Objective, Run, TokenCrossEntropy, presets
from redraft.training.runs import variations

SEEDS = 3
HELD_OUT = 256  # stories of the test stream
WRITTEN = 256  # stories that a model writes
CALLS = 64


def runs() -> dict[str, Run]:
    """Return the preset, the preset with time, the latter with other changes, and with one of them alone."""
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
        "qk_norm": variations.with_network(preset, qk_norm=True),
    }


def made_by(run: Run, out: Path, minutes: float) -> Trained:
    return train_under_budget(run, out, Budget(minutes=minutes), steps_file=out.parent / "budget.json")


def training_row(run: Run, out: Path, minutes: float) -> dict[str, Any]:
    made = made_by(run, out, minutes)
    written, _ = write_and_judge(made.model, made.run, Unmask(CALLS, AnyOrder()), WRITTEN)
    return {**made.cost(), **unseen_bits(made.model, made.run, HELD_OUT), "written": written}


def training(out: Path, minutes: float) -> Iterator[tuple[str, Measure]]:
    for seed in range(SEEDS):
        for name, run in runs().items():
            row = f"{name} seed {seed}, {minutes:g} min"
            yield row, partial(training_row, replace(run, seed=seed), folder(out, name, seed, minutes), minutes)


def folder(out: Path, name: str, seed: int, minutes: float) -> Path:
    return out / f"{minutes:g}" / f"{name.replace(', ', '-')}-{seed}"


# --- writing ---


def samplers() -> dict[str, Sampler]:
    """Return samplers that make at most 64 calls per text; a step of G-Star makes two for half of the time."""
    draft = Unmask(None, EntropyBound(0.1, temperature=1.0))
    star = WindowedRate(StarRate(), start_time=0.55, end_time=0.05)
    return {
        "unmask": Unmask(CALLS, AnyOrder()),
        "entropy bound": draft,
        "gibbs, 1 token": Gibbs(draft, CALLS, 1),
        "gibbs, 2 tokens": Gibbs(draft, CALLS, 2),
        "gibbs, 4 tokens": Gibbs(draft, CALLS, 4),
        "gibbs, 4 unlikely": Gibbs(draft, CALLS, 4, "unlikely"),
        "remdm": WithRemasking(Ancestral(CALLS), CappedRate(0.05)),
        "star": WithRemasking(Ancestral(CALLS), star),
        "gstar": GuidedStar(round(CALLS / 1.5)),
    }


def writing_row(made: Trained, sampler: Sampler) -> dict[str, Any]:
    written, results = write_and_judge(made.model, made.run, sampler, WRITTEN)
    return {**made.cost(), **written, "different": len({*results.texts}) / len(results)}


def writing(out: Path, minutes: float) -> Iterator[tuple[str, Measure]]:
    @cache
    def made(name: str, seed: int) -> Trained:
        base = folder(out, name, seed, minutes)
        first = made_by(replace(runs()[name], seed=seed), base, minutes)
        run = variations.with_errors(replace(first.run, steps=presets.mdlm_tiny().steps), str(base))
        return train_under_budget(run, Path(f"{base}-errors"), Budget(steps=-(-first.run.steps // 5)), (first,))

    for seed in range(SEEDS):
        for model in ("preset", "time"):
            for name, sampler in samplers().items():
                row = f"{name}; {model} seed {seed}, {minutes:g} min"
                yield row, lambda m=model, s=seed, sampler=sampler: writing_row(made(m, s), sampler)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["training", "writing"])
    parser.add_argument("--minutes", type=float, default=1.5, help="CPU minutes per training")
    add_places(parser, "runs/learning")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    file = "learning" if options.table == "training" else "writing"
    jobs = (training if options.table == "training" else writing)(options.out, options.minutes)
    measure_all(Rows(options.results / f"{file}.jsonl"), jobs, options.only)


if __name__ == "__main__":
    run_recipe(main)
