"""Sample texts during training, generated with the sampler of the run."""

from __future__ import annotations

import torch

from redraft.core import randomness
from redraft.core.batch import Batch
from redraft.core.canvas import Canvas
from redraft.decoding.samplers.base import Sampler, final_canvas
from redraft.models.canvases import blank_canvas
from redraft.models.diffusion_lm import DiffusionLM, inference
from redraft.training.data.framing import Framing


def blank_canvases(model: DiffusionLM, framing: Framing, rows: int, held_out: Batch) -> Canvas:
    """Returns blank canvases as long as the training rows.

    If every row depends on a source or label, those of the first held-out rows are used, at most one per row.
    """
    device = next(model.parameters()).device
    if framing.conditional:
        answers = blank_canvas(model, held_out.to(device))
        return answers.rows(torch.arange(min(rows, len(answers.z)), device=device))
    given = model.config.vocab.bos is not None  # the canvas starts with bos
    return model.canvas(new=framing.length - given, rows=rows)


def _sample_texts(model: DiffusionLM, sampler: Sampler, canvas: Canvas, *, seed: int) -> list[str]:
    """Fills a canvas with the sampler and returns the texts; row i uses the random key (seed, i)."""
    with inference(model) as device:
        keys = randomness.rng(seed, torch.arange(len(canvas.z), device=device))
        return model.text(final_canvas(sampler(model, model.process, canvas, rng=keys)))
