"""UDLM: uniform noise in continuous time; t = sin²(πu/2), which keeps the variance finite."""

import torch
from torch.nn.functional import one_hot

from redraft.evaluation import AuditLoss


def uniform(t, words):
    return (1 - t) * torch.eye(words) + t / words


@AuditLoss(noise=uniform)
def udlm(x, denoise, rng):
    K, u = denoise.words, torch.rand(len(x), 1, generator=rng, dtype=torch.float64)
    t, dt = torch.sin(torch.pi / 2 * u) ** 2, torch.pi / 2 * torch.sin(torch.pi * u)  # more times near both ends
    replaced = torch.rand(x.shape, generator=rng) < t
    z = torch.where(replaced, torch.randint(K, x.shape, generator=rng), x)
    a, b = 1 - t[..., None], t[..., None]
    p, q = K * a * one_hot(x, K) + b, K * a * denoise(z, t).double().exp() + b
    p_z, q_z = p.gather(-1, z[..., None]), q.gather(-1, z[..., None])
    kl = (p / p_z * ((q_z * p) / (q * p_z)).log()).sum(-1, keepdim=True)
    return (dt[..., None] * (kl + K / q_z - K / p_z) / (K * a)).sum((-1, -2))
