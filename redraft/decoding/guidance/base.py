"""The guidance protocol, and the mixing of two predictions and their caches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Cache, Canvas, Context
from redraft.core.prediction import Denoiser, Prediction
from redraft.core.processes.interpolating import StateLogProbs, reverse_log_probs


class Guidance(ABC):
    """A function that wraps a denoiser and returns the guided denoiser."""

    draws_exactly: ClassVar[bool] = True
    """Whether a draw from the guided prediction is one from the model that the guidance defines; a filter cuts it."""

    @abstractmethod
    def __call__(self, denoise: Denoiser) -> Denoiser:
        """Return the guided denoiser."""

    def prepared(self, canvas: Canvas) -> Canvas:
        """Return the canvas to start from, with what the guidance needs to know about it in its condition."""
        return canvas


def _require_scale(scale: float) -> None:
    if not scale >= 0:
        raise ValueError(f"scale={scale}; use 0 (unconditional), 1 (conditional) or more (exaggerated)")


def _mix_predictions(
    unconditional: Prediction, conditional: Prediction, scale: float, posteriors: bool = False
) -> Prediction:
    """Return (1 − γ)·unconditional + γ·conditional: mixes x̂ of vectors, or log-probabilities of tokens.

    Both are predictions of one denoiser, so they are of one kind.
    """
    before, after = unconditional.vectors, conditional.vectors
    if before is None:
        return _MixedPrediction(unconditional, conditional, scale, posteriors)
    assert after is not None
    mean = (1 - scale) * before.mean + scale * after.mean
    if before.log_weights is None:
        return replace(after, mean=mean)
    assert after.log_weights is not None
    return replace(after, mean=mean, log_weights=ops.extrapolate(before.log_weights, after.log_weights, scale))


@dataclass(frozen=True)
class _MixedPrediction(Prediction):
    """log x̂ = (1 − γ)·log x̂_unconditional + γ·log x̂_conditional + const, for two predictions of tokens.

    Both are evaluated only at the positions that are queried here.
    """

    unconditional: Prediction
    conditional: Prediction
    scale: float
    posteriors: bool = False  # whether to mix log p(z_s | z_t) instead of x̂ in steps of uniform and hybrid noise

    def __post_init__(self) -> None:
        if self.unconditional.joint or self.conditional.joint:
            raise ValueError("guidance around Constrained would break its rules; put Constrained outside the guidance")
        if not (self.unconditional.normalized and self.conditional.normalized):
            raise ValueError("a Score head predicts unnormalized ratios, which cannot be mixed; use Subs or Softmax")

    @property
    def steers(self) -> bool:
        return self.posteriors

    def next_log_probs(self, state_log_probs: StateLogProbs, where: Tensor) -> Tensor:
        start, end = (
            reverse_log_probs(pred, state_log_probs, where) for pred in (self.unconditional, self.conditional)
        )
        return ops.extrapolate(start, end, self.scale)

    @property
    def x(self) -> Tensor:
        return ops.extrapolate(self.unconditional.x, self.conditional.x, self.scale)

    def at(self, where: Tensor) -> Tensor:
        return ops.extrapolate(self.unconditional.at(where), self.conditional.at(where), self.scale)


@dataclass(frozen=True)
class _BranchCaches:
    """The caches of the two branches."""

    conditional: Cache
    unconditional: Cache

    @property
    def covers(self) -> Tensor:
        return self.conditional.covers

    @property
    def exact(self) -> bool:
        return self.conditional.exact and self.unconditional.exact

    def rows(self, index: Tensor) -> _BranchCaches:
        return _BranchCaches(self.conditional.rows(index), self.unconditional.rows(index))


def _split_caches(context: Context) -> tuple[Cache | None, Cache | None]:
    """Return the caches of the conditional and of the unconditional branch."""
    cache = context.cache
    return (cache.conditional, cache.unconditional) if isinstance(cache, _BranchCaches) else (cache, cache)


def _join_contexts(conditional: Context, unconditional: Context) -> Context:
    """Return the context with the caches of both branches, after both have absorbed the same tokens."""
    assert conditional.cache is not None
    assert unconditional.cache is not None
    return replace(conditional, cache=_BranchCaches(conditional.cache, unconditional.cache))


@dataclass(frozen=True)
class _CachedTokens:
    """A cache together with the ids of its tokens."""

    cache: Cache
    tokens: Tensor  # (B, positions) ids; −1 on padding

    @property
    def covers(self) -> Tensor:
        return self.cache.covers

    @property
    def exact(self) -> bool:
        return self.cache.exact

    def rows(self, index: Tensor) -> _CachedTokens:
        return _CachedTokens(self.cache.rows(index), self.tokens[index])


def _split_cached_tokens(context: Context) -> tuple[Tensor | None, Context]:
    """Return the ids of the cached tokens (None if there is no cache yet), and the context for the inner denoiser."""
    if not isinstance(context.cache, _CachedTokens):
        return None, context
    return context.cache.tokens, replace(context, cache=context.cache.cache)
