"""Guidance by what each token says of its own place: parts of speech, kinds of words, sets of allowed tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Context
from redraft.core.prediction import Denoiser, DenoiserWrapper, Prediction, VectorPrediction
from redraft.decoding.guidance.base import _require_scale


@dataclass(frozen=True, eq=False)
class PositionClassifier:
    """x̂_k·p(y_l | k)^γ at place l, normalised: a classifier that looks at one token at a time.

    `log_prob` (L, V) says how well each token suits what is wanted at each place; −inf forbids it, 0 for all leaves a
    place free, and places from L on are free. For a factored classifier this is `TokenClassifier` without its V calls.
    Vectors, from networks that name tokens: x̂ is the mean of their vectors by these weights, E[x | z, y].
    With a causal network it is FUDGE (Yang & Klein 2021) whose discriminator judges the present token alone.
    """

    log_prob: Tensor
    scale: float = 1.0

    def __post_init__(self) -> None:
        _require_scale(self.scale)

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return denoise if self.scale == 0 else _Suited(denoise, self)

    def weighed(self, log_x: Tensor, place: Tensor) -> Tensor:
        """(…, V) log-probabilities at these places, (…) → the same weighed, normalised"""
        table = self.log_prob.to(log_x)
        said = table[place.clamp(max=len(table) - 1)].masked_fill((place >= len(table))[..., None], 0.0)
        return (log_x + self.scale * said).log_softmax(-1)


@dataclass(frozen=True)
class _Suited(DenoiserWrapper):
    wanted: PositionClassifier

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        pred = self.denoise(z, t, context)
        if not pred.normalised or (
            isinstance(pred, VectorPrediction) and (pred.log_weights is None or pred.table is None)
        ):
            raise ValueError("AtPlaces weighs probabilities of tokens, and this network predicts none; use Steer")
        place = torch.arange(z.shape[1], device=z.device)[None] if context.place is None else context.place
        if not isinstance(pred, VectorPrediction):
            return _PositionGuidedPrediction(pred, self.wanted, place.expand_as(z))
        return _mean_of_suited(pred, self.wanted.weighed(pred.log_weights, place.expand(z.shape[:2])))  # type: ignore[arg-type]


def _mean_of_suited(pred: VectorPrediction, log_weights: Tensor) -> VectorPrediction:
    """x̂ as the mean of the vectors of tokens, weighed anew: E[x | z, y]"""
    assert pred.table is not None
    return replace(pred, mean=(log_weights.exp() @ pred.table).to(pred.mean.dtype), log_weights=log_weights)


@dataclass(frozen=True, eq=False)
class _PositionGuidedPrediction(Prediction):
    """A prediction weighed place by place; the inner one is queried only where this one is."""

    inner: Prediction
    wanted: PositionClassifier
    place: Tensor  # (B, L)

    @property
    def x(self) -> Tensor:
        everywhere = torch.ones_like(self.place, dtype=torch.bool)
        return self.at(everywhere).view(*self.place.shape, -1)

    def at(self, where: Tensor) -> Tensor:
        return self.wanted.weighed(self.inner.at(where), self.place[where])

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        loss = -self.at(where).gather(-1, target[where][:, None]).squeeze(-1)
        return ops.scatter(loss, where)
