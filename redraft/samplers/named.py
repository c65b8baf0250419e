"""Samplers by name, for the command line and everyone else who names one in words."""

from __future__ import annotations

from redraft.samplers.adaptive import ConfidenceThreshold, EntropyBound, FrechetProfile, Klass, Revoke
from redraft.samplers.ancestral import Ancestral, FirstHitting
from redraft.samplers.base import Sampler
from redraft.samplers.picks import AnyOrder, Confidence, DemandedFirst, Entropy, LeftToRight, Margin
from redraft.samplers.unmask import Unmask

NAMED: dict[str, Sampler] = {
    "ancestral": Ancestral(),
    "first-hitting": FirstHitting(),
    "any-order": Unmask(pick=AnyOrder()),
    "demanded-first": Unmask(pick=DemandedFirst()),
    "left-to-right": Unmask(pick=LeftToRight()),
    "confidence": Unmask(pick=Confidence()),
    "margin": Unmask(pick=Margin()),
    "entropy": Unmask(pick=Entropy()),
    "threshold": Unmask(None, ConfidenceThreshold()),
    "frechet": Unmask(None, FrechetProfile()),
    "entropy-bound": Unmask(None, EntropyBound()),
    "klass": Unmask(None, Klass()),
    "revoke": Unmask(None, Revoke()),
}
