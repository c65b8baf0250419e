"""Time samplers fitted to a model: importance sampling, and the interval with the least variance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from redraft.core.batch import Batch
from redraft.core.randomness import Rng
from redraft.models.diffusion_lm import DiffusionLM
from redraft.training.objectives.losses import LossTerm
from redraft.training.objectives.objective import Objective
from redraft.training.objectives.time_samplers import ImportanceTimes, StratifiedTimes


def fit_importance_times(
    model: DiffusionLM, batch: Batch, loss: LossTerm, parts: int = 20, *, rng: Rng
) -> ImportanceTimes:
    """Fits the density to √E[loss²] of a batch in each of `parts` equal parts of [0, 1].

    Train for a while, fit, then continue with the fitted sampler.
    """
    roots = []
    with torch.no_grad():
        for i in range(parts):
            objective = Objective(loss, StratifiedTimes(i / parts, (i + 1) / parts))
            roots.append(float(objective(model, batch, rng=rng.fold(i)).nats.square().mean().sqrt()))
    floor = 1e-4 * max(roots)  # arbitrarily rare, but never impossible
    return ImportanceTimes(tuple(max(root, floor) / sum(roots) for root in roots))


def _candidate_intervals(shortest: float = 0.5, step: float = 0.05) -> list[tuple[float, float]]:
    """Returns all subintervals of [0, 1] on a grid of width `step`, at least `shortest` long, longest first."""
    parts, least = round(1 / step), round(shortest / step)
    ends = [(low, low + width) for width in range(parts, least - 1, -1) for low in range(parts - width + 1)]
    return [(low / parts, high / parts) for low, high in ends]


def fit_clipped_times(
    model: DiffusionLM,
    batches: Sequence[Batch],
    loss: LossTerm,
    grid: Iterable[tuple[float, float]] = tuple(_candidate_intervals()),
    *,
    rng: Rng,
) -> StratifiedTimes:
    """Clips times to the interval whose loss varies least (Arriola et al. 2025, §5.2), with one time per block.

    Intervals are compared on the same rows with the same random numbers. Their losses have different means, so we
    compare `_relative_variance`. Train for a while, fit, then continue with the fitted sampler.
    """
    samplers = [StratifiedTimes(low, high, model.block) for low, high in grid]
    return min(samplers, key=lambda sampler: _relative_variance(model, batches, Objective(loss, sampler), rng=rng))


@torch.no_grad()
def _relative_variance(model: DiffusionLM, batches: Sequence[Batch], objective: Objective, *, rng: Rng) -> float:
    """Var/mean² of the nats per token of a row, over the rows of all batches.

    A loss with half the mean and half the deviation trains equally well, since optimizers normalize the gradient.
    """
    losses = [objective(model, batch, rng=rng.fold(i)) for i, batch in enumerate(batches)]
    nats = torch.cat([loss.nats / loss.count.clamp(min=1) for loss in losses])
    return float(nats.var() / nats.mean() ** 2)
