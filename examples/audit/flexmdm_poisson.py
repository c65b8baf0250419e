"""FlexMDM's loss as released: a gap pays m − g + g·log(g/m), as if its g missing tokens were one event."""

import torch

from redraft.evaluation import AuditLoss


@AuditLoss(missing=lambda t: t)
def flexmdm_poisson(x, denoise, rng):
    u = torch.rand(len(x), 1, generator=rng).clamp(1e-3)
    arrival, text = torch.rand(x.shape, generator=rng), x != denoise.pad
    present, hidden = text & (arrival > u**2), arrival * torch.rand(x.shape, generator=rng) <= u**2
    order = (~present).int().argsort(dim=-1, stable=True)
    beyond = torch.arange(x.shape[1]) >= present.sum(-1, keepdim=True)
    clean, z = (
        row.gather(1, order).masked_fill(beyond, denoise.pad) for row in (x, x.masked_fill(hidden, denoise.mask))
    )
    g = torch.zeros(len(x), x.shape[1] + 1).scatter_add(1, present.cumsum(-1), (text & ~present).float())
    log_p, m = denoise(z, u**2)
    nll = -(log_p.gather(-1, clean[..., None]).squeeze(-1) * (z == denoise.mask)).sum(-1)
    return 2 / u[:, 0] * (nll + (m - g + torch.xlogy(g, g / m)).sum(-1))
