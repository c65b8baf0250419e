"""SEDD with mask noise: the denoising score entropy, with scores built from the denoiser."""

import torch


def sedd(x, denoise, rng):
    t = torch.rand(len(x), 1, generator=rng)
    sigma, rate = -torch.log1p(-t), 1 / (1 - t)  # log-linear noise
    masked = torch.rand(x.shape, generator=rng) < t
    log_p = denoise(x.masked_fill(masked, denoise.mask), t)[..., : denoise.words]
    ratio = 1 / torch.expm1(sigma)  # q_t(x) / q_t(mask)
    score = log_p.exp() * ratio[..., None]
    at_x = score.gather(-1, x[..., None]).squeeze(-1)
    entropy = score.sum(-1) - ratio * at_x.log() + ratio * (ratio.log() - 1)
    return (rate * masked * entropy).sum(-1)
