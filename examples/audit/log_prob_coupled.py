"""Coupled masks as in coupled-GRPO: a mask and its complement, so that every token is predicted exactly once."""

import torch

from redraft.evaluation import AuditLogProb


@AuditLogProb
def coupled(x, denoise, rng):
    masked = torch.rand(x.shape, generator=rng) < torch.rand(len(x), 1, generator=rng)
    total = torch.zeros(len(x))
    for m in (masked, ~masked):
        log_p = denoise(x.masked_fill(m, denoise.mask)).gather(-1, x[..., None]).squeeze(-1)
        total = total + (log_p * m).sum(-1)
    return total
