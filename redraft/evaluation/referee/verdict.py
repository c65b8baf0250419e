"""Verdicts with their evidence, and the rules by which an estimated gap decides."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

_SIGMAS = 5.0  # a violation must exceed this many standard errors
_SPREAD = 3.0  # without a violation, this many standard errors must be within the resolution
_SLACK = 0.005  # nats; a smaller violation comes from rounding or a clipped time, not from a wrong formula


@dataclass(frozen=True)
class AuditEffort:
    """How much an audit may compute."""

    rows: int = 4_000_000  # maximum number of rows per language and denoiser; a clear case needs far fewer
    batch: int = 16_384  # rows per call
    calls: int = 32  # minimum number of calls, from which standard errors are estimated
    draws: int = 100_000  # texts drawn from a sampler; a tenth for each number of steps that it takes
    resolution: float = 0.05  # nats: a violation that could be larger leaves a case undecided
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.rows, self.batch, self.draws) < 1 or self.calls < 8 or self.resolution <= 0:
            raise ValueError(f"{self}: rows, batch, draws and resolution must be positive, and calls at least 8")


@dataclass(frozen=True)
class Verdict:
    """One answer about one function."""

    subject: str  # the function or object
    answer: str  # "a bound", "not exact", …
    passed: bool | None  # None for information that neither passes nor fails
    evidence: str
    value: float | None = None
    expected: float | None = None
    error: float | None = None  # standard error of the value
    p_value: float | None = None

    def __str__(self) -> str:
        mark = {True: "ok  ", False: "FAIL", None: "    "}[self.passed]
        return f"{mark}  {self.subject}: {self.answer}; {self.evidence}"


class _Gap(NamedTuple):
    """An estimated difference in nats, and its standard error."""

    nats: float
    error: float
    resolution: float = 0.05

    @property
    def negative(self) -> bool:
        """Whether the gap is below zero beyond doubt."""
        return self.nats + _SIGMAS * self.error < -_SLACK

    @property
    def nonnegative(self) -> bool:
        """Whether the gap is at least zero, up to the resolution."""
        return self.nats - _SPREAD * self.error >= -self.resolution

    @property
    def precise(self) -> bool:
        """Whether the gap is known well enough to decide whether it is zero."""
        return self.error <= self.resolution / 3 or self.positive or self.negative

    @property
    def zero(self) -> bool:
        """Whether the gap is zero, up to the resolution."""
        return self.nonnegative and self.nats <= max(_SLACK, _SIGMAS * self.error)

    @property
    def positive(self) -> bool:
        """Whether the gap is above zero beyond doubt."""
        return _Gap(-self.nats, self.error).negative

    def __str__(self) -> str:
        if not math.isfinite(self.nats):
            return str(self.nats)
        digits = 4 if self.error < 5e-4 else 3
        return f"{self.nats:.{digits}f} ± {self.error:.{digits}f}"
