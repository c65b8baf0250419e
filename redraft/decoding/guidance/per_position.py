"""Guidance by a table of tokens per position: parts of speech, word classes, sets of allowed tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core.canvas import Context
from redraft.core.prediction import Denoiser, DenoiserWrapper, Prediction, VectorPrediction
from redraft.decoding.guidance.base import Guidance, _require_scale


@dataclass(frozen=True, eq=False)
class PositionClassifier(Guidance):
    """x̂_k·p(y_l | k)^γ at position l, normalized: a classifier of single tokens.

    −inf in `log_prob` forbids a token. A row of zeros leaves a position free, and positions from L on are free. This
    equals `TokenClassifier` for a classifier that factors over positions, without its V calls. Vectors: needs a network
    that also predicts tokens; x̂ becomes the mean of their vectors under the new weights, E[x | z, y]. With a causal
    network it is FUDGE (Yang & Klein 2021) with a discriminator of the current token alone.
    """

    log_prob: Tensor  # (L, V) log p(y_l | token) at each position
    scale: float = 1.0

    def __post_init__(self) -> None:
        _require_scale(self.scale)

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return denoise if self.scale == 0 else _PositionGuidedDenoiser(denoise, self)

    def reweight(self, log_x: Tensor, position: Tensor) -> Tensor:
        """Reweight and normalize (…, V) log-probabilities at positions (…)."""
        table = self.log_prob.to(log_x)
        free = (position >= len(table))[..., None]
        log_y = table[position.clamp(max=len(table) - 1)].masked_fill(free, 0.0)
        return (log_x + self.scale * log_y).log_softmax(-1)


@dataclass(frozen=True)
class _PositionGuidedDenoiser(DenoiserWrapper):
    classifier: PositionClassifier

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        pred = self.denoise.predict(z, t, context)
        vectors = pred.vectors
        if not pred.normalized or (vectors is not None and (vectors.log_weights is None or vectors.table is None)):
            raise ValueError(
                "PositionClassifier needs normalized token probabilities, which this network lacks; use GradientControl"
            )
        position = torch.arange(z.shape[1], device=z.device)[None] if context.positions is None else context.positions
        if vectors is None:
            return _PositionGuidedPrediction(pred, self.classifier, position.expand_as(z))
        return _reweighted_mean(vectors, self.classifier.reweight(vectors.log_weights, position.expand(z.shape[:2])))  # type: ignore[arg-type]


def _reweighted_mean(pred: VectorPrediction, log_weights: Tensor) -> VectorPrediction:
    """Return the prediction with new token weights, and x̂ as the mean of the token vectors under them."""
    assert pred.table is not None
    return replace(pred, mean=(log_weights.exp() @ pred.table).to(pred.mean.dtype), log_weights=log_weights)


@dataclass(frozen=True, eq=False)
class _PositionGuidedPrediction(Prediction):
    """A prediction reweighted at each position. The inner one is evaluated only at the positions queried here."""

    inner: Prediction
    classifier: PositionClassifier
    position: Tensor  # (B, L) position of each column in its row

    @property
    def x(self) -> Tensor:
        everywhere = torch.ones_like(self.position, dtype=torch.bool)
        return self.at(everywhere).view(*self.position.shape, -1)

    def at(self, where: Tensor) -> Tensor:
        return self.classifier.reweight(self.inner.at(where), self.position[where])
