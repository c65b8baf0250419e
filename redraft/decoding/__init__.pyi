from .blocks.approximate_cache import Approximate as Approximate, Dual as Dual, Prefix as Prefix, Stale as Stale
from .blocks.blocks import Blocks as Blocks
from .blocks.multi_block import MultiBlock as MultiBlock, Once as Once
from .blocks.strides import Strides as Strides
from .blocks.sub_blocks import Parts as Parts
from .blocks.windows import Window as Window
from .constraints.constrained import Conditioned as Conditioned, Constrained as Constrained
from .constraints.dfa import TooLarge as TooLarge
from .constraints.placement import (
    AllMarked as AllMarked,
    Marked as Marked,
    constrain as constrain,
    hole as hole,
    lengths as lengths,
    numbered_holes as numbered_holes,
)
from .constraints.rules import (
    AllOf as AllOf,
    AnyOf as AnyOf,
    Banned as Banned,
    Json as Json,
    Length as Length,
    OneOf as OneOf,
    Regex as Regex,
    Required as Required,
    Rule as Rule,
    Spaced as Spaced,
    TextRule as TextRule,
    compiled as compiled,
)
from .guidance.base import Extrapolated as Extrapolated, Guidance as Guidance
from .guidance.classifier_free import ClassifierFree as ClassifierFree, OtherPrompt as OtherPrompt
from .guidance.filters import Filter as Filter, Filtered as Filtered
from .guidance.lookahead import LookAhead as LookAhead
from .guidance.per_position import AtPlaces as AtPlaces
from .guidance.token_classifier import FirstOrder as FirstOrder, TokenClassifier as TokenClassifier
from .guidance.vectors import (
    Classifier as Classifier,
    Projected as Projected,
    Threshold as Threshold,
    ThroughDenoiser as ThroughDenoiser,
    UnitScale as UnitScale,
)
from .picks.adaptive import (
    Adaptive as Adaptive,
    ConfidenceThreshold as ConfidenceThreshold,
    EntropyBound as EntropyBound,
    Factor as Factor,
    FrechetProfile as FrechetProfile,
    Klass as Klass,
    Revoke as Revoke,
)
from .picks.order import (
    AnyOrder as AnyOrder,
    Confidence as Confidence,
    DemandedFirst as DemandedFirst,
    EndsLast as EndsLast,
    Entropy as Entropy,
    LeftToRight as LeftToRight,
    Margin as Margin,
    Ranked as Ranked,
)
from .picks.pace import EvenPace as EvenPace, Pace as Pace, TimePace as TimePace
from .picks.planned import Planned as Planned
from .samplers.ancestral import Ancestral as Ancestral, FirstHitting as FirstHitting
from .samplers.base import Even as Even, Hold as Hold, Sampler as Sampler, Warp as Warp, grid as grid, last as last
from .samplers.editing import Edited as Edited
from .samplers.euler import Euler as Euler
from .samplers.guided import Guided as Guided, GuidedByPrompt as GuidedByPrompt
from .samplers.particles import Particles as Particles
from .samplers.planning import SelfPlanned as SelfPlanned
from .samplers.registry import NAMED as NAMED
from .samplers.remask import (
    Blind as Blind,
    Critic as Critic,
    Guide as Guide,
    Learned as Learned,
    Remasked as Remasked,
    Revise as Revise,
)
from .samplers.replacement import Replaced as Replaced
from .samplers.self_correction import Correct as Correct
from .samplers.stopping import Reader as Reader, stopped as stopped
from .samplers.unmask import Unmask as Unmask
from .solvers.flow import climb as climb, log_likelihood as log_likelihood
from .solvers.gradient_control import (
    Adagrad as Adagrad,
    AtPlace as AtPlace,
    Descent as Descent,
    Energy as Energy,
    SignSteps as SignSteps,
    Steer as Steer,
    Together as Together,
)
from .solvers.grids import (
    GENERATIVE_END as GENERATIVE_END,
    EvenLogSnr as EvenLogSnr,
    EvenTime as EvenTime,
    Grid as Grid,
    Karras as Karras,
    Until as Until,
)
from .solvers.langevin import (
    EulerMaruyama as EulerMaruyama,
    Langevin as Langevin,
    PredictorCorrector as PredictorCorrector,
)
from .solvers.ode import (
    Ddim as Ddim,
    DpmPP as DpmPP,
    DpmPPSde as DpmPPSde,
    Heun as Heun,
    OdeEuler as OdeEuler,
    Solver as Solver,
)
from .solvers.renoise import (
    Average as Average,
    Greedy as Greedy,
    MultiHot as MultiHot,
    Projection as Projection,
    Renoise as Renoise,
    Sampled as Sampled,
)
from .solvers.step import Move as Move, PreviousStep as PreviousStep, Scales as Scales, scales as scales, walk as walk
from .speculation.acceptance import (
    RULES as RULES,
    Accepted as Accepted,
    AcceptRule as AcceptRule,
    BlockWise as BlockWise,
    Likeliest as Likeliest,
    Matched as Matched,
    PointMass as PointMass,
    Proposal as Proposal,
    RoundNoise as RoundNoise,
    SharedGumbel as SharedGumbel,
    TokenWise as TokenWise,
    block_wise as block_wise,
    matched as matched,
    point_mass as point_mass,
    token_wise as token_wise,
)
from .speculation.drafters import (
    Attentive as Attentive,
    DiffusionDraft as DiffusionDraft,
    Drafter as Drafter,
    DraftRequest as DraftRequest,
    NoDraft as NoDraft,
    SampledDraft as SampledDraft,
    StateDraft as StateDraft,
    StateMemory as StateMemory,
)
from .speculation.lookup import PromptLookup as PromptLookup, TextLookup as TextLookup
from .speculation.speculative import Costs as Costs, DraftTally as DraftTally, Speculate as Speculate
