"""Guidance of vectors: by the gradient of a classifier, or by projecting x̂ (clamping, thresholding, norms)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core.canvas import Context
from redraft.core.prediction import Denoiser, DenoiserWrapper, Prediction, VectorPrediction
from redraft.core.processes.gaussian import Gaussian
from redraft.decoding.guidance.base import Guidance


@dataclass(frozen=True)
class GradientClassifier(Guidance):
    """x̂ + γ·(s²/a)·∇_z log p(y | z, t), where z = a·x + s·ε.

    With γ = 1 and the exact classifier of noisy z this is E[x | z, y]. In terms of scores it is ∇log q + γ·∇log p(y |
    z) (Dhariwal & Nichol 2021, §4.2). The classifier must be trained on noisy z at all times t; for a classifier of
    clean x use `DenoisedClassifier`.
    """

    log_prob: Callable[[Tensor, Tensor, Context], Tensor]  # (z, t, context) → (B,) log p(y | z)
    process: Gaussian
    scale: float = 1.0

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return _GradientGuidedDenoiser(denoise, self.process, self.scale, self._predict_with_gradient)

    def _predict_with_gradient(
        self, denoise: Denoiser, z: Tensor, t: Tensor, context: Context
    ) -> tuple[VectorPrediction, Tensor]:
        """Return the prediction of x, and ∇_z log p(y | z)."""
        pred = _require_vectors(denoise.predict(z, t, context))
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            return pred, torch.autograd.grad(self.log_prob(z, t, context).sum(), z)[0]


@dataclass(frozen=True)
class DenoisedClassifier(Guidance):
    """x̂ + γ·(s²/a)·∇_z log p(y | x̂(z)): a classifier of clean x, differentiated through the denoiser.

    It is exact where z determines x, and an approximation elsewhere: p(y | z) is the mean of p(y | x), not its value at
    the mean of x (Chung et al. 2023, "DPS"). Each call takes a backward pass through the network.
    """

    log_prob: Callable[[Tensor, Context], Tensor]  # (x, context) → (B,) log p(y | x)
    process: Gaussian
    scale: float = 1.0

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return _GradientGuidedDenoiser(denoise, self.process, self.scale, self._predict_with_gradient)

    def _predict_with_gradient(
        self, denoise: Denoiser, z: Tensor, t: Tensor, context: Context
    ) -> tuple[VectorPrediction, Tensor]:
        """Return the prediction of x, and ∇_z log p(y | x̂(z))."""
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            pred = _require_vectors(denoise.predict(z, t, context))
            gradient = torch.autograd.grad(self.log_prob(pred.mean, context).sum(), z)[0]
        return _detach(pred), gradient


@dataclass(frozen=True)
class _GradientGuidedDenoiser(DenoiserWrapper):
    """A denoiser that moves x̂ along a gradient; given positions have s = 0 and do not move."""

    process: Gaussian
    scale: float
    with_gradient: Callable[[Denoiser, Tensor, Tensor, Context], tuple[VectorPrediction, Tensor]]

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        if self.scale == 0:
            return self.denoise.predict(z, t, context)
        pred, gradient = self.with_gradient(self.denoise, z, t, context)
        signal, noise = self.process.path.scales(t[..., None])
        shift = self.scale * noise**2 / signal * gradient
        return replace(pred, mean=pred.mean + shift.to(pred.mean.dtype))


def _require_vectors(pred: Prediction) -> VectorPrediction:
    if pred.vectors is None:
        raise ValueError(
            f"{type(pred).__name__} is a prediction of tokens; this guidance is only for vectors (Gaussian)"
        )
    return pred.vectors


def _detach(pred: VectorPrediction) -> VectorPrediction:
    names = ("mean", "log_weights", "spread", "table")
    return replace(pred, **{name: a.detach() for name in names if (a := getattr(pred, name)) is not None})


@dataclass(frozen=True)
class ProjectedDenoiser(Guidance):
    """Replaces x̂ by project(x̂) at all times t ≤ `since`: clamping to embeddings (Diffusion-LM), thresholds, norms.

    Clamping, `ProjectedDenoiser(codec.project)`, commits to words and reduces rounding errors, but also diversity:
    frequent words become more frequent. Put other guidance inside: mix first, then project.
    """

    project: Callable[[Tensor], Tensor]
    since: float = 1.0  # time at which projection begins; 1 is the first step

    def __post_init__(self) -> None:
        if not 0 < self.since <= 1:
            raise ValueError(f"since={self.since}; it must be above 0 and at most 1 (the first step)")

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return _ProjectingDenoiser(denoise, self)


@dataclass(frozen=True)
class _ProjectingDenoiser(DenoiserWrapper):
    guidance: ProjectedDenoiser

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        pred, unchanged = _require_vectors(self.denoise.predict(z, t, context)), t > self.guidance.since
        if bool(unchanged.all()):
            return pred
        return replace(pred, mean=torch.where(unchanged[..., None], pred.mean, self.guidance.project(pred.mean)))


@dataclass(frozen=True)
class DynamicThreshold:
    """Projection: dynamic thresholding (Saharia et al. 2022), for latents bounded by `limit`, as PLANNER's are by tanh.

    Let q be the `quantile` of |x̂|, but at least `limit`: coordinates are clipped to [−q, q] and scaled by
    limit/q. The quantile is taken over the coordinates of each position, so positions and rows do not affect each
    other.
    """

    quantile: float = 0.995  # level of the quantile, from 0 to 1
    limit: float = 1.0

    def __call__(self, x: Tensor) -> Tensor:
        quantile = x.abs().quantile(self.quantile, dim=-1, keepdim=True).clamp(min=self.limit)
        return x.clamp(-quantile, quantile) * (self.limit / quantile)


@dataclass(frozen=True)
class UnitNorm:
    """Projection: scales each position to the norm √D, for latents normalized to it (LD4LG)."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.shape[-1] ** 0.5 * F.normalize(x, dim=-1)
