"""What guidance is, and two branches of one network as one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Cache, Context
from redraft.core.prediction import Denoiser, Prediction, VectorPrediction
from redraft.core.processes.interpolating import GuidedPosterior, StateLogProbs, reverse_log_probs


class Guidance(Protocol):
    """Denoiser → denoiser."""

    def __call__(self, denoise: Denoiser) -> Denoiser: ...


def _require_scale(scale: float) -> None:
    if not scale >= 0:
        raise ValueError(f"scale={scale}; use 0 (unconditional), 1 (conditional) or more (exaggerated)")


def _mix_predictions(without: Prediction, given: Prediction, scale: float, posteriors: bool = False) -> Prediction:
    """(1 − γ)·without + γ·given: x̂ of vectors, log-probabilities of tokens."""
    if not (isinstance(without, VectorPrediction) and isinstance(given, VectorPrediction)):
        return MixedPrediction(without, given, scale, posteriors)
    mean = (1 - scale) * without.mean + scale * given.mean
    if without.log_weights is None or given.log_weights is None:
        return replace(given, mean=mean)
    return replace(given, mean=mean, log_weights=ops.extrapolate(without.log_weights, given.log_weights, scale))


@dataclass(frozen=True)
class MixedPrediction(GuidedPosterior):
    """log x̂ ∝ (1 − γ)·start + γ·end for two predictions of tokens, which are queried only where this one is.

    With `posteriors` the same for log p(z_s | z_t), in steps of uniform and hybrid noise.
    """

    start: Prediction
    end: Prediction
    scale: float
    posteriors: bool = False

    def __post_init__(self) -> None:
        if self.start.joint or self.end.joint:
            raise ValueError("guidance around Constrained would break its rules; put Constrained outside")
        if not (self.start.normalised and self.end.normalised):
            raise ValueError("free intensities (a Score head) cannot be mixed as probabilities; use Subs or Softmax")

    @property
    def steers(self) -> bool:
        return self.posteriors

    def next_law(self, law: StateLogProbs, where: Tensor) -> Tensor:
        without, given = (reverse_log_probs(pred, law, where) for pred in (self.start, self.end))
        return ops.extrapolate(without, given, self.scale)

    @property
    def x(self) -> Tensor:
        return ops.extrapolate(self.start.x, self.end.x, self.scale)

    def at(self, where: Tensor) -> Tensor:
        return ops.extrapolate(self.start.at(where), self.end.at(where), self.scale)

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        loss = -self.at(where).gather(-1, target[where][:, None]).squeeze(-1)
        return loss.new_zeros(where.shape).masked_scatter(where, loss)


@dataclass(frozen=True)
class _BranchCaches:
    """What each branch remembers about finished windows."""

    given: Cache
    without: Cache

    @property
    def covers(self) -> Tensor:
        return self.given.covers

    @property
    def exact(self) -> bool:
        return self.given.exact and self.without.exact

    def rows(self, index: Tensor) -> _BranchCaches:
        return _BranchCaches(self.given.rows(index), self.without.rows(index))


def _split_caches(context: Context) -> tuple[Cache | None, Cache | None]:
    """The cache of the branch with its condition, and of the one without."""
    own = context.cache
    return (own.given, own.without) if isinstance(own, _BranchCaches) else (own, own)


def _join_contexts(given: Context, without: Context) -> Context:
    """The context of two branches that have both absorbed a window."""
    assert given.cache is not None
    assert without.cache is not None
    return replace(given, cache=_BranchCaches(given.cache, without.cache))


@dataclass(frozen=True)
class _CachedTokens:
    """A cache, and the ids that are in it."""

    cache: Cache
    tokens: Tensor  # (B, places) ids; −1: padding

    @property
    def covers(self) -> Tensor:
        return self.cache.covers

    @property
    def exact(self) -> bool:
        return self.cache.exact

    def rows(self, index: Tensor) -> _CachedTokens:
        return _CachedTokens(self.cache.rows(index), self.tokens[index])


def _split_cached_tokens(context: Context) -> tuple[Tensor | None, Context]:
    """The tokens that were read before, and the context as the inner denoiser knows it."""
    if not isinstance(context.cache, _CachedTokens):
        return None, context
    return context.cache.tokens, replace(context, cache=context.cache.cache)
