"""Sequential Monte Carlo: several particles per text, to sample the model's p(x | rule)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.processes.masked import Masked
from redraft.core.randomness import Rng
from redraft.decoding.constraints.constrained import ConstrainedPrediction
from redraft.decoding.picks.order import AnyOrder
from redraft.decoding.samplers.base import Sampler, _time_grid, initial_canvas, require_steps


@dataclass(frozen=True)
class ParticleSampler(Sampler):
    """Sequential Monte Carlo over `Constrained` any-order unmasking; exact for p(x | rule) as `count` grows.

    A constrained step looks ahead with products of marginals: it draws z_s in proportion to p(z_s | z_t)·g(z_s), where
    g is the probability that the rest obeys the rule if every position is filled independently from the same
    prediction. The next prediction gives a better estimate of it, Z(z_s), so each step multiplies a particle's weight
    by Z(z_s)/g(z_s). A row is resampled (systematically) when its effective sample size falls below count/2. The result
    is one particle per row, drawn by weight. Each network call reads `count` times as many rows. The error falls as
    1/count.
    """

    steps: int = 32
    count: int = 8
    writes_once = False  # resampling replaces texts
    draws_exactly = False
    rule_exactness = "model"

    def __post_init__(self) -> None:
        require_steps(self.steps)
        if self.count < 1:
            raise ValueError(f"count={self.count}; it must be at least one particle")

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        process = process.narrowed(Masked, "ParticleSampler", "use Ancestral(steps)")
        rows = len(canvas.z)
        particles = canvas.rows(torch.arange(rows, device=canvas.z.device).repeat_interleave(self.count))
        particles, keys = initial_canvas(denoise, process, particles, rng=rng), _particle_keys(rng, self.count)
        yield particles.rows(self._first(rows))
        log_weight, expected = torch.zeros(rows, self.count, dtype=torch.float64), None
        for i, (t, s) in enumerate(pairwise(map(process.time_when_masked, _time_grid(particles, self.steps)))):
            with torch.no_grad():
                pred = denoise.predict(particles.z, particles.time(t), particles.context)
                if not isinstance(pred, ConstrainedPrediction):
                    raise ValueError(
                        "ParticleSampler needs a rule to weigh particles by; wrap the model in Constrained(process)"
                    )
                if expected is not None:
                    log_weight = log_weight + (pred.log_match() - expected).view(rows, self.count)
                    particles, log_weight, pred = self._resample(particles, log_weight, pred, rng.fold(-1 - i))
                share = torch.full_like(t, 1 / (self.steps - i))
                particles = process.reveal(pred, particles, s, t, AnyOrder(), share=share, rng=keys.fold(i)).canvas
                expected = pred.log_match(particles.z)
            yield particles.rows(self._first(rows))
        yield particles.rows(self._first(rows) + self._draw_index(log_weight, rng.fold(self.steps)))

    def _first(self, rows: int) -> Tensor:
        """(B,) index of the first particle of each row."""
        return torch.arange(rows) * self.count

    def _draw_index(self, log_weight: Tensor, rng: Rng) -> Tensor:
        """(B,) index in its row of a particle drawn by weight."""
        cumulative = log_weight.softmax(-1).cumsum(-1)
        return torch.searchsorted(cumulative, rng.once() * cumulative[:, -1:]).squeeze(-1).clamp(max=self.count - 1)

    def _resample(
        self, particles: Canvas, log_weight: Tensor, pred: ConstrainedPrediction, rng: Rng
    ) -> tuple[Canvas, Tensor, ConstrainedPrediction]:
        """Resample (systematically) the particles of rows whose effective sample size is below count/2."""
        p = log_weight.softmax(-1)
        low = 1 / p.square().sum(-1) < self.count / 2
        if not bool(low.any()):
            return particles, log_weight, pred
        quantiles = (torch.arange(self.count) + rng.once()) / self.count  # (B, count)
        chosen = torch.searchsorted(p.cumsum(-1), quantiles).clamp(max=self.count - 1)
        chosen = torch.where(low[:, None], chosen, torch.arange(self.count))
        index = (chosen + self._first(len(log_weight))[:, None]).flatten()
        return particles.rows(index), torch.where(low[:, None], 0.0, log_weight), pred.rows(index)


def _particle_keys(rng: Rng, count: int) -> Rng:
    """Derive a key for each particle from the key of its row, so that rows do not depend on each other."""
    keys = torch.stack([rng.fold(index).key for index in range(count)], 1).flatten()
    shared = rng.positions is None or len(rng.positions) == 1
    return Rng(keys, rng.positions if shared or rng.positions is None else rng.positions.repeat_interleave(count, 0))
