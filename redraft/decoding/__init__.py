"""Decoding: samplers, picks, blocks, solvers, speculation, guidance and constraints. Knows no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.decoding.blocks.approximate_cache import (
        Approximate as Approximate,
        Dual as Dual,
        Prefix as Prefix,
        Stale as Stale,
    )
    from redraft.decoding.blocks.blocks import Blocks as Blocks
    from redraft.decoding.blocks.multi_block import MultiBlock as MultiBlock, Once as Once
    from redraft.decoding.blocks.strides import Strides as Strides
    from redraft.decoding.blocks.sub_blocks import Parts as Parts
    from redraft.decoding.blocks.windows import Window as Window
    from redraft.decoding.constraints.constrained import Conditioned as Conditioned, Constrained as Constrained
    from redraft.decoding.constraints.dfa import TooLarge as TooLarge
    from redraft.decoding.constraints.placement import (
        AllMarked as AllMarked,
        Marked as Marked,
        constrain as constrain,
        hole as hole,
        lengths as lengths,
        numbered_holes as numbered_holes,
    )
    from redraft.decoding.constraints.rules import (
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
    from redraft.decoding.guidance.base import Extrapolated as Extrapolated, Guidance as Guidance
    from redraft.decoding.guidance.classifier_free import ClassifierFree as ClassifierFree, OtherPrompt as OtherPrompt
    from redraft.decoding.guidance.filters import Filter as Filter, Filtered as Filtered
    from redraft.decoding.guidance.lookahead import LookAhead as LookAhead
    from redraft.decoding.guidance.per_position import AtPlaces as AtPlaces
    from redraft.decoding.guidance.token_classifier import FirstOrder as FirstOrder, TokenClassifier as TokenClassifier
    from redraft.decoding.guidance.vectors import (
        Classifier as Classifier,
        Projected as Projected,
        Threshold as Threshold,
        ThroughDenoiser as ThroughDenoiser,
        UnitScale as UnitScale,
    )
    from redraft.decoding.picks.adaptive import (
        Adaptive as Adaptive,
        ConfidenceThreshold as ConfidenceThreshold,
        EntropyBound as EntropyBound,
        Factor as Factor,
        FrechetProfile as FrechetProfile,
        Klass as Klass,
        Revoke as Revoke,
    )
    from redraft.decoding.picks.order import (
        AnyOrder as AnyOrder,
        Confidence as Confidence,
        DemandedFirst as DemandedFirst,
        EndsLast as EndsLast,
        Entropy as Entropy,
        LeftToRight as LeftToRight,
        Margin as Margin,
        Ranked as Ranked,
    )
    from redraft.decoding.picks.pace import EvenPace as EvenPace, Pace as Pace, TimePace as TimePace
    from redraft.decoding.picks.planned import Critic as Critic, Planned as Planned
    from redraft.decoding.samplers.ancestral import Ancestral as Ancestral, FirstHitting as FirstHitting
    from redraft.decoding.samplers.base import (
        Even as Even,
        Hold as Hold,
        Sampler as Sampler,
        Warp as Warp,
        grid as grid,
        last as last,
    )
    from redraft.decoding.samplers.editing import Edited as Edited
    from redraft.decoding.samplers.euler import Euler as Euler
    from redraft.decoding.samplers.guided import Guided as Guided, GuidedByPrompt as GuidedByPrompt
    from redraft.decoding.samplers.particles import Particles as Particles
    from redraft.decoding.samplers.planning import SelfPlanned as SelfPlanned
    from redraft.decoding.samplers.registry import NAMED as NAMED
    from redraft.decoding.samplers.remask import (
        Blind as Blind,
        Guide as Guide,
        Learned as Learned,
        Remasked as Remasked,
        Revise as Revise,
    )
    from redraft.decoding.samplers.replacement import Replaced as Replaced
    from redraft.decoding.samplers.self_correction import Correct as Correct
    from redraft.decoding.samplers.stopping import Reader as Reader, stopped as stopped
    from redraft.decoding.samplers.unmask import Unmask as Unmask
    from redraft.decoding.solvers.flow import climb as climb, log_likelihood as log_likelihood
    from redraft.decoding.solvers.gradient_control import (
        Adagrad as Adagrad,
        AtPlace as AtPlace,
        Descent as Descent,
        Energy as Energy,
        SignSteps as SignSteps,
        Steer as Steer,
        Together as Together,
    )
    from redraft.decoding.solvers.grids import (
        GENERATIVE_END as GENERATIVE_END,
        EvenLogSnr as EvenLogSnr,
        EvenTime as EvenTime,
        Grid as Grid,
        Karras as Karras,
        Until as Until,
    )
    from redraft.decoding.solvers.langevin import (
        EulerMaruyama as EulerMaruyama,
        Langevin as Langevin,
        PredictorCorrector as PredictorCorrector,
    )
    from redraft.decoding.solvers.ode import (
        Ddim as Ddim,
        DpmPP as DpmPP,
        DpmPPSde as DpmPPSde,
        Heun as Heun,
        OdeEuler as OdeEuler,
        Solver as Solver,
    )
    from redraft.decoding.solvers.renoise import (
        Average as Average,
        Greedy as Greedy,
        MultiHot as MultiHot,
        Projection as Projection,
        Renoise as Renoise,
        Sampled as Sampled,
    )
    from redraft.decoding.solvers.step import (
        Move as Move,
        PreviousStep as PreviousStep,
        Scales as Scales,
        scales as scales,
        walk as walk,
    )
    from redraft.decoding.speculation.acceptance import (
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
    from redraft.decoding.speculation.drafters import (
        Attentive as Attentive,
        DiffusionDraft as DiffusionDraft,
        Drafter as Drafter,
        DraftRequest as DraftRequest,
        NoDraft as NoDraft,
        SampledDraft as SampledDraft,
        StateDraft as StateDraft,
        StateMemory as StateMemory,
    )
    from redraft.decoding.speculation.lookup import PromptLookup as PromptLookup, TextLookup as TextLookup
    from redraft.decoding.speculation.speculative import (
        Costs as Costs,
        DraftTally as DraftTally,
        Speculate as Speculate,
    )

__getattr__, __dir__, __all__ = attach(__name__, __file__)
