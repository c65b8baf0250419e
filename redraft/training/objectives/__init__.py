"""Objectives: which times to draw, and what a prediction costs there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.training.objectives.adaptation import Adapt, causal_nats
    from redraft.training.objectives.conditioning import drop_condition, self_condition, torn
    from redraft.training.objectives.distillation import Distil
    from redraft.training.objectives.fitted_times import clipped, importance, intervals, relative_variance
    from redraft.training.objectives.losses import (
        P2,
        Bound,
        BySnr,
        Clip,
        Dynamic,
        Match,
        MinSnr,
        Recover,
        Simple,
        Snr,
        Sum,
        Term,
        Weight,
    )
    from redraft.training.objectives.objective import Attribution, Autoencode, Goal, Mistakes, Objective, Step
    from redraft.training.objectives.tagging import Foreseeing, Tagging
    from redraft.training.objectives.time_samplers import Clock, Importance, Stratified

__getattr__, __dir__, __all__ = attach(__name__)
