"""Codecs whose latents stand for a text as a whole: what there is to say of their places."""

from __future__ import annotations

import torch
from torch import Tensor


def everywhere(mask: Tensor, count: int) -> Tensor:
    """(B, L) → (B, N) True: each latent tells of all tokens, so that all of them are learnt, whatever the tokens."""
    return torch.ones(len(mask), count, dtype=torch.bool, device=mask.device)


def per_token(nats: Tensor, tokens: Tensor, pad: Tensor | None) -> Tensor:
    """(B,) nats of a row, spread evenly over its tokens (B, L): costs of latents beside those of tokens."""
    where = torch.ones_like(tokens, dtype=torch.bool) if pad is None else ~pad
    return torch.where(where, nats[:, None] / where.sum(-1, keepdim=True).clamp(min=1), 0.0)
