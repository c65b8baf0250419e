"""Measurements of the demo: two trained models against the true distribution, and texts of the first one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from redraft.apps.reports import page
from redraft.apps.reports.page import _judged_sample, _Sample
from redraft.apps.reports.watch import Frame, frames
from redraft.core import randomness
from redraft.core.batch import Batch
from redraft.core.canvas import Canvas
from redraft.core.text.tokenizers import join_words, split_words
from redraft.evaluation.text_metrics import GrammarScore, grammar_score
from redraft.models.diffusion_lm import DiffusionLM
from redraft.tasks.canvases import sample_canvases
from redraft.tasks.engine.result import TextResults
from redraft.training.data.corpora.stories import STORY_LANGUAGE
from redraft.training.data.corpora.story_tasks import StoryCorpus
from redraft.training.data.loader import first_batches, load_rows
from redraft.training.heldout import NATS_PER_BIT, Likelihood, excess_bits, likelihood
from redraft.training.loop import fit
from redraft.training.runs import metrics
from redraft.training.runs.run import Run

_HELD_OUT = 256  # stories of the test split that both models are measured on
_WRITTEN = 128  # stories that each model generates
_SHOWN = 6  # number of these stories that are shown


@dataclass(frozen=True)
class _DemoModel:
    """A trained model, its run and its log."""

    run: Run
    model: DiffusionLM
    log: tuple[dict[str, Any], ...]  # records of metrics.jsonl

    @classmethod
    def fit(cls, run: Run, out: Path, quiet: bool) -> _DemoModel:
        """Trains the run in `out`, or resumes it there."""
        model = fit(run, out, quiet=quiet)
        return cls(run, model, tuple(metrics.read_metrics(out)))

    def curve(self, key: str) -> tuple[tuple[int, float], ...]:
        """(step, value) of a quantity in the log."""
        return tuple((line["step"], line[key]) for line in self.log if key in line)

    @cached_property
    def unseen(self) -> list[Batch]:
        """The first `_HELD_OUT` stories of the test split."""
        return first_batches(load_rows(self.run.data, "test", self.run.tokenizer, self.run.framing), _HELD_OUT)

    def story(self, index: int) -> str:
        """Returns the text of one story of the test split."""
        assert isinstance(self.run.data, StoryCorpus)
        return self.run.data.document("test", index)

    @property
    def tokens(self) -> float:
        """Number of tokens seen in training, estimated from the mean row of the test split."""
        per_row = sum(int(b.learn.sum()) for b in self.unseen) / sum(len(b.tokens) for b in self.unseen)
        return self.run.steps * self.run.batch * per_row

    @property
    def seconds(self) -> float:
        """Training time by the log, without evaluation and checkpoints; also correct for resumed runs."""
        speeds = self.curve("tokens_per_second")
        steps = [step for step, _ in speeds]
        per_step = self.tokens / self.run.steps
        return sum(per_step * (step - last) / speed for last, (step, speed) in zip([0, *steps], speeds, strict=False))

    def blank(self, rows: int) -> Canvas:
        """Returns an empty canvas with room for whole stories."""
        given = self.run.model.vocab.bos is not None  # every canvas starts with bos
        return self.model.canvas(new=self.run.framing.length - given, rows=rows)

    def completed(self, canvas: Canvas) -> Canvas:
        """Fills the rest of the row with end tokens, as in training, so that the canvas is a complete text."""
        end, rest = self.run.model.vocab.eos, self.run.framing.length - canvas.z.shape[1]
        if end is None or rest < 0:
            raise ValueError(
                f"{canvas.z.shape[1]} tokens and an end token do not fit the rows of this run; use a shorter text"
            )
        inside = canvas.context.constraints.no_end_token
        inside = None if inside is None else F.pad(inside, (0, rest), value=False)
        context = canvas.context.with_constraints(no_end_token=inside)
        z, fixed = F.pad(canvas.z, (0, rest), value=end), F.pad(canvas.fixed, (0, rest), value=True)
        return replace(canvas, z=z, fixed=fixed, context=context)

    def sample_row(self, canvas: Canvas, row: int, seed: int) -> tuple[Canvas, ...]:
        """Returns all canvases of sampling one row, with the random numbers of row `row`."""
        keys = randomness.rng(seed, torch.tensor([row], device=canvas.z.device))
        return tuple(self.run.sampler(self.model, self.model.process, canvas, rng=keys))

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())


@dataclass(frozen=True)
class _ModelScores:
    """A model measured against the true distribution."""

    trained: _DemoModel
    likelihood: Likelihood
    excess: tuple[float, float]  # bits per character above the truth, and the standard error
    generated: TextResults
    grammar: GrammarScore

    @property
    def first_sentence(self) -> float:
        """Fraction of generated stories whose first sentence is correct, among those that have one."""
        return self.grammar.by_sentence[0] if self.grammar.by_sentence else 0.0

    @classmethod
    def of(cls, model: _DemoModel, seed: int) -> _ModelScores:
        estimate = likelihood(model.model, model.unseen, seed=seed)
        truth = [STORY_LANGUAGE.log_prob(model.story(i)) for i in range(_HELD_OUT)]
        generated = sample_canvases(model.model, model.run.sampler, model.blank(_WRITTEN), seed=seed)
        grammar = grammar_score(generated.texts, STORY_LANGUAGE)
        return cls(model, estimate, excess_bits(estimate, truth), generated, grammar)


@dataclass(frozen=True)
class _DemoResults:
    """The scores of both models, and the numbers that summarize them."""

    diffusion: _ModelScores
    baseline: _ModelScores
    seed: int

    @property
    def limit(self) -> float:
        """Entropy of the stories in bits per character, which no model can beat."""
        return STORY_LANGUAGE.entropy_per_char() / NATS_PER_BIT

    @property
    def truth(self) -> float:
        """Bits per character of the measured stories under the true distribution; varies around `limit`."""
        return self.diffusion.likelihood.bits_per_char - self.diffusion.excess[0]

    def result(self) -> dict[str, float | int | str]:
        """Returns the content of result.json."""
        diffusion, baseline, model = self.diffusion, self.baseline, self.diffusion.trained
        return {
            "bits_per_char": diffusion.likelihood.bits_per_char,
            "entropy_bits_per_char": self.limit,
            "excess_bits_per_char": diffusion.excess[0],
            "ar_bits_per_char": baseline.likelihood.bits_per_char,
            "grammatical": diffusion.grammar.share,
            "train_seconds": model.seconds,
            "tokens_per_second": model.tokens / model.seconds,
            "excess_stderr": diffusion.excess[1],
            "first_sentence": diffusion.first_sentence,
            "nfe": diffusion.generated.nfe,
            "ar_excess_bits_per_char": baseline.excess[0],
            "ar_grammatical": baseline.grammar.share,
            "ar_train_seconds": baseline.trained.seconds,
            "steps": model.run.steps,
            "seed": self.seed,
            "run": model.run.digest,
        }


@dataclass(frozen=True)
class _DemoTexts:
    """Texts that the model generated."""

    stories: tuple[_Sample, ...]
    gaps: tuple[_CutStory, ...]
    infills: tuple[page._FilledText, ...]
    canvases: tuple[Canvas, ...]  # all steps of one story
    frames: tuple[Frame, ...]  # the canvases as frames, for display

    @classmethod
    def of(cls, results: _DemoResults) -> _DemoTexts:
        model, stories = (
            results.diffusion.trained,
            tuple(_judged_sample(t, results.diffusion.trained.run.data) for t in results.diffusion.generated.texts),
        )
        best = max(range(len(stories)), key=lambda i: (stories[i].whole, stories[i].right))  # longest correct beginning
        gaps = tuple(_cut_story(model, _HELD_OUT + i) for i in range(2))
        # a row draws from its own key, so alone it becomes the same text as in the batch
        canvases = model.sample_row(model.blank(1), row=best, seed=results.seed)
        infills = tuple(_fill_story(model, gap, results.seed) for gap in gaps)
        return cls(stories[:_SHOWN], gaps, infills, canvases, tuple(frames(canvases, model.model)))


@dataclass(frozen=True)
class _CutStory:
    """A story with holes as a template for `infill`, and the words that were removed."""

    template: str
    hidden: tuple[str, ...]


def _cut_story(model: _DemoModel, index: int) -> _CutStory:
    """Returns a held-out story with two holes: five words after its first quarter, six after its middle."""
    words = split_words(model.story(index))
    first, second = len(words) // 4, len(words) // 2
    a, b, c, d, e = (
        join_words(words[lo:hi])
        for lo, hi in ((0, first), (first, first + 5), (first + 5, second), (second, second + 6), (second + 6, None))
    )
    holes = [f"[[{len(model.run.tokenizer.encode(hidden))}]]" for hidden in (b, d)]
    return _CutStory(f"{a} {holes[0]} {c} {holes[1]} {e}", (b, d))


def _fill_story(model: _DemoModel, gap: _CutStory, seed: int) -> page._FilledText:
    """Fills the holes of the story; everything else is unchanged."""
    canvas = model.completed(model.model.compose([gap.template]))
    *_, end = frames(model.sample_row(canvas, row=0, seed=seed), model.model)
    return page._FilledText(end.tokens, _judged_sample(end.text, model.run.data), gap.hidden)
