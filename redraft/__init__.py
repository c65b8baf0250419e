"""Redraft: diffusion language models on one small, proven core.

Public names live in their own modules and are imported when first used, so that `redraft --help` needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "types": "Batch Canvas Context Denoiser Drawn Gaps Known Loss Mean Noised Prediction Times Vocab",
    "ops": "Rng rng",
    "schedules": "Chain Clamped Cosine CosineOffset CosineRatio CosineSquared Exponential Geometric Linear Polynomial "
    "Retimed Schedule Shifted Sqrt Tabulated TanD VPLinear",
    "heads": "Head PredictEps PredictScore PredictTokens PredictV PredictX Score Shift Softmax Subs VectorHead "
    "WithSpread",
    "constraints": "AllOf AnyOf Banned Constrained Json Length OneOf Regex Required Rule constrain hole",
    "guidance": "AtPlaces Classifier ClassifierFree Extrapolated Filter FirstOrder Guidance OtherPrompt Projected "
    "Threshold ThroughDenoiser TokenClassifier UnitScale",
    "processes": "BandJumps Between ByConfidence Cap Chance Choice Counted Expected Exploding Gaussian Hybrid "
    "Insertion Interpolating Jumps Large Loop Markov MaskJumps MaskNoise Masked Mixing NearJumps Path "
    "Pick Preserving Process Rate Remask Rescale Revealed Small Star Steering Straight Switch TokenProcess "
    "UniformJumps UniformNoise Variance mutual_information nearest",
    "networks": "BlockCausal Causal Full Pattern Ports Transformer TransformerConfig",
    "codecs": "Codec CodecConfig Compressed Contextual Embedding Encoder EncoderConfig MaskedLM MiniLM Paragraph "
    "Simplex Size Smooth Smoothing",
    "model": "ByKeep ByLogSnr BySigma ByTime DiffusionLM DiffusionLMConfig Level UpTo",
    "objectives": "Attribution Autoencode Bound BySnr Clip Clock Dynamic Importance Match MinSnr Mistakes Objective P2 "
    "Recover Simple Snr Step Stratified Sum Term Weight clipped importance intervals",
    "samplers": "AcceptRule Adagrad Adaptive Ancestral AnyOrder AtPlace Average Blind BlockWise Blocks Confidence "
    "ConfidenceThreshold Correct Costs Ddim DemandedFirst Descent DiffusionDraft DpmPP DpmPPSde Dual Edited EndsLast "
    "Energy Entropy EntropyBound Euler EulerMaruyama Even EvenLogSnr EvenPace EvenTime FirstHitting FrechetProfile "
    "Greedy Grid Guide Guided GuidedByPrompt Heun Hold Karras Klass Langevin Learned LeftToRight Margin Matched Move "
    "MultiBlock MultiHot NoDraft OdeEuler Pace Particles Parts Planned PointMass PredictorCorrector Prefix Projection "
    "PromptLookup Ranked Remasked Renoise Replaced Revise Revoke Sampled SampledDraft Sampler SelfPlanned "
    "SharedGumbel SignSteps Solver Speculate Steer Strides TextLookup TimePace Together TokenWise Unmask Until Warp "
    "last log_likelihood",
    "runs": "Optimiser Run export export_as load",
    "evaluate": "likelihood",
    "train": "fit",
    "write": "ArgumentError Change Choices Chosen Controlling Corrected Correcting Corrections Decoding Draft "
    "Generation Infilling Opened Profile Record Rewriting Scored ScoreRecord Scoring Writing Written choose control "
    "correct fill generate infill profiled rewrite score",
    "spelling": "EditChannel SpellingErrors Lexicon",
    "show.watch": "Frame Token frames",
}
_HOME = {name: f"redraft.{module}" for module, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'redraft' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
