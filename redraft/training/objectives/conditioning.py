"""What a network sees in training besides z: source and label, sometimes dropped, given text, its own first guess."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from redraft.core.batch import Batch, NoisySample
from redraft.core.canvas import Context
from redraft.core.randomness import Rng
from redraft.models.diffusion_lm import DiffusionLM


def punch_holes(batch: Batch, share: float, *, rng: Rng) -> Batch:
    """The batch, in a share of whose rows the text is given but for one or two holes, which alone are learnt.

    A hole begins anywhere and is short more often than long: its length is a square of a uniform number.
    """
    begin, length, whether = (each.uniform(2) for each in rng.split(3))
    size, place = batch.learn.sum(-1, keepdim=True), torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
    first = (begin * size).floor()
    last = first + (length.square() * size / 2).floor()
    one, other = ((place >= first[:, [i]]) & (place <= last[:, [i]]) for i in range(2))
    inside = one | (other & (whether[:, :1] < 0.5))
    rank = batch.learn.cumsum(-1) - 1
    holes = inside.gather(1, rank.clamp(min=0)) & batch.learn
    return replace(batch, learn=torch.where(whether[:, 1:] < share, holes, batch.learn))


def drop_condition(model: DiffusionLM, context: Context, share: float, *, rng: Rng) -> Context:
    """The context with source and label removed from a share of the rows, so that guidance can do without them.

    Those rows see what a model without a source sees, one learned state, and the class id that means "no class".
    """
    if not share or (context.cond is None and context.label is None):
        return context
    lost = rng.uniform(1) < share
    if context.label is not None and (none := model.config.network.classes) is not None:
        context = replace(context, label=context.label.masked_fill(lost.squeeze(-1), none))
    return _drop_source(context, lost, model.network.nothing)


def _drop_source(context: Context, lost: Tensor, nothing: Tensor | None) -> Context:
    """The context without the source of some rows, (B, 1) bool: they see the state `nothing` instead."""
    if context.cond is None or nothing is None:
        return context
    first = torch.arange(context.cond.shape[1], device=lost.device) == 0
    pad = torch.zeros_like(lost & first) if context.cond_pad is None else context.cond_pad
    cond = torch.where(lost[..., None], nothing.to(context.cond.dtype), context.cond)
    return replace(context, cond=cond, cond_pad=torch.where(lost, ~first, pad))


def self_condition(model: DiffusionLM, noised: NoisySample, context: Context, *, rng: Rng) -> Context:
    """Self-conditioning (Chen et al. 2022): half of the rows also see the network's first prediction from z.

    No gradient flows through it. In evaluation mode all rows see it, as in sampling.
    """
    if not model.config.hint:
        return context
    told = (rng.uniform(1) < (0.5 if model.training else 1.0)).squeeze(-1).nonzero().squeeze(-1)
    with torch.no_grad():
        said = model(noised.z[told], noised.t[told], context.rows(told)).x
        hint = torch.zeros_like(noised.z).index_copy(0, told, said.to(noised.z.dtype))
    return replace(context, hint=hint)
