"""Log-likelihoods of answers: exact for causal models, else a bound with its Monte-Carlo error."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core import ops
from redraft.core.batch import Batch
from redraft.core.processes.masked import Masked
from redraft.evaluation.harness.requests import AnswerRequest, RowLayout
from redraft.models.diffusion_lm import DiffusionLM
from redraft.tasks.engine.model import TextModel
from redraft.training.heldout import likelihood

_BATCH_ROWS = 64  # at a time, if memory allows


class ProgressCallback(Protocol):
    """Is told how far a long job is."""

    def begin(self, what: str, total: int) -> None: ...

    def advance(self, count: int) -> None: ...


class NoProgress:
    """Tells nobody."""

    def begin(self, what: str, total: int) -> None:
        pass

    def advance(self, count: int) -> None:
        pass


@dataclass(frozen=True)
class AnswerScore:
    """What a model says about an answer."""

    log_p: float  # nats, at least: −bound
    variance: float  # of the Monte Carlo; 0 if there is none
    greedy: bool  # whether decoding without chance writes the answer
    tokens: int


@dataclass(frozen=True)
class Scorer:
    """Scores requests; the same request has the same score, whatever is scored beside it."""

    layout: RowLayout
    draws: int = 16  # noise levels, each drawn twice
    seed: int = 0

    def __post_init__(self) -> None:
        model = self.layout.model
        if model.codec is not None and not (model.config.codec and model.config.codec.names):
            raise ValueError(
                f"{type(model.config.codec).__name__} encodes whole texts, so no part of one has a likelihood; "
                "only tasks that let it write work with this model"
            )

    @property
    def exact(self) -> bool:
        """Whether scores are log-likelihoods, not bounds."""
        return self.layout.model.block == 1 and isinstance(self.layout.model.process, Masked)

    @property
    def calls(self) -> int:
        """Network calls per answer at most; short answers may need fewer."""
        return 1 if self.exact else 2 * self.draws

    def __call__(self, requests: Sequence[AnswerRequest], watch: ProgressCallback = NoProgress()) -> list[AnswerScore]:
        """One score per request, in their order."""
        owners = [(owner, part) for owner, request in enumerate(requests) for part in self.layout.parts(request)]
        parts = [part for _, part in owners]
        found: list[list[AnswerScore]] = [[] for _ in requests]
        watch.begin("answers scored", len(parts))
        for some in self._batches(parts):
            for index, score in zip(some, self._scores([parts[i] for i in some]), strict=True):
                found[owners[index][0]].append(score)
            watch.advance(len(some))
        return [_joined(scores) for scores in found]

    def _batches(self, parts: Sequence[AnswerRequest]) -> Iterator[list[int]]:
        """Parts of similar size together, those with short answers first."""
        sizes = [self.layout.filled(len(self.layout.before(part)) + len(part.answer)) for part in parts]
        order = sorted(range(len(parts)), key=lambda i: (min(len(parts[i].answer), 8), sizes[i]))
        while order:
            rows = _rows_at_once(self.layout.it, max(sizes[i] for i in order[:_BATCH_ROWS]))
            yield order[:rows]
            order = order[rows:]

    def _scores(self, parts: Sequence[AnswerRequest]) -> list[AnswerScore]:
        model, batch = self.layout.model, self.layout.batch(parts)
        found = likelihood(model, [batch], draws=self.draws, seed=self.seed)
        written = is_greedy(model, batch)
        rows = zip(found.row_nats, found.row_variance, written, found.row_tokens, strict=True)
        return [AnswerScore(-float(n), float(v), bool(g), int(t)) for n, v, g, t in rows]


def _joined(parts: Sequence[AnswerScore]) -> AnswerScore:
    """The score of an answer that was cut into windows."""
    log_p, variance = math.fsum(p.log_p for p in parts), math.fsum(p.variance for p in parts)
    return AnswerScore(log_p, variance, all(p.greedy for p in parts), sum(p.tokens for p in parts))


@torch.no_grad()
def is_greedy(model: DiffusionLM, batch: Batch) -> Tensor:
    """(B,) bool: whether decoding without chance writes the learnt tokens, the most confident token first.

    One token of each block at a time, given the blocks before it; a row is left at its first wrong token. False for
    noise other than masks, where nothing is decided token by token.
    """
    process, device = model.process, model.network.embedding.weight.device
    if not isinstance(process, Masked):
        return torch.zeros(len(batch.tokens), dtype=torch.bool)
    batch = model.learnable(batch.to(device))
    hidden, right = batch.learn.clone(), torch.ones(len(batch.tokens), dtype=torch.bool, device=device)
    noise = torch.zeros_like(hidden) if batch.unknown is None else batch.unknown
    learnt = hidden.sum(-1, keepdim=True).clamp(min=1)
    while bool(hidden.any()):
        t = process.moment(hidden.sum(-1, keepdim=True) / learnt)
        times = torch.where(batch.learn, t, noise.to(t.dtype))
        z = batch.tokens.masked_fill(hidden | noise, process.vocab.masked)
        best = model(z, times, model.context(batch)).at(hidden).max(-1)
        tokens = torch.zeros_like(z).masked_scatter(hidden, best.indices)
        where = _surest(ops.scatter(best.values.exp(), hidden), hidden, model.block)
        right = right & ~(where & (tokens != batch.tokens)).any(-1)
        hidden = hidden & ~where & right[:, None]
    return right.cpu()


def _surest(confidence: Tensor, hidden: Tensor, block: int | None) -> Tensor:
    """(B, L) bool: the most confident hidden place of each block; of equals the first, as in `Confidence`."""
    (B, L), size = hidden.shape, block or hidden.shape[1]
    rest = -L % size
    scores = F.pad((confidence * 2**16).round(), (0, rest)).view(-1, size)
    among = F.pad(hidden, (0, rest)).view(-1, size)
    return ops.top_per_row(scores, among, torch.ones(len(among), device=hidden.device)).view(B, -1)[:, :L]


def _rows_at_once(it: TextModel, length: int) -> int:
    """How many rows of this length fit into half of the free memory."""
    free = it.free_memory
    return _BATCH_ROWS if free is None else int(min(_BATCH_ROWS, max(1, free // 2 // (length * it.bytes_per_token))))
