"""Redraft: diffusion language models on one small, proven core.

Public names live in their own modules and are imported when first used, so that `redraft --help` needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach
from redraft.core.version import __version__ as __version__

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
    from redraft.core.batch import Batch as Batch
    from redraft.core.canvas import Canvas as Canvas, Context as Context
    from redraft.core.prediction import Denoiser as Denoiser, Prediction as Prediction
    from redraft.core.processes.base import Process as Process, TokenProcess as TokenProcess
    from redraft.core.processes.gaussian import Gaussian as Gaussian
    from redraft.core.processes.insertion import Insertion as Insertion
    from redraft.core.processes.interpolating import Interpolating as Interpolating
    from redraft.core.processes.markov import Markov as Markov
    from redraft.core.processes.masked import Masked as Masked, Pick as Pick
    from redraft.core.processes.remasking import Remask as Remask
    from redraft.core.randomness import rng as rng
    from redraft.core.schedules.base import Schedule as Schedule
    from redraft.core.schedules.tokens import Linear as Linear
    from redraft.core.vocab import Vocab as Vocab
    from redraft.decoding.blocks.blocks import Blocks as Blocks
    from redraft.decoding.constraints.constrained import Constrained as Constrained
    from redraft.decoding.constraints.placement import constrain as constrain
    from redraft.decoding.constraints.rules import Json as Json, Regex as Regex, Rule as Rule
    from redraft.decoding.guidance.base import Guidance as Guidance
    from redraft.decoding.guidance.classifier_free import ClassifierFree as ClassifierFree
    from redraft.decoding.picks.order import Confidence as Confidence
    from redraft.decoding.samplers.ancestral import Ancestral as Ancestral
    from redraft.decoding.samplers.base import Sampler as Sampler
    from redraft.decoding.samplers.unmask import Unmask as Unmask
    from redraft.evaluation.referee.auditing import audit as audit
    from redraft.models.codecs.base import Codec as Codec
    from redraft.models.config import DiffusionLMConfig as DiffusionLMConfig
    from redraft.models.diffusion_lm import DiffusionLM as DiffusionLM
    from redraft.models.heads import Head as Head
    from redraft.models.networks.config import TransformerConfig as TransformerConfig
    from redraft.models.networks.transformer import Transformer as Transformer
    from redraft.tasks.arguments.setting import ArgumentError as ArgumentError
    from redraft.tasks.choice.choice import choose as choose
    from redraft.tasks.controlled.controlled import control as control
    from redraft.tasks.correction.correction import correct as correct
    from redraft.tasks.generation import generate as generate
    from redraft.tasks.infilling.infilling import infill as infill
    from redraft.tasks.language_model import load as load
    from redraft.tasks.rewriting import rewrite as rewrite
    from redraft.tasks.scoring import score as score
    from redraft.training import presets as presets
    from redraft.training.heldout import likelihood as likelihood
    from redraft.training.loop import fit as fit
    from redraft.training.objectives.losses import Bound as Bound
    from redraft.training.objectives.objective import Objective as Objective
    from redraft.training.runs.loading import export as export
    from redraft.training.runs.run import Run as Run

__getattr__, __dir__, __all__ = attach(__name__, __file__)
