"""Redraft: diffusion language models on one small, proven core.

Public names live in their own modules and are imported when first used, so that `redraft --help` needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "types": "Batch Canvas Context Denoiser Gaps Known Loss Mean Noised Prediction Times Vocab",
    "ops": "Rng rng",
    "schedules": "Chain Clamped Cosine CosineOffset CosineRatio CosineSquared Exponential Geometric Linear "
    "Polynomial Retimed Schedule Shifted Sqrt Tabulated TanD VPLinear",
    "processes.base": "Process TokenProcess",
    "processes.masked": "Chance Choice Masked Pick",
    "processes.interpolating": "Hybrid Interpolating MaskNoise Mixing UniformNoise",
    "processes.markov": "BandJumps Jumps Markov MaskJumps NearJumps UniformJumps mutual_information nearest",
    "processes.insertion": "Counted Expected Insertion",
    "processes.gaussian": "Between Exploding Gaussian Large Path Preserving Small Straight Variance",
    "processes.star": "ByConfidence Cap Loop Rate Remask Rescale Star Switch",
    "networks.attention": "BlockCausal Causal Full Pattern",
    "networks.transformer": "Transformer TransformerConfig",
    "codecs.base": "Codec CodecConfig",
    "codecs.embedding": "Embedding",
    "codecs.encoder": "Encoder EncoderConfig MaskedLM",
    "codecs.minilm": "MiniLM",
    "codecs.size": "Size",
    "codecs.contextual": "Contextual",
    "codecs.compressed": "Compressed",
    "codecs.paragraph": "Paragraph",
    "codecs.smooth": "Smooth Smoothing",
    "codecs.simplex": "Simplex",
    "heads": "Head PredictEps PredictScore PredictTokens PredictV PredictX Score Shift Softmax Subs VectorHead "
    "WithSpread",
    "model": "ByKeep ByLogSnr BySigma ByTime DiffusionLM DiffusionLMConfig Level UpTo",
    "objectives": "Autoencode Bound BySnr Clip Clock Dynamic Importance Match MinSnr Mistakes Objective P2 Recover "
    "Simple Snr Step Stratified Sum Term Weight clipped importance intervals",
    "samplers.base": "Sampler last",
    "samplers.ancestral": "Ancestral Even FirstHitting Hold Warp",
    "samplers.euler": "Euler",
    "guidance": "Classifier ClassifierFree Extrapolated Guidance Projected ThroughDenoiser Threshold UnitScale",
    "samplers.control": "Adagrad AtPlace Descent Energy SignSteps Steer Together",
    "samplers.ode": "Average Ddim DpmPP DpmPPSde EulerMaruyama EvenLogSnr EvenTime Greedy Grid Heun Karras Langevin "
    "Move MultiHot OdeEuler PredictorCorrector Projection Renoise Sampled Solver Until log_likelihood",
    "samplers.unmask": "AnyOrder Confidence Entropy Margin Ranked Unmask",
    "samplers.revise": "Blind Guide Learned Remasked Revise",
    "samplers.blocks": "Blocks",
    "samplers.replaced": "Replaced",
    "samplers.stride": "Strides",
    "samplers.correct": "Correct",
    "run": "Optimiser Run export load",
    "train": "fit",
    "evaluate": "likelihood",
    "watch": "Frame Token frames",
}
_HOME = {name: f"redraft.{module}" for module, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'redraft' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
