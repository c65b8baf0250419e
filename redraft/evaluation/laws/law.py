"""A law is a row: a measured value beside the expected one. Also the statistics and integrals that laws need."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from redraft.core.processes.base import Process
from redraft.core.vocab import Vocab

_P_MIN = 1e-4  # a correct sampler fails one χ² test in ten thousand; the seeds are fixed


@dataclass(frozen=True)
class Law:
    """One law on one process: `value` must satisfy `rule` against `expected`, within `tolerance`, `error` included."""

    law: str
    process: str
    ok: bool
    value: float
    expected: float
    rule: str
    tolerance: float = 0.0
    error: float = 0.0  # estimated, of an integral over time


class _Integral(NamedTuple):
    """An integral over time and its error: the distance from the same integral with half of the nodes."""

    value: Tensor
    error: float = 0.0

    def __float__(self) -> float:
        return float(self.value)


def _law_equal(process: Process, law: str, value: float | _Integral, expected: float, tolerance: float) -> Law:
    error = value.error if isinstance(value, _Integral) else 0.0
    ok = abs(float(value) - expected) + error <= tolerance
    return Law(law, _process_name(process), ok, float(value), expected, "=", tolerance, error)


def _law_at_least(process: Process, law: str, value: float, expected: float) -> Law:
    return Law(law, _process_name(process), value >= expected, value, expected, ">=")


def _process_name(process: Process) -> str:
    """The class of a process, and those of its parts."""
    parts: list[object] = [getattr(process, f.name) for f in fields(process)] if is_dataclass(process) else []
    names = [type(part).__name__ for part in parts if is_dataclass(part) and not isinstance(part, Vocab)]
    return type(process).__name__ + (f"({', '.join(names)})" if names else "")


def _chi_square(draws: Tensor, p: Tensor) -> float:
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
    """n + 1 times and weights to integrate over (0, 1): t = 1/(1 + e^{−π·sinh u}) at equal steps of u (tanh-sinh).

    Exact to many digits even if the integrand has roots and logarithms at its ends, as for hybrid noise; in float64 the
    last node differs from 1. With even n, every second node forms the rule of n/2.
    """
    u = torch.linspace(-1, 1, n + 1, dtype=torch.float64) * math.asinh(32 / math.pi)
    odds = math.pi * u.sinh()
    return odds.sigmoid(), (u[1] - u[0]) * math.pi * u.cosh() * odds.sigmoid() * (-odds).sigmoid()


def integral(f: Callable[[Tensor], Tensor], nodes: int = 64) -> _Integral:
    """∫ f(t) dt over (0, 1): f maps (T,) times in float64 to (T, …), and every component is integrated."""
    time, weight = quadrature(nodes)
    values = f(time).double()
    fine, coarse = weight @ values, 2 * weight[::2] @ values[::2]
    return _Integral(fine, float((fine - coarse).abs().max()))


def _distribution_error(table: Tensor) -> float:
    """How far the rows of a table are from distributions."""
    return max(float((table.sum(-1) - 1).abs().max()), float((-table).clamp(min=0).max()))
