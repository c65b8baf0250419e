"""What the original itself would say: the bare outputs of a loaded network."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core.canvas import Context
from redraft.core.processes.base import require_times
from redraft.core.processes.sedd import log_scores
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.formats.dit import _NO_CONDITION


def reference_outputs(
    model: DiffusionLM, tokens: Tensor, level: Tensor | None = None, label: Tensor | None = None
) -> Tensor:
    """(B, L, V) exactly what the original network returns for these ids: logits, or log-scores for SEDD.

    model: a loaded checkpoint. Block networks run as in sampling: a block sees itself and everything before it.
    tokens: (B, L) ids, noisy or clean. FlexMDM infers its padding from them.
    level: (B,) or (B, 1), the noise level in the original's own terms: σ for MDLM, SEDD and UDLM, t for GIDD, and for
        FlexMDM its time, where 1 is data. None for networks that are not told the level.
    label: (B,) class ids, for UDLM.
    """
    told = _level(model, tokens, level)
    ids, context = (tokens, Context()) if model.config.network.gaps is None else _with_end(model, tokens)
    states = model.network(ids, told, replace(context, label=label))
    raw = model.network.logits(states[:, : tokens.shape[1]])
    if model.config.token_head.normalised:
        return raw
    return log_scores(raw, tokens, None if model.config.vocab.mask is None else told)


def reference_gaps(model: DiffusionLM, tokens: Tensor, level: Tensor | None = None) -> Tensor:
    """What FlexMDM's network returns for the gap before each id and the one at the end; arguments as `reference_outputs`.

    (B, L + 1) expected numbers of missing tokens, or (B, L + 1, N + 1) logits of their number.
    """
    ids, context = _with_end(model, tokens)
    said = model.network.with_gaps(ids, _level(model, tokens, level), context)[1]
    return said if model.config.network.gap_counts else said.exp()


def _level(model: DiffusionLM, tokens: Tensor, level: Tensor | None) -> Tensor:
    """(B, 1) the level that the network sees; one that ignores the noise always sees that of clean tokens."""
    if level is None and model.config.network.time and model.config.level != _NO_CONDITION:
        raise ValueError(f"this network is told the time ({model.config.level}); give its level, a number per row")
    level = torch.zeros(len(tokens), device=tokens.device) if level is None else level
    level = level[:, None] if level.dim() == 1 else level
    require_times(tokens, level)
    return level


def _with_end(model: DiffusionLM, tokens: Tensor) -> tuple[Tensor, Context]:
    """The ids and one more, where the longest row ends; nothing sees beyond the end of its row."""
    if (end := model.config.vocab.pad) is None:
        raise ValueError("gaps need a token for the end of a row; use a vocabulary with pad")
    ids, length = F.pad(tokens, (0, 1), value=end), tokens.ne(end).sum(-1, keepdim=True)
    return ids, Context(pad=torch.arange(ids.shape[1], device=ids.device) > length)
