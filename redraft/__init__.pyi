from . import (
    apps as apps,
    core as core,
    decoding as decoding,
    evaluation as evaluation,
    models as models,
    tasks as tasks,
    training as training,
)
from .apps.reports.watch import Frame as Frame, Token as Token, frames as frames
from .core.batch import Batch as Batch, Loss as Loss, Noised as Noised, Times as Times
from .core.canvas import Canvas as Canvas, Context as Context
from .core.prediction import (
    Denoiser as Denoiser,
    Drawn as Drawn,
    Gaps as Gaps,
    Known as Known,
    Mean as Mean,
    Prediction as Prediction,
)
from .core.processes.base import Process as Process, TokenProcess as TokenProcess
from .core.processes.gaussian import (
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
from .core.processes.insertion import Counted as Counted, Expected as Expected, Insertion as Insertion
from .core.processes.interpolating import (
    Hybrid as Hybrid,
    Interpolating as Interpolating,
    MaskNoise as MaskNoise,
    Mixing as Mixing,
    Steering as Steering,
    UniformNoise as UniformNoise,
)
from .core.processes.markov import (
    BandJumps as BandJumps,
    Jumps as Jumps,
    Markov as Markov,
    MaskJumps as MaskJumps,
    NearJumps as NearJumps,
    UniformJumps as UniformJumps,
    mutual_information as mutual_information,
    nearest as nearest,
)
from .core.processes.masked import (
    Chance as Chance,
    Choice as Choice,
    Masked as Masked,
    Pick as Pick,
    Revealed as Revealed,
)
from .core.processes.remasking import (
    ByConfidence as ByConfidence,
    Cap as Cap,
    Loop as Loop,
    Rate as Rate,
    Remask as Remask,
    Rescale as Rescale,
    Star as Star,
    Switch as Switch,
)
from .core.randomness import Rng as Rng, rng as rng
from .core.schedules.base import Schedule as Schedule
from .core.schedules.gaussian import CosineOffset as CosineOffset, Sqrt as Sqrt, TanD as TanD, VPLinear as VPLinear
from .core.schedules.tokens import (
    Cosine as Cosine,
    CosineRatio as CosineRatio,
    CosineSquared as CosineSquared,
    Exponential as Exponential,
    Geometric as Geometric,
    Linear as Linear,
    Polynomial as Polynomial,
)
from .core.schedules.transforms import (
    Chain as Chain,
    Clamped as Clamped,
    Retimed as Retimed,
    Shifted as Shifted,
    Tabulated as Tabulated,
)
from .core.vocab import Vocab as Vocab
from .decoding.blocks.approximate_cache import Dual as Dual, Prefix as Prefix
from .decoding.blocks.blocks import Blocks as Blocks
from .decoding.blocks.multi_block import MultiBlock as MultiBlock
from .decoding.blocks.strides import Strides as Strides
from .decoding.blocks.sub_blocks import Parts as Parts
from .decoding.constraints.constrained import Constrained as Constrained
from .decoding.constraints.placement import constrain as constrain, hole as hole
from .decoding.constraints.rules import (
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
from .decoding.guidance.base import Extrapolated as Extrapolated, Guidance as Guidance
from .decoding.guidance.classifier_free import ClassifierFree as ClassifierFree, OtherPrompt as OtherPrompt
from .decoding.guidance.filters import Filter as Filter
from .decoding.guidance.per_position import AtPlaces as AtPlaces
from .decoding.guidance.token_classifier import FirstOrder as FirstOrder, TokenClassifier as TokenClassifier
from .decoding.guidance.vectors import (
    Classifier as Classifier,
    Projected as Projected,
    Threshold as Threshold,
    ThroughDenoiser as ThroughDenoiser,
    UnitScale as UnitScale,
)
from .decoding.picks.adaptive import (
    Adaptive as Adaptive,
    ConfidenceThreshold as ConfidenceThreshold,
    EntropyBound as EntropyBound,
    FrechetProfile as FrechetProfile,
    Klass as Klass,
    Revoke as Revoke,
)
from .decoding.picks.order import (
    AnyOrder as AnyOrder,
    Confidence as Confidence,
    DemandedFirst as DemandedFirst,
    EndsLast as EndsLast,
    Entropy as Entropy,
    LeftToRight as LeftToRight,
    Margin as Margin,
    Ranked as Ranked,
)
from .decoding.picks.pace import EvenPace as EvenPace, Pace as Pace, TimePace as TimePace
from .decoding.picks.planned import Planned as Planned
from .decoding.samplers.ancestral import Ancestral as Ancestral, FirstHitting as FirstHitting
from .decoding.samplers.base import Even as Even, Hold as Hold, Sampler as Sampler, Warp as Warp, last as last
from .decoding.samplers.editing import Edited as Edited
from .decoding.samplers.euler import Euler as Euler
from .decoding.samplers.guided import Guided as Guided, GuidedByPrompt as GuidedByPrompt
from .decoding.samplers.particles import Particles as Particles
from .decoding.samplers.planning import SelfPlanned as SelfPlanned
from .decoding.samplers.remask import (
    Blind as Blind,
    Guide as Guide,
    Learned as Learned,
    Remasked as Remasked,
    Revise as Revise,
)
from .decoding.samplers.replacement import Replaced as Replaced
from .decoding.samplers.self_correction import Correct as Correct
from .decoding.samplers.unmask import Unmask as Unmask
from .decoding.solvers.flow import log_likelihood as log_likelihood
from .decoding.solvers.gradient_control import (
    Adagrad as Adagrad,
    AtPlace as AtPlace,
    Descent as Descent,
    Energy as Energy,
    SignSteps as SignSteps,
    Steer as Steer,
    Together as Together,
)
from .decoding.solvers.grids import (
    EvenLogSnr as EvenLogSnr,
    EvenTime as EvenTime,
    Grid as Grid,
    Karras as Karras,
    Until as Until,
)
from .decoding.solvers.langevin import (
    EulerMaruyama as EulerMaruyama,
    Langevin as Langevin,
    PredictorCorrector as PredictorCorrector,
)
from .decoding.solvers.ode import (
    Ddim as Ddim,
    DpmPP as DpmPP,
    DpmPPSde as DpmPPSde,
    Heun as Heun,
    OdeEuler as OdeEuler,
    Solver as Solver,
)
from .decoding.solvers.renoise import (
    Average as Average,
    Greedy as Greedy,
    MultiHot as MultiHot,
    Projection as Projection,
    Renoise as Renoise,
    Sampled as Sampled,
)
from .decoding.solvers.step import Move as Move
from .decoding.speculation.acceptance import (
    AcceptRule as AcceptRule,
    BlockWise as BlockWise,
    Matched as Matched,
    PointMass as PointMass,
    SharedGumbel as SharedGumbel,
    TokenWise as TokenWise,
)
from .decoding.speculation.drafters import (
    DiffusionDraft as DiffusionDraft,
    NoDraft as NoDraft,
    SampledDraft as SampledDraft,
)
from .decoding.speculation.lookup import PromptLookup as PromptLookup, TextLookup as TextLookup
from .decoding.speculation.speculative import Costs as Costs, Speculate as Speculate
from .models.canvas_builder import UpTo as UpTo
from .models.codecs.base import Codec as Codec, CodecConfig as CodecConfig
from .models.codecs.compressed import Compressed as Compressed
from .models.codecs.contextual import Contextual as Contextual
from .models.codecs.embedding import Embedding as Embedding
from .models.codecs.modules.encoder import Encoder as Encoder, EncoderConfig as EncoderConfig, MaskedLM as MaskedLM
from .models.codecs.modules.minilm import MiniLM as MiniLM
from .models.codecs.modules.size import Size as Size
from .models.codecs.paragraph import Paragraph as Paragraph
from .models.codecs.simplex import Simplex as Simplex
from .models.codecs.smooth import Smooth as Smooth, Smoothing as Smoothing
from .models.config import DiffusionLMConfig as DiffusionLMConfig
from .models.diffusion_lm import DiffusionLM as DiffusionLM
from .models.formats.exporter import export_as as export_as
from .models.heads import (
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
from .models.networks.attention import BlockCausal as BlockCausal, Causal as Causal, Full as Full, Pattern as Pattern
from .models.networks.config import Ports as Ports, TransformerConfig as TransformerConfig
from .models.networks.transformer import Transformer as Transformer
from .models.time_conditioning import (
    ByKeep as ByKeep,
    ByLogSnr as ByLogSnr,
    BySigma as BySigma,
    ByTime as ByTime,
    Level as Level,
)
from .tasks.arguments.rules import ArgumentError as ArgumentError
from .tasks.arguments.settings import (
    Controlling as Controlling,
    Correcting as Correcting,
    Decoding as Decoding,
    Generation as Generation,
    Infilling as Infilling,
    Rewriting as Rewriting,
    Scoring as Scoring,
)
from .tasks.canvases import fill as fill
from .tasks.choice.choice import Choices as Choices, Chosen as Chosen, choose as choose
from .tasks.controlled.controlled import control as control
from .tasks.correction.correction import (
    Change as Change,
    Corrected as Corrected,
    Corrections as Corrections,
    correct as correct,
)
from .tasks.correction.edit_channel import EditChannel as EditChannel
from .tasks.correction.lexicon import Lexicon as Lexicon
from .tasks.correction.misspellings import SpellingErrors as SpellingErrors
from .tasks.engine.loop import Writing as Writing
from .tasks.engine.model import Opened as Opened
from .tasks.engine.profiler import Profile as Profile, profiled as profiled
from .tasks.engine.result import Draft as Draft, Record as Record, Written as Written
from .tasks.generation import generate as generate
from .tasks.infilling.infilling import infill as infill
from .tasks.rewriting import rewrite as rewrite
from .tasks.scoring import Scored as Scored, ScoreRecord as ScoreRecord, score as score
from .training import presets as presets
from .training.heldout import likelihood as likelihood
from .training.loop import fit as fit
from .training.objectives.fitted_times import clipped as clipped, importance as importance, intervals as intervals
from .training.objectives.losses import (
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
from .training.objectives.objective import (
    Attribution as Attribution,
    Autoencode as Autoencode,
    Mistakes as Mistakes,
    Objective as Objective,
    Step as Step,
)
from .training.objectives.time_samplers import Clock as Clock, Importance as Importance, Stratified as Stratified
from .training.runs.loading import export as export, load as load
from .training.runs.run import Optimiser as Optimiser, Run as Run
