"""The size of a run: its parameters, and a lower bound on the memory it needs."""

from __future__ import annotations

import torch

from redraft.models.config import DiffusionLMConfig
from redraft.models.diffusion_lm import DiffusionLM
from redraft.training.runs.run import Run


def parameter_count(model: DiffusionLMConfig) -> int:
    """Returns the number of parameters of a model, without allocating them."""
    with torch.device("meta"):
        return sum(p.numel() for p in DiffusionLM(model).parameters())


def minimum_memory(run: Run, world: int = 1) -> dict[str, int]:
    """Returns a lower bound on the bytes a worker needs, by purpose.

    Each weight comes with an average, a gradient and a moment. Each layer keeps the states of all tokens for the
    backward pass, unless they are recomputed.
    """
    network, length = run.model.network, run.framing.length
    rows, stored_layers = -(-run.batch // (world * run.micro_batches)), 1 if run.recompute else network.layers
    return {
        "model": 16 * parameter_count(run.model) // (world if run.shard else 1),
        "batch": rows * length * (16 + 4 * network.width * stored_layers),
        "eval_rows": run.eval_rows * length * 9,
        "samples": run.samples * length * (16 + 4 * network.width),
    }
