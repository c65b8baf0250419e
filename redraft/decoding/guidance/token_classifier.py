"""Guidance of tokens by a classifier of noisy text, exactly or to first order (Schiff et al. 2024, "D-CBG").

Mask noise: x̂_k·p(y | z with k at position l)^γ. With γ = 1 and the exact classifier this is p(x_l | z, y), and sampling
one token at a time draws from p(x | y) itself. Tokens of the same step are drawn independently, as without guidance.
Uniform and hybrid noise: p(z_s = k | z_t)·p(y | z_t with k at position l)^γ, as published: this guides the next state,
not x̂. With γ = 1, the exact classifier and ever smaller steps it also converges to p(x | y). The classifier must be
trained on noisy text, because it is evaluated on z.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core.canvas import Context
from redraft.core.ops import top_k_mask
from redraft.core.prediction import Denoiser, DenoiserWrapper, Prediction
from redraft.core.processes.interpolating import StateLogProbs, reverse_log_probs
from redraft.core.vocab import FINITE, require_range
from redraft.decoding.guidance.base import Guidance, _require_scale

_LogProb = Callable[[Tensor, Tensor, Context], Tensor]  # one-hot z (B, L, V) as floats, t, context → (B,) log p(y | z)
_MAX_ELEMENTS = 2**25  # elements of the one-hot input in one call of a classifier


@dataclass(frozen=True)
class TokenClassifier(Guidance):
    """x̂_k·p(y | z with k at position l)^γ, normalized: tries every token at every queried position.

    This takes V classifier evaluations per position, so it suits small vocabularies, or serves as the reference for
    `FirstOrderClassifier`. Tokens that are not among the `top` most likely ones, or have less than `least` times the
    highest probability, are excluded; where only one token is left, the classifier is not evaluated.
    """

    log_prob: _LogProb
    scale: float = 1.0
    posteriors: bool = True  # if False, reweights x̂ under uniform and hybrid noise too
    least: float = 0.0  # relative probability below which a token is excluded; 0 tries every token
    top: int | None = None  # number of tokens tried at a position; None for all

    def __post_init__(self) -> None:
        _require_scale(self.scale)
        require_range(self, 0, 1, "least")
        if self.top is not None:
            require_range(self, 1, FINITE, "top")

    def __call__(self, denoise: Denoiser) -> Denoiser:
        if self.scale == 0:
            return denoise
        log_odds = partial(_exact_log_odds, least=self.least, top=self.top)
        return _ClassifierGuidedDenoiser(denoise, self.scale, self.log_prob, log_odds, self.posteriors)


@dataclass(frozen=True)
class FirstOrderClassifier(Guidance):
    """`TokenClassifier` to first order: one gradient in the one-hot z covers all tokens and positions.

    It is exact for a classifier whose log-probability is linear in the one-hot tokens.
    """

    log_prob: _LogProb
    scale: float = 1.0
    posteriors: bool = True  # if False, reweights x̂ under uniform and hybrid noise too

    def __post_init__(self) -> None:
        _require_scale(self.scale)

    def __call__(self, denoise: Denoiser) -> Denoiser:
        if self.scale == 0:
            return denoise
        return _ClassifierGuidedDenoiser(denoise, self.scale, self.log_prob, _first_order_log_odds, self.posteriors)


# (log_prob, z, t, context, where, log_p (N, V)) → (N, V) log p(y | z with each token), up to a constant per position
_LogOdds = Callable[[_LogProb, Tensor, Tensor, Context, Tensor, Tensor], Tensor]


def _exact_log_odds(
    log_prob: _LogProb,
    z: Tensor,
    t: Tensor,
    context: Context,
    where: Tensor,
    log_p: Tensor,
    least: float = 0.0,
    top: int | None = None,
) -> Tensor:
    """Return (N, V) log p(y | z with each token at each queried position), −∞ for excluded tokens.

    Where only one token is left, its entry is 0.
    """
    rows, columns = where.nonzero(as_tuple=True)
    likely = log_p >= log_p.amax(-1, keepdim=True) + (math.log(least) if least else -math.inf)
    if top is not None:
        likely &= top_k_mask(log_p, top)
    log_odds = torch.where(likely, 0.0, -math.inf).to(log_p.device)
    position, token = (likely & (likely.sum(-1, keepdim=True) > 1)).nonzero(as_tuple=True)
    if not len(position):
        return log_odds
    log_y, size = [], log_p.shape[-1]
    for part in torch.arange(len(position), device=z.device).split(max(1, _MAX_ELEMENTS // (z.shape[1] * size))):
        index = rows[position[part]]
        candidates = z[index].scatter(1, columns[position[part]][:, None], token[part][:, None])
        times = t.expand(len(z), -1)[index]
        log_y.append(log_prob(F.one_hot(candidates, size).float(), times, context.rows(index)).to(log_odds.dtype))
    return log_odds.index_put((position, token), torch.cat(log_y))


def _first_order_log_odds(
    log_prob: _LogProb, z: Tensor, t: Tensor, context: Context, where: Tensor, log_p: Tensor
) -> Tensor:
    """Return (N, V) ∂ log p(y | z)/∂(one-hot z).

    The terms of the current token are the same for all candidates, so they cancel in the normalization.
    """
    with torch.enable_grad():
        x = F.one_hot(z, log_p.shape[-1]).float().requires_grad_()
        return torch.autograd.grad(log_prob(x, t, context).sum(), x)[0][where]


@dataclass(frozen=True)
class _ClassifierGuidedDenoiser(DenoiserWrapper):
    scale: float
    log_prob: _LogProb
    log_odds: _LogOdds
    posteriors: bool

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        pred = self.denoise.predict(z, t, context)
        if not pred.normalized:
            raise ValueError("a Score head predicts unnormalized ratios, which cannot be guided; use Subs or Softmax")
        return _ClassifierGuidedPrediction(pred, self, z, t, context)


@dataclass(frozen=True, eq=False)
class _ClassifierGuidedPrediction(Prediction):
    """A prediction reweighted by a classifier. Both are evaluated only at the positions that are queried here."""

    inner: Prediction
    guidance: _ClassifierGuidedDenoiser
    z: Tensor
    t: Tensor
    context: Context

    @property
    def x(self) -> Tensor:
        everywhere = torch.ones_like(self.z, dtype=torch.bool)
        return self.at(everywhere).view(*self.z.shape, -1)

    @property
    def steers(self) -> bool:
        return self.guidance.posteriors

    def at(self, where: Tensor) -> Tensor:
        return self._reweight(self.inner.at(where), where)

    def next_log_probs(self, state_log_probs: StateLogProbs, where: Tensor) -> Tensor:
        return self._reweight(reverse_log_probs(self.inner, state_log_probs, where), where)

    def _reweight(self, log_p: Tensor, where: Tensor) -> Tensor:
        log_odds = self.guidance.log_odds(self.guidance.log_prob, self.z, self.t, self.context, where, log_p)
        return (log_p + self.guidance.scale * log_odds.to(log_p.dtype)).log_softmax(-1)
