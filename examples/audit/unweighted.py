"""Masked cross-entropy without the weight 1/t."""

import torch


def unweighted(x, denoise, rng):
    t = torch.rand(len(x), 1, generator=rng)
    masked = torch.rand(x.shape, generator=rng) < t
    log_p = denoise(x.masked_fill(masked, denoise.mask), t).gather(-1, x[..., None]).squeeze(-1)
    return -(log_p * masked).sum(-1)
