"""Guidance from two passes of one network: with and without its condition, or with two different prompts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core.canvas import Context
from redraft.core.prediction import Denoiser, DenoiserWrapper, Prediction
from redraft.decoding.guidance.base import Guidance, _join_contexts, _mix_predictions, _require_scale, _split_caches


@dataclass(frozen=True)
class ClassifierFree(Guidance):
    """(1 − γ)·unconditional + γ·conditional, for a network that was trained with and without its condition.

    Vectors: mixes x̂ itself, which equals mixing ε̂, v̂ or scores, since these are affine in x̂ (Ho & Salimans 2022, whose
    w is γ − 1). Tokens: mixes log-probabilities, then normalizes. Under mask noise these are log x̂; under uniform and
    hybrid noise they are log p(z_s | z_t) (Schiff et al. 2024, "D-CFG"). The unconditional branch is called without
    `source` and with the label `none`; both branches get the same previous x̂ (self-conditioning). γ = 0 and γ = 1 take
    a single network call and return its prediction unchanged.
    """

    scale: float = 1.5
    none: int | None = None  # class id that means "no class" (the last id for UDLM's weights); None to pass no label
    posteriors: bool = True  # if False, mixes x̂ under uniform and hybrid noise too

    def __post_init__(self) -> None:
        _require_scale(self.scale)

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return denoise if self.scale == 1 else _ClassifierFreeDenoiser(denoise, self.scale, self.none, self.posteriors)


@dataclass(frozen=True)
class _ClassifierFreeDenoiser(DenoiserWrapper):
    """The denoiser of classifier-free guidance, with one cache per branch."""

    scale: float
    none: int | None
    posteriors: bool

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        conditional, unconditional = _branches(context, self.none)
        if self.scale == 0:
            return self.denoise.predict(z, t, unconditional)
        if context.condition.source is None and context.condition.label is None:
            raise ValueError("the context has neither source nor label; classifier-free guidance needs one of them")
        without = self.denoise.predict(z, t, unconditional)
        return _mix_predictions(without, self.denoise.predict(z, t, conditional), self.scale, self.posteriors)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        conditional, unconditional = _branches(context, self.none)
        after = self.denoise.absorb(z, unconditional, t)
        if self.scale == 0:
            return replace(context, cache=after.cache, previous=after.previous)
        return _join_contexts(self.denoise.absorb(z, conditional, t), after)


def _branches(context: Context, none: int | None) -> tuple[Context, Context]:
    """Return the contexts of the conditional and of the unconditional branch."""
    cache, unconditional_cache = _split_caches(context)
    label = context.condition.label
    label = None if none is None or label is None else torch.full_like(label, none)
    unconditional = context.with_condition(source=None, source_pad=None, label=label)
    return replace(context, cache=cache), replace(unconditional, cache=unconditional_cache)


@dataclass(frozen=True)
class NegativePrompt(Guidance):
    """(1 − γ)·(with another prompt) + γ·(with the row's own prompt), for prompts inside the row.

    `Condition.negative` holds the other prompt. If it is all masks, the prompt is hidden: this is LLaDA's
    classifier-free guidance, whose w is γ − 1. Otherwise it is a negative prompt, and the text moves away from what it
    asks for. γ = 0 and γ = 1 take a single network call and return its prediction unchanged. `PromptGuidedSampler` sets
    up `Condition.negative`.
    """

    mask: int  # mask id; positions of the other prompt that hold it are treated as noise
    scale: float = 1.5

    def __post_init__(self) -> None:
        _require_scale(self.scale)

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return denoise if self.scale == 1 else _NegativePromptDenoiser(denoise, self.mask, self.scale)


@dataclass(frozen=True)
class _NegativePromptDenoiser(DenoiserWrapper):
    """The denoiser of prompt guidance, with one cache per prompt."""

    mask: int
    scale: float

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        own_cache, other_cache = _split_caches(context)
        other_z, other_t = self._with_other_prompt(z, t, context)
        other = self.denoise.predict(other_z, other_t, replace(context, cache=other_cache))
        if self.scale == 0:
            return other
        return _mix_predictions(other, self.denoise.predict(z, t, replace(context, cache=own_cache)), self.scale)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        own_cache, other_cache = _split_caches(context)
        times = torch.zeros_like(z, dtype=torch.float32) if t is None else t
        other_z, other_t = self._with_other_prompt(z, times, context)
        after = self.denoise.absorb(other_z, replace(context, cache=other_cache), None if t is None else other_t)
        if self.scale == 0:
            return after
        return _join_contexts(self.denoise.absorb(z, replace(context, cache=own_cache), t), after)

    def _with_other_prompt(self, z: Tensor, t: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Return z with the other prompt in it, and its times: 1 where the other prompt is masked."""
        negative = context.condition.negative
        if negative is None:
            raise ValueError("the canvas has no other prompt; use PromptGuidedSampler(sampler, scale)")
        other = negative[:, : z.shape[1]]
        if context.positions is not None:
            position = context.positions.expand(len(z), -1)
            other = negative.gather(1, position.clamp(max=negative.shape[1] - 1))
        times = torch.where(other == self.mask, 1.0, t) if t.shape[1] == z.shape[1] else t
        return torch.where(other < 0, z, other), times
