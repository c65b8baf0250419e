"""LLaDA's training loss for one row: the mask probability is at least 0.001, and the weight is 1 over it."""

import torch


def llada(x, denoise, rng, eps=1e-3):
    t = torch.rand(len(x), 1, generator=rng)
    p_mask = (1 - eps) * t + eps
    masked = torch.rand(x.shape, generator=rng) < p_mask
    log_p = denoise(x.masked_fill(masked, denoise.mask)).gather(-1, x[..., None]).squeeze(-1)
    return -(log_p * masked / p_mask).sum(-1)
