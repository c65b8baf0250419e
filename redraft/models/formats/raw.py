"""Raw outputs of an imported network, to compare with those of its original implementation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core.canvas import Context
from redraft.core.processes.base import require_times
from redraft.core.processes.sedd import log_scores
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.formats.dit import _TIME_IGNORED


def reference_outputs(
    model: DiffusionLM, tokens: Tensor, level: Tensor | None = None, label: Tensor | None = None
) -> Tensor:
    """Return (B, L, V) exactly what the original network returns for these ids: logits, or log-scores for SEDD.

    model: an imported checkpoint. Block networks run as in sampling: a block attends to itself and all earlier blocks.
    tokens: (B, L) ids, noisy or clean. FlexMDM infers its padding from them.
    level: (B,) or (B, 1), noise level in the original's own terms: σ for MDLM, SEDD and UDLM, t for GIDD, and for
        FlexMDM its time, where 1 is data. None for networks that are not conditioned on the noise level.
    label: (B,) class ids, for UDLM.
    """
    noise_level = _noise_level(model, tokens, level)
    ids, context = (tokens, Context()) if model.config.network.gaps is None else _append_end(model, tokens)
    states = model.network(ids, noise_level, context.with_condition(label=label))
    raw = model.network.logits(states[:, : tokens.shape[1]])
    if model.config.token_head.normalized:
        return raw
    return log_scores(raw, tokens, None if model.config.vocab.mask is None else noise_level)


def reference_gaps(model: DiffusionLM, tokens: Tensor, level: Tensor | None = None) -> Tensor:
    """Return what FlexMDM's network predicts for the gap before each id and for the gap at the end.

    Either (B, L + 1) expected counts of missing tokens, or (B, L + 1, N + 1) logits of the count. The arguments are
    those of `reference_outputs`.
    """
    ids, context = _append_end(model, tokens)
    gaps = model.network.with_gaps(ids, _noise_level(model, tokens, level), context)[1]
    return gaps if model.config.network.gap_counts else gaps.exp()


def _noise_level(model: DiffusionLM, tokens: Tensor, level: Tensor | None) -> Tensor:
    """Return the (B, 1) noise level that the network gets; 0, as for clean tokens, if it ignores the level."""
    if level is None and model.config.network.time and model.config.time_conditioning != _TIME_IGNORED:
        name = type(model.config.time_conditioning).__name__
        raise ValueError(f"this network needs the noise level ({name}); give level, a number per row")
    level = torch.zeros(len(tokens), device=tokens.device) if level is None else level
    level = level[:, None] if level.dim() == 1 else level
    require_times(tokens, level)
    return level


def _append_end(model: DiffusionLM, tokens: Tensor) -> tuple[Tensor, Context]:
    """Append a pad token to each row, so that every row ends with one; mark columns after the first as padding."""
    if (end := model.config.vocab.pad) is None:
        raise ValueError("this model has no pad token, which gap prediction needs at the end of each row")
    ids, length = F.pad(tokens, (0, 1), value=end), tokens.ne(end).sum(-1, keepdim=True)
    return ids, Context(pad=torch.arange(ids.shape[1], device=ids.device) > length)
