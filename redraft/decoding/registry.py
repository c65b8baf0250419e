"""Samplers by name, for the command line and the server."""

from __future__ import annotations

from redraft.core.processes.remasking import CappedRate, StarRate, WindowedRate
from redraft.decoding.picks.adaptive import ConfidenceThreshold, EntropyBound, FrechetProfile, Klass, WideInNarrowOut
from redraft.decoding.picks.order import AnyOrder, Confidence, Entropy, LeftToRight, Margin, RequiredFirst
from redraft.decoding.samplers.ancestral import Ancestral, FirstHitting
from redraft.decoding.samplers.base import Sampler
from redraft.decoding.samplers.gibbs import Gibbs
from redraft.decoding.samplers.remask import WithRemasking
from redraft.decoding.samplers.unmask import Unmask
from redraft.decoding.solvers.langevin import EulerMaruyama
from redraft.decoding.solvers.ode import Ddim, DpmPP, DpmPPSde, Heun, OdeEuler

SAMPLERS: dict[str, Sampler] = {
    "ancestral": Ancestral(),
    "first-hitting": FirstHitting(),
    "any-order": Unmask(pick=AnyOrder()),
    "demanded-first": Unmask(pick=RequiredFirst()),
    "left-to-right": Unmask(pick=LeftToRight()),
    "confidence": Unmask(pick=Confidence()),
    "margin": Unmask(pick=Margin()),
    "entropy": Unmask(pick=Entropy()),
    "threshold": Unmask(None, ConfidenceThreshold()),
    "frechet": Unmask(None, FrechetProfile()),
    "entropy-bound": Unmask(None, EntropyBound()),
    "klass": Unmask(None, Klass()),
    "revoke": Unmask(None, WideInNarrowOut()),
    "gibbs": Gibbs(),
    "remdm": WithRemasking(Ancestral(), CappedRate(0.05)),
    "star": WithRemasking(Ancestral(), WindowedRate(StarRate(), start_time=0.55, end_time=0.05)),
}
SOLVERS: dict[str, Sampler] = {  # for vectors
    "ddim": Ddim(),
    "ode-euler": OdeEuler(),
    "heun": Heun(),
    "dpm++": DpmPP(),
    "dpm++-sde": DpmPPSde(),
    "euler-maruyama": EulerMaruyama(),
}
