"""BD3-LM: blocks of two, each given the clean blocks before it, with a time of its own."""

import torch


def bd3lm(x, denoise, rng, size=2):
    total = torch.zeros(len(x))
    for start in range(0, x.shape[1], size):
        block = slice(start, start + size)
        t = torch.rand(len(x), 1, generator=rng)
        masked = torch.rand(x[:, block].shape, generator=rng) < t
        z = x.masked_fill(torch.arange(x.shape[1]) >= start, denoise.mask)  # the future is not seen
        z[:, block] = x[:, block].masked_fill(masked, denoise.mask)
        log_p = denoise(z, t)[:, block].gather(-1, x[:, block, None]).squeeze(-1)
        total -= (log_p * masked / t).sum(-1)
    return total
