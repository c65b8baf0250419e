"""Gaussian diffusion: prediction targets, noise schedules, and self-conditioning.

    python recipes/predicting.py points                     # about two minutes on a core
    python recipes/predicting.py stories                    # about four for each of six rows
    python recipes/predicting.py hints --model runs/diffusion_lm_tiny    # redraft train diffusion_lm_tiny --steps 11000

*points*, *stories.* All trainings take *equal steps* with the same rows and the same network. Each head has its own
plain loss, ‖x − x̂‖², ‖ε − ε̂‖² or ‖v − v̂‖², as in the papers; the preset of stories predicts words by cross-entropy.
The true density of points is known, so the result is the excess bits over it.
*hints.* A trained Diffusion-LM is trained further, with and without self-conditioning. The result is its certainty
while it writes: the entropy of x̂ at each step, in bits per token, and the length of x̂.
Rows go to recipes/results/predicting.jsonl as they are finished, models to runs/predicting.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from continuous import HELD_OUT, figures
from rows import Budget, Rows, Trained, add_places, given, measure_all, run_recipe, train_under_budget

from redraft.core import (
    ClampedLogSnr,
    Context,
    CosineSquared,
    Denoiser,
    DenoiserWrapper,
    PiecewiseLogSnr,
    Prediction,
    Schedule,
    Sqrt,
    VectorPrediction,
    VPLinear,
)
from redraft.decoding import Ancestral, Guidance, GuidedSampler
from redraft.evaluation import write_and_judge
from redraft.models import PredictEps, PredictV, PredictX, VectorHead
from redraft.models.codecs.coordinates import point_length
from redraft.tasks import open_model
from redraft.training import HeldOut, OffsetSnrWeight, Run, SquaredError, excess_bits, likelihood, presets
from redraft.training.runs import variations

SEEDS = 2
WRITTEN = 64
HEADS: dict[str, tuple[VectorHead, SquaredError]] = {
    "x": (PredictX(), SquaredError()),
    "eps": (PredictEps(), SquaredError(OffsetSnrWeight())),
    "v": (PredictV(), SquaredError(OffsetSnrWeight(1.0))),
}
SCHEDULES: dict[str, Schedule] = {"linear": VPLinear(), "cosine": CosineSquared()}
STEPS = {"points": 100, "stories": 800, "hints": 1000}


def levels(name: str, low: float, high: float) -> Schedule:
    """A schedule of the papers between two log-SNRs, or equal steps of log-SNR."""
    return PiecewiseLogSnr((high, low)) if name == "even" else ClampedLogSnr(SCHEDULES[name], low, high)


def points() -> dict[str, Run]:
    """Every head by every schedule, and other seeds."""
    base = presets.points_tiny()
    made = {
        f"points {head} {name}": variations._with_schedule(
            variations._with_head(base, *HEADS[head]), levels(name, -10.0, 8.0)
        )
        for head in HEADS
        for name in ("linear", "cosine", "even")
    }
    return {f"{name} {seed}": replace(run, seed=seed) for name, run in made.items() for seed in range(SEEDS)}


def stories() -> dict[str, Run]:
    """Diffusion-LM by other schedules, and with each head at the preset's even levels."""
    base = presets.diffusion_lm_tiny()
    paced: dict[str, Schedule] = {"sqrt": Sqrt(), "cosine": CosineSquared()}
    return {
        "stories words even": base,
        **{
            f"stories words {name}": variations._with_schedule(base, ClampedLogSnr(of, -12.0, 2.0))
            for name, of in paced.items()
        },
        **{f"stories {head} even": variations._with_head(base, *how) for head, how in HEADS.items()},
    }


def hints(base: Path) -> dict[str, Run]:
    """The same model goes on at a tenth of its rate, with hints and without."""
    model = open_model(base)
    assert model.run is not None
    rate = replace(model.run.optimizer, lr=model.run.optimizer.lr / 10)
    run = replace(model.run, base=str(base), optimizer=rate)
    return {"hints without": run, "hints with": variations.with_model(run, self_conditioning=True)}


# --- measures ---


def point_row(made: Trained) -> dict[str, Any]:
    """Bits of a point above the truth."""
    test = HeldOut.of(made.run.data, "test", made.run.tokenizer, made.run.framing, HELD_OUT)
    likely = likelihood(made.model, test.batches, draws=16)
    assert test.truth is not None
    above, error = (point_length(2) * bits for bits in excess_bits(likely, test.truth.log_probs))
    return {**made.cost(), "bits_above": above, "bits_above_stderr": error}


@dataclass
class Sureness:
    """What x̂ is like at each step."""

    entropy: list[float] = field(default_factory=list)  # bits per token
    length: list[float] = field(default_factory=list)  # of x̂: its root mean square


@dataclass(frozen=True)
class Watched(DenoiserWrapper):
    """A denoiser whose sureness is noted."""

    seen: Sureness

    def predict(self, z: torch.Tensor, t: torch.Tensor, context: Context) -> Prediction:
        pred = self.denoise.predict(z, t, context)
        assert isinstance(pred, VectorPrediction)
        assert pred.log_weights is not None
        log_p = pred.log_weights
        self.seen.entropy.append(float(-(log_p.exp() * log_p).sum(-1).mean()) / math.log(2))
        self.seen.length.append(float(pred.mean.square().mean().sqrt()))
        return pred


@dataclass(frozen=True)
class Watching(Guidance):
    """Guidance that changes nothing."""

    seen: Sureness

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return Watched(denoise, self.seen)


def hint_row(made: Trained) -> dict[str, Any]:
    """Bits of unseen text, what is written, and how sure the model is at each of 64 steps."""
    seen = Sureness()
    row, _ = write_and_judge(made.model, made.run, GuidedSampler(Ancestral(64), Watching(seen)), WRITTEN)
    row |= {"sampler": str(Ancestral(64)), "entropy": seen.entropy, "length": seen.length}
    return {**figures(made), **row}


# --- the command ---


def jobs(table: str, out: Path, steps: int, base: Path | None) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    first: Sequence[Trained] = ()
    if base is not None:
        measure, runs, first = hint_row, hints(base), [given(base)]
    else:
        measure, runs = (point_row, points()) if table == "points" else (figures, stories())
    for name, run in runs.items():
        yield name, partial(row, measure, run, out / name.replace(" ", "-"), steps, first)


def row(
    measure: Callable[[Trained], dict[str, Any]], run: Run, out: Path, steps: int, first: Sequence[Trained]
) -> dict[str, Any]:
    return measure(train_under_budget(run, out, Budget(steps=steps), first))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=list(STEPS))
    parser.add_argument("--steps", type=int, help="steps per training (default: points 100, stories 800, hints 1000)")
    parser.add_argument("--model", type=Path, help="for `hints`: a trained Diffusion-LM")
    add_places(parser, "runs/predicting")
    args = parser.parse_args(argv)
    if (args.table == "hints") != (args.model is not None):
        parser.error("`hints` needs --model DIR, a trained Diffusion-LM; the others take none")
    torch.set_num_threads(1)
    rows = Rows(args.results / "predicting.jsonl")
    measure_all(rows, jobs(args.table, args.out, args.steps or STEPS[args.table], args.model), args.only)


if __name__ == "__main__":
    run_recipe(main)
