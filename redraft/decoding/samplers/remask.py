"""Remasking: rewriting random tokens (ReMDM, star-shaped) or those most likely wrong (G-Star)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser, Prediction
from redraft.core.processes.base import Process
from redraft.core.processes.interpolating import Interpolating
from redraft.core.processes.masked import Masked
from redraft.core.processes.remasking import CappedRate, Remask, RemaskRate, StarRate, WindowedRate
from redraft.core.randomness import Rng
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.base import (
    EvenWarp,
    Sampler,
    SamplerWrapper,
    TimeWarp,
    _time_grid,
    initial_canvas,
    require_steps,
)


@dataclass(frozen=True)
class WithRemasking(SamplerWrapper):
    """A sampler on the process with remasking: `WithRemasking(Ancestral(128), CappedRate(0.008))` is ReMDM-cap.

    Needs no special training. `WindowedRate(StarRate(), start_time, end_time)` makes the process star-shaped between
    these times.
    """

    sampler: Sampler
    rate: RemaskRate
    writes_once = False

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        if not isinstance(process, Masked | Interpolating):
            raise ValueError(
                f"WithRemasking is for mask and interpolating noise, not {type(process).__name__}; "
                "use the inner sampler alone"
            )
        return self.sampler(denoise, Remask(process, self.rate), canvas, rng=rng)


class ErrorScore(Protocol):
    """A score of how likely each token of a finished text is wrong."""

    def __call__(self, denoise: Denoiser, text: Canvas) -> Tensor:
        """(B, L) scores, higher for tokens to rewrite. They act as log-odds: tokens are drawn ∝ exp(score)."""
        ...


@dataclass(frozen=True)
class ErrorHeadScore:
    """The score by the model's own error head (`with_errors` makes the run that trains it)."""

    def __call__(self, denoise: Denoiser, text: Canvas) -> Tensor:
        parts = getattr(denoise, "parts", {})  # modules beside the network, by name, as a `DiffusionLM` has
        if "errors" not in parts:
            raise ValueError(
                f"{type(denoise).__name__} has no error head; use a DiffusionLM with one (redraft train gstar_tiny "
                "--base DIRECTORY trains it), or GuidedStar(guide=ConstantScore())"
            )
        scores: Tensor = parts["errors"].logits(denoise, text.z, text.context)
        return scores


@dataclass(frozen=True)
class ConstantScore:
    """The same score for every token: star-shaped sampling that remasks an exact number of tokens."""

    def __call__(self, denoise: Denoiser, text: Canvas) -> Tensor:
        return torch.zeros_like(text.z, dtype=torch.float32)


@dataclass(frozen=True)
class GuidedStar(Sampler):
    """Guided star-shaped sampling: write every token, remask those most likely wrong (Meshchaninov et al. 2025).

    For end_time ≤ t ≤ start_time a step draws the whole text from x̂ and remasks ⌈L·(1 − α_s)⌉ of its tokens, drawn
    without replacement with weights exp(score/temperature) (Gumbel top-k; temperature 0 takes the highest scores). At
    other times, and in the last step, it is ancestral sampling. The guide costs a second network call. If its
    scores depend on the text, the remaining tokens no longer follow the distribution of the process, so there is no
    bound.
    """

    steps: int = 64
    guide: ErrorScore = ErrorHeadScore()
    temperature: float = 1.0
    start_time: float = 0.55
    end_time: float = 0.05
    warp: TimeWarp = EvenWarp()
    writes_once = draws_exactly = False

    def __post_init__(self) -> None:
        require_steps(self.steps)
        if self.temperature < 0 or not 0 <= self.end_time <= self.start_time <= 1:
            raise ValueError(
                f"temperature={self.temperature}, start_time={self.start_time}, end_time={self.end_time}; "
                "use a temperature of 0 or more and 0 <= end_time <= start_time <= 1"
            )

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        process = process.narrowed(Masked, "GuidedStar", "use SelfCorrection()")
        canvas = initial_canvas(denoise, process, canvas, rng=rng.fold(self.steps))
        yield canvas
        for i, (t, s) in enumerate(pairwise(_time_grid(canvas, self.steps, self.warp))):
            with torch.no_grad():
                pred = denoise.predict(canvas.z, canvas.time(t), canvas.context)
                if self.end_time <= float(t[0]) <= self.start_time and float(s[0]) > 0:
                    canvas = self._remask_suspects(denoise, process, pred, canvas, s, t, rng.fold(i))
                else:
                    canvas = process.step(pred, canvas, s, t, rng=rng.fold(i))
            yield canvas

    def _remask_suspects(
        self, denoise: Denoiser, process: Masked, pred: Prediction, canvas: Canvas, s: Tensor, t: Tensor, rng: Rng
    ) -> Canvas:
        """Draw the whole text at t and mask the most suspect tokens again, as many as are masked at s."""
        text = process.step(pred, canvas, torch.zeros_like(s), t, rng=rng)
        *_, for_choice = rng.split(3)  # the step itself uses the first two
        free = ~canvas.fixed
        masked = (1 - process.schedule.kept(s)).squeeze(-1)
        count = (free.sum(-1) * masked - 1e-6).ceil()
        suspect = ops.top_per_row(self._noisy_scores(denoise, text, for_choice), free, count)
        return text.write(text.z.masked_fill(suspect, process.vocab.masked))

    def _noisy_scores(self, denoise: Denoiser, text: Canvas, rng: Rng) -> Tensor:
        """(B, L) scores plus Gumbel noise. Scores are rounded first, so that ties are ties in any batch."""
        scores = (self.guide(denoise, text).double() * 2**16).round() / 2**16
        if self.temperature == 0:
            return scores
        return scores - self.temperature * (-rng.uniform(text.z.shape[1]).log()).log()


_NAMED = {
    "remdm": WithRemasking(Ancestral(), CappedRate(0.05)),
    "star": WithRemasking(Ancestral(), WindowedRate(StarRate(), start_time=0.55, end_time=0.05)),
}
