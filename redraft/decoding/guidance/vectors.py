"""Guidance of vectors: by the gradient of a classifier, or by keeping x̂ where vectors of tokens are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core.canvas import Context
from redraft.core.prediction import Denoiser, DenoiserWrapper, Prediction, VectorPrediction
from redraft.core.processes.gaussian import Gaussian


@dataclass(frozen=True)
class GradientClassifier:
    """x̂ + γ·(s²/a)·∇_z log p(y | z, t): with the exact classifier of noisy z and γ = 1 this is E[x | z, y].

    In other words ∇log q + γ·∇log p(y | z) (Dhariwal & Nichol 2021, §4.2). The classifier must be trained on noisy z at
    all times t; for a classifier of clean x see `DenoisedClassifier`.
    """

    log_prob: Callable[[Tensor, Tensor, Context], Tensor]  # (z, t, context) → (B,) log p(y | z)
    process: Gaussian
    scale: float = 1.0

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return _Shifted(denoise, self.process, self.scale, self.slope)

    def slope(self, denoise: Denoiser, z: Tensor, t: Tensor, context: Context) -> tuple[VectorPrediction, Tensor]:
        """The prediction of x, and ∇_z log p(y | z)."""
        pred = _vectors(denoise(z, t, context))
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            return pred, torch.autograd.grad(self.log_prob(z, t, context).sum(), z)[0]


@dataclass(frozen=True)
class DenoisedClassifier:
    """x̂ + γ·(s²/a)·∇_z log p(y | x̂(z)): a classifier of clean x, differentiated through the denoiser.

    Exact where z determines x; an approximation elsewhere, since p(y | z) is the mean of p(y | x), not its value at the
    mean (Chung et al. 2023, "DPS"). Each call costs a backward pass through the network.
    """

    log_prob: Callable[[Tensor, Context], Tensor]  # (x, context) → (B,) log p(y | x)
    process: Gaussian
    scale: float = 1.0

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return _Shifted(denoise, self.process, self.scale, self.slope)

    def slope(self, denoise: Denoiser, z: Tensor, t: Tensor, context: Context) -> tuple[VectorPrediction, Tensor]:
        """The prediction of x, and ∇_z log p(y | x̂(z))."""
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            pred = _vectors(denoise(z, t, context))
            slope = torch.autograd.grad(self.log_prob(pred.mean, context).sum(), z)[0]
        return _detached(pred), slope


@dataclass(frozen=True)
class _Shifted(DenoiserWrapper):
    """A denoiser that moves x̂ along a slope; given places, where s = 0, do not move."""

    process: Gaussian
    scale: float
    slope: Callable[[Denoiser, Tensor, Tensor, Context], tuple[VectorPrediction, Tensor]]

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        if self.scale == 0:
            return self.denoise(z, t, context)
        pred, slope = self.slope(self.denoise, z, t, context)
        signal, noise = self.process.path.scales(t[..., None])
        shift = self.scale * noise**2 / signal * slope
        return replace(pred, mean=pred.mean + shift.to(pred.mean.dtype))


def _vectors(pred: Prediction) -> VectorPrediction:
    if not isinstance(pred, VectorPrediction):
        raise ValueError(f"{type(pred).__name__} is a prediction of tokens; gradients only guide vectors (Gaussian)")
    return pred


def _detached(pred: VectorPrediction) -> VectorPrediction:
    names = ("mean", "log_weights", "spread", "table")
    return replace(pred, **{name: a.detach() for name in names if (a := getattr(pred, name)) is not None})


@dataclass(frozen=True)
class ProjectedDenoiser:
    """x̂ → project(x̂) from the time `since` on: clamping to embeddings (Diffusion-LM), thresholds, norms.

    Clamping, `ProjectedDenoiser(codec.project)`, commits to words and lowers rounding errors, at the price of diversity:
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
class _Kept(DenoiserWrapper):
    guidance: ProjectedDenoiser

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        pred, late = _vectors(self.denoise(z, t, context)), t > self.guidance.since
        if bool(late.all()):
            return pred
        return replace(pred, mean=torch.where(late[..., None], pred.mean, self.guidance.project(pred.mean)))


@dataclass(frozen=True)
class DynamicThreshold:
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
class UnitNorm:
    """A projection: scales every place to the norm √D, as latents normalised that way have it (LD4LG)."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.shape[-1] ** 0.5 * F.normalize(x, dim=-1)
