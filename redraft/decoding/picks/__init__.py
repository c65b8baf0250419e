"""Picks: which masked positions a step reveals, and how many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.decoding.picks.adaptive import (
        Adaptive,
        ConfidenceThreshold,
        EntropyBound,
        Factor,
        FrechetProfile,
        Klass,
        Revoke,
    )
    from redraft.decoding.picks.order import (
        AnyOrder,
        Confidence,
        DemandedFirst,
        EndsLast,
        Entropy,
        LeftToRight,
        Margin,
        Ranked,
    )
    from redraft.decoding.picks.pace import EvenPace, Pace, TimePace

__getattr__, __dir__, __all__ = attach(__name__)
