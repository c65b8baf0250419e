"""Logit filters (bias, penalties, temperature, top-k, top-p, min-p) in one object, applied in a fixed order."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Denoiser, DenoiserWrapper, Prediction
from redraft.core.processes.interpolating import StateLogProbs, reverse_log_probs
from redraft.core.vocab import ABOVE_ZERO, FINITE, require_range
from redraft.decoding.guidance.base import Guidance, _CachedTokens, _split_cached_tokens


@dataclass(frozen=True)
class LogitFilter(Guidance):
    """Filters the distribution at each position, in this order, and normalizes after each filter:

    1. `repetition`: tokens already in the row get x̂^repetition, so above 1 they become less likely. Every token of z
       counts, prompts and noise included: use it with mask noise;
    2. `bias`, `frequency`, `presence`: log x̂ + bias − frequency·c − presence·[c > 0], where c is how often the token
       was already written, without the prompt. For causal models these are OpenAI's `logit_bias`, `frequency_penalty`
       and `presence_penalty`; elsewhere tokens written later in the row count too, and tokens of the same step do not
       see each other. Mask noise only, and not for insertion;
    3. `temperature`: x̂^{1/temperature};
    4. `top_k`: keep only the k most likely tokens;
    5. `top_p`: keep only the smallest set of most likely tokens whose probabilities reach `top_p` (the nucleus);
    6. `min_p`: keep only tokens with at least this fraction of the highest probability.

    At least one token is kept. `top_k` and `top_p` break ties in favor of the lowest id. Any sampler can use the
    filtered denoiser; picks then see the filtered probabilities as confidence, as in Dream. The `temperature` of a pick
    is applied after all filters and does not change confidence, as in LLaDA; only that one can be 0. Apply other
    guidance first, the filter next, and constraints (`Constrained`) last: a rule can then still use a token that the
    filter would drop.
    """

    repetition: float = 1.0
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    frequency: float = 0.0
    presence: float = 0.0
    bias: tuple[tuple[int, float], ...] = ()  # ids and what is added to their log-probabilities
    draws_exactly = False

    def __post_init__(self) -> None:
        require_range(self, ABOVE_ZERO, FINITE, "repetition", "temperature")
        require_range(self, 1, FINITE, "top_k")
        require_range(self, ABOVE_ZERO, 1, "top_p")
        require_range(self, 0, 1, "min_p")
        require_range(self, -FINITE, FINITE, "frequency", "presence")

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return denoise if self == LogitFilter() else _FilteredDenoiser(denoise, self)

    @property
    def penalizes(self) -> bool:
        """Whether it counts how often each token was written."""
        return self.frequency != 0 or self.presence != 0

    def prepared(self, canvas: Canvas) -> Canvas:
        """The canvas, with its prompt in the condition if penalties need to leave it out."""
        if not self.penalizes:
            return canvas
        return replace(canvas, context=canvas.context.with_condition(given=canvas.fixed))

    def apply(self, log_p: Tensor, seen: Tensor | None, written: Tensor | None = None) -> Tensor:
        """Filter (N, V) log-probabilities and normalize them.

        seen: (N, V) bool, tokens already in the row; written: (N, V) how often each was written; None if not needed.
        """
        if seen is not None and self.repetition != 1:
            log_p = torch.where(seen, log_p * self.repetition, log_p).log_softmax(-1)
        if self.bias:
            ids, values = zip(*self.bias, strict=True)
            log_p = log_p.index_add(
                -1, torch.tensor(ids, device=log_p.device), log_p.new_tensor(values)[None].expand(len(log_p), -1)
            )
        if written is not None:
            log_p = log_p - self.frequency * written - self.presence * (written > 0)
        if self.bias or written is not None:
            log_p = log_p.log_softmax(-1)
        if self.temperature != 1:
            shifted = log_p - log_p.amax(-1, keepdim=True)  # the maximum stays 0 at any temperature: no overflow
            log_p = (shifted / self.temperature).log_softmax(-1)
        if self.top_k is not None and self.top_k < log_p.shape[-1]:
            log_p = _keep_only(log_p, ops.top_k_mask(log_p, self.top_k))
        if self.top_p < 1:
            log_p = _keep_only(log_p, ops.nucleus_mask(log_p, self.top_p))
        if self.min_p > 0:
            log_p = _keep_only(log_p, log_p.exp() >= self.min_p * log_p.amax(-1, keepdim=True).exp())
        return log_p


def _keep_only(log_p: Tensor, mask: Tensor) -> Tensor:
    return log_p.masked_fill(~mask, -torch.inf).log_softmax(-1)


@dataclass(frozen=True)
class _FilteredDenoiser(DenoiserWrapper):
    """The filtered denoiser; for penalties its cache also holds the ids of the cached tokens."""

    filter: LogitFilter

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        cached, context = _split_cached_tokens(context)
        pred = self.denoise.predict(z, t, context)
        if pred.joint:
            raise ValueError("a filter around Constrained would break its rules; put Constrained outside the filter")
        if not pred.normalized:
            raise ValueError("a Score head predicts unnormalized ratios, which cannot be filtered; use Subs or Softmax")
        return _FilteredPrediction(pred, self.filter, z, context, cached)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        cached, context = _split_cached_tokens(context)
        after = self.denoise.absorb(z, context, t)
        if (self.filter.repetition == 1 and not self.filter.penalizes) or after.cache is None:
            return after
        tokens = z if context.pad is None else z.masked_fill(context.pad, -1)
        given = _given_columns(context, z)
        tokens = tokens if given is None else torch.where(given & (tokens >= 0), _as_given(tokens), tokens)
        tokens = tokens if cached is None else torch.cat([cached, tokens], 1)
        return replace(after, cache=_CachedTokens(after.cache, tokens))


def _as_given(tokens: Tensor) -> Tensor:
    """Ids of the prompt as negative numbers below −1, so that penalties can leave them out; its own inverse."""
    return -2 - tokens


def _given_columns(context: Context, z: Tensor) -> Tensor | None:
    """(B, L) bool: columns of z that belong to the prompt; None if no penalty needs them."""
    given, positions = context.condition.given, context.positions
    if given is None:
        return None
    if positions is None:
        return given[:, : z.shape[1]]
    return given.gather(1, positions.expand(len(z), -1).clamp(max=given.shape[1] - 1))


@dataclass(frozen=True, eq=False)
class _FilteredPrediction(Prediction):
    """A filtered prediction. The inner prediction is evaluated only at the positions that are queried here."""

    inner: Prediction
    filter: LogitFilter
    z: Tensor  # (B, L) ids
    context: Context
    cached: (
        Tensor | None
    )  # (B, positions) cached tokens, −1 on padding, `_as_given` in the prompt; None without a cache

    @property
    def x(self) -> Tensor:
        everywhere = torch.ones_like(self.z, dtype=torch.bool)
        return self.at(everywhere).view(*self.z.shape, -1)

    def at(self, where: Tensor) -> Tensor:
        return self._apply(self.inner.at(where), where)

    @property
    def steers(self) -> bool:
        return self.inner.steers

    def next_log_probs(self, state_log_probs: StateLogProbs, where: Tensor) -> Tensor:
        """Filter x̂ of every branch before the process turns it into a distribution of z_s."""
        return reverse_log_probs(self.inner, lambda log_x: state_log_probs(self._apply(log_x, where)), where)

    def _apply(self, log_p: Tensor, where: Tensor) -> Tensor:
        rows, size = where.nonzero()[:, 0], log_p.shape[-1]
        seen = None if self.filter.repetition == 1 else (self._counts(size, prompt=True) > 0)[rows]
        return self.filter.apply(log_p, seen, self._counts(size)[rows] if self.filter.penalizes else None)

    def _counts(self, size: int, *, prompt: bool = False) -> Tensor:
        """(B, V) how often each token occurs in the row, with or without the prompt."""
        tokens = self.z if self.context.pad is None else self.z.masked_fill(self.context.pad, -1)
        given = _given_columns(self.context, self.z)
        tokens = tokens if given is None else torch.where(given & (tokens >= 0), _as_given(tokens), tokens)
        tokens = tokens if self.cached is None else torch.cat([self.cached, tokens], 1)
        tokens = torch.where(tokens < -1, _as_given(tokens), tokens) if prompt else tokens
        counts = torch.zeros(len(tokens), size + 1, device=tokens.device)
        tokens = torch.where((tokens < 0) | (tokens >= size), size, tokens)  # a causal network has no state for masks
        return counts.scatter_add(1, tokens, torch.ones_like(tokens, dtype=counts.dtype))[:, :size]
