"""The clipped times that BD3-LM trains with (t from 0 to ½), taken for a likelihood."""

import torch


def clipped_schedule(x, denoise, rng, low=0.0, high=0.5):
    t = low + (high - low) * torch.rand(len(x), 1, generator=rng)
    masked = torch.rand(x.shape, generator=rng) < t
    log_p = denoise(x.masked_fill(masked, denoise.mask), t).gather(-1, x[..., None]).squeeze(-1)
    return -(log_p * masked / t).sum(-1)
