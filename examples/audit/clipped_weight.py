"""A weight 1/t that is kept from becoming large: 1/max(t, 0.1)."""

import torch


def clipped_weight(x, denoise, rng):
    t = torch.rand(len(x), 1, generator=rng)
    masked = torch.rand(x.shape, generator=rng) < t
    log_p = denoise(x.masked_fill(masked, denoise.mask), t).gather(-1, x[..., None]).squeeze(-1)
    return -(log_p * masked / t.clamp(min=0.1)).sum(-1)
