"""Numerics that need care: losses, masks and sums without overflow, rounding errors or copies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

_Record = TypeVar("_Record")


def _map_tensors(record: _Record, change: Callable[[Tensor], Tensor], **others: Any) -> _Record:
    """A copy of a dataclass with `change` applied to its tensors; the fields in `others` are replaced instead."""
    names = [field.name for field in fields(record) if field.name not in others]  # type: ignore[arg-type]
    tensors = {name: value for name in names if isinstance(value := getattr(record, name), Tensor)}
    return replace(record, **{name: change(value) for name, value in tensors.items()}, **others)  # type: ignore[type-var]


def widest_float(device: torch.device) -> torch.dtype:
    """float64, or float32 on devices without it."""
    return torch.float32 if device.type == "mps" else torch.float64


def to_numpy(a: Tensor) -> np.ndarray:
    """The tensor as a numpy array: on small arrays numpy takes a third of torch's time."""
    return a.numpy() if a.is_cpu else a.cpu().numpy()


def known_zero(a: Tensor) -> bool:
    """Whether all elements are zero, if that is known here; False on other devices, where looking would mean waiting.

    For shortcuts only: the way without them must give the same.
    """
    return a.is_cpu and not torch.compiler.is_compiling() and not a.detach().numpy().any()


def no_grad() -> AbstractContextManager[object]:
    """`torch.no_grad()`, or nothing at all if gradients are off: entering it costs as much as two small operations."""
    return torch.no_grad() if torch.is_grad_enabled() else _NOTHING


_NOTHING = nullcontext()


def flat_positions(where: Tensor) -> Tensor:
    """(N,) indices of the true elements in the flattened mask, which remembers them until it changes."""
    if torch.compiler.is_compiling() or where.is_inference():  # then torch does not say whether a tensor has changed
        return _flat_positions(where)
    known = getattr(where, "_flat_positions", None)
    if known is None or known[0] != where._version:
        known = where._flat_positions = where._version, _flat_positions(where)  # type: ignore[attr-defined]
    index: Tensor = known[1]
    return index


def _flat_positions(where: Tensor) -> Tensor:
    if where.is_cpu:
        return torch.from_numpy(where.numpy().reshape(-1).nonzero()[0])
    return where.flatten().nonzero().squeeze(-1)


def argmax(a: Tensor) -> Tensor:
    """(N, V) → (N,) index of the largest element of each row, the first of equal ones."""
    return torch.from_numpy(a.detach().numpy().argmax(-1)) if a.is_cpu and a.dtype != torch.bfloat16 else a.argmax(-1)


def nucleus_mask(log_p: Tensor, share: float) -> Tensor:
    """(…, V) bool: the smallest set of most likely states whose probabilities sum to `share`; at least one state."""
    p, order = log_p.softmax(-1).sort(dim=-1, descending=True, stable=True)
    before = p.cumsum(-1) - p
    first = torch.arange(p.shape[-1], device=p.device) == 0
    return torch.zeros_like(before, dtype=torch.bool).scatter(-1, order, (before < share) | first)


def top_k_mask(log_p: Tensor, count: int) -> Tensor:
    """(…, V) bool: the `count` most likely states; ties go to the lowest index."""
    order = log_p.sort(dim=-1, descending=True, stable=True).indices[..., :count]
    return torch.zeros_like(log_p, dtype=torch.bool).scatter(-1, order, True)


def extrapolate(start: Tensor, end: Tensor, scale: float) -> Tensor:
    """(…, V) log-probabilities ∝ start^{1−γ}·end^γ, normalized, γ = `scale`; 0 and 1 give exactly `start` and `end`.

    A state that either of them excludes stays excluded, so −∞ is never subtracted from −∞.
    """
    if scale in (0, 1):
        return end if scale else start
    excluded = (start == -torch.inf) | (end == -torch.inf)
    return torch.where(excluded, -torch.inf, (1 - scale) * start + scale * end).log_softmax(-1)


def log_softplus(x: Tensor) -> Tensor:
    """log log(1 + e^x), elementwise. Far below zero, where e^x would underflow, it is x itself."""
    far = x < -15
    return torch.where(far, x, F.softplus(x.masked_fill(far, 0.0)).log())


def top_per_row(score: Tensor, among: Tensor, count: Tensor) -> Tensor:
    """(B, L) bool: the `count` (B,) highest scores of each row at marked positions; ties go to the lowest index."""
    return Ranking.of(to_numpy(score), among).first(to_numpy(count))


@dataclass(frozen=True)
class Ranking:
    """The marked positions of each row sorted by score, highest first; ties keep the order of columns.

    It runs on the host: sorting a few hundred numbers takes less time there than launching kernels.
    """

    among: np.ndarray  # (B, L) bool: the marked positions
    device: torch.device
    order: np.ndarray  # (B, L) flat indices into (B, L), sorted within each row, marked positions first
    lowest: np.ndarray  # (B, L) negative scores of all positions, ∞ for those that are not marked

    @classmethod
    def of(cls, score: np.ndarray, among: Tensor) -> Ranking:
        """Rank `score` (B, L) among the marked positions."""
        marked = to_numpy(among)
        lowest = np.where(marked, np.minimum(-score, _LARGEST[score.dtype]), np.inf)  # marked ones may be −∞
        order = lowest.argsort(-1, kind="stable")
        if len(order) > 1:
            order += order.shape[1] * np.arange(len(order))[:, None]
        return cls(marked, among.device, order, lowest)

    @property
    def values(self) -> np.ndarray:
        """(B, L) float64 scores from the highest to the lowest, −∞ after the marked positions."""
        return -self.lowest.reshape(-1)[self.order].astype(np.float64, copy=False)

    def first(self, count: np.ndarray) -> Tensor:
        """(B, L) bool: the `count` (B,) highest-scoring positions of each row."""
        where = np.zeros(self.order.shape, bool)
        flat = where.reshape(-1)
        for row, most in zip(self.order, count.tolist(), strict=True):
            flat[row[: max(0, int(most))]] = True
        return torch.from_numpy(where & self.among).to(self.device)


_LARGEST = {np.dtype(kind): np.finfo(kind).max for kind in (np.float32, np.float64)}


def scatter(values: Tensor, where: Tensor) -> Tensor:
    """(B, L): the (N,) values at the marked positions, zero elsewhere."""
    return torch.zeros_like(where, dtype=values.dtype).masked_scatter(where, values)


def nll(log_weights: Tensor, target: Tensor) -> Tensor:
    """(N, V), (N,) → (N,) fp32 cross-entropy of unnormalized log-weights."""
    if log_weights.is_cpu and log_weights.requires_grad:
        return _CrossEntropy.apply(log_weights.float(), target)
    return F.cross_entropy(log_weights.float(), target, reduction="none")


class _CrossEntropy(torch.autograd.Function):
    """Cross-entropy for CPUs, where allocation is slow: the gradient p − 1[target] overwrites the saved log p."""

    @staticmethod
    def forward(ctx: Any, log_weights: Tensor, target: Tensor) -> Tensor:
        ctx.log_p = log_weights.log_softmax(-1)
        ctx.save_for_backward(target[:, None])
        return -ctx.log_p.gather(-1, target[:, None]).squeeze(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        log_p, ctx.log_p = ctx.log_p, None
        if log_p is None:
            raise RuntimeError("this cross-entropy was already differentiated; its backward pass can run only once")
        (target,), grad = ctx.saved_tensors, grad[:, None]
        return log_p.exp_().mul_(grad).scatter_add_(-1, target, -grad), None


def exclude(log_weights: Tensor, state: int) -> Tensor:
    """(…, V) log-weights with one state set to −∞. In training it works in place: logits are slow to copy."""
    if log_weights.requires_grad and not log_weights.is_leaf:
        return _ExcludeInPlace.apply(log_weights, state)
    return log_weights.index_fill(-1, _only(state, log_weights.device), -torch.inf)


@lru_cache(64)
def _only(state: int, device: torch.device) -> Tensor:
    """(1,) tensor of the index, cached."""
    return torch.tensor([state], device=device)


class _ExcludeInPlace(torch.autograd.Function):
    """The in-place form of `exclude`."""

    @staticmethod
    def forward(ctx: Any, log_weights: Tensor, state: int) -> Tensor:
        ctx.state = state
        log_weights.select(-1, state).fill_(-torch.inf)
        ctx.mark_dirty(log_weights)
        return log_weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        if not known_zero(grad.select(-1, ctx.state)):  # rarely: after a softmax the gradient is already zero
            grad = grad.index_fill(-1, _only(ctx.state, grad.device), 0.0)
        return grad, None


def intensity_nll(log_weights: Tensor, target: Tensor) -> Tensor:
    """(N, V), (N,) → (N,) fp32 Σw − 1 − log w[target]: cross-entropy with a free sum Σw, minimal at Σw = 1."""
    log_weights = log_weights.float()
    return log_weights.logsumexp(-1).expm1() - log_weights.gather(-1, target[:, None]).squeeze(-1)


def poisson_kl(r: Tensor, m: Tensor) -> Tensor:
    """KL of Poisson intensities r and m, m − r + r·log(r/m) ≥ 0: the cost of a wrong rate per unit of time.

    It is m where r is zero, and infinite where only m is zero.
    """
    present = r > 0
    ratio = torch.where(present, r, 1.0).log() - torch.where(present, m, 1.0).log()
    return m - r + r * ratio


def entropy(log_p: Tensor) -> Tensor:
    """(…, V) log-probabilities → (…) entropy in nats; states of zero probability contribute zero."""
    return -mean_log_prob(log_p)


def mean_log_prob(log_p: Tensor) -> Tensor:
    """(…, V) log-probabilities → (…) E[log p], the negative entropy.

    Large tables are processed a few rows at a time, so that intermediate results stay in the CPU cache.
    """
    rows = max(1, _IN_CACHE // log_p.shape[-1])
    if log_p.requires_grad or log_p.dim() != 2 or len(log_p) <= rows or not log_p.is_cpu:
        return (log_p.exp() * log_p.clamp(min=torch.finfo(log_p.dtype).min)).sum(-1)
    return torch.cat([mean_log_prob(part) for part in log_p.split(rows)])


_IN_CACHE = 2**17  # elements that fit into the CPU cache


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Dropout with torch's global generator, which the training loop reseeds at every step."""
    return F.dropout(x, p, training) if p else x


def token_nll(logits: Tensor, tokens: Tensor) -> Tensor:
    """(B, L, V) logits, (B, L) ids → (B, L) cross-entropy in nats."""
    return nll(logits.flatten(0, 1), tokens.flatten()).view_as(tokens)
