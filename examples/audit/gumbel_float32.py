"""Ancestral steps by Gumbel noise in float32 with 50,000 ids: each word stands for 17,000 equally likely ones."""

import torch


def gumbel_float32(denoise, length, rng, rows, steps, ids_per_word=17_000, bits=24):
    z = torch.full((rows, length), denoise.mask)
    for i in range(steps, 0, -1):
        p = denoise(z).double().exp() / i
        p[..., : denoise.words] /= ids_per_word
        p[..., denoise.mask] = 1 - 1 / i
        u = torch.rand(p.shape, generator=rng, dtype=torch.float64)
        u[..., : denoise.words] **= 1 / ids_per_word  # the largest uniform number among a word's ids
        u = (u * 2**bits).floor() / 2**bits  # as torch.rand draws it in float32
        drawn = (p.log() - (-u.log()).log()).argmax(-1)
        z = torch.where(z == denoise.mask, drawn, z)
    return z
