"""Guidance by what each token says of its own place: parts of speech, kinds of words, sets of allowed tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from redraft import ops
from redraft.guidance.base import require_scale
from redraft.types import Around, Context, Denoiser, Mean, Prediction


@dataclass(frozen=True, eq=False)
class AtPlaces:
    """x̂_k·p(y_l | k)^γ at place l, normalised: a classifier that looks at one token at a time.

    `log_prob` (L, V) says how well each token suits what is wanted at each place; −inf forbids it, 0 for all leaves a
    place free, and places from L on are free. For a factored classifier this is `TokenClassifier` without its V calls.
    With a causal network it is FUDGE (Yang & Klein 2021) whose discriminator judges the present token alone.
    """

    log_prob: Tensor
    scale: float = 1.0

    def __post_init__(self) -> None:
        require_scale(self.scale)

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return denoise if self.scale == 0 else _Suited(denoise, self)


@dataclass(frozen=True)
class _Suited(Around):
    wanted: AtPlaces

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        pred = self.denoise(z, t, context)
        if isinstance(pred, Mean) or not pred.normalised:
            raise ValueError("AtPlaces weighs probabilities of tokens, and this network predicts none; use Steer")
        place = torch.arange(z.shape[1], device=z.device)[None] if context.place is None else context.place
        return Suited(pred, self.wanted, place.expand_as(z))


@dataclass(frozen=True, eq=False)
class Suited(Prediction):
    """A prediction weighed place by place; the inner one is queried only where this one is."""

    inner: Prediction
    wanted: AtPlaces
    place: Tensor  # (B, L)

    @property
    def x(self) -> Tensor:
        everywhere = torch.ones_like(self.place, dtype=torch.bool)
        return self.at(everywhere).view(*self.place.shape, -1)

    def at(self, where: Tensor) -> Tensor:
        log_x, at = self.inner.at(where), self.place[where]
        table = self.wanted.log_prob.to(log_x)
        said = table[at.clamp(max=len(table) - 1)].masked_fill((at >= len(table))[:, None], 0.0)
        return (log_x + self.wanted.scale * said).log_softmax(-1)

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        loss = -self.at(where).gather(-1, target[where][:, None]).squeeze(-1)
        return ops.spread(loss, where)
