"""What a network sees in training besides z: source and label, sometimes dropped, and its own first guess."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from redraft.model import DiffusionLM
from redraft.ops import Rng
from redraft.types import Context, Noised


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


def self_condition(model: DiffusionLM, noised: Noised, context: Context, *, rng: Rng) -> Context:
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
