"""FlexMDM: tokens are inserted as masks and then revealed. Every missing token is an event of its own."""

import torch

from redraft.evaluation import AuditLoss


def _noised(x, t, pad, mask, rng):
    """Rows of the tokens that are present at time t, their clean tokens, and how many are missing in each gap."""
    arrival = torch.rand(x.shape, generator=rng)  # a token comes as a mask at this time and is revealed later, nearer 0
    reveal = arrival * torch.rand(x.shape, generator=rng)
    present = (x != pad) & (arrival > t)
    order = (~present).int().argsort(dim=-1, stable=True)
    beyond = torch.arange(x.shape[1]) >= present.sum(-1, keepdim=True)
    clean = x.gather(1, order).masked_fill(beyond, pad)
    z = x.masked_fill(reveal <= t, mask).gather(1, order).masked_fill(beyond, pad)
    missing = ((x != pad) & ~present).float()
    gaps = torch.zeros(len(x), x.shape[1] + 1).scatter_add(1, present.cumsum(-1), missing)
    return z, clean, gaps


@AuditLoss(missing=lambda t: t)
def flexmdm(x, denoise, rng):
    u = torch.rand(len(x), 1, generator=rng).clamp(1e-3)
    t = u**2  # more times near 0, where the rates 1/t are large
    z, clean, g = _noised(x, t, denoise.pad, denoise.mask, rng)
    log_p, m = denoise(z, t)
    masked = z == denoise.mask
    nll = -(log_p.gather(-1, clean[..., None]).squeeze(-1) * masked).sum(-1)
    G, k = g.sum(-1, keepdim=True), (z != denoise.pad).sum(-1, keepdim=True)
    even = G.clamp(min=1) / (k + 1)  # adds log(n!/n!) = 0 in total, and takes away most of the variance
    return 2 / u[:, 0] * (nll + (m - g - g * (m / even).log()).sum(-1))
