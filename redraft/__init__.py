"""Redraft: diffusion language models on one small, proven core.

Public names live in their own modules and are imported when first used, so that `redraft --help` needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft import (
        apps as apps,
        core as core,
        decoding as decoding,
        evaluation as evaluation,
        models as models,
        tasks as tasks,
        training as training,
    )
    from redraft.apps.reports.watch import Frame as Frame, Token as Token, frames as frames
    from redraft.core.batch import Batch as Batch, Loss as Loss, Noised as Noised, Times as Times
    from redraft.core.canvas import Canvas as Canvas, Context as Context
    from redraft.core.prediction import (
        Denoiser as Denoiser,
        Drawn as Drawn,
        Gaps as Gaps,
        Known as Known,
        Mean as Mean,
        Prediction as Prediction,
    )
    from redraft.core.processes.base import Process as Process, TokenProcess as TokenProcess
    from redraft.core.processes.gaussian import (
        Between as Between,
        Exploding as Exploding,
        Gaussian as Gaussian,
        Large as Large,
        Path as Path,
        Preserving as Preserving,
        Small as Small,
        Straight as Straight,
        Variance as Variance,
    )
    from redraft.core.processes.insertion import Counted as Counted, Expected as Expected, Insertion as Insertion
    from redraft.core.processes.interpolating import (
        Hybrid as Hybrid,
        Interpolating as Interpolating,
        MaskNoise as MaskNoise,
        Mixing as Mixing,
        Steering as Steering,
        UniformNoise as UniformNoise,
    )
    from redraft.core.processes.markov import (
        BandJumps as BandJumps,
        Jumps as Jumps,
        Markov as Markov,
        MaskJumps as MaskJumps,
        NearJumps as NearJumps,
        UniformJumps as UniformJumps,
        mutual_information as mutual_information,
        nearest as nearest,
    )
    from redraft.core.processes.masked import (
        Chance as Chance,
        Choice as Choice,
        Masked as Masked,
        Pick as Pick,
        Revealed as Revealed,
    )
    from redraft.core.processes.remasking import (
        ByConfidence as ByConfidence,
        Cap as Cap,
        Loop as Loop,
        Rate as Rate,
        Remask as Remask,
        Rescale as Rescale,
        Star as Star,
        Switch as Switch,
    )
    from redraft.core.randomness import Rng as Rng, rng as rng
    from redraft.core.schedules.base import Schedule as Schedule
    from redraft.core.schedules.gaussian import (
        CosineOffset as CosineOffset,
        Sqrt as Sqrt,
        TanD as TanD,
        VPLinear as VPLinear,
    )
    from redraft.core.schedules.tokens import (
        Cosine as Cosine,
        CosineRatio as CosineRatio,
        CosineSquared as CosineSquared,
        Exponential as Exponential,
        Geometric as Geometric,
        Linear as Linear,
        Polynomial as Polynomial,
    )
    from redraft.core.schedules.transforms import (
        Chain as Chain,
        Clamped as Clamped,
        Retimed as Retimed,
        Shifted as Shifted,
        Tabulated as Tabulated,
    )
    from redraft.core.vocab import Vocab as Vocab
    from redraft.decoding.blocks.approximate_cache import Dual as Dual, Prefix as Prefix
    from redraft.decoding.blocks.blocks import Blocks as Blocks
    from redraft.decoding.blocks.multi_block import MultiBlock as MultiBlock
    from redraft.decoding.blocks.strides import Strides as Strides
    from redraft.decoding.blocks.sub_blocks import Parts as Parts
    from redraft.decoding.constraints.constrained import Constrained as Constrained
    from redraft.decoding.constraints.placement import constrain as constrain, hole as hole
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
    )
    from redraft.decoding.guidance.base import Extrapolated as Extrapolated, Guidance as Guidance
    from redraft.decoding.guidance.classifier_free import ClassifierFree as ClassifierFree, OtherPrompt as OtherPrompt
    from redraft.decoding.guidance.filters import Filter as Filter
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
    from redraft.decoding.picks.planned import Planned as Planned
    from redraft.decoding.samplers.ancestral import Ancestral as Ancestral, FirstHitting as FirstHitting
    from redraft.decoding.samplers.base import (
        Even as Even,
        Hold as Hold,
        Sampler as Sampler,
        Warp as Warp,
        last as last,
    )
    from redraft.decoding.samplers.editing import Edited as Edited
    from redraft.decoding.samplers.euler import Euler as Euler
    from redraft.decoding.samplers.guided import Guided as Guided, GuidedByPrompt as GuidedByPrompt
    from redraft.decoding.samplers.particles import Particles as Particles
    from redraft.decoding.samplers.planning import SelfPlanned as SelfPlanned
    from redraft.decoding.samplers.remask import (
        Blind as Blind,
        Guide as Guide,
        Learned as Learned,
        Remasked as Remasked,
        Revise as Revise,
    )
    from redraft.decoding.samplers.replacement import Replaced as Replaced
    from redraft.decoding.samplers.self_correction import Correct as Correct
    from redraft.decoding.samplers.unmask import Unmask as Unmask
    from redraft.decoding.solvers.flow import log_likelihood as log_likelihood
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
    from redraft.decoding.solvers.step import Move as Move
    from redraft.decoding.speculation.acceptance import (
        AcceptRule as AcceptRule,
        BlockWise as BlockWise,
        Matched as Matched,
        PointMass as PointMass,
        SharedGumbel as SharedGumbel,
        TokenWise as TokenWise,
    )
    from redraft.decoding.speculation.drafters import (
        DiffusionDraft as DiffusionDraft,
        NoDraft as NoDraft,
        SampledDraft as SampledDraft,
    )
    from redraft.decoding.speculation.lookup import PromptLookup as PromptLookup, TextLookup as TextLookup
    from redraft.decoding.speculation.speculative import Costs as Costs, Speculate as Speculate
    from redraft.models.canvas_builder import UpTo as UpTo
    from redraft.models.codecs.base import Codec as Codec, CodecConfig as CodecConfig
    from redraft.models.codecs.compressed import Compressed as Compressed
    from redraft.models.codecs.contextual import Contextual as Contextual
    from redraft.models.codecs.embedding import Embedding as Embedding
    from redraft.models.codecs.modules.encoder import (
        Encoder as Encoder,
        EncoderConfig as EncoderConfig,
        MaskedLM as MaskedLM,
    )
    from redraft.models.codecs.modules.minilm import MiniLM as MiniLM
    from redraft.models.codecs.modules.size import Size as Size
    from redraft.models.codecs.paragraph import Paragraph as Paragraph
    from redraft.models.codecs.simplex import Simplex as Simplex
    from redraft.models.codecs.smooth import Smooth as Smooth, Smoothing as Smoothing
    from redraft.models.config import DiffusionLMConfig as DiffusionLMConfig
    from redraft.models.diffusion_lm import DiffusionLM as DiffusionLM
    from redraft.models.formats.exporter import export_as as export_as
    from redraft.models.heads import (
        Head as Head,
        PredictEps as PredictEps,
        PredictScore as PredictScore,
        PredictTokens as PredictTokens,
        PredictV as PredictV,
        PredictX as PredictX,
        Score as Score,
        Shift as Shift,
        Softmax as Softmax,
        Subs as Subs,
        VectorHead as VectorHead,
        WithSpread as WithSpread,
    )
    from redraft.models.networks.attention import (
        BlockCausal as BlockCausal,
        Causal as Causal,
        Full as Full,
        Pattern as Pattern,
    )
    from redraft.models.networks.config import Ports as Ports, TransformerConfig as TransformerConfig
    from redraft.models.networks.transformer import Transformer as Transformer
    from redraft.models.time_conditioning import (
        ByKeep as ByKeep,
        ByLogSnr as ByLogSnr,
        BySigma as BySigma,
        ByTime as ByTime,
        Level as Level,
    )
    from redraft.tasks.arguments.rules import ArgumentError as ArgumentError
    from redraft.tasks.arguments.settings import (
        Controlling as Controlling,
        Correcting as Correcting,
        Decoding as Decoding,
        Generation as Generation,
        Infilling as Infilling,
        Rewriting as Rewriting,
        Scoring as Scoring,
    )
    from redraft.tasks.canvases import fill as fill
    from redraft.tasks.choice.choice import Choices as Choices, Chosen as Chosen, choose as choose
    from redraft.tasks.controlled.controlled import control as control
    from redraft.tasks.correction.correction import (
        Change as Change,
        Corrected as Corrected,
        Corrections as Corrections,
        correct as correct,
    )
    from redraft.tasks.correction.edit_channel import EditChannel as EditChannel
    from redraft.tasks.correction.lexicon import Lexicon as Lexicon
    from redraft.tasks.correction.misspellings import SpellingErrors as SpellingErrors
    from redraft.tasks.engine.loop import Writing as Writing
    from redraft.tasks.engine.model import Opened as Opened
    from redraft.tasks.engine.profiler import Profile as Profile, profiled as profiled
    from redraft.tasks.engine.result import Draft as Draft, Record as Record, Written as Written
    from redraft.tasks.generation import generate as generate
    from redraft.tasks.infilling.infilling import infill as infill
    from redraft.tasks.rewriting import rewrite as rewrite
    from redraft.tasks.scoring import Scored as Scored, ScoreRecord as ScoreRecord, score as score
    from redraft.training import presets as presets
    from redraft.training.heldout import likelihood as likelihood
    from redraft.training.loop import fit as fit
    from redraft.training.objectives.fitted_times import (
        clipped as clipped,
        importance as importance,
        intervals as intervals,
    )
    from redraft.training.objectives.losses import (
        P2 as P2,
        Bound as Bound,
        BySnr as BySnr,
        Clip as Clip,
        Dynamic as Dynamic,
        Match as Match,
        MinSnr as MinSnr,
        Recover as Recover,
        Simple as Simple,
        Snr as Snr,
        Sum as Sum,
        Term as Term,
        Weight as Weight,
    )
    from redraft.training.objectives.objective import (
        Attribution as Attribution,
        Autoencode as Autoencode,
        Mistakes as Mistakes,
        Objective as Objective,
        Step as Step,
    )
    from redraft.training.objectives.time_samplers import (
        Clock as Clock,
        Importance as Importance,
        Stratified as Stratified,
    )
    from redraft.training.runs.loading import export as export, load as load
    from redraft.training.runs.run import Optimiser as Optimiser, Run as Run

__getattr__, __dir__, __all__ = attach(__name__, __file__)
