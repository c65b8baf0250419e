"""Decoding: samplers, picks, blocks, solvers, speculation, guidance and constraints. Knows no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.decoding.blocks.approximate_cache import (
        ApproximateCache as ApproximateCache,
        DualCache as DualCache,
        PrefixCache as PrefixCache,
    )
    from redraft.decoding.blocks.blocks import Blocks as Blocks
    from redraft.decoding.blocks.multi_block import MultiBlock as MultiBlock
    from redraft.decoding.blocks.strides import SlidingWindow as SlidingWindow
    from redraft.decoding.blocks.sub_blocks import SubBlocks as SubBlocks
    from redraft.decoding.constraints.constrained import (
        Constrained as Constrained,
    )
    from redraft.decoding.constraints.dfa import AutomatonTooLarge as AutomatonTooLarge
    from redraft.decoding.constraints.placement import (
        constrain as constrain,
        hole_mask as hole_mask,
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
        TextRule as TextRule,
    )
    from redraft.decoding.guidance.base import Guidance as Guidance
    from redraft.decoding.guidance.classifier_free import (
        ClassifierFree as ClassifierFree,
        NegativePrompt as NegativePrompt,
    )
    from redraft.decoding.guidance.filters import LogitFilter as LogitFilter
    from redraft.decoding.guidance.lookahead import LookAhead as LookAhead
    from redraft.decoding.guidance.per_position import PositionClassifier as PositionClassifier
    from redraft.decoding.guidance.token_classifier import (
        FirstOrderClassifier as FirstOrderClassifier,
        TokenClassifier as TokenClassifier,
    )
    from redraft.decoding.guidance.vectors import (
        DenoisedClassifier as DenoisedClassifier,
        DynamicThreshold as DynamicThreshold,
        GradientClassifier as GradientClassifier,
        ProjectedDenoiser as ProjectedDenoiser,
        UnitNorm as UnitNorm,
    )
    from redraft.decoding.picks.adaptive import (
        AdaptivePick as AdaptivePick,
        ConfidenceThreshold as ConfidenceThreshold,
        EntropyBound as EntropyBound,
        FactorThreshold as FactorThreshold,
        FrechetProfile as FrechetProfile,
        Klass as Klass,
        WideInNarrowOut as WideInNarrowOut,
    )
    from redraft.decoding.picks.order import (
        AnyOrder as AnyOrder,
        Confidence as Confidence,
        EndTokensLast as EndTokensLast,
        Entropy as Entropy,
        LeftToRight as LeftToRight,
        Margin as Margin,
        RankedPick as RankedPick,
        RequiredFirst as RequiredFirst,
    )
    from redraft.decoding.picks.pace import EvenPace as EvenPace, Pace as Pace, TimePace as TimePace
    from redraft.decoding.picks.planned import Critic as Critic, CriticPick as CriticPick
    from redraft.decoding.registry import (
        SAMPLER_NAMES as SAMPLER_NAMES,
        SOLVER_NAMES as SOLVER_NAMES,
        named_sampler as named_sampler,
    )
    from redraft.decoding.samplers.ancestral import Ancestral as Ancestral, FirstHitting as FirstHitting
    from redraft.decoding.samplers.base import (
        EvenWarp as EvenWarp,
        HoldWarp as HoldWarp,
        Sampler as Sampler,
        SamplerWrapper as SamplerWrapper,
        TimeWarp as TimeWarp,
        final_canvas as final_canvas,
    )
    from redraft.decoding.samplers.editing import SDEdit as SDEdit
    from redraft.decoding.samplers.euler import Euler as Euler
    from redraft.decoding.samplers.gibbs import Gibbs as Gibbs
    from redraft.decoding.samplers.guided import (
        GuidedSampler as GuidedSampler,
        NoisedPrompt as NoisedPrompt,
        PromptGuidedSampler as PromptGuidedSampler,
    )
    from redraft.decoding.samplers.particles import ParticleSampler as ParticleSampler
    from redraft.decoding.samplers.planning import PathPlanning as PathPlanning
    from redraft.decoding.samplers.remask import (
        ConstantScore as ConstantScore,
        ErrorHeadScore as ErrorHeadScore,
        ErrorScore as ErrorScore,
        GuidedStar as GuidedStar,
        WithRemasking as WithRemasking,
    )
    from redraft.decoding.samplers.self_correction import SelfCorrection as SelfCorrection
    from redraft.decoding.samplers.unmask import Unmask as Unmask
    from redraft.decoding.solvers.flow import (
        encode_to_noise as encode_to_noise,
        flow_log_likelihood as flow_log_likelihood,
    )
    from redraft.decoding.solvers.gradient_control import (
        AdagradDescent as AdagradDescent,
        DescentRule as DescentRule,
        Energy as Energy,
        GradientControl as GradientControl,
        PositionEnergy as PositionEnergy,
        SignDescent as SignDescent,
        SumOfEnergies as SumOfEnergies,
    )
    from redraft.decoding.solvers.grids import (
        KarrasGrid as KarrasGrid,
        NoiseGrid as NoiseGrid,
        TruncatedGrid as TruncatedGrid,
        UniformLogSnrGrid as UniformLogSnrGrid,
        UniformTimeGrid as UniformTimeGrid,
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
        ArgmaxProjection as ArgmaxProjection,
        KeepMean as KeepMean,
        MultiHotProjection as MultiHotProjection,
        NucleusProjection as NucleusProjection,
        Projection as Projection,
        Renoise as Renoise,
    )
    from redraft.decoding.solvers.step import SolverStep as SolverStep
    from redraft.decoding.speculation.acceptance import (
        AcceptRule as AcceptRule,
        BlockwiseRule as BlockwiseRule,
        MatchRule as MatchRule,
        PointMassRule as PointMassRule,
        Proposal as Proposal,
        SharedGumbelRule as SharedGumbelRule,
        TokenwiseRule as TokenwiseRule,
    )
    from redraft.decoding.speculation.costs import DraftCosts as DraftCosts
    from redraft.decoding.speculation.drafters import (
        DiffusionDraft as DiffusionDraft,
        Drafter as Drafter,
        DraftRequest as DraftRequest,
        NoDraft as NoDraft,
        OwnDrafter as OwnDrafter,
        SampledDraft as SampledDraft,
    )
    from redraft.decoding.speculation.lookup import PromptLookup as PromptLookup, TextLookup as TextLookup
    from redraft.decoding.speculation.speculative import SpeculativeSampler as SpeculativeSampler

__getattr__, __dir__, __all__ = attach(__name__, __file__)
