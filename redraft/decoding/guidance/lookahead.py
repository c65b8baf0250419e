"""Guidance of a causal network by a discriminator of prefixes (FUDGE)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core.canvas import Context
from redraft.core.prediction import Denoiser, DenoiserWrapper, Prediction
from redraft.core.vocab import FINITE, require_range
from redraft.decoding.guidance.base import Guidance, _CachedTokens, _require_scale, _split_cached_tokens

_FutureLogProb = Callable[[Tensor, Tensor], Tensor]  # (B, n) prefix, (B, C) candidates → (B, C) log p(y | prefix, k)


@dataclass(frozen=True)
class LookAhead(Guidance):
    """x̂_k·p(y | x_1 … x_{i−1}, k)^γ for the `top` most likely tokens k, normalized (FUDGE, Yang & Klein 2021, eq. 2).

    `future` returns the log-probability that a text with a given prefix will have the attribute y. With the exact
    probability, γ = 1 and all tokens as candidates, texts are drawn from p(x | y) itself. Only for causal networks.
    Tokens with less than `least` times the highest probability are excluded; if a single candidate is left at every
    queried position, `future` is not called.
    """

    future: _FutureLogProb
    scale: float = 1.0
    top: int = 16  # number of candidates; exact with the vocabulary size and least=0
    least: float = 1e-4

    def __post_init__(self) -> None:
        _require_scale(self.scale)
        require_range(self, 1, FINITE, "top")
        require_range(self, 0, 1, "least")

    def __call__(self, denoise: Denoiser) -> Denoiser:
        if denoise.block != 1:
            raise ValueError(
                "LookAhead needs a causal network, which writes token by token; use TokenClassifier for others"
            )
        return denoise if self.scale == 0 else _LookAheadDenoiser(denoise, self)


@dataclass(frozen=True)
class _LookAheadDenoiser(DenoiserWrapper):
    guidance: LookAhead

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        cached, context = _split_cached_tokens(context)
        pred = self.denoise.predict(z, t, context)
        if not pred.normalized:
            raise ValueError("a Score head predicts unnormalized ratios, which cannot be guided; use Subs or Softmax")
        tokens = z if cached is None else torch.cat([cached, z], 1)
        return _LookAheadPrediction(pred, self.guidance, tokens, z.shape[1])

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        if context.pad is not None and bool(context.pad.any()):
            raise ValueError("LookAhead cannot read rows with padding; write texts of one length at a time")
        cached, context = _split_cached_tokens(context)
        after = self.denoise.absorb(z, context, t)
        assert after.cache is not None
        return replace(after, cache=_CachedTokens(after.cache, z if cached is None else torch.cat([cached, z], 1)))


@dataclass(frozen=True, eq=False)
class _LookAheadPrediction(Prediction):
    """A prediction reweighted by `future`, with one call of `future` per queried column."""

    inner: Prediction
    guidance: LookAhead
    tokens: Tensor  # (B, n) all tokens up to the end of the window
    window: int  # number of columns at the end of `tokens` that can be queried

    @property
    def x(self) -> Tensor:
        everywhere = torch.ones_like(self.tokens[:, -self.window :], dtype=torch.bool)
        return self.at(everywhere).view(*everywhere.shape, -1)

    def at(self, where: Tensor) -> Tensor:
        log_x = self.inner.at(where)
        log_p, token = self._candidates(log_x)
        rows, columns = where.nonzero(as_tuple=True)
        log_y, first = torch.zeros_like(log_p), self.tokens.shape[1] - self.window
        for column in columns.unique().tolist() if log_p.shape[1] > 1 else ():
            index = (columns == column).nonzero().squeeze(-1)
            log_y[index] = self.guidance.future(self.tokens[rows[index], : first + column], token[index]).to(log_y)
        weights = torch.full_like(log_x, -torch.inf).scatter(-1, token, log_p + self.guidance.scale * log_y)
        return weights.log_softmax(-1)

    def _candidates(self, log_x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (N, C) log-probabilities and ids of the candidates; C is the largest number at any position."""
        log_p, token = log_x.topk(min(self.guidance.top, log_x.shape[-1]), -1)
        likely = log_p.exp() >= self.guidance.least * log_p[:, :1].exp()
        count = int(likely.sum(-1).max()) if len(likely) else 1
        return log_p.masked_fill(~likely, -torch.inf)[:, :count], token[:, :count]
