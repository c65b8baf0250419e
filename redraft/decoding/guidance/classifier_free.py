"""Guidance by two questions to one network: with its condition and without, with its prompt and with another."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core.canvas import Context
from redraft.core.prediction import Denoiser, DenoiserWrapper, Prediction
from redraft.decoding.guidance.base import _join_contexts, _mix_predictions, _require_scale, _split_caches


@dataclass(frozen=True)
class ClassifierFree:
    """(1 − γ)·unconditional + γ·conditional, for a network that was trained with and without its condition.

    Vectors: mixes x̂ itself, which is the same as mixing ε̂, v̂ or scores, since these are affine in it (Ho & Salimans
    2022, whose w is γ − 1). Tokens: mixes log-probabilities, then normalises: those of x̂ under mask noise, those of z_s
    given z_t where words become other words (Schiff et al. 2024, "D-CFG"). The unconditional branch is the same call
    without `cond` and `label`; both branches see the same hint. γ = 0 and γ = 1 cost one call and return it unchanged.
    """

    scale: float = 1.5
    none: int | None = None  # the label of the unconditional branch (UDLM's weights: the last one); None: no label
    posteriors: bool = True  # False: mixes x̂ under uniform and hybrid noise too

    def __post_init__(self) -> None:
        _require_scale(self.scale)

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return denoise if self.scale == 1 else _WithAndWithout(denoise, self.scale, self.none, self.posteriors)


@dataclass(frozen=True)
class _WithAndWithout(DenoiserWrapper):
    """The denoiser of classifier-free guidance; it has a cache for each branch."""

    scale: float
    none: int | None
    posteriors: bool

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        given, without = _branches(context, self.none)
        if self.scale == 0:
            return self.denoise(z, t, without)
        if context.cond is None and context.label is None:
            raise ValueError("there is no condition to exaggerate: guidance needs a context with cond or label")
        return _mix_predictions(self.denoise(z, t, without), self.denoise(z, t, given), self.scale, self.posteriors)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        given, without = _branches(context, self.none)
        after = self.denoise.absorb(z, without, t)
        if self.scale == 0:
            return replace(context, cache=after.cache, hint=after.hint)
        return _join_contexts(self.denoise.absorb(z, given, t), after)


def _branches(context: Context, none: int | None) -> tuple[Context, Context]:
    """The context with its condition and without."""
    given, without = _split_caches(context)
    label = None if none is None or context.label is None else torch.full_like(context.label, none)
    unconditional = replace(context, cond=None, cond_pad=None, label=label, cache=without)
    return replace(context, cache=given), unconditional


@dataclass(frozen=True)
class NegativePrompt:
    """(1 − γ)·with another prompt + γ·with its own, for prompts that stand in the row itself.

    `Context.other` says what stands in their place. If it is all masks, the prompt is hidden: the classifier-free
    guidance of LLaDA, whose w is γ − 1. If it says something, it is a negative prompt: the text moves away from what it
    asks for. γ = 0 and γ = 1 cost one call and return it unchanged. `PromptGuidedSampler` makes all of it for a canvas.
    """

    mask: int  # the id that says nothing
    scale: float = 1.5

    def __post_init__(self) -> None:
        _require_scale(self.scale)

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return denoise if self.scale == 1 else _TwoPrompts(denoise, self.mask, self.scale)


@dataclass(frozen=True)
class _TwoPrompts(DenoiserWrapper):
    """The denoiser with two prompts; it has a cache for each."""

    mask: int
    scale: float

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        given, without = _split_caches(context)
        other, late = self._other(z, t, context)
        unconditional = self.denoise(other, late, replace(context, cache=without))
        if self.scale == 0:
            return unconditional
        return _mix_predictions(unconditional, self.denoise(z, t, replace(context, cache=given)), self.scale)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        given, without = _split_caches(context)
        other, late = self._other(z, torch.zeros_like(z, dtype=torch.float32) if t is None else t, context)
        after = self.denoise.absorb(other, replace(context, cache=without), None if t is None else late)
        if self.scale == 0:
            return after
        return _join_contexts(self.denoise.absorb(z, replace(context, cache=given), t), after)

    def _other(self, z: Tensor, t: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """z with the other prompt, and its times: what is masked is noise."""
        if context.other is None:
            raise ValueError("there is no other prompt on this canvas: use GuidedByPrompt(sampler, scale)")
        other = context.other[:, : z.shape[1]]
        if context.place is not None:
            place = context.place.expand(len(z), -1)
            other = context.other.gather(1, place.clamp(max=context.other.shape[1] - 1))
        late = torch.where(other == self.mask, 1.0, t) if t.shape[1] == z.shape[1] else t
        return torch.where(other < 0, z, other), late
