"""MDLM's other tables: the sampler that reuses network outputs, and long texts by a sliding window.

    python recipes/mdlm.py reuse                        # the shipped model, 16 to 5000 steps
    python recipes/mdlm.py strides --data PATH          # 2048 characters of real text, 20 minutes of one core per model

Rows go to recipes/results/mdlm_*.jsonl as they are finished, models to runs/mdlm; an interrupted recipe continues where
it stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rows import Rows, Trained, add_places, cpu_timer, measure_all, run_recipe, trained

from redraft import evaluation, tasks
from redraft.apps.cli.run_arguments import parse_run, parse_source
from redraft.core import Canvas, CharTokenizer, Context, Denoiser, Prediction, TablePrediction
from redraft.core.text.tokenizers import MASK_GLYPH
from redraft.decoding import Ancestral, Blocks, Guidance, GuidedSampler, Sampler, SlidingWindow
from redraft.evaluation import write_and_judge
from redraft.models import BlockCausal
from redraft.training import (
    DataStats,
    InfiniteCorpus,
    Objective,
    Run,
    Split,
    StratifiedTimes,
    TokenCrossEntropy,
    presets,
)
from redraft.training.runs import variations

REUSE_STEPS = (16, 64, 256, 1000, 5000)
TEXTS = 32
LETTERS, WINDOW, STRIDE, BLOCK = 2048, 256, 128, 32
STRIDE_STEPS = (64, 256)  # of a window of 256 letters
LONG = 8  # texts of 2048 letters
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


# --- reuse ---


@dataclass(frozen=True)
class Eager(Guidance):
    """Asks the network at every step for all positions, whether anything changes or not: no reuse."""

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return Asked(denoise)


@dataclass(frozen=True)
class Asked:
    """A denoiser whose predictions are computed as soon as they are asked for."""

    inner: Denoiser

    @property
    def block(self) -> int | None:
        return self.inner.block

    def predict(self, z: torch.Tensor, t: torch.Tensor, context: Context) -> Prediction:
        return TablePrediction(self.inner.predict(z, t, context).x)

    def absorb(self, z: torch.Tensor, context: Context) -> Context:
        return self.inner.absorb(z, context)


def reuse_row(sampler: Sampler) -> dict[str, Any]:
    """What the shipped model writes: which share is right, network calls and seconds of a core per text."""
    model = tasks.open_model("story")
    assert model.run is not None
    figures = write_and_judge(model.lm, model.run, sampler, TEXTS)[0]
    return {**figures, "run": model.name}


def reuse() -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """The same texts twice: a row in which nothing changes costs no call, or every step costs one."""
    for steps in REUSE_STEPS:
        yield f"reuse {steps}", partial(reuse_row, Ancestral(steps))
        yield f"no reuse {steps}", partial(reuse_row, GuidedSampler(Ancestral(steps), Eager()))


# --- strides ---


def simplex(like: Run) -> Run:
    """SSD-LM on the same letters with a network of the same size: blocks of 32, each redrawn again and again."""
    base = presets.ssd_tiny(BLOCK).with_tokenizer(like.tokenizer)
    network = like.model.network
    sizes = {"layers": network.layers, "positions": None, "rotary": network.rotary, "pattern": BlockCausal(BLOCK)}
    objective = Objective(TokenCrossEntropy(), StratifiedTimes(block=BLOCK))
    run = variations.with_network(replace(base, objective=objective), **sizes)
    return replace(run, data=like.data, framing=like.framing, batch=like.batch)


def long_samplers(name: str, own: Sampler, steps: int) -> Sampler:
    """So many steps for each window of 256 letters, more than which no network has learned to read."""
    if name == "mdlm":
        return SlidingWindow(Ancestral(steps), WINDOW, STRIDE)
    assert isinstance(own, Blocks)
    inner = replace(own, stop=False).with_setting("steps", 1 if name == "ar" else max(1, steps * BLOCK // WINDOW))
    return SlidingWindow(inner, WINDOW, STRIDE)


def long_row(
    name: str, steps: int, run: Run, judge: Callable[[], Trained], out: Path, minutes: float
) -> dict[str, Any]:
    """Texts of 2048 letters, judged in pieces as long as the judge's rows."""
    made = trained(run, out / name, minutes)
    sampler = long_samplers(name, run.sampler, steps)
    canvas: Canvas = made.model.canvas(new=LETTERS, rows=LONG)
    with cpu_timer() as clock:
        record = tasks.sample_canvases(made.model, sampler, canvas)
    texts = [text.replace(MASK_GLYPH, " ") for text in record.texts]  # the simplex has a corner for the mask too
    pieces = [text[lo : lo + WINDOW] for text in texts for lo in range(0, len(text), WINDOW)]
    quality = evaluation.generative_perplexity(pieces, evaluation.ModelJudge(judge().model))
    return {
        **made.cost(),
        "generative_perplexity": quality.perplexity,
        "entropy_within": evaluation.unigram_entropy(texts)[0],
        "nfe": record.nfe,
        "seconds_per_sample": clock.seconds / LONG,
        "samples": LONG,
        "sampler": str(sampler),
        "text": texts[0][:256],
    }


def characters(data: Sequence[str]) -> dict[str, Run]:
    """Two methods on characters of real text: rows that begin anywhere, so rotary positions."""
    text = parse_source(data)
    assert not isinstance(text, InfiniteCorpus)
    every = (document for split in SPLITS for document in text.documents(split, DataStats()))
    letters = CharTokenizer.collect(every, ("eos", "pad", "mask"))  # of all splits: a rare letter may be in one alone
    names = ("ar_tiny", "mdlm_tiny")
    runs = {name: parse_run(name, data, "chars", WINDOW).with_tokenizer(letters) for name in names}
    sizes: dict[str, Any] = {"layers": 4, "positions": None, "rotary": 10_000.0}
    return {name: replace(variations.with_network(run, **sizes), batch=16) for name, run in runs.items()}


def strides(data: Sequence[str], out: Path, minutes: float) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    runs = characters(data)
    models = {"mdlm": runs["mdlm_tiny"], "ssd": simplex(runs["mdlm_tiny"]), "ar": runs["ar_tiny"]}
    judge = partial(trained, runs["ar_tiny"], out / "ar", minutes)
    for name, run in models.items():
        for steps in STRIDE_STEPS if name != "ar" else (WINDOW,):
            yield f"{name} {steps}", partial(long_row, name, steps, run, judge, out, minutes)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["reuse", "strides"])
    parser.add_argument("--data", nargs="+", default=["sotu"], help="real text for `strides`: files or a directory")
    parser.add_argument("--minutes", type=float, default=20.0, help="CPU minutes per training of `strides`")
    add_places(parser, "runs/mdlm")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows = Rows(args.results / f"mdlm_{args.table}.jsonl")
    jobs = reuse() if args.table == "reuse" else strides(args.data, args.out, args.minutes)
    measure_all(rows, jobs, args.only)


if __name__ == "__main__":
    run_recipe(main)
