"""The result of checking a law, and the statistics and integrals that checks need."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from redraft.core.processes.base import Process
from redraft.core.vocab import Vocab

P_MIN = 1e-4  # a correct sampler fails one χ² test in ten thousand; the seeds are fixed


@dataclass(frozen=True)
class Law:
    """The result of checking one law on one process, sampler or pick."""

    law: str  # name of the law
    process: str  # name of the process, sampler or pick
    ok: bool  # whether the law holds
    value: float  # measured value
    expected: float  # value it is compared with
    rule: str  # comparison: "=" or ">="
    tolerance: float = 0.0  # largest difference for "="; includes `error`
    error: float = 0.0  # estimated error of an integral over time; 0 if there is none


class _Integral(NamedTuple):
    """An integral over time and its estimated error: the difference from the integral with half of the nodes."""

    value: Tensor
    error: float = 0.0

    def __float__(self) -> float:
        return float(self.value)


def _law_equal(process: Process, law: str, value: float | _Integral, expected: float, tolerance: float) -> Law:
    """Check that a value equals the expected one within the tolerance, which includes the error of an integral."""
    error = value.error if isinstance(value, _Integral) else 0.0
    ok = abs(float(value) - expected) + error <= tolerance
    return Law(law, _process_name(process), ok, float(value), expected, "=", tolerance, error)


def _law_at_least(process: Process, law: str, value: float, expected: float) -> Law:
    """Check that a value is at least the expected one."""
    return Law(law, _process_name(process), value >= expected, value, expected, ">=")


def _process_name(process: Process) -> str:
    """Return the class name of a process, with those of its parts in parentheses."""
    parts: list[object] = [getattr(process, f.name) for f in fields(process)] if is_dataclass(process) else []
    names = [type(part).__name__ for part in parts if is_dataclass(part) and not isinstance(part, Vocab)]
    return type(process).__name__ + (f"({', '.join(names)})" if names else "")


def chi_square(draws: Tensor, p: Tensor) -> float:
    """Return the p-value of a χ² test of draws (n,) against probabilities p (K,).

    Rare states are merged. If a draw has probability zero, the p-value is 0.
    """
    p = p / p.sum()
    n = draws.numel()
    observed, expected = torch.bincount(draws.flatten(), minlength=len(p)).double(), n * p
    if bool(observed[p <= 1e-15].sum() > 0):
        return 0.0
    rare = expected < 5
    cells = [(observed[~rare], expected[~rare])]
    if bool(expected[rare].sum() >= 5):
        cells.append((observed[rare].sum()[None], expected[rare].sum()[None]))
    observed, expected = (torch.cat(part) for part in zip(*cells, strict=True))
    if len(observed) < 2:
        return 1.0
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(torch.special.gammaincc(torch.tensor((len(observed) - 1) / 2).double(), statistic / 2))


def _quadrature(n: int) -> tuple[Tensor, Tensor]:
    """Return n + 1 times and weights to integrate over (0, 1) by the tanh-sinh rule.

    Times are t = 1/(1 + e^{−π·sinh u}) at equal steps of u.
    Exact to many digits even if the integrand has square roots or logarithms at its ends, as for hybrid noise. In
    float64 the last node is still below 1. With even n, every second node forms the rule of n/2.
    """
    u = torch.linspace(-1, 1, n + 1, dtype=torch.float64) * math.asinh(32 / math.pi)
    odds = math.pi * u.sinh()
    return odds.sigmoid(), (u[1] - u[0]) * math.pi * u.cosh() * odds.sigmoid() * (-odds).sigmoid()


def _integrate(f: Callable[[Tensor], Tensor], nodes: int = 64) -> _Integral:
    """Integrate f over (0, 1). f maps (T,) times in float64 to (T, …); every component is integrated."""
    time, weight = _quadrature(nodes)
    values = f(time).double()
    fine, coarse = weight @ values, 2 * weight[::2] @ values[::2]
    return _Integral(fine, float((fine - coarse).abs().max()))


def _distribution_error(table: Tensor) -> float:
    """Return how far the rows of a table are from being distributions."""
    return max(float((table.sum(-1) - 1).abs().max()), float((-table).clamp(min=0).max()))
