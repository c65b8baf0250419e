"""Self-correction: the network rereads a finished text and replaces tokens it finds unlikely (GIDD)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core import ops, randomness
from redraft.core.batch import NoisySample
from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process, TokenProcess, exclude_mask
from redraft.core.randomness import Rng
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.base import Sampler, SamplerWrapper, require_steps, require_unconstrained, time_column


@dataclass(frozen=True)
class SelfCorrection(SamplerWrapper):
    """A sampler followed by up to `steps` corrections (von Rütte et al. 2025, "self-correction").

    Each correction draws a token for every free position from p(x | z)^{1/temperature}; p(x | z) ∝ x̂ · q_t(z | x)
    at time t = `noise_level`. Of the drawn tokens that differ from the present ones, the `tokens` most likely ones are
    written. Training makes x̂ ignore the token at its own position, so x̂ alone would change correct tokens wherever the
    context leaves a choice. A higher `noise_level` trusts the present tokens less.

    A row is finished when no drawn token differs, or when the fraction of its tokens that are the most likely ones has
    not grown for `patience` steps; it then needs no more network calls. Only noise that changes visible tokens (uniform
    or hybrid, with a head without carry-over) teaches a network to doubt them. The result is no longer a sample from
    the model: texts become more likely and less diverse.
    """

    sampler: Sampler = Ancestral()
    steps: int = 128
    tokens: int = 1  # number of tokens changed per step
    temperature: float = 0.1
    noise_level: float = 0.01
    patience: int = 32
    writes_once = draws_exactly = obeys_rules = False

    def __post_init__(self) -> None:
        require_steps(self.steps)
        if self.temperature <= 0 or not 0 < self.noise_level < 1 or self.tokens < 1 or self.patience < 1:
            raise ValueError(
                f"temperature={self.temperature}, noise_level={self.noise_level}, tokens={self.tokens}, "
                f"patience={self.patience}; "
                "use a temperature above 0, a noise level between 0 and 1, and counts of at least 1"
            )

    def with_total_steps(self, steps: int, length: int, at_once: int) -> SelfCorrection | None:
        """A third of the steps are corrections, so that the number of network calls stays the same."""
        third = steps // 3
        inner = self.sampler.with_total_steps(steps - third, length, at_once)
        return None if inner is None else replace(self, sampler=inner, steps=max(1, third))

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        require_unconstrained(canvas, self, "it changes single tokens of a finished text")
        for_sampler, for_correction = rng.split(2)
        for written in self.sampler(denoise, process, canvas, rng=for_sampler):
            yield written
        yield from self.correct(denoise, process, written, rng=for_correction)

    def correct(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        """Correct any finished text: yield the canvas after each step; fixed tokens never change."""
        free = self._changeable(process, canvas)
        assert isinstance(process, TokenProcess)  # `_changeable` raises for all others
        best = torch.full((len(free),), -1.0, device=free.device)
        waited, active = torch.zeros_like(best), free.any(-1)
        for i in range(self.steps):
            if not active.any():
                return
            canvas, agreed, changed = self._step(denoise, process, canvas, free & active[:, None], rng.fold(i))
            waited = torch.where(agreed > best, 0, waited + 1)
            best = torch.maximum(best, agreed)
            active = active & changed & (waited < self.patience)
            yield canvas

    def _changeable(self, process: Process, canvas: Canvas) -> Tensor:
        """(B, L) bool: tokens that may be wrong, because they are neither given nor determined by z."""
        t = time_column(canvas, self.noise_level)
        free = ~canvas.fixed & process.undetermined(NoisySample(canvas.z, t, canvas.z))
        if not bool(free.any()) and not bool(canvas.fixed.all()):
            raise ValueError(
                f"{type(process).__name__} never changes a visible token; SelfCorrection needs uniform or hybrid noise"
            )
        return free

    @torch.no_grad()
    def _step(
        self, denoise: Denoiser, process: TokenProcess, canvas: Canvas, free: Tensor, rng: Rng
    ) -> tuple[Canvas, Tensor, Tensor]:
        """Return the new canvas, (B,) the fraction of most likely tokens before, and (B,) bool which rows changed."""
        t = canvas.time(time_column(canvas, self.noise_level))
        pred = exclude_mask(denoise.predict(canvas.z, t, canvas.context), time_column(canvas, 0.0), process.vocab)
        log_x = pred.at(free)
        log_p = log_x + process.channel(canvas.z[free], t.expand_as(canvas.z)[free]).to(log_x.dtype)
        proposed = randomness.sample_categorical(log_p, rng.uniform(free.shape[1])[free], self.temperature)
        sharp = (log_p / self.temperature).log_softmax(-1)
        # rounded, so that ties are ties in any batch
        confidence = (sharp.gather(-1, proposed[:, None]).squeeze(-1).exp() * 2**16).round()
        scores = torch.zeros(free.shape, device=free.device).masked_scatter(free, confidence)
        z = canvas.z.masked_scatter(free, proposed)
        differs = free & (z != canvas.z)
        chosen = ops.top_per_row(scores, differs, torch.full((len(free),), self.tokens, device=free.device))
        likeliest = canvas.z.masked_scatter(free, log_p.argmax(-1)) == canvas.z
        agreed = (free & likeliest).sum(-1) / free.sum(-1).clamp(min=1)
        return canvas.write(torch.where(chosen, z, canvas.z)), agreed, chosen.any(-1)
