"""Measurements of a trained model: bits of test text, and the quality and cost of the texts it generates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redraft.core.batch import Batch
from redraft.core.processes.gaussian import Gaussian
from redraft.decoding.samplers.base import Sampler
from redraft.evaluation.comparison.row_file import cpu_timer
from redraft.evaluation.judges import Judge, generative_perplexity
from redraft.evaluation.text_metrics import fraction_possible, unigram_entropy
from redraft.models.diffusion_lm import DiffusionLM
from redraft.tasks.canvases import sample_canvases
from redraft.tasks.engine.result import TextResults
from redraft.training.data.annotations import as_annotated, mean_coverage
from redraft.training.data.loader import first_batches, load_rows
from redraft.training.data.pairs import first_sources
from redraft.training.data.sources import Split
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

_VALID_ROWS = 64  # rows of the valid split on which the final log-SNR of a vector diffusion is chosen
_ENDS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0)  # candidates for the final log-SNR
_NOISIER = (-3.0, -4.0, -5.0, -6.0, -8.0)  # further candidates, tried in order if the noisiest of `_ENDS` is best


@dataclass(frozen=True)
class MeasurementSize:
    """How many rows and texts to measure for each model."""

    rows: int = 256  # rows of the test split
    draws: int = 4  # noise levels per row
    samples: int = 64  # texts generated with each number of steps
    write_steps: tuple[int, ...] = (8, 16, 32, 64)  # sampling steps per text, besides those of the run's own sampler


def _measure_model(
    model: DiffusionLM, run: Run, size: MeasurementSize, *, seed: int, judge: Judge | None = None
) -> dict[str, Any]:
    """Measure bits of test text, and texts written by the run's sampler with several numbers of steps."""
    written: dict[str, Any] = {}
    examples: list[str] = []
    for name, sampler in _samplers_to_measure(model, run, size.write_steps).items():
        figures, results = write_and_judge(model, run, sampler, size.samples, seed=seed, judge=judge)
        written[name], examples = figures, examples or [result.text for result in results[:4]]
    return {**unseen_bits(model, run, size.rows, size.draws, seed=seed), "written": written, "texts": examples}


# --- likelihood of test text ---


def _held_out_rows(run: Run, split: Split, count: int) -> HeldOut:
    """Load held-out rows. Source tokens are not scored, even if training scored them (`PairRows.joint`)."""
    return HeldOut.of(run.data, split, run.tokenizer, run.framing.with_given_sources(), count)


def unseen_bits(model: DiffusionLM, run: Run, rows: int, draws: int = 4, *, seed: int = 0) -> dict[str, Any]:
    """Measure bits per token and character of the test split, with standard errors over the choice of rows and noise.

    For vectors it chooses the final log-SNR on the valid split, and also measures the fraction of tokens that the codec
    reconstructs. If the true probabilities are known, it adds the bits per character above them, paired by row.
    """
    test, figures = _held_out_rows(run, "test", rows), {}
    if model.codec is not None:
        figures["reconstruction"] = reconstruction_accuracy(model, test.batches)
    if model.process.vectors:
        valid = _held_out_rows(run, "valid", min(rows, _VALID_ROWS))
        figures["end"] = _best_end(model, valid.batches, draws, seed=seed)
        model = with_final_logsnr(model, figures["end"])
    result = likelihood(model, test.batches, draws=draws, seed=seed)
    for unit in ("token", "char"):
        name = f"bits_per_{unit}"
        figures |= {name: getattr(result, name), f"{name}_stderr": result.row_error(unit)}
    figures |= {"rows": len(result.row_nats), "monte_carlo": result.relative_error * result.bits_per_char}
    if test.truth is not None:
        figures["excess"], figures["excess_stderr"] = excess_bits(result, test.truth.log_probs)
    return figures


def _best_end(model: DiffusionLM, batches: Sequence[Batch], draws: int, *, seed: int) -> float:
    """Return the final log-SNR with the best bound.

    It depends on the dimension: vectors of many coordinates still give their words away under much noise.
    """
    noisiest = model.process.narrowed(Gaussian, "the best end", "use a diffusion of vectors").path.noisiest
    ends, noisier = ([end for end in candidates if end > noisiest] for candidates in (_ENDS, _NOISIER))
    best, result = best_token_bound(model, batches, ends, draws=draws, seed=seed)
    for lower in noisier if best == min(ends) else ():
        _, lower_result = best_token_bound(model, batches, (lower,), draws=draws, seed=seed)
        if lower_result.row_nats.sum() >= result.row_nats.sum():
            break
        best, result = lower, lower_result
    return best


# --- generated text ---


def _samplers_to_measure(model: DiffusionLM, run: Run, counts: Sequence[int]) -> dict[str, Sampler]:
    """Return the run's sampler, and copies of it with each number of steps per text, without duplicates."""
    samplers: dict[str, Sampler] = {"own": run.sampler}
    for steps in counts:
        length = run.framing.length
        sampler = run.sampler.with_total_steps(steps, length, length if model.block is None else model.block)
        if sampler is not None and sampler not in samplers.values():
            samplers[str(steps)] = sampler
    return samplers


def write_and_judge(
    model: DiffusionLM, run: Run, sampler: Sampler, texts: int, *, seed: int = 0, judge: Judge | None = None
) -> tuple[dict[str, Any], TextResults]:
    """Write texts, from noise or in answer to sources of the test split; return their quality and cost, and the texts.

    Seconds per text are CPU time.
    """
    (first,) = first_batches(load_rows(run.data, "test", run.tokenizer, run.framing), texts, texts)
    canvas = blank_canvases(model, run.framing, texts, first)
    with cpu_timer() as clock:
        results = sample_canvases(model, sampler, canvas, seed=seed)
    cost = {"samples": len(results), "nfe": results.nfe, "seconds_per_sample": clock.seconds / len(results)}
    quality = {"unigram_entropy": unigram_entropy(results.texts)[1], **_judge_texts(results, judge)}
    return {**_text_quality(run, results), **cost, **quality, "sampler": str(sampler)}, results


def _judge_texts(results: TextResults, judge: Judge | None) -> dict[str, Any]:
    if judge is None:
        return {}
    judged = generative_perplexity(results.texts, judge)
    return {"generative_perplexity": judged.perplexity, "entropy_within": judged.unigram_entropy}


def _text_quality(run: Run, results: TextResults) -> dict[str, Any]:
    """Return the fraction of correct texts, if the corpus or the task can check them, else an empty dictionary.

    The answer to a source is correct if the corpus could have produced it or, if its probabilities are not known, if it
    covers the source completely. Other text is correct if the true distribution gives it a probability above 0.
    """
    if sources := first_sources(run.data, "test", len(results.texts)):
        texts = [result.new.strip() for result in results] if run.framing.in_chat else results.texts
        if (coverage := mean_coverage(run.data, sources, texts)) is not None:
            judgments = [as_annotated(run.data).judge(text) for text in texts]
            possible = [judgment.log_prob > -math.inf for judgment in judgments if judgment is not None]
            correct = sum(possible) / len(possible) if possible else coverage.exact
            return {**proportion(correct, len(texts)), "attributes": coverage.share, "all_attributes": coverage.exact}
    if (distribution := run.distribution) is not None:
        return proportion(fraction_possible(results.texts, distribution), len(results))
    return {}


def proportion(fraction: float, count: int) -> dict[str, float]:
    """Return a fraction of `count` texts with its standard error, under the names used in result rows."""
    return {"share": fraction, "share_stderr": math.sqrt(fraction * (1 - fraction) / count)}
