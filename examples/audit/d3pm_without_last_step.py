"""The T-step bound without its last term −log p(x | z₁): the step from t = 1/T to clean text is left out."""

import torch


def d3pm_without_last_step(x, denoise, rng, steps=8):
    i = torch.randint(1, steps + 1, (len(x), 1), generator=rng)
    t, s = i / steps, (i - 1) / steps
    masked = torch.rand(x.shape, generator=rng) < t
    log_p = denoise(x.masked_fill(masked, denoise.mask), t).gather(-1, x[..., None]).squeeze(-1)
    return -(steps * (t - s) / t * log_p * masked * (i > 1)).sum(-1)
