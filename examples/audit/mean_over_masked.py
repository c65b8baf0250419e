"""The mean over the masked tokens, times the length: one division too many beside the weight's."""

import torch


def mean_over_masked(x, denoise, rng):
    t = torch.rand(len(x), 1, generator=rng)
    masked = torch.rand(x.shape, generator=rng) < t
    log_p = denoise(x.masked_fill(masked, denoise.mask), t).gather(-1, x[..., None]).squeeze(-1)
    return -(log_p * masked).sum(-1) * x.shape[1] / masked.sum(-1).clamp(min=1)
