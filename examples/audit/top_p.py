"""Nucleus sampling with p = 0.9, left to right."""

import torch
from torch.distributions import Categorical


def top_p(denoise, length, rng, rows, p=0.9):
    z = torch.full((rows, length), denoise.mask)
    for l in range(length):
        chance, word = denoise(z)[:, l].exp().sort(descending=True)
        chance[chance.cumsum(-1) - chance > p] = 0  # the token that crosses p is kept
        z[:, l] = word.gather(1, Categorical(chance).sample()[:, None])[:, 0]
    return z
