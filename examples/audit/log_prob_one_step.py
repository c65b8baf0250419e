"""d1's estimate of log p: one call with all tokens masked, as if tokens were independent."""

import torch

from redraft.evaluation import AuditLogProb


@AuditLogProb
def one_step(x, denoise, rng):
    z = torch.full_like(x, denoise.mask)
    return denoise(z).gather(-1, x[..., None]).squeeze(-1).sum(-1)
