"""FlexMDM's sampler: in each step masks are revealed, and a Poisson number of masks comes into every gap."""

import torch
from torch.distributions import Categorical

from redraft.evaluation import AuditSampler


def _insert(z, masks, denoise):
    """Insert the given number of masks into each gap of packed rows; cut what is too long."""
    rows, length = z.shape
    masks = masks.long()
    place = torch.arange(length) + masks[:, :length].cumsum(-1)
    size = (z != denoise.pad).sum(-1, keepdim=True)
    wide = torch.full((rows, length + int(masks.sum(-1).max()) + 1), denoise.mask)
    wide = wide.scatter(1, place.masked_fill(z == denoise.pad, wide.shape[1] - 1), z)[:, :length]
    return wide.masked_fill(torch.arange(length) >= size + masks.sum(-1, keepdim=True), denoise.pad)


@AuditSampler(missing=lambda t: t)
def flexmdm_sampler(denoise, length, rng, rows, steps):
    z = torch.full((rows, length), denoise.pad)
    for i in range(steps, 0, -1):
        log_p, gaps = denoise(z, i / steps)
        revealed = (z == denoise.mask) & (torch.rand(z.shape, generator=rng) < 1 / i)
        z = torch.where(revealed, Categorical(logits=log_p).sample(), z)
        z = _insert(z, torch.poisson(gaps / i, generator=rng), denoise)
    return torch.where(z == denoise.mask, Categorical(logits=denoise(z, 0.0)[0]).sample(), z)
