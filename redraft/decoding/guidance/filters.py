"""Filters: which tokens may be drawn at all, and how sharply. One object, so that there is one order."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Context
from redraft.core.prediction import Denoiser, DenoiserWrapper, Prediction
from redraft.core.processes.interpolating import GuidedPosterior, StateLogProbs, reverse_log_probs
from redraft.core.vocab import ABOVE_ZERO, FINITE, require_range
from redraft.decoding.guidance.base import _CachedTokens, _split_cached_tokens


@dataclass(frozen=True)
class LogitFilter:
    """Changes what is said of each position, in this order, and normalises after each:

    1. `repetition`: tokens that the row has already get x̂^repetition; above 1 they are less likely. Given text counts,
       and so does whatever stands there: use it with mask noise;
    2. `temperature`: x̂^{1/temperature};
    3. `top_k`: only the k likeliest stay;
    4. `top_p`: only the fewest likeliest that sum to it stay (the nucleus);
    5. `min_p`: only those at least this share of the likeliest stay.

    At least one token stays, of equals those with the lowest index. Every sampler may ask the filtered denoiser; what a
    pick calls confidence is then the filtered probability, as in Dream. (The `temperature` of a pick comes after all
    filters and leaves confidence alone, as in LLaDA; only there it can be 0.) Mix guidance first, filter then, and
    obey rules (`Constrained`) last: a rule may need what a filter would drop, and gets it.
    """

    repetition: float = 1.0
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        require_range(self, ABOVE_ZERO, FINITE, "repetition", "temperature")
        require_range(self, 1, FINITE, "top_k")
        require_range(self, ABOVE_ZERO, 1, "top_p")
        require_range(self, 0, 1, "min_p")

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return denoise if self == LogitFilter() else _Filtering(denoise, self)

    def filtered(self, log_p: Tensor, seen: Tensor | None) -> Tensor:
        """(N, V) log-probabilities → those that are left, normalised; seen (N, V) bool: tokens of the row."""
        if seen is not None and self.repetition != 1:
            log_p = torch.where(seen, log_p * self.repetition, log_p).log_softmax(-1)
        if self.temperature != 1:
            above = log_p - log_p.amax(-1, keepdim=True)  # the likeliest stays at 0, however low the temperature
            log_p = (above / self.temperature).log_softmax(-1)
        if self.top_k is not None and self.top_k < log_p.shape[-1]:
            log_p = _only(log_p, ops.top_k_mask(log_p, self.top_k))
        if self.top_p < 1:
            log_p = _only(log_p, ops.nucleus_mask(log_p, self.top_p))
        if self.min_p > 0:
            log_p = _only(log_p, log_p.exp() >= self.min_p * log_p.amax(-1, keepdim=True).exp())
        return log_p


def _only(log_p: Tensor, kept: Tensor) -> Tensor:
    return log_p.masked_fill(~kept, -torch.inf).log_softmax(-1)


@dataclass(frozen=True)
class _Filtering(DenoiserWrapper):
    """The denoiser of a filter; its cache also remembers which tokens the row has."""

    filter: LogitFilter

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        before, context = _split_cached_tokens(context)
        pred = self.denoise(z, t, context)
        if pred.joint:
            raise ValueError("a filter around Constrained would break its rules; put Constrained outside the filter")
        if not pred.normalised:
            raise ValueError("free intensities (a Score head) cannot be filtered as probabilities; use Subs or Softmax")
        return FilteredPrediction(pred, self.filter, z, context.pad, before)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        before, context = _split_cached_tokens(context)
        after = self.denoise.absorb(z, context, t)
        if self.filter.repetition == 1 or after.cache is None:
            return after
        read = z if context.pad is None else z.masked_fill(context.pad, -1)
        return replace(
            after, cache=_CachedTokens(after.cache, read if before is None else torch.cat([before, read], 1))
        )


@dataclass(frozen=True, eq=False)
class FilteredPrediction(GuidedPosterior):
    """A prediction of which a filter has left something; the inner one is queried only where this one is."""

    inner: Prediction
    filter: LogitFilter
    z: Tensor  # (B, L)
    pad: Tensor | None  # (B, L) bool: no tokens of the row
    before: Tensor | None  # (B, places) ids of the cache; −1: padding

    @property
    def x(self) -> Tensor:
        everywhere = torch.ones_like(self.z, dtype=torch.bool)
        return self.at(everywhere).view(*self.z.shape, -1)

    def at(self, where: Tensor) -> Tensor:
        return self._filtered(self.inner.at(where), where)

    @property
    def steers(self) -> bool:
        return isinstance(self.inner, GuidedPosterior) and self.inner.steers

    def next_law(self, law: StateLogProbs, where: Tensor) -> Tensor:
        """x̂ of every branch is filtered, before it becomes a law of z_s."""
        return reverse_log_probs(self.inner, lambda log_x: law(self._filtered(log_x, where)), where)

    def _filtered(self, log_p: Tensor, where: Tensor) -> Tensor:
        if self.filter.repetition == 1:
            return self.filter.filtered(log_p, None)
        rows = where.nonzero()[:, 0]
        return self.filter.filtered(log_p, self._seen(log_p.shape[-1])[rows])

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        loss = -self.at(where).gather(-1, target[where][:, None]).squeeze(-1)
        return ops.scatter(loss, where)

    def _seen(self, size: int) -> Tensor:
        """(B, V) bool: the tokens that each row has."""
        tokens = self.z if self.pad is None else self.z.masked_fill(self.pad, -1)
        tokens = tokens if self.before is None else torch.cat([self.before, tokens], 1)
        seen = torch.zeros(len(tokens), size + 1, dtype=torch.bool, device=tokens.device)
        return seen.scatter(1, torch.where(tokens < 0, size, tokens), True)[:, :size]
