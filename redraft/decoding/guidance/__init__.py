"""Guidance: denoisers made of denoisers, which sharpen a condition, follow a classifier, or keep to known vectors.

The scale γ means the same everywhere: log p_γ = (1 − γ)·log p(x) + γ·log p(x | y) + const. γ = 0 forgets the condition,
1 obeys it, more exaggerates it. Each guidance is a frozen dataclass that is called with a denoiser; they can be nested.
Samplers carry the guided x̂ to the next step as its hint (self-conditioning); `Guided` is a sampler with its guidance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.decoding.guidance.base import Extrapolated, Guidance
    from redraft.decoding.guidance.classifier_free import ClassifierFree, OtherPrompt
    from redraft.decoding.guidance.filters import Filter, Filtered
    from redraft.decoding.guidance.lookahead import LookAhead
    from redraft.decoding.guidance.per_position import AtPlaces
    from redraft.decoding.guidance.token_classifier import FirstOrder, TokenClassifier
    from redraft.decoding.guidance.vectors import Classifier, Projected, Threshold, ThroughDenoiser, UnitScale

__getattr__, __dir__, __all__ = attach(__name__)
