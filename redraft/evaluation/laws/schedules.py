"""The built-in schedules, for laws that hold for every schedule."""

from __future__ import annotations

from redraft.core.schedules.base import Schedule
from redraft.core.schedules.gaussian import CosineOffset, Sqrt, TanD, VPLinear
from redraft.core.schedules.tokens import Cosine, CosineRatio, CosineSquared, Exponential, Geometric, Linear, Polynomial
from redraft.core.schedules.transforms import (
    ClampedLogSnr,
    DiscreteChain,
    ExactEnds,
    PiecewiseKeep,
    PiecewiseLogSnr,
    ShiftedLogSnr,
    TimeReversed,
)


def _every_schedule() -> list[Schedule]:
    """Return one schedule of each built-in kind."""
    return [
        *(Linear(), Cosine(), CosineSquared(), CosineRatio(), Polynomial(), Exponential(), Geometric(), VPLinear()),
        *(CosineOffset(), Sqrt(), TanD(), PiecewiseKeep((1.0, 0.9, 0.2, 0.0)), PiecewiseLogSnr((5.0, -1.0, -5.0))),
        *(ShiftedLogSnr(Cosine(), 2.0), ClampedLogSnr(Cosine(), -5.0, 5.0), DiscreteChain(Cosine(), steps=50)),
        *(TimeReversed(Cosine()), ExactEnds(Geometric(1e-5, 20.0))),
    ]
