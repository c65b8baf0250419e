"""Decoding: samplers, picks, blocks, solvers, speculation, guidance and constraints. Knows no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.decoding.blocks.blocks import Blocks
    from redraft.decoding.blocks.multi_block import MultiBlock, Once
    from redraft.decoding.blocks.strides import Strides
    from redraft.decoding.blocks.sub_blocks import Parts
    from redraft.decoding.blocks.windows import Approximate, Dual, Prefix, Stale, Window
    from redraft.decoding.constraints.constrained import Conditioned, Constrained
    from redraft.decoding.constraints.dfa import TooLarge
    from redraft.decoding.constraints.placement import AllMarked, Marked, constrain, hole, lengths, numbered_holes
    from redraft.decoding.constraints.rules import (
        AllOf,
        AnyOf,
        Banned,
        Json,
        Length,
        OneOf,
        Regex,
        Required,
        Rule,
        Spaced,
        TextRule,
        compiled,
    )
    from redraft.decoding.guidance.base import Extrapolated, Guidance
    from redraft.decoding.guidance.classifier_free import ClassifierFree, OtherPrompt
    from redraft.decoding.guidance.filters import Filter, Filtered
    from redraft.decoding.guidance.lookahead import LookAhead
    from redraft.decoding.guidance.per_position import AtPlaces
    from redraft.decoding.guidance.token_classifier import FirstOrder, TokenClassifier
    from redraft.decoding.guidance.vectors import Classifier, Projected, Threshold, ThroughDenoiser, UnitScale
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
    from redraft.decoding.samplers.ancestral import Ancestral, FirstHitting
    from redraft.decoding.samplers.base import Even, Hold, Sampler, Warp, grid, last
    from redraft.decoding.samplers.editing import Edited
    from redraft.decoding.samplers.euler import Euler
    from redraft.decoding.samplers.guided import Guided, GuidedByPrompt
    from redraft.decoding.samplers.particles import Particles
    from redraft.decoding.samplers.planning import Planned, SelfPlanned
    from redraft.decoding.samplers.registry import NAMED
    from redraft.decoding.samplers.remask import Blind, Critic, Guide, Learned, Remasked, Revise
    from redraft.decoding.samplers.replacement import Replaced
    from redraft.decoding.samplers.self_correction import Correct
    from redraft.decoding.samplers.stopping import Reader, stopped
    from redraft.decoding.samplers.unmask import Unmask
    from redraft.decoding.solvers.flow import climb, log_likelihood
    from redraft.decoding.solvers.gradient_control import Adagrad, AtPlace, Descent, Energy, SignSteps, Steer, Together
    from redraft.decoding.solvers.grids import GENERATIVE_END, EvenLogSnr, EvenTime, Grid, Karras, Until
    from redraft.decoding.solvers.langevin import EulerMaruyama, Langevin, PredictorCorrector
    from redraft.decoding.solvers.ode import Ddim, DpmPP, DpmPPSde, Heun, OdeEuler, Solver
    from redraft.decoding.solvers.renoise import Average, Greedy, MultiHot, Projection, Renoise, Sampled
    from redraft.decoding.solvers.step import Move, PreviousStep, Scales, scales, walk
    from redraft.decoding.speculation.acceptance import (
        RULES,
        Accepted,
        AcceptRule,
        BlockWise,
        Likeliest,
        Matched,
        PointMass,
        Proposal,
        RoundNoise,
        SharedGumbel,
        TokenWise,
        block_wise,
        matched,
        point_mass,
        token_wise,
    )
    from redraft.decoding.speculation.drafters import (
        Attentive,
        DiffusionDraft,
        Drafter,
        DraftRequest,
        NoDraft,
        SampledDraft,
        StateDraft,
        StateMemory,
    )
    from redraft.decoding.speculation.lookup import PromptLookup, TextLookup
    from redraft.decoding.speculation.speculative import Costs, DraftTally, Speculate

__getattr__, __dir__, __all__ = attach(__name__)
