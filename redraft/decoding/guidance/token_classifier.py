"""Guidance of tokens by a classifier of noisy text, exactly or to first order (Schiff et al. 2024, "D-CBG").

Mask noise: x̂_k·p(y | z with k here)^γ. At γ = 1 and with the exact classifier that is what is known of x_l given z
*and* y, and one token at a time samples p(x | y) itself. Several tokens at once are drawn as if they had nothing to do
with each other, as ever.
Uniform and hybrid noise: p(z_s = k | z_t)·p(y | z_t with k here)^γ, as published: the next state is guided, not x̂. With
γ = 1, the exact classifier and ever smaller steps that is p(x | y) again.
The classifier must know noise: it is asked about noisy text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Context
from redraft.core.prediction import Denoiser, DenoiserWrapper, Prediction
from redraft.core.processes.interpolating import GuidedPosterior, StateLogProbs, reverse_log_probs
from redraft.core.vocab import require_range
from redraft.decoding.guidance.base import _require_scale

_LogProb = Callable[[Tensor, Tensor, Context], Tensor]  # one-hot z (B, L, V) as floats, t, context → (B,) log p(y | z)
_AT_ONCE = 2**25  # numbers of one-hot vectors that a classifier reads in one call


@dataclass(frozen=True)
class TokenClassifier:
    """x̂_k·p(y | z with k here)^γ, normalised: every token is tried at every position that is asked for.

    V calls of the classifier per position: for small vocabularies, or as the truth that `FirstOrderClassifier` is held to. Tokens
    below `least` times the likeliest are not tried and not written: where one word is certain, nothing is asked.
    """

    log_prob: _LogProb
    scale: float = 1.0
    posteriors: bool = True  # False: weighs x̂ under uniform and hybrid noise too
    least: float = 0.0  # 0: every token is tried

    def __post_init__(self) -> None:
        _require_scale(self.scale)
        require_range(self, 0, 1, "least")

    def __call__(self, denoise: Denoiser) -> Denoiser:
        odds = partial(_tried, least=self.least)
        return denoise if self.scale == 0 else _Steering(denoise, self.scale, self.log_prob, odds, self.posteriors)


@dataclass(frozen=True)
class FirstOrderClassifier:
    """The same with log p(y | z with k here) ≈ log p(y | z) + ∂/∂k: one gradient for all tokens and positions.

    Exact for a classifier whose log-probability is linear in the one-hot tokens.
    """

    log_prob: _LogProb
    scale: float = 1.0
    posteriors: bool = True  # False: weighs x̂ under uniform and hybrid noise too

    def __post_init__(self) -> None:
        _require_scale(self.scale)

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return denoise if self.scale == 0 else _Steering(denoise, self.scale, self.log_prob, _slopes, self.posteriors)


_LogOdds = Callable[[_LogProb, Tensor, Tensor, Context, Tensor, Tensor], Tensor]


def _tried(
    log_prob: _LogProb, z: Tensor, t: Tensor, context: Context, where: Tensor, log_p: Tensor, least: float = 0.0
) -> Tensor:
    """(N, V) log p(y | z with each token at each marked position); −∞ for tokens that are not tried"""
    rows, columns = where.nonzero(as_tuple=True)
    worth = log_p >= log_p.amax(-1, keepdim=True) + (math.log(least) if least else -math.inf)
    odds = torch.where(worth, 0.0, -math.inf).to(log_p.device)
    place, token = (worth & (worth.sum(-1, keepdim=True) > 1)).nonzero(as_tuple=True)  # the only one needs no judge
    if not len(place):
        return odds
    found, size = [], log_p.shape[-1]
    for some in torch.arange(len(place), device=z.device).split(max(1, _AT_ONCE // (z.shape[1] * size))):
        index = rows[place[some]]
        tried = z[index].scatter(1, columns[place[some]][:, None], token[some][:, None])
        times = t.expand(len(z), -1)[index]
        found.append(log_prob(F.one_hot(tried, size).float(), times, context.rows(index)).to(odds.dtype))
    return odds.index_put((place, token), torch.cat(found))


def _slopes(log_prob: _LogProb, z: Tensor, t: Tensor, context: Context, where: Tensor, log_p: Tensor) -> Tensor:
    """(N, V) ∂ log p(y | z)/∂ one-hot z; what stands there now is the same for all tokens and does not count"""
    with torch.enable_grad():
        x = F.one_hot(z, log_p.shape[-1]).float().requires_grad_()
        return torch.autograd.grad(log_prob(x, t, context).sum(), x)[0][where]


@dataclass(frozen=True)
class _Steering(DenoiserWrapper):
    scale: float
    log_prob: _LogProb
    odds: _LogOdds
    posteriors: bool

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        pred = self.denoise(z, t, context)
        if not pred.normalised:
            raise ValueError("free intensities (a Score head) cannot be guided as probabilities; use Subs or Softmax")
        return _ClassifierGuidedPrediction(pred, self, z, t, context)


@dataclass(frozen=True, eq=False)
class _ClassifierGuidedPrediction(GuidedPosterior):
    """A prediction that a classifier weighs; both are asked only where somebody asks."""

    inner: Prediction
    by: _Steering
    z: Tensor
    t: Tensor
    context: Context

    @property
    def x(self) -> Tensor:
        everywhere = torch.ones_like(self.z, dtype=torch.bool)
        return self.at(everywhere).view(*self.z.shape, -1)

    @property
    def steers(self) -> bool:
        return self.by.posteriors

    def at(self, where: Tensor) -> Tensor:
        return self._weighed(self.inner.at(where), where)

    def next_law(self, law: StateLogProbs, where: Tensor) -> Tensor:
        return self._weighed(reverse_log_probs(self.inner, law, where), where)

    def _weighed(self, log_p: Tensor, where: Tensor) -> Tensor:
        odds = self.by.odds(self.by.log_prob, self.z, self.t, self.context, where, log_p)
        return (log_p + self.by.scale * odds.to(log_p.dtype)).log_softmax(-1)

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        loss = -self.at(where).gather(-1, target[where][:, None]).squeeze(-1)
        return ops.scatter(loss, where)
