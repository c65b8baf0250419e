"""Network inputs besides z in training: dropped sources and labels, given text with holes, self-conditioning."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from redraft.core.batch import Batch, NoisySample
from redraft.core.canvas import Context
from redraft.core.condition import Condition
from redraft.core.randomness import Rng
from redraft.models.diffusion_lm import DiffusionLM


def _punch_holes(batch: Batch, fraction: float, *, rng: Rng) -> Batch:
    """Gives the text of a fraction of the rows, except for one or two holes; in those rows only the holes are learned.

    A hole starts anywhere and is more often short than long: its length is proportional to u², u uniform.
    """
    if not fraction:
        return batch
    start, length, coin = (key.uniform(2) for key in rng.split(3))
    size, index = batch.learn.sum(-1, keepdim=True), torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
    first = (start * size).floor()
    last = first + (length.square() * size / 2).floor()
    one, other = ((index >= first[:, [i]]) & (index <= last[:, [i]]) for i in range(2))
    inside = one | (other & (coin[:, :1] < 0.5))
    rank = batch.learn.cumsum(-1) - 1
    holes = inside.gather(1, rank.clamp(min=0)) & batch.learn
    return replace(batch, learn=torch.where(coin[:, 1:] < fraction, holes, batch.learn))


def _drop_condition(model: DiffusionLM, context: Context, fraction: float, *, rng: Rng) -> Context:
    """Removes source and label from a fraction of the rows, as classifier-free guidance needs.

    Those rows see one learned state in place of the source, and the class id that means "no class".
    """
    condition = context.condition
    if not fraction or (condition.source is None and condition.label is None):
        return context
    dropped = rng.uniform(1) < fraction
    if condition.label is not None and (none := model.config.network.classes) is not None:
        condition = replace(condition, label=condition.label.masked_fill(dropped.squeeze(-1), none))
    return replace(context, condition=_drop_source(condition, dropped, model.network.nothing))


def _drop_source(condition: Condition, dropped: Tensor, nothing: Tensor | None) -> Condition:
    """Replaces the source by the single state `nothing` in the rows marked in `dropped`, (B, 1) bool."""
    if condition.source is None or nothing is None:
        return condition
    first = torch.arange(condition.source.shape[1], device=dropped.device) == 0
    pad = torch.zeros_like(dropped & first) if condition.source_pad is None else condition.source_pad
    source = torch.where(dropped[..., None], nothing.to(condition.source.dtype), condition.source)
    return replace(condition, source=source, source_pad=torch.where(dropped, ~first, pad))


def self_condition(model: DiffusionLM, noised: NoisySample, context: Context, *, rng: Rng) -> Context:
    """Self-conditioning (Chen et al. 2022): half of the rows also see the network's own prediction from a first pass.

    No gradient flows through that prediction. In evaluation mode all rows see it, as in sampling.
    """
    if not model.config.self_conditioning:
        return context
    rows = (rng.uniform(1) < (0.5 if model.training else 1.0)).squeeze(-1).nonzero().squeeze(-1)
    with torch.no_grad():
        prediction = model.predict(noised.z[rows], noised.t[rows], context.rows(rows)).x
        previous = torch.zeros_like(noised.z).index_copy(0, rows, prediction.to(noised.z.dtype))
    return replace(context, previous=previous)
