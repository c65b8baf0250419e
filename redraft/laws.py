"""A law is a row: what was measured beside what must be. And the statistics and sums that laws need."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass

import torch
from torch import Tensor

from redraft.processes.base import Process
from redraft.types import Vocab

P_MIN = 1e-4  # a right sampler fails one χ² test in ten thousand; the seeds are fixed


@dataclass(frozen=True)
class Row:
    """One law on one process: `value` must stand in `rule` to `expected`, within `tolerance`."""

    law: str
    process: str
    ok: bool
    value: float
    expected: float
    rule: str
    tolerance: float = 0.0


def equal(process: Process, law: str, value: float, expected: float, tolerance: float) -> Row:
    return Row(law, name(process), abs(value - expected) <= tolerance, value, expected, "=", tolerance)


def at_least(process: Process, law: str, value: float, expected: float) -> Row:
    return Row(law, name(process), value >= expected, value, expected, ">=")


def name(process: Process) -> str:
    """Its class, and those of its parts."""
    parts: list[object] = [getattr(process, f.name) for f in fields(process)] if is_dataclass(process) else []
    names = [type(part).__name__ for part in parts if is_dataclass(part) and not isinstance(part, Vocab)]
    return type(process).__name__ + (f"({', '.join(names)})" if names else "")


def chi_square(draws: Tensor, p: Tensor) -> float:
    """p-value of drawn states (n,) against probabilities p (K,), rare ones merged; 0 if an impossible one occurs."""
    p = p / p.sum()
    n = draws.numel()
    seen, expected = torch.bincount(draws.flatten(), minlength=len(p)).double(), n * p
    if bool(seen[p <= 1e-15].sum() > 0):
        return 0.0
    rare = expected < 5
    cells = [(seen[~rare], expected[~rare])]
    if bool(expected[rare].sum() >= 5):
        cells.append((seen[rare].sum()[None], expected[rare].sum()[None]))
    seen, expected = (torch.cat(part) for part in zip(*cells, strict=True))
    if len(seen) < 2:
        return 1.0
    statistic = ((seen - expected) ** 2 / expected).sum()
    return float(torch.special.gammaincc(torch.tensor((len(seen) - 1) / 2).double(), statistic / 2))


def quadrature(n: int) -> tuple[Tensor, Tensor]:
    """Times and weights to integrate over (0, 1): t = sin²(πv/2), v = sin²(πu/2), at the nodes u of Gauss and Legendre.

    Once for the square-root ends that hybrid noise has, and once more for their logarithms.
    """
    node, weight = (torch.tensor(a, dtype=torch.float64) for a in _gauss_legendre(n))
    for _ in range(2):
        node, weight = (torch.pi / 2 * node).sin() ** 2, weight * torch.pi / 2 * (torch.pi * node).sin()
    return node, weight


def _gauss_legendre(n: int) -> tuple[list[float], list[float]]:
    """Nodes and weights on [0, 1] (Golub & Welsch 1969)."""
    k = torch.arange(1, n, dtype=torch.float64)
    off = k / (4 * k**2 - 1).sqrt()
    values, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    return ((values + 1) / 2).tolist(), (vectors[0] ** 2).tolist()
