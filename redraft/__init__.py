"""Redraft: diffusion language models on one small, proven core.

Public names live in their own modules and are imported when first used, so that `redraft --help` needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft import apps, core, decoding, evaluation, models, tasks, training
    from redraft.apps.reports.watch import Frame, Token, frames
    from redraft.core.ops import Rng, rng
    from redraft.core.processes.base import Process, TokenProcess
    from redraft.core.processes.gaussian import (
        Between,
        Exploding,
        Gaussian,
        Large,
        Path,
        Preserving,
        Small,
        Straight,
        Variance,
    )
    from redraft.core.processes.insertion import Counted, Expected, Insertion
    from redraft.core.processes.interpolating import Hybrid, Interpolating, MaskNoise, Mixing, Steering, UniformNoise
    from redraft.core.processes.markov import (
        BandJumps,
        Jumps,
        Markov,
        MaskJumps,
        NearJumps,
        UniformJumps,
        mutual_information,
        nearest,
    )
    from redraft.core.processes.masked import Chance, Choice, Masked, Pick, Revealed
    from redraft.core.processes.remasking import ByConfidence, Cap, Loop, Rate, Remask, Rescale, Star, Switch
    from redraft.core.schedules import (
        Chain,
        Clamped,
        Cosine,
        CosineOffset,
        CosineRatio,
        CosineSquared,
        Exponential,
        Geometric,
        Linear,
        Polynomial,
        Retimed,
        Schedule,
        Shifted,
        Sqrt,
        Tabulated,
        TanD,
        VPLinear,
    )
    from redraft.core.types import (
        Batch,
        Canvas,
        Context,
        Denoiser,
        Drawn,
        Gaps,
        Known,
        Loss,
        Mean,
        Noised,
        Prediction,
        Times,
        Vocab,
    )
    from redraft.decoding.blocks.blocks import Blocks
    from redraft.decoding.blocks.multi_block import MultiBlock
    from redraft.decoding.blocks.strides import Strides
    from redraft.decoding.blocks.sub_blocks import Parts
    from redraft.decoding.blocks.windows import Dual, Prefix
    from redraft.decoding.constraints.constrained import Constrained
    from redraft.decoding.constraints.placement import constrain, hole
    from redraft.decoding.constraints.rules import AllOf, AnyOf, Banned, Json, Length, OneOf, Regex, Required, Rule
    from redraft.decoding.guidance.base import Extrapolated, Guidance
    from redraft.decoding.guidance.classifier_free import ClassifierFree, OtherPrompt
    from redraft.decoding.guidance.filters import Filter
    from redraft.decoding.guidance.per_position import AtPlaces
    from redraft.decoding.guidance.token_classifier import FirstOrder, TokenClassifier
    from redraft.decoding.guidance.vectors import Classifier, Projected, Threshold, ThroughDenoiser, UnitScale
    from redraft.decoding.picks.adaptive import (
        Adaptive,
        ConfidenceThreshold,
        EntropyBound,
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
    from redraft.decoding.samplers.base import Even, Hold, Sampler, Warp, last
    from redraft.decoding.samplers.editing import Edited
    from redraft.decoding.samplers.euler import Euler
    from redraft.decoding.samplers.guided import Guided, GuidedByPrompt
    from redraft.decoding.samplers.particles import Particles
    from redraft.decoding.samplers.planning import Planned, SelfPlanned
    from redraft.decoding.samplers.remask import Blind, Guide, Learned, Remasked, Revise
    from redraft.decoding.samplers.replacement import Replaced
    from redraft.decoding.samplers.self_correction import Correct
    from redraft.decoding.samplers.unmask import Unmask
    from redraft.decoding.solvers.flow import log_likelihood
    from redraft.decoding.solvers.gradient_control import Adagrad, AtPlace, Descent, Energy, SignSteps, Steer, Together
    from redraft.decoding.solvers.grids import EvenLogSnr, EvenTime, Grid, Karras, Until
    from redraft.decoding.solvers.langevin import EulerMaruyama, Langevin, PredictorCorrector
    from redraft.decoding.solvers.ode import Ddim, DpmPP, DpmPPSde, Heun, OdeEuler, Solver
    from redraft.decoding.solvers.renoise import Average, Greedy, MultiHot, Projection, Renoise, Sampled
    from redraft.decoding.solvers.step import Move
    from redraft.decoding.speculation.acceptance import (
        AcceptRule,
        BlockWise,
        Matched,
        PointMass,
        SharedGumbel,
        TokenWise,
    )
    from redraft.decoding.speculation.drafters import DiffusionDraft, NoDraft, SampledDraft
    from redraft.decoding.speculation.lookup import PromptLookup, TextLookup
    from redraft.decoding.speculation.speculative import Costs, Speculate
    from redraft.models.canvas_builder import UpTo
    from redraft.models.codecs.base import Codec, CodecConfig
    from redraft.models.codecs.compressed import Compressed
    from redraft.models.codecs.contextual import Contextual
    from redraft.models.codecs.embedding import Embedding
    from redraft.models.codecs.modules.encoder import Encoder, EncoderConfig, MaskedLM
    from redraft.models.codecs.modules.minilm import MiniLM
    from redraft.models.codecs.modules.size import Size
    from redraft.models.codecs.paragraph import Paragraph
    from redraft.models.codecs.simplex import Simplex
    from redraft.models.codecs.smooth import Smooth, Smoothing
    from redraft.models.config import DiffusionLMConfig
    from redraft.models.diffusion_lm import DiffusionLM
    from redraft.models.formats.exporter import export_as
    from redraft.models.heads import (
        Head,
        PredictEps,
        PredictScore,
        PredictTokens,
        PredictV,
        PredictX,
        Score,
        Shift,
        Softmax,
        Subs,
        VectorHead,
        WithSpread,
    )
    from redraft.models.networks.attention import BlockCausal, Causal, Full, Pattern
    from redraft.models.networks.config import Ports, TransformerConfig
    from redraft.models.networks.transformer import Transformer
    from redraft.models.time_conditioning import ByKeep, ByLogSnr, BySigma, ByTime, Level
    from redraft.tasks.arguments.settings import (
        ArgumentError,
        Controlling,
        Correcting,
        Decoding,
        Generation,
        Infilling,
        Rewriting,
        Scoring,
    )
    from redraft.tasks.canvases import fill
    from redraft.tasks.choice.choice import Choices, Chosen, choose
    from redraft.tasks.controlled.controlled import control
    from redraft.tasks.correction.correction import Change, Corrected, Corrections, correct
    from redraft.tasks.correction.edit_channel import EditChannel
    from redraft.tasks.correction.lexicon import Lexicon
    from redraft.tasks.correction.misspellings import SpellingErrors
    from redraft.tasks.engine.model import Opened
    from redraft.tasks.engine.plan import Writing, generate
    from redraft.tasks.engine.profiler import Profile, profiled
    from redraft.tasks.engine.result import Draft, Record, Written
    from redraft.tasks.infilling.infilling import infill
    from redraft.tasks.rewriting import rewrite
    from redraft.tasks.scoring import Scored, ScoreRecord, score
    from redraft.training import presets
    from redraft.training.heldout import likelihood
    from redraft.training.loop import fit
    from redraft.training.objectives.fitted_times import clipped, importance, intervals
    from redraft.training.objectives.losses import (
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
    from redraft.training.objectives.objective import Attribution, Autoencode, Mistakes, Objective, Step
    from redraft.training.objectives.time_samplers import Clock, Importance, Stratified
    from redraft.training.runs.run import Optimiser, Run, export, load

__getattr__, __dir__, __all__ = attach(__name__)
