"""Objectives: which times to draw, and what a prediction costs there."""

from redraft.objectives.adapting import Adapt, causal_nats
from redraft.objectives.clocks import Clock, Importance, Stratified
from redraft.objectives.conditions import drop_condition, self_condition, torn
from redraft.objectives.drafting import Distil
from redraft.objectives.goals import Attribution, Autoencode, Goal, Mistakes, Objective, Step
from redraft.objectives.measured import clipped, importance, intervals, relative_variance
from redraft.objectives.tagging import Foreseeing, Tagging
from redraft.objectives.terms import (
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
