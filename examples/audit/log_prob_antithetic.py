"""Antithetic ELBO: a mask at time t and its complement at 1 − t, each with its own weight."""

import torch

from redraft.evaluation import AuditLogProb


@AuditLogProb
def antithetic(x, denoise, rng):
    t, total = torch.rand(len(x), 1, generator=rng), torch.zeros(len(x))
    masked = torch.rand(x.shape, generator=rng) < t
    for time, m in ((t, masked), (1 - t, ~masked)):
        log_p = denoise(x.masked_fill(m, denoise.mask)).gather(-1, x[..., None]).squeeze(-1)
        total = total + (log_p * m / time).sum(-1) / 2
    return total
