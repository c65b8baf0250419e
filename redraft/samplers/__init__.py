"""Samplers: generators of canvases, from noise to text."""

from redraft.samplers.acceptance import (
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
from redraft.samplers.adaptive import (
    Adaptive,
    ConfidenceThreshold,
    EntropyBound,
    Factor,
    FrechetProfile,
    Klass,
    Revoke,
)
from redraft.samplers.ancestral import Ancestral, FirstHitting
from redraft.samplers.base import Even, Hold, Sampler, Warp, grid, last
from redraft.samplers.blocks import Blocks
from redraft.samplers.correct import Correct
from redraft.samplers.drafters import (
    Attentive,
    DiffusionDraft,
    Drafter,
    DraftRequest,
    NoDraft,
    SampledDraft,
    StateDraft,
    StateMemory,
)
from redraft.samplers.edited import Edited
from redraft.samplers.euler import Euler
from redraft.samplers.guided import Guided, GuidedByPrompt
from redraft.samplers.judged import NextToken, ProposeAndJudge, RowJudge
from redraft.samplers.lookup import PromptLookup, TextLookup
from redraft.samplers.multiblock import MultiBlock, Once
from redraft.samplers.named import NAMED
from redraft.samplers.paces import EvenPace, Pace, TimePace
from redraft.samplers.particles import Particles
from redraft.samplers.parts import Parts
from redraft.samplers.picks import AnyOrder, Confidence, DemandedFirst, EndsLast, Entropy, LeftToRight, Margin, Ranked
from redraft.samplers.planned import Planned, SelfPlanned
from redraft.samplers.replaced import Replaced
from redraft.samplers.revise import Blind, Critic, Guide, Learned, Remasked, Revise
from redraft.samplers.solvers.control import Adagrad, AtPlace, Descent, Energy, SignSteps, Steer, Together
from redraft.samplers.solvers.flow import climb, log_likelihood
from redraft.samplers.solvers.grids import GENERATIVE_END, EvenLogSnr, EvenTime, Grid, Karras, Until
from redraft.samplers.solvers.langevin import EulerMaruyama, Langevin, PredictorCorrector
from redraft.samplers.solvers.moves import Move, PreviousStep, Scales, scales, walk
from redraft.samplers.solvers.renoise import Average, Greedy, MultiHot, Projection, Renoise, Sampled
from redraft.samplers.solvers.rules import Ddim, DpmPP, DpmPPSde, Heun, OdeEuler, Solver
from redraft.samplers.speculative import Costs, DraftTally, Speculate
from redraft.samplers.stops import Reader, stopped
from redraft.samplers.strides import Strides
from redraft.samplers.unmask import Unmask
from redraft.samplers.windows import Approximate, Dual, Prefix, Stale, Window
