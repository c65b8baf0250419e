"""D3PM with absorbing noise in T = 8 steps: the sum of KL(posterior(x) ‖ posterior(x̂)), the last step included."""

import torch


def d3pm(x, denoise, rng, steps=8):
    i = torch.randint(1, steps + 1, (len(x), 1), generator=rng)
    t, s = i / steps, (i - 1) / steps
    masked = torch.rand(x.shape, generator=rng) < t
    log_p = denoise(x.masked_fill(masked, denoise.mask), t).gather(-1, x[..., None]).squeeze(-1)
    return -(steps * (t - s) / t * log_p * masked).sum(-1)  # a mask is revealed with probability (t − s)/t
