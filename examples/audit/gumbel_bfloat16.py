"""Ancestral steps by Gumbel noise in bfloat16: no uniform number is between 1 − 2⁻⁸ and 1, so rare events never win."""

import torch


def gumbel_bfloat16(denoise, length, rng, rows, steps, dtype=torch.bfloat16):
    z = torch.full((rows, length), denoise.mask)
    for i in range(steps, 0, -1):
        p = denoise(z).exp() / i
        p[..., denoise.mask] = 1 - 1 / i
        u = torch.rand(p.shape, generator=rng, dtype=dtype)
        drawn = (p.to(dtype).log() - (-u.log()).log()).argmax(-1)
        z = torch.where(z == denoise.mask, drawn, z)
    return z
