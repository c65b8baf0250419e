"""Redraft: diffusion language models on one small, proven core.

Public names live in their own modules and are imported when first used, so that `redraft --help` needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "types": "Batch Canvas Context Denoiser Gaps Known Loss Noised Prediction Times Vocab",
    "ops": "Rng rng",
    "schedules": "Cosine CosineRatio CosineSquared Exponential Geometric Linear Polynomial Schedule Tabulated",
    "processes.base": "Process",
    "processes.masked": "Chance Choice Masked Pick",
    "processes.interpolating": "Hybrid Interpolating MaskNoise Mixing UniformNoise",
    "processes.markov": "BandJumps Jumps Markov MaskJumps NearJumps UniformJumps mutual_information nearest",
    "processes.insertion": "Counted Expected Insertion",
    "processes.star": "ByConfidence Cap Loop Rate Remask Rescale Star Switch",
    "networks.attention": "BlockCausal Causal Full Pattern",
    "networks.transformer": "Transformer TransformerConfig",
    "heads": "Head Score Shift Softmax Subs",
    "model": "ByKeep BySigma ByTime DiffusionLM DiffusionLMConfig Level UpTo",
    "objectives": "Bound Clip Clock Dynamic Importance Mistakes Objective Recover Step Stratified Sum Term Weight "
    "importance",
    "samplers.base": "Sampler last",
    "samplers.ancestral": "Ancestral Even FirstHitting Hold Warp",
    "samplers.euler": "Euler",
    "samplers.unmask": "AnyOrder Confidence Entropy Margin Ranked Unmask",
    "samplers.revise": "Blind Guide Learned Remasked Revise",
    "samplers.blocks": "Blocks",
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
