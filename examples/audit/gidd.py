"""GIDD: masks and uniform noise together (p_u = 0.2), its bound as KL + Itakura–Saito divergence."""

import torch
from torch.nn.functional import one_hot

from redraft.evaluation import AuditLoss


def parts(t):
    """The amounts of signal, mask and uniform noise at time t."""
    c = 0.5 * (t * (1 - t)) ** 0.5  # B = 2·p_u/(1 − p_u)
    return (1 - t) / (1 + c), t / (1 + c), c / (1 + c)


def hybrid(t, words):
    alpha, mask, even = parts(torch.as_tensor(t, dtype=torch.float64))
    noise = torch.cat([torch.full((words,), 1 / words), torch.zeros(1)]).double()
    return alpha * torch.eye(words, words + 1) + even * noise + mask * one_hot(torch.tensor(words), words + 1)


@AuditLoss(noise=hybrid)
def gidd(x, denoise, rng):
    N, u = denoise.words, torch.rand(len(x), 1, generator=rng, dtype=torch.float64)
    t, dt = torch.sin(torch.pi / 2 * u) ** 2, torch.pi / 2 * torch.sin(torch.pi * u)  # more times near both ends
    table = hybrid(t[..., None], N)  # (B, N, N + 1)
    q = table.gather(1, x[..., None].expand(-1, -1, N + 1))
    z = torch.distributions.Categorical(q).sample()
    p = denoise(z, t).double().exp()[..., :N] @ table
    c = 0.5 * (t * (1 - t)) ** 0.5
    rate = torch.where(z == N, 1 / (1 - t), c / (2 * t) / (1 - t) / N) / (1 + c)
    q_z, p_z = (v.gather(-1, z[..., None]).squeeze(-1) for v in (q, p))
    divergence = (q * (q / p).log()).sum(-1) + q_z / p_z - (q_z / p_z).log() - 1
    return (dt * rate / q_z * divergence).sum(-1)
