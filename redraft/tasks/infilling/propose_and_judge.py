"""Holes filled by two models together: one proposes from both sides, another judges the whole text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from redraft.core import randomness
from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.processes.masked import Masked
from redraft.core.randomness import Rng
from redraft.core.vocab import require_range
from redraft.decoding.picks.order import require_temperature
from redraft.decoding.samplers.base import require_unconstrained


class RowJudge(Protocol):
    def __call__(self, z: Tensor, pad: Tensor | None) -> Tensor:
        """(K, L) a row finished in K ways → (K,) how likely each is: log p, up to a number that is the same for all."""
        ...


class NextTokenScorer(Protocol):
    def __call__(self, z: Tensor, column: int) -> Tensor:
        """(K, L) rows → (K, V) log p of the token in a column, given those before it."""
        ...


class _Candidates(NamedTuple):
    z: Tensor  # (K, L)
    score: Tensor  # (K,) log q of what was filled in
    rank: Tensor  # (K,) by which the likeliest are kept: log q, and log p given the left side
    log_q: Tensor  # (K, L) the same token by token, zero elsewhere


@dataclass(frozen=True)
class ProposeAndJudge:
    """Fills holes from left to right, keeps the `tries` likeliest ways, and takes the best of log q + log p.

    q is what the denoiser says, which sees both sides of a hole; p is what the judge says of the finished row, such as
    the causal model that an adapter was trained on. With `left` the causal model also has a say in which ways are kept,
    by the text before each token: a word that only one of the two finds likely is seldom the right one. At temperature
    0 the best way is taken, else one is drawn among them with weights (q·p)^(1/temperature).
    """

    judge: RowJudge = field(repr=False)
    tries: int = 16
    temperature: float = 0.0
    next_token: NextTokenScorer | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        require_range(self, 1, 4096, "tries")
        require_temperature(self.temperature)

    def exact(self, denoise: Denoiser) -> bool | None:
        """Nothing is cached."""
        return True

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        if denoise.block is not None or not isinstance(process, Masked):
            raise ValueError("judged holes need a model that fills masks and sees both sides; use Blocks or Unmask")
        require_unconstrained(canvas, self, "it compares whole texts")
        canvas = process.prior(canvas, rng=rng)
        yield canvas
        for row in range(len(canvas.z)):
            index = torch.tensor([row], device=canvas.z.device)
            one = canvas.rows(index)
            with torch.no_grad():
                found = self._proposed(denoise, process, one)
                pad = None if one.context.pad is None else one.context.pad.expand(len(found.z), -1)
                total = found.score + self.judge(found.z, pad).to(found.score)
            best = self._taken(total, rng.rows(index))
            canvas = _filled_row(canvas, index, found.z[best], found.log_q[best])
            yield canvas

    def _proposed(self, denoise: Denoiser, process: Masked, canvas: Canvas) -> _Candidates:
        """The likeliest ways to fill a row, by the denoiser: each hole is read with those to its left filled."""
        none = canvas.z.new_zeros(1, dtype=torch.float64)
        some = _Candidates(canvas.z, none, none, torch.zeros_like(canvas.z).double())
        for column in (~canvas.fixed[0]).nonzero().squeeze(-1).tolist():
            hidden = some.z == process.vocab.masked
            where = torch.zeros_like(hidden)
            where[:, column] = True
            share = hidden.double().mean(-1, keepdim=True)
            t = torch.where(hidden, process.moment(share), 0.0)
            context = canvas.context.rows(torch.zeros(len(some.z), dtype=torch.int64, device=canvas.z.device))
            said = denoise(some.z, t, context).at(where).double()
            also = 0.0 if self.next_token is None else self.next_token(some.z, column).double()
            some = _grown(some, said, said + also, column, self.tries)
        return some

    def _taken(self, total: Tensor, rng: Rng) -> int:
        if not self.temperature:
            return int(total.argmax())
        return int(
            randomness.sample_categorical((total / self.temperature).log_softmax(-1)[None], rng.once().squeeze(1))
        )


def _grown(some: _Candidates, said: Tensor, worth: Tensor, column: int, tries: int) -> _Candidates:
    """All candidates with each token in a column, (K, V) log q and what ranks them; the first `tries` of them."""
    total = (some.rank[:, None] + worth).flatten()
    rank, at = total.topk(min(tries, int(total.isfinite().sum())))
    row, token = at // said.shape[1], at % said.shape[1]
    z, log_q = some.z[row].clone(), some.log_q[row].clone()
    z[:, column], log_q[:, column] = token, said[row, token]
    return _Candidates(z, some.score[row] + said[row, token], rank, log_q)


def _filled_row(canvas: Canvas, index: Tensor, z: Tensor, log_q: Tensor) -> Canvas:
    sure = torch.zeros_like(canvas.z, dtype=torch.float32) if canvas.confidence is None else canvas.confidence
    written = torch.where(canvas.fixed[index][0], 0.0, log_q.exp()).float()
    return replace(
        canvas, z=canvas.z.index_copy(0, index, z[None]), confidence=sure.index_copy(0, index, written[None])
    )
