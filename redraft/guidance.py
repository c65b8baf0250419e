"""Guidance: denoisers made of denoisers, which sharpen a condition, follow a classifier, or keep to known vectors.

The scale γ means the same everywhere: log p_γ = (1 − γ)·log p(x) + γ·log p(x | y) + const. γ = 0 forgets the condition,
1 obeys it, more exaggerates it. Each guidance is a frozen dataclass that is called with a denoiser; they can be nested.
Samplers carry the guided x̂ to the next step as its hint (self-conditioning); `Guided` is a sampler with its guidance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft import ops
from redraft.processes import Gaussian
from redraft.types import Around, Cache, Context, Denoiser, Mean, Prediction


class Guidance(Protocol):
    """Denoiser → denoiser."""

    def __call__(self, denoise: Denoiser) -> Denoiser: ...


@dataclass(frozen=True)
class ClassifierFree:
    """(1 − γ)·unconditional + γ·conditional, for a network that was trained with and without its condition.

    Vectors: mixes x̂ itself, which is the same as mixing ε̂, v̂ or scores, since these are affine in it (Ho & Salimans
    2022, whose w is γ − 1). Tokens: mixes log-probabilities, then normalises. The unconditional branch is the same call
    without `cond` and `label`; both branches see the same hint. γ = 0 and γ = 1 cost one call and return it unchanged.
    """

    scale: float = 1.5
    none: int | None = None  # the label of the unconditional branch (UDLM's weights: the last one); None: no label

    def __post_init__(self) -> None:
        if self.scale < 0:
            raise ValueError(f"scale={self.scale}; use 0 (unconditional), 1 (conditional) or more (exaggerated)")

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return denoise if self.scale == 1 else _WithAndWithout(denoise, self.scale, self.none)


@dataclass(frozen=True)
class _WithAndWithout(Around):
    """The denoiser of classifier-free guidance; it has a cache for each branch."""

    scale: float
    none: int | None

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        given, without = _branches(context, self.none)
        if self.scale == 0:
            return self.denoise(z, t, without)
        if context.cond is None and context.label is None:
            raise ValueError("there is no condition to exaggerate: guidance needs a context with cond or label")
        return _mixed(self.denoise(z, t, without), self.denoise(z, t, given), self.scale)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        given, without = _branches(context, self.none)
        after = self.denoise.absorb(z, without, t)
        if self.scale == 0:
            return replace(context, cache=after.cache, hint=after.hint)
        both = self.denoise.absorb(z, given, t)
        assert both.cache is not None
        assert after.cache is not None
        return replace(both, cache=_Caches(both.cache, after.cache))


@dataclass(frozen=True)
class _Caches:
    """What each branch remembers about finished windows."""

    given: Cache
    without: Cache

    @property
    def covers(self) -> Tensor:
        return self.given.covers

    @property
    def exact(self) -> bool:
        return self.given.exact and self.without.exact

    def rows(self, index: Tensor) -> _Caches:
        return _Caches(self.given.rows(index), self.without.rows(index))


def _branches(context: Context, none: int | None) -> tuple[Context, Context]:
    """The context with its condition and without."""
    own = context.cache
    given, without = (own.given, own.without) if isinstance(own, _Caches) else (own, own)
    label = None if none is None or context.label is None else torch.full_like(context.label, none)
    unconditional = replace(context, cond=None, cond_pad=None, label=label, cache=without)
    return replace(context, cache=given), unconditional


def _mixed(without: Prediction, given: Prediction, scale: float) -> Prediction:
    if not (isinstance(without, Mean) and isinstance(given, Mean)):
        return Extrapolated(without, given, scale)
    mean = (1 - scale) * without.mean + scale * given.mean
    if without.log_weights is None or given.log_weights is None:
        return replace(given, mean=mean)
    return replace(given, mean=mean, log_weights=ops.extrapolate(without.log_weights, given.log_weights, scale))


@dataclass(frozen=True)
class Extrapolated(Prediction):
    """log x̂ ∝ (1 − γ)·start + γ·end for two predictions of tokens, which are queried only where this one is."""

    start: Prediction
    end: Prediction
    scale: float

    def __post_init__(self) -> None:
        if not (self.start.normalised and self.end.normalised):
            raise ValueError("free intensities (a Score head) cannot be mixed as probabilities; use Subs or Softmax")

    @property
    def x(self) -> Tensor:
        return ops.extrapolate(self.start.x, self.end.x, self.scale)

    def at(self, where: Tensor) -> Tensor:
        return ops.extrapolate(self.start.at(where), self.end.at(where), self.scale)

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        loss = -self.at(where).gather(-1, target[where][:, None]).squeeze(-1)
        return loss.new_zeros(where.shape).masked_scatter(where, loss)


@dataclass(frozen=True)
class Classifier:
    """x̂ + γ·(s²/a)·∇_z log p(y | z, t): with the exact classifier of noisy z and γ = 1 this is E[x | z, y].

    In other words ∇log q + γ·∇log p(y | z) (Dhariwal & Nichol 2021, §4.2). The classifier must be trained on noisy z at
    all times t; for a classifier of clean x see `ThroughDenoiser`.
    """

    log_prob: Callable[[Tensor, Tensor, Context], Tensor]  # (z, t, context) → (B,) log p(y | z)
    process: Gaussian
    scale: float = 1.0

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return _Shifted(denoise, self.process, self.scale, self.slope)

    def slope(self, denoise: Denoiser, z: Tensor, t: Tensor, context: Context) -> tuple[Mean, Tensor]:
        """The prediction of x, and ∇_z log p(y | z)."""
        pred = _vectors(denoise(z, t, context))
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            return pred, torch.autograd.grad(self.log_prob(z, t, context).sum(), z)[0]


@dataclass(frozen=True)
class ThroughDenoiser:
    """x̂ + γ·(s²/a)·∇_z log p(y | x̂(z)): a classifier of clean x, differentiated through the denoiser.

    Exact where z determines x; an approximation elsewhere, since p(y | z) is the mean of p(y | x), not its value at the
    mean (Chung et al. 2023, "DPS"). Each call costs a backward pass through the network.
    """

    log_prob: Callable[[Tensor, Context], Tensor]  # (x, context) → (B,) log p(y | x)
    process: Gaussian
    scale: float = 1.0

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return _Shifted(denoise, self.process, self.scale, self.slope)

    def slope(self, denoise: Denoiser, z: Tensor, t: Tensor, context: Context) -> tuple[Mean, Tensor]:
        """The prediction of x, and ∇_z log p(y | x̂(z))."""
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            pred = _vectors(denoise(z, t, context))
            slope = torch.autograd.grad(self.log_prob(pred.mean, context).sum(), z)[0]
        return _detached(pred), slope


@dataclass(frozen=True)
class _Shifted(Around):
    """A denoiser that moves x̂ along a slope; given places, where s = 0, do not move."""

    process: Gaussian
    scale: float
    slope: Callable[[Denoiser, Tensor, Tensor, Context], tuple[Mean, Tensor]]

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        if self.scale == 0:
            return self.denoise(z, t, context)
        pred, slope = self.slope(self.denoise, z, t, context)
        signal, noise = self.process.path.scales(t[..., None])
        shift = self.scale * noise**2 / signal * slope
        return replace(pred, mean=pred.mean + shift.to(pred.mean.dtype))


def _vectors(pred: Prediction) -> Mean:
    if not isinstance(pred, Mean):
        raise ValueError(f"{type(pred).__name__} is a prediction of tokens; gradients only guide vectors (Gaussian)")
    return pred


def _detached(pred: Mean) -> Mean:
    names = ("mean", "log_weights", "spread", "table")
    return replace(pred, **{name: a.detach() for name in names if (a := getattr(pred, name)) is not None})


@dataclass(frozen=True)
class Projected:
    """x̂ → project(x̂) from the time `since` on: clamping to embeddings (Diffusion-LM), thresholds, norms.

    Clamping, `Projected(codec.project)`, commits to words and lowers rounding errors, at the price of diversity:
    frequent words become more frequent. Other guidance goes inside: mixing is right before the projection, not after.
    """

    project: Callable[[Tensor], Tensor]
    since: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.since <= 1:
            raise ValueError(f"since={self.since}; it must be above 0 and at most 1 (the first step)")

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return _Kept(denoise, self)


@dataclass(frozen=True)
class _Kept(Around):
    guidance: Projected

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        pred, late = _vectors(self.denoise(z, t, context)), t > self.guidance.since
        if bool(late.all()):
            return pred
        return replace(pred, mean=torch.where(late[..., None], pred.mean, self.guidance.project(pred.mean)))


@dataclass(frozen=True)
class Threshold:
    """A projection: coordinates are held within their `share` quantile q of |x̂|, and scaled by limit/q if q > limit.

    Dynamic thresholding (Saharia et al. 2022) for latents that are bounded by `limit`, as those of PLANNER by tanh. The
    quantile is taken for each place separately, so no other place or row matters.
    """

    share: float = 0.995
    limit: float = 1.0

    def __call__(self, x: Tensor) -> Tensor:
        quantile = x.abs().quantile(self.share, dim=-1, keepdim=True).clamp(min=self.limit)
        return x.clamp(-quantile, quantile) * (self.limit / quantile)


@dataclass(frozen=True)
class UnitScale:
    """A projection: scales every place to the norm √D, as latents normalised that way have it (LD4LG)."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.shape[-1] ** 0.5 * F.normalize(x, dim=-1)
