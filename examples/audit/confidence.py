"""Confidence sampling, one token at a time: draw all tokens, keep the one that is most probable."""

import torch
from torch.distributions import Categorical


def confidence(denoise, length, rng, rows):
    z = torch.full((rows, length), denoise.mask)
    for _ in range(length):
        log_p = denoise(z)
        x = Categorical(logits=log_p).sample()
        sure = log_p.gather(-1, x[..., None]).squeeze(-1).masked_fill(z != denoise.mask, -1e9)
        best = sure.argmax(-1, keepdim=True)
        z = z.scatter(1, best, x.gather(1, best))
    return z
