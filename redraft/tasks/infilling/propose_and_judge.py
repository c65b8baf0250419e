"""Infilling with two models: one proposes fillings from both sides, the other judges the whole text."""

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
from redraft.decoding.samplers.base import Sampler


class _RowJudge(Protocol):
    """Scores whole texts."""

    def __call__(self, z: Tensor, pad: Tensor | None) -> Tensor:
        """(K, L) candidates for one row → (K,) log p, up to a constant."""
        ...


class _NextTokenScorer(Protocol):
    """Scores the next token from the text to its left."""

    def __call__(self, z: Tensor, column: int) -> Tensor:
        """(K, L) rows → (K, V) log p of the token in a column, given those before it."""
        ...


class _Candidates(NamedTuple):
    """The beam of one row: K ways to fill its holes."""

    z: Tensor  # (K, L) ids
    score: Tensor  # (K,) log q of the filled tokens
    rank: Tensor  # (K,) score that decides which candidates are kept: log q, plus log p given the text to the left
    log_q: Tensor  # (K, L) log q of each filled token, zero elsewhere


@dataclass(frozen=True)
class ProposeAndJudge(Sampler):
    """Fills holes left to right with a beam of `tries` candidates, then takes the one with the best log q + log p.

    q is the denoiser, which sees both sides of a hole; p is the judge of the finished row, for example the causal model
    that an adapter was trained on. `next_token` adds the causal log p of each token, given the text to its left, to the
    rank of candidates in the beam: a word that only one of the two models finds likely is seldom right. At temperature
    0 the best candidate is taken; otherwise one is drawn with weights (q·p)^(1/temperature).
    """

    judge: _RowJudge = field(repr=False)
    tries: int = 16
    temperature: float = 0.0
    next_token: _NextTokenScorer | None = field(default=None, repr=False)
    writes_once = draws_exactly = False

    def __post_init__(self) -> None:
        require_range(self, 1, 4096, "tries")
        require_temperature(self.temperature)

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        if denoise.block is not None:
            raise ValueError("ProposeAndJudge needs a model with full attention; use Blocks(sampler)")
        process = process.narrowed(Masked, "ProposeAndJudge", "use Ancestral(steps)")
        canvas = process.prior(canvas, rng=rng)
        yield canvas
        for row in range(len(canvas.z)):
            index = torch.tensor([row], device=canvas.z.device)
            single = canvas.rows(index)
            with torch.no_grad():
                candidates = self._propose(denoise, process, single)
                pad = None if single.context.pad is None else single.context.pad.expand(len(candidates.z), -1)
                total = candidates.score + self.judge(candidates.z, pad).to(candidates.score)
            best = self._choose(total, rng.rows(index))
            canvas = _fill_row(canvas, index, candidates.z[best], candidates.log_q[best])
            yield canvas

    def _propose(self, denoise: Denoiser, process: Masked, canvas: Canvas) -> _Candidates:
        """The best candidates for a row; each token is predicted with those to its left filled."""
        zero = canvas.z.new_zeros(1, dtype=torch.float64)
        candidates = _Candidates(canvas.z, zero, zero, torch.zeros_like(canvas.z).double())
        for column in (~canvas.fixed[0]).nonzero().squeeze(-1).tolist():
            masked = candidates.z == process.vocab.masked
            where = torch.zeros_like(masked)
            where[:, column] = True
            fraction = masked.double().mean(-1, keepdim=True)
            t = torch.where(masked, process.time_when_masked(fraction), 0.0)
            context = canvas.context.rows(torch.zeros(len(candidates.z), dtype=torch.int64, device=canvas.z.device))
            log_q = denoise.predict(candidates.z, t, context).at(where).double()
            log_p = 0.0 if self.next_token is None else self.next_token(candidates.z, column).double()
            candidates = _extend(candidates, log_q, log_q + log_p, column, self.tries)
        return candidates

    def _choose(self, total: Tensor, rng: Rng) -> int:
        if not self.temperature:
            return int(total.argmax())
        return int(
            randomness.sample_categorical((total / self.temperature).log_softmax(-1)[None], rng.once().squeeze(1))
        )


def _extend(candidates: _Candidates, log_q: Tensor, added_rank: Tensor, column: int, tries: int) -> _Candidates:
    """Extends candidates by every token in a column, by (K, V) log q and rank; keeps the `tries` best."""
    total = (candidates.rank[:, None] + added_rank).flatten()
    rank, at = total.topk(min(tries, int(total.isfinite().sum())))
    row, token = at // log_q.shape[1], at % log_q.shape[1]
    z, token_log_q = candidates.z[row].clone(), candidates.log_q[row].clone()
    z[:, column], token_log_q[:, column] = token, log_q[row, token]
    return _Candidates(z, candidates.score[row] + log_q[row, token], rank, token_log_q)


def _fill_row(canvas: Canvas, index: Tensor, z: Tensor, log_q: Tensor) -> Canvas:
    before = torch.zeros_like(canvas.z, dtype=torch.float32) if canvas.confidence is None else canvas.confidence
    confidence = torch.where(canvas.fixed[index][0], 0.0, log_q.exp()).float()
    return replace(
        canvas, z=canvas.z.index_copy(0, index, z[None]), confidence=before.index_copy(0, index, confidence[None])
    )
