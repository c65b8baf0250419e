"""What is measured of a trained model: bits of unseen text, and how right and how dear the texts are that it writes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from redraft.core.batch import Batch
from redraft.core.processes.gaussian import Gaussian
from redraft.decoding.blocks.blocks import Blocks
from redraft.decoding.blocks.strides import SlidingWindow
from redraft.decoding.samplers.base import Sampler, sampler_layers
from redraft.decoding.samplers.self_correction import SelfCorrection
from redraft.evaluation.comparison.row_file import cpu_timer
from redraft.evaluation.judges import Judge, generative_perplexity
from redraft.evaluation.text_metrics import fraction_possible, unigram_entropy
from redraft.models.diffusion_lm import DiffusionLM
from redraft.tasks.arguments.rules import ArgumentError
from redraft.tasks.canvases import sample_canvases
from redraft.tasks.engine.result import TextResults
from redraft.tasks.engine.sampler_choice import with_steps
from redraft.training.data.annotations import as_annotated, mean_coverage
from redraft.training.data.loader import first_batches, load_rows
from redraft.training.data.pair_framing import ChatRows, PairRows
from redraft.training.data.pairs import InfinitePairs
from redraft.training.data.sources import KnownDistribution, Split
from redraft.training.heldout import (
    HeldOut,
    best_token_bound,
    excess_bits,
    likelihood,
    reconstruction_accuracy,
    with_final_logsnr,
)
from redraft.training.runs.run import Run
from redraft.training.samples import blank_canvases

_CHOSEN = 64  # rows of the valid split, on which the end of a diffusion of vectors is chosen
_ENDS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0)  # log-SNR
_NOISIER = (-3.0, -4.0, -5.0, -6.0, -8.0)  # tried one after another where the noisiest is the best so far


@dataclass(frozen=True)
class MeasurementSize:
    """How much is measured of each model."""

    rows: int = 256  # of the test split
    draws: int = 4  # noise levels of each
    samples: int = 64  # texts written at each number of steps
    write_steps: tuple[int, ...] = (8, 16, 32, 64)  # of a whole text, beside the run's own sampler


def measure_model(
    model: DiffusionLM, run: Run, effort: MeasurementSize, *, seed: int, judge: Judge | None = None
) -> dict[str, Any]:
    """Bits of unseen text; texts by the run's own sampler and at several numbers of steps; the first of them."""
    written: dict[str, Any] = {}
    shown: list[str] = []
    for name, sampler in _samplers_to_measure(model, run, effort.write_steps).items():
        figures, record = write_and_judge(model, run, sampler, effort.samples, seed=seed, judge=judge)
        written[name], shown = figures, shown or [each.text for each in record[:4]]
    return {**unseen_bits(model, run, effort.rows, effort.draws, seed=seed), "written": written, "texts": shown}


# --- unseen text ---


def _test_rows(run: Run, split: Split, count: int) -> HeldOut:
    """Rows of other text; a source is given there, even if it was learnt like the rest."""
    framing = replace(run.framing, joint=False) if isinstance(run.framing, PairRows) else run.framing
    return HeldOut.of(run.data, split, run.tokenizer, framing, count)


def unseen_bits(model: DiffusionLM, run: Run, rows: int, draws: int = 4, *, seed: int = 0) -> dict[str, Any]:
    """Bits per token and character of the test split, with the error of another choice of rows and noise.

    Vectors: where the diffusion ends is chosen on the valid split, and the share of tokens that survive the codec is
    told. Where the truth is known: bits per character above it, paired.
    """
    test, found = _test_rows(run, "test", rows), {}
    if model.codec is not None:
        found["reconstruction"] = reconstruction_accuracy(model, test.batches)
    if isinstance(model.process, Gaussian):
        found["end"] = _best_end(model, _test_rows(run, "valid", min(rows, _CHOSEN)).batches, draws, seed=seed)
        model = with_final_logsnr(model, found["end"])
    likely = likelihood(model, test.batches, draws=draws, seed=seed)
    for unit in ("token", "char"):
        name = f"bits_per_{unit}"
        found |= {name: getattr(likely, name), f"{name}_stderr": likely.row_error(unit)}
    found |= {"rows": len(likely.row_nats), "monte_carlo": likely.relative_error * likely.bits_per_char}
    if test.truth is not None:
        found["excess"], found["excess_stderr"] = excess_bits(likely, test.truth.log_probs)
    return found


def _best_end(model: DiffusionLM, batches: Sequence[Batch], draws: int, *, seed: int) -> float:
    """The log-SNR at which the diffusion should end: vectors of many numbers tell their words through much noise."""
    assert isinstance(model.process, Gaussian)
    ends, noisier = ([end for end in some if end > model.process.path.noisiest] for some in (_ENDS, _NOISIER))
    best, likely = best_token_bound(model, batches, ends, draws=draws, seed=seed)
    for lower in noisier if best == min(ends) else ():
        _, further = best_token_bound(model, batches, (lower,), draws=draws, seed=seed)
        if further.row_nats.sum() >= likely.row_nats.sum():
            break
        best, likely = lower, further
    return best


# --- written text ---


def _samplers_to_measure(model: DiffusionLM, run: Run, counts: Sequence[int]) -> dict[str, Sampler]:
    """The run's own sampler, and the same with other numbers of steps for a whole text; each once."""
    found: dict[str, Sampler] = {"own": run.sampler}
    for steps in counts:
        sampler = _with_total_steps(model, run.sampler, steps, run.framing.length)
        if sampler is not None and sampler not in found.values():
            found[str(steps)] = sampler
    return found


def _with_total_steps(model: DiffusionLM, sampler: Sampler, steps: int, length: int) -> Sampler | None:
    """The sampler with so many steps for a row of `length` tokens, shared out among its blocks; None: it has no steps.

    A third of the steps are corrections, where it corrects: the same number of calls as the others.
    """
    if isinstance(sampler, SelfCorrection):
        inner, third = _with_total_steps(model, sampler.sampler, steps - steps // 3, length), max(1, steps // 3)
        return None if inner is None else replace(sampler, sampler=inner, steps=third)
    sizes = [model.block, *(_size(layer) for layer in sampler_layers(sampler))]
    size = min((size for size in sizes if size is not None), default=length)
    try:
        return with_steps(sampler, max(1, round(steps * min(1.0, size / length))))
    except ArgumentError:
        return None


def _size(layer: Sampler) -> int | None:
    if isinstance(layer, Blocks):
        return layer.decode_block
    return layer.stride if isinstance(layer, SlidingWindow) else None


def write_and_judge(
    model: DiffusionLM, run: Run, sampler: Sampler, texts: int, *, seed: int = 0, judge: Judge | None = None
) -> tuple[dict[str, Any], TextResults]:
    """Texts from nothing or to sources of the test split; their quality, and what one costs in seconds of a core."""
    (first,) = first_batches(load_rows(run.data, "test", run.tokenizer, run.framing), texts, texts)
    canvas = blank_canvases(model, run.framing, texts, first)
    with cpu_timer() as clock:
        made = sample_canvases(model, sampler, canvas, seed=seed)
    cost = {"samples": len(made), "nfe": made.nfe, "seconds_per_sample": clock.seconds / len(made)}
    entropy = {"unigram_entropy": unigram_entropy(made.texts)[1]}
    return {**text_quality(run, made), **cost, **entropy, **_judged(made, judge), "sampler": str(sampler)}, made


def _judged(made: TextResults, judge: Judge | None) -> dict[str, Any]:
    if judge is None:
        return {}
    found = generative_perplexity(made.texts, judge)
    return {"generative_perplexity": found.perplexity, "entropy_within": found.unigram_entropy}


def text_quality(run: Run, made: TextResults) -> dict[str, Any]:
    """The share of right texts, where somebody can tell: what the source can write, or what the task asks for.

    The answer to a source is right if the corpus could have written it, or else if it fulfills its source wholly. Of
    other text nothing is known.
    """
    if isinstance(run.data, InfinitePairs):
        asked = isinstance(run.framing, ChatRows)  # the question is a part of the text there
        texts = [each.new.strip() for each in made] if asked else made.texts
        sources = [run.data.pair("test", index).source for index in range(len(texts))]
        if (coverage := mean_coverage(run.data, sources, texts)) is not None:
            judged = [as_annotated(run.data).judge(text) for text in texts]
            possible = [judgment.log_prob > -math.inf for judgment in judged if judgment is not None]
            right = sum(possible) / len(possible) if possible else coverage.exact
            return {**proportion(right, len(texts)), "attributes": coverage.share, "all_attributes": coverage.exact}
    if isinstance(run.data, KnownDistribution):
        return proportion(fraction_possible(made.texts, run.data), len(made))
    return {}


def proportion(share: float, count: int) -> dict[str, float]:
    """A share with its standard error."""
    return {"share": share, "share_stderr": math.sqrt(share * (1 - share) / count)}
