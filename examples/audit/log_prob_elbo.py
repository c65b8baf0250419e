"""The ELBO with K = 4 independent noise levels as an estimate of log p."""

import torch

from redraft.evaluation import AuditLogProb


@AuditLogProb
def elbo(x, denoise, rng, samples=4):
    total, length = torch.zeros(len(x)), x.shape[1]
    for _ in range(samples):
        n = torch.randint(1, length + 1, (len(x), 1), generator=rng)
        masked = torch.rand(x.shape, generator=rng).argsort(-1).argsort(-1) < n
        log_p = denoise(x.masked_fill(masked, denoise.mask)).gather(-1, x[..., None]).squeeze(-1)
        total = total + (log_p * masked * length / n).sum(-1)
    return total / samples
