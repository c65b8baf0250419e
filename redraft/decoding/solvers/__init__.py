"""Solvers for Gaussian noise: ODE and SDE steps on a grid of noise levels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.decoding.solvers.flow import climb, log_likelihood
    from redraft.decoding.solvers.gradient_control import Adagrad, AtPlace, Descent, Energy, SignSteps, Steer, Together
    from redraft.decoding.solvers.grids import GENERATIVE_END, EvenLogSnr, EvenTime, Grid, Karras, Until
    from redraft.decoding.solvers.langevin import EulerMaruyama, Langevin, PredictorCorrector
    from redraft.decoding.solvers.ode import Ddim, DpmPP, DpmPPSde, Heun, OdeEuler, Solver
    from redraft.decoding.solvers.renoise import Average, Greedy, MultiHot, Projection, Renoise, Sampled
    from redraft.decoding.solvers.step import Move, PreviousStep, Scales, scales, walk

__getattr__, __dir__, __all__ = attach(__name__)
