"""Sampling from canvases that are already composed, as evaluation does."""

from __future__ import annotations

import torch

from redraft.core.canvas import Canvas
from redraft.decoding.samplers.base import Sampler
from redraft.models.diffusion_lm import DiffusionLM
from redraft.tasks.engine.loop import DecodingLoop
from redraft.tasks.engine.result import TextResults


def sample_canvases(
    model: DiffusionLM, sampler: Sampler, canvas: Canvas, *, seed: int = 0, batch: int = 64, first: int = 0
) -> TextResults:
    """Samples all rows of a canvas, `batch` at a time; row i draws from the key (seed, first + i) in any batch."""
    rows = torch.arange(len(canvas.z), device=canvas.z.device)
    parts = (
        DecodingLoop(model, sampler, canvas.rows(index), seed=seed, samples=first + index, first=int(index[0]))
        for index in rows.split(batch)
    )
    return TextResults.joined(part.results() for part in parts)
