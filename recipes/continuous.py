"""Which parts make a continuous system work: codec, prediction target, schedule, self-conditioning, solver?

    python recipes/continuous.py systems                    # the embedded stories, 5 minutes each
    python recipes/continuous.py ablations                  # each system without one of its parts
    python recipes/continuous.py codecs                     # smoothness of the latents of the codecs trained so far
    python recipes/continuous.py patient                    # up to an hour each, for systems that need it
    python recipes/continuous.py samplers --model DIR       # samplers for a trained Diffusion-LM
    python recipes/continuous.py points                     # prediction targets: about two minutes on a core
    python recipes/continuous.py stories                    # the same on stories: four minutes for each of six rows
    python recipes/continuous.py hints --model runs/diffusion_lm_tiny    # redraft train diffusion_lm_tiny --steps 11000
    python recipes/continuous.py drawbacks                  # Diffusion-LM: steps, collapse, noise levels; 13 minutes

Minutes are CPU minutes of one core. A latent system has the same budget again for its codec, which is trained first.
*points*, *stories.* All trainings take *equal steps* with the same rows and the same network. Each head has its own
plain loss, ‖x − x̂‖², ‖ε − ε̂‖² or ‖v − v̂‖², as in the papers; the preset of stories predicts words by cross-entropy.
The true density of points is known, so the result is the excess bits over it.
*hints.* A trained Diffusion-LM is trained further, with and without self-conditioning. The result is its certainty
while it writes: the entropy of x̂ at each step, in bits per token, and the length of x̂.
Rows go to recipes/results as they are finished, models to runs; an interrupted recipe continues where it stopped.
Answer: docs/results/methods.md and docs/results/claims.md.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from continuous_parts import drawbacks
from rows import (
    Budget,
    Measure,
    Part,
    Rows,
    Trained,
    add_places,
    given,
    measure_all,
    run_part,
    run_recipe,
    train_under_budget,
    trained,
)

import redraft
from redraft import tasks
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
    TanD,
    VectorPrediction,
    VPLinear,
)
from redraft.decoding import Ancestral, Ddim, Guidance, GuidedSampler, Renoise, Sampler
from redraft.evaluation import noise_levels, unseen_bits, write_and_judge
from redraft.models import PredictEps, PredictV, PredictX, Smoothing, VectorHead, latest_checkpoint
from redraft.models.checkpoints import serialization
from redraft.models.codecs.coordinates import point_length
from redraft.models.codecs.modules.encoder import MaskedEncoder
from redraft.tasks import open_model
from redraft.training import (
    STORY_LANGUAGE,
    DocumentRows,
    HeldOut,
    OffsetSnrWeight,
    Run,
    SquaredError,
    excess_bits,
    first_batches,
    likelihood,
    load_rows,
    presets,
)
from redraft.training.runs import variations

# --- continuous ---

HELD_OUT, CHOSEN = 256, 64  # rows of the test stream; of the same, to look into latents
WRITTEN = 128  # texts that a model writes
SAMPLED = 128  # the same where samplers are compared
LEVELS = 8  # noise levels of AuBLEU
SIGMAS = (0.25, 0.5, 1.0)  # noise on clean latents, which have unit variance


@dataclass(frozen=True)
class System:
    """A run, and the run of its codec if that is trained before."""

    run: Callable[[str], Run]  # the directory of the codec → the run
    codec: Run | None = None
    patience: float = 1.0  # how many times the minutes of the others

    @classmethod
    def of(cls, run: Run, patience: float = 1.0) -> System:
        return cls(lambda _: run, patience=patience)


def systems() -> dict[str, System]:
    """All eight, two of them on two tasks."""
    return {
        "diffusion_lm": System.of(presets.diffusion_lm_tiny()),
        "diffuseq": System.of(presets.diffuseq_tiny()),
        "diffuseq summary": System.of(presets.diffuseq_summary_tiny()),
        "genie": System.of(presets.genie_tiny()),
        "genie summary": System.of(presets.genie_summary_tiny()),
        "ssd": System.of(presets.ssd_tiny()),
        "tencdm": latent(presets.tencdm_tiny()),
        "ld4tg": latent(presets.ld4tg_tiny()),
        "planner": latent(presets.planner_tiny()),
        "cosmos": latent(presets.cosmos_tiny()),
    }


def latent(run: Run, codec: Run | None = None, patience: float = 1.0) -> System:
    """Diffusion of latents, after the training of the run's own codec or of another one that makes the same."""
    return System(lambda base: replace(run, base=base), codec or variations.codec_stage(run), patience)


def ablations() -> dict[str, System]:
    """Each differs from its system in one thing, which its name tells."""
    words = presets.diffusion_lm_tiny()
    genie = presets.genie_tiny()
    deaf = replace(
        variations.with_model(genie, parts=()), framing=DocumentRows(genie.framing.length, fill_with_eos=True)
    )
    states = presets.tencdm_tiny()
    codec = presets.tencdm_codec_tiny()
    tan = variations._with_schedule(presets.cosmos_tiny(), ClampedLogSnr(TanD(3.0), -12.0, 4.0))
    return {
        "diffusion_lm no kinds": System.of(
            variations._with_schedule(
                variations._with_codec(words, neighbor_fraction=0.0), PiecewiseLogSnr((-0.5, -6.0))
            )
        ),
        "diffuseq joint": System.of(variations._without_partial_noising(presets.diffuseq_tiny())),
        "genie without cross attention": System.of(deaf),
        "ssd 34": System.of(presets.ssd_tiny(34)),
        "ssd 68": System.of(presets.ssd_tiny(68)),
        "tencdm tan": latent(variations._with_schedule(states, ClampedLogSnr(TanD(7.0), -12.0, 4.0)), codec),
        "tencdm no hint": latent(variations.with_model(states, self_conditioning=False), codec),
        "ld4tg half": latent(variations._with_codec(presets.ld4tg_tiny(), count=8)),
        "ld4tg class": latent(presets.ld4tg_class_tiny(), presets.ld4tg_codec_tiny()),
        "planner strict": latent(variations._with_codec(presets.planner_tiny(), beta=0.01, noise=0.3)),
        "cosmos strong": latent(variations._with_codec(tan, smoothing=Smoothing())),
        "cosmos rough": latent(variations._with_codec(tan, smoothing=Smoothing(0.0, 0.0, 0.0))),
    }


def patient() -> dict[str, System]:
    """Systems that five minutes are too short for, at a budget of their own: up to an hour, the codec's included.

    Those that name words are sampled by `Renoise`: see the table of samplers.
    """
    words, chosen = presets.diffusion_lm_tiny(), Renoise(64)
    return {
        "diffusion_lm x": System.of(variations._with_head(words, PredictX(), SquaredError()), 8.0),
        "diffuseq": System.of(replace(presets.diffuseq_tiny(), sampler=chosen), 8.0),
        "genie": System.of(replace(presets.genie_tiny(), sampler=chosen), 8.0),
        "ssd": System.of(presets.ssd_tiny(), 4.0),
        "ld4tg": latent(presets.ld4tg_tiny(), patience=2.0),
        "planner": latent(presets.planner_tiny(), patience=2.0),
        "cosmos": latent(presets.cosmos_tiny(), patience=3.0),
    }


def samplers() -> dict[str, Sampler]:
    """On the same weights: the reverse process, fewer and more steps of it, without noise, and with all of it anew."""
    return {
        "ancestral 64": Ancestral(64),
        "ancestral 256": Ancestral(256),
        "ddim 64": Ddim(64),
        "renoise 64": Renoise(64),
    }


# --- measures ---


def row(system: System, out: Path, minutes: float) -> dict[str, Any]:
    codec = out.parent / "codecs" / ("" if system.codec is None else serialization.digest(system.codec))
    minutes *= system.patience
    made = staged(system, codec, out, (minutes, minutes))  # one codec may serve several rows
    return {**figures(made), **written(made)}


def staged(system: System, codec: Path, out: Path, minutes: tuple[float, float]) -> Trained:
    """The diffusion, after the codec if one is trained before: the minutes of each."""
    before = () if system.codec is None else (trained(system.codec, codec, minutes[0]),)
    return trained(system.run(str(codec)), out, minutes[1], before)


def figures(made: Trained) -> dict[str, Any]:
    """What a training cost, and how well the model tells unseen text."""
    return {**made.cost(), **unseen_bits(made.model, made.run, HELD_OUT)}


def written(made: Trained) -> dict[str, Any]:
    """What the run's own sampler writes: stories of the grammar or true summaries, and what their sources ask for."""
    quality, record = write_and_judge(made.model, made.run, made.run.sampler, WRITTEN)
    return {**quality, "different": len(set(record.texts)) / len(record.texts), "sample": record.texts[0]}


def sampled(model: Path, sampler: Sampler) -> dict[str, Any]:
    """What a sampler writes with given weights."""
    loaded = tasks.open_model(str(model))
    assert loaded.run is not None
    quality, record = write_and_judge(loaded.lm, loaded.run, sampler, SAMPLED)
    return {**weights(loaded), **quality, "different": len(set(record.texts)) / len(record.texts)}


def weights(model: tasks.TextModel) -> dict[str, Any]:
    """Which weights are measured."""
    return {"run": model.name, "step": model.step}


def smoothness(trained: Path, run: Run) -> dict[str, Any]:
    """AuBLEU of codec and denoiser, tokens right under noise, what lies half way between stories; how many differ."""
    loaded = tasks.open_model(str(trained))
    model = loaded.lm
    texts = tasks.sample_canvases(model, run.sampler, model.canvas(new=run.framing.length, rows=WRITTEN)).texts
    batches = first_batches(load_rows(run.data, "test", run.tokenizer, run.framing), CHOSEN)
    [halfway] = noise_levels.interpolation_scores(model, batches[0], sentences, [0.5])
    own = any(isinstance(part, MaskedEncoder) for part in model.modules())
    return {
        **weights(loaded),
        "aubleu": noise_levels.area_under_bleu(model, batches, [level / LEVELS for level in range(1, LEVELS + 1)]),
        "noisy": {str(sigma): right for sigma, right in noise_levels.decoding_robustness(model, batches, SIGMAS)},
        "halfway": halfway.spherical,
        "different": len(set(texts)) / len(texts),
        "guessing": noise_levels.masked_accuracy(model, batches) if own else None,
    }


def sentences(texts: Sequence[str]) -> float:
    """The share of right sentences; one counts if all before it are right too."""
    by_sentence = redraft.evaluation.grammar_score(texts, STORY_LANGUAGE).by_sentence
    return sum(by_sentence) / max(1, len(by_sentence))


# --- the command ---


def systems_main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["systems", "ablations", "codecs", "patient", "samplers"])
    parser.add_argument("--minutes", type=float, default=5.0, help="CPU minutes per training")
    parser.add_argument(
        "--model", type=Path, default=Path("runs/diffusion_lm_tiny"), help="model for the table of samplers"
    )
    add_places(parser, "runs/continuous")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows = Rows(args.results / f"continuous_{args.table}.jsonl")
    wanted = jobs(args.table, args.out, args.minutes)
    if args.table == "samplers":
        wanted = {name: partial(sampled, args.model, sampler) for name, sampler in samplers().items()}
    measure_all(rows, wanted.items(), args.only)


def jobs(table: str, out: Path, minutes: float) -> dict[str, Callable[[], dict[str, Any]]]:
    tables = {"systems": systems, "ablations": ablations, "patient": patient}
    wanted = tables[table]() if table in tables else systems() | ablations()
    out = out / table if table == "patient" else out
    places = {name: out / name.replace(" ", "_") for name in wanted}
    if table != "codecs":
        return {name: partial(row, system, places[name], minutes) for name, system in wanted.items()}
    own = {name: system.codec for name, system in wanted.items() if system.codec}
    first = {serialization.digest(codec): name for name, codec in reversed(own.items())}  # each codec once
    trained_codecs = (name for name in own if name in first.values() and latest_checkpoint(places[name]))
    return {name: partial(smoothness, places[name], own[name]) for name in trained_codecs}


# --- predicting ---

SEEDS = 2
HINTS_WRITTEN = 64
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
    targets_row, _ = write_and_judge(made.model, made.run, GuidedSampler(Ancestral(64), Watching(seen)), HINTS_WRITTEN)
    targets_row |= {"sampler": str(Ancestral(64)), "entropy": seen.entropy, "length": seen.length}
    return {**figures(made), **targets_row}


# --- the command ---


def target_jobs(table: str, out: Path, steps: int, base: Path | None) -> Iterator[tuple[str, Measure]]:
    first: Sequence[Trained] = ()
    if base is not None:
        measure, runs, first = hint_row, hints(base), [given(base)]
    else:
        measure, runs = (point_row, points()) if table == "points" else (figures, stories())
    for name, run in runs.items():
        yield name, partial(targets_row, measure, run, out / name.replace(" ", "-"), steps, first)


def targets_row(
    measure: Callable[[Trained], dict[str, Any]], run: Run, out: Path, steps: int, first: Sequence[Trained]
) -> dict[str, Any]:
    return measure(train_under_budget(run, out, Budget(steps=steps), first))


def targets_main(argv: Sequence[str] | None = None) -> None:
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
    measure_all(rows, target_jobs(args.table, args.out, args.steps or STEPS[args.table], args.model), args.only)


# --- the parts ---


PARTS: Mapping[str, Part] = {
    "systems": lambda more: systems_main(["systems", *more]),
    "ablations": lambda more: systems_main(["ablations", *more]),
    "codecs": lambda more: systems_main(["codecs", *more]),
    "patient": lambda more: systems_main(["patient", *more]),
    "samplers": lambda more: systems_main(["samplers", *more]),
    "points": lambda more: targets_main(["points", *more]),
    "stories": lambda more: targets_main(["stories", *more]),
    "hints": lambda more: targets_main(["hints", *more]),
    "drawbacks": drawbacks.main,
}


def main(argv: Sequence[str] | None = None) -> None:
    run_part(PARTS, argv, __doc__)


if __name__ == "__main__":
    run_recipe(main)
