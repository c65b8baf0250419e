"""Optimizers: AdamW from torch, and Muon for hidden matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import AdamW, Optimizer

from redraft.models.networks.inspection import hidden_matrices
from redraft.training.runs.run import OptimizerConfig


class Muon(Optimizer):
    """Orthogonalized momentum (Jordan et al. 2024): every direction of a matrix learns at the same rate.

        m ← μ m + (1 − μ) g,    W ← W − lr · √max(1, rows/columns) · orthogonal(μ m + (1 − μ) g)

    `torch.optim.Muon` iterates in bf16 only, which CPUs without bf16 instructions emulate a hundred times slower. This
    one iterates in `dtype` and batches all matrices of the same shape.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "dtype": dtype})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    by_shape.setdefault(p.shape, []).append(p)
            for params in by_shape.values():
                self._update(params, [p.grad for p in params if p.grad is not None], group)

    def _update(self, params: list[Tensor], grads: list[Tensor], group: dict[str, Any]) -> None:
        moments = [self.state[p].setdefault("momentum", torch.zeros_like(p)) for p in params]
        torch._foreach_lerp_(moments, grads, 1 - group["momentum"])
        nesterov = torch._foreach_lerp(grads, moments, group["momentum"])
        updates = _orthogonalize(torch.stack(nesterov), group["dtype"]).to(params[0].dtype)
        scale = max(1, params[0].shape[0] / params[0].shape[1]) ** 0.5
        torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(params, list(updates.unbind()), alpha=-group["lr"] * scale)


def _orthogonalize(m: Tensor, dtype: torch.dtype = torch.float32, steps: int = 5) -> Tensor:
    """(…, a, b) → approximately U Vᵀ of the singular value decomposition, by quintic Newton–Schulz steps in `dtype`.

    If the matrix is sharded, every worker computes the whole result and keeps its own rows.
    """
    if isinstance(m, DTensor):
        return DTensor.from_local(_orthogonalize(m.full_tensor(), dtype, steps), m.device_mesh).redistribute(
            placements=m.placements
        )
    x = m.to(dtype)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.flatten(-2).norm(dim=-1)[..., None, None] + 1e-7)
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if tall else x


def build_optimizers(
    model: nn.Module, settings: OptimizerConfig, dtype: torch.dtype = torch.float32
) -> list[Optimizer]:
    """Builds AdamW for all parameters, or AdamW plus Muon on the hidden matrices if `settings.muon` is set.

    `dtype` is the dtype of the matrix products inside Muon. `_set_learning_rates` changes the rates during training.
    """
    hidden = hidden_matrices(model) if settings.muon else []
    ids = {id(p) for p in hidden}
    rest = [p for p in model.parameters() if id(p) not in ids]
    optimizers: list[Optimizer] = [
        AdamW(rest, settings.lr, settings.betas, settings.eps, weight_decay=settings.weight_decay, fused=True)
    ]
    if settings.muon:
        optimizers.append(Muon(hidden, settings.muon, dtype=dtype))
    for group in _groups(optimizers):
        group["full_lr"] = group["lr"]
    return optimizers


def _groups(optimizers: list[Optimizer]) -> list[dict[str, Any]]:
    return [group for optimizer in optimizers for group in optimizer.param_groups]


def _set_learning_rates(optimizers: list[Optimizer], fraction: float) -> None:
    """Sets every learning rate to this fraction of its full value."""
    for group in _groups(optimizers):
        group["lr"] = group["full_lr"] * fraction


def _learning_rate_fraction(settings: OptimizerConfig, step: int, steps: int) -> float:
    """The fraction of the full learning rate at a step, counted from 0.

    Linear warm-up from 1/warmup, then a cosine that nearly reaches `floor` at the last step; floor=1 keeps it constant.
    """
    if step < settings.warmup:
        return (step + 1) / settings.warmup
    progress = (step - settings.warmup) / max(1, steps - settings.warmup)
    return settings.floor + (1 - settings.floor) * 0.5 * (1 + math.cos(math.pi * progress))
