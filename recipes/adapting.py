"""What of Gong et al. (2024) makes a causal model a diffusion model: the shift, the annealed attention, or the weights?

    python recipes/adapting.py                          # about 11 CPU minutes per seed
    python recipes/adapting.py --only "whole seed 0"

`ar_tiny` is trained first. Then each variant gets the same number of steps: `scratch` starts from fresh weights;
`naive` starts from the causal weights with full attention and each token predicted from its own position; `shift` keeps
the causal model's shift by one token; `whole` also opens the attention over half of the steps, as the published
algorithm does. All have the loss with weight 1/t.

Rows have the bound after each eighth of the steps, the share of right stories written in 64 calls, and the share of
holes filled with the right word (one hidden word in each held-out story). Minutes are CPU minutes of one core. Rows go
to recipes/results/adapting.jsonl as they are finished, models to runs/adapting.
Answer: docs/results/claims.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from rows import Budget, Measure, Rows, Trained, add_places, measure_all, run_recipe, train_under_budget

from redraft.core import Context
from redraft.decoding import AnyOrder, Unmask
from redraft.evaluation import unseen_bits, write_and_judge
from redraft.training import (
    AdaptationObjective,
    Bound,
    Objective,
    Run,
    adaptation_run,
    first_batches,
    load_rows,
    presets,
)

SEEDS = 2
HELD_OUT = 256  # stories of the test stream
WRITTEN = 256  # stories that a model writes
POINTS = 8  # of the curve
_EXCESS = "valid_excess_bits_per_char"


def variants(causal: Trained, base: str, steps: int) -> dict[str, Run]:
    """Return the four runs; the optimizer is the same for all of them."""
    scratch = replace(presets.mdlm_tiny(), objective=Objective(Bound()))
    adapt = partial(adaptation_run, causal.model, base, scratch.data, scratch.framing, batch=scratch.batch)
    common: dict[str, Any] = {"optimizer": scratch.optimizer, "sampler": scratch.sampler, "samples": 0}
    return {
        "scratch": scratch,
        "naive": replace(scratch, base=base),
        "shift": replace(adapt(), **common),
        "whole": replace(adapt(objective=AdaptationObjective(anneal=steps // 2)), **common),
    }


def curve(folder: Path) -> list[list[float]]:
    """Return [steps, bits per character above the truth] at each evaluation during training."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [[line["step"], line[_EXCESS]] for line in lines if _EXCESS in line]


def holes_right(made: Trained) -> float:
    """Return how often the likeliest word for one hidden word of a held-out story is the right one."""
    (batch,) = first_batches(load_rows(made.run.data, "test", made.run.tokenizer, made.run.framing), HELD_OUT, HELD_OUT)
    model = made.model.eval()
    place = torch.arange(HELD_OUT) * 7 % 50 + 2  # inside every story
    where = torch.zeros_like(batch.learn)
    where[torch.arange(HELD_OUT), place] = True
    z = batch.tokens.masked_fill(where, model.config.vocab.masked)
    t = where.double() / z.shape[1]
    with torch.no_grad():
        found = model.predict(z, t, Context()).at(where).argmax(-1)
    return float((found == batch.tokens[where]).double().mean())


def row(causal: Trained, out: Path, name: str, seed: int, steps: int) -> dict[str, Any]:
    run = replace(variants(causal, str(out / f"ar-{seed}"), steps)[name], seed=seed)
    folder = out / f"{name}-{seed}"
    made = train_under_budget(run, folder, Budget(steps=steps), (causal,), evaluations=POINTS)
    written, _ = write_and_judge(made.model, made.run, Unmask(64, AnyOrder()), WRITTEN)
    figures = {**unseen_bits(made.model, made.run, HELD_OUT), "written": written, "holes": holes_right(made)}
    return {**made.cost(), **figures, "curve": curve(folder)}


def jobs(out: Path, minutes: float, steps: int) -> Iterator[tuple[str, Measure]]:
    @cache
    def causal(seed: int) -> Trained:
        run = replace(presets.ar_tiny(), seed=seed)
        return train_under_budget(run, out / f"ar-{seed}", Budget(minutes=minutes))

    for seed in range(SEEDS):
        for name in ("whole", "scratch", "naive", "shift"):
            yield f"{name} seed {seed}", lambda name=name, seed=seed: row(causal(seed), out, name, seed, steps)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.5, help="CPU minutes for the causal model")
    parser.add_argument("--steps", type=int, default=1200, help="steps of each variant")
    add_places(parser, "runs/adapting")
    asked = parser.parse_args(argv)
    torch.set_num_threads(1)
    measure_all(Rows(asked.results / "adapting.jsonl"), jobs(asked.out, asked.minutes, asked.steps), asked.only)


if __name__ == "__main__":
    run_recipe(main)
