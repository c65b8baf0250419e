"""Guidance of a causal network by what is to come (FUDGE)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Context
from redraft.core.prediction import Denoiser, DenoiserWrapper, Prediction
from redraft.core.vocab import FINITE, require_range
from redraft.decoding.guidance.base import _CachedTokens, _require_scale, _split_cached_tokens

_FutureLogProb = Callable[[Tensor, Tensor], Tensor]  # (B, n) tokens so far, (B, C) candidates → (B, C) log p(y | both)


@dataclass(frozen=True)
class LookAhead:
    """x̂_k·p(y | x_1 … x_{i−1}, k)^γ for the `top` likeliest tokens k, normalised (FUDGE, Yang & Klein 2021, eq. 2).

    `future` says how likely it is that a text with this beginning will be as wanted. With the exact probability, γ = 1
    and all tokens tried, every text is drawn from p(x | y) itself. For networks that write from left to right. Tokens
    below `least` times the likeliest are not tried: where one word is certain, nothing is asked.
    """

    future: _FutureLogProb
    scale: float = 1.0
    top: int = 16  # tokens; as many as there are, and least=0: exact
    least: float = 1e-4

    def __post_init__(self) -> None:
        _require_scale(self.scale)
        require_range(self, 1, FINITE, "top")
        require_range(self, 0, 1, "least")

    def __call__(self, denoise: Denoiser) -> Denoiser:
        if denoise.block != 1:
            raise ValueError("looking ahead needs a network that writes from left to right, token by token")
        return denoise if self.scale == 0 else _Looking(denoise, self)


@dataclass(frozen=True)
class _Looking(DenoiserWrapper):
    by: LookAhead

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        before, context = _split_cached_tokens(context)
        pred = self.denoise(z, t, context)
        if not pred.normalised:
            raise ValueError("free intensities (a Score head) cannot be guided as probabilities; use Subs or Softmax")
        return _LookAheadPrediction(pred, self.by, z if before is None else torch.cat([before, z], 1), z.shape[1])

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        if context.pad is not None and bool(context.pad.any()):
            raise ValueError("looking ahead reads rows without padding; write texts of one length at a time")
        before, context = _split_cached_tokens(context)
        after = self.denoise.absorb(z, context, t)
        assert after.cache is not None
        return replace(after, cache=_CachedTokens(after.cache, z if before is None else torch.cat([before, z], 1)))


@dataclass(frozen=True, eq=False)
class _LookAheadPrediction(Prediction):
    """A prediction weighed by what may follow; it is asked for few columns, one pass for each."""

    inner: Prediction
    by: LookAhead
    row: Tensor  # (B, n) all tokens up to the end of the window
    window: int  # how many of them may be asked for

    @property
    def x(self) -> Tensor:
        everywhere = torch.ones_like(self.row[:, -self.window :], dtype=torch.bool)
        return self.at(everywhere).view(*everywhere.shape, -1)

    def at(self, where: Tensor) -> Tensor:
        log_x = self.inner.at(where)
        best, token = self._tried(log_x)
        rows, columns = where.nonzero(as_tuple=True)
        odds, before = torch.zeros_like(best), self.row.shape[1] - self.window
        for column in columns.unique().tolist() if best.shape[1] > 1 else ():
            some = (columns == column).nonzero().squeeze(-1)
            odds[some] = self.by.future(self.row[rows[some], : before + column], token[some]).to(odds)
        weighed = torch.full_like(log_x, -torch.inf).scatter(-1, token, best + self.by.scale * odds)
        return weighed.log_softmax(-1)

    def _tried(self, log_x: Tensor) -> tuple[Tensor, Tensor]:
        """(N, C) log-probabilities and tokens: as many as the row with the most candidates has"""
        best, token = log_x.topk(min(self.by.top, log_x.shape[-1]), -1)
        worth = best.exp() >= self.by.least * best[:, :1].exp()
        count = int(worth.sum(-1).max()) if len(worth) else 1
        return best.masked_fill(~worth, -torch.inf)[:, :count], token[:, :count]

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        loss = -self.at(where).gather(-1, target[where][:, None]).squeeze(-1)
        return ops.scatter(loss, where)
