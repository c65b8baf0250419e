"""MDLM's ancestral sampler: at each of `steps` times every mask is revealed with probability (t − s)/t."""

import torch
from torch.distributions import Categorical


def ancestral(denoise, length, rng, rows, steps):
    z = torch.full((rows, length), denoise.mask)
    for i in range(steps, 0, -1):
        revealed = (z == denoise.mask) & (torch.rand(z.shape, generator=rng) < 1 / i)
        z = torch.where(revealed, Categorical(logits=denoise(z)).sample(), z)
    return z
