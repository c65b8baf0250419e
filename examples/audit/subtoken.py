"""Tokens of two bits: −log p(whole token), weighted 1/t once per token in which any bit is masked."""

import torch


def subtoken(x, denoise, rng):
    t, total = torch.rand(len(x), 1, generator=rng), torch.zeros(len(x))
    masked = torch.rand(x.shape, generator=rng) < t
    for token in torch.arange(x.shape[1]).split(2):
        z = x.masked_fill(masked, denoise.mask)
        for bit in token:  # p(token) = p(first bit) · p(second bit | first bit), each where it is masked
            log_p = denoise(z).gather(-1, x[..., None]).squeeze(-1)
            total -= (log_p * masked)[:, bit] / t[:, 0]
            z[:, bit] = x[:, bit]
    return total
