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

_BATCH_ROWS = 64  # maximum number of rows per batch


class ProgressCallback(Protocol):
    """Receives the progress of a long job."""

    def begin(self, what: str, total: int) -> None:
        """A part of the job begins; `total` is 0 if its items cannot be counted."""

    def advance(self, count: int) -> None:
        """`count` more items are done."""


class _NoProgress:
    """Ignores progress."""

    def begin(self, what: str, total: int) -> None:
        pass

    def advance(self, count: int) -> None:
        pass


@dataclass(frozen=True)
class AnswerScore:
    """How likely a model finds an answer."""

    log_p: float  # log-likelihood in nats, or a lower bound of it
    variance: float  # variance of the Monte-Carlo estimate; 0 if there is none
    greedy: bool  # whether greedy decoding writes the answer
    tokens: int  # number of tokens of the answer


@dataclass(frozen=True)
class Scorer:
    """Scores requests. A score does not depend on what else is scored in the same call."""

    layout: RowLayout
    draws: int = 16  # noise levels per answer, with two noise samples each
    seed: int = 0

    def __post_init__(self) -> None:
        lm = self.layout.lm
        if lm.codec is not None and not (lm.config.codec and lm.config.codec.names):
            raise ValueError(
                f"{type(lm.config.codec).__name__} encodes whole texts, so an answer alone has no likelihood; "
                "use tasks that let the model write"
            )

    @property
    def exact(self) -> bool:
        """Whether scores are exact log-likelihoods rather than bounds."""
        return self.layout.lm.block == 1 and self.layout.lm.process.fills_masks

    @property
    def calls(self) -> int:
        """Maximum number of network calls per answer; short answers may need fewer."""
        return 1 if self.exact else 2 * self.draws

    def __call__(
        self, requests: Sequence[AnswerRequest], progress: ProgressCallback = _NoProgress()
    ) -> list[AnswerScore]:
        """Return one score per request, in order."""
        windows = [(i, window) for i, request in enumerate(requests) for window in self.layout.windows(request)]
        parts = [window for _, window in windows]
        scores: list[list[AnswerScore]] = [[] for _ in requests]
        progress.begin("answers scored", len(parts))
        for indices in self._batches(parts):
            for index, score in zip(indices, self._score_batch([parts[i] for i in indices]), strict=True):
                scores[windows[index][0]].append(score)
            progress.advance(len(indices))
        return [_join_windows(window_scores) for window_scores in scores]

    def _batches(self, parts: Sequence[AnswerRequest]) -> Iterator[list[int]]:
        """Yield batches of indices: parts of similar size together, short answers first."""
        sizes = [self.layout.row_length(len(self.layout.prefix(part)) + len(part.answer)) for part in parts]
        order = sorted(range(len(parts)), key=lambda i: (min(len(parts[i].answer), 8), sizes[i]))
        while order:
            rows = _rows_at_once(self.layout.model, max(sizes[i] for i in order[:_BATCH_ROWS]))
            yield order[:rows]
            order = order[rows:]

    def _score_batch(self, parts: Sequence[AnswerRequest]) -> list[AnswerScore]:
        lm, batch = self.layout.lm, self.layout.batch(parts)
        result = likelihood(lm, [batch], draws=self.draws, seed=self.seed)
        greedy = _is_greedy(lm, batch)
        rows = zip(result.row_nats, result.row_variance, greedy, result.row_tokens, strict=True)
        return [AnswerScore(-float(n), float(v), bool(g), int(t)) for n, v, g, t in rows]


def _join_windows(parts: Sequence[AnswerScore]) -> AnswerScore:
    """Add up the scores of the windows of an answer."""
    log_p, variance = math.fsum(p.log_p for p in parts), math.fsum(p.variance for p in parts)
    return AnswerScore(log_p, variance, all(p.greedy for p in parts), sum(p.tokens for p in parts))


@torch.no_grad()
def _is_greedy(model: DiffusionLM, batch: Batch) -> Tensor:
    """(B,) bool: whether greedy decoding, the most confident token first, writes the learned tokens.

    It decodes one token per block at a time, given the true earlier blocks, and gives up on a row at its first wrong
    token. False for noise other than masks, which does not decide token by token.
    """
    device = model.network.embedding.weight.device
    if not model.process.fills_masks:
        return torch.zeros(len(batch.tokens), dtype=torch.bool)
    process = model.process.narrowed(Masked, "greedy decoding", "score the answers only")
    batch = model.config.learnable(batch.to(device))
    hidden, greedy = batch.learn.clone(), torch.ones(len(batch.tokens), dtype=torch.bool, device=device)
    unknown = torch.zeros_like(hidden) if batch.unknown is None else batch.unknown
    learned = hidden.sum(-1, keepdim=True).clamp(min=1)
    while bool(hidden.any()):
        t = process.time_when_masked(hidden.sum(-1, keepdim=True) / learned)
        times = torch.where(batch.learn, t, unknown.to(t.dtype))
        z = batch.tokens.masked_fill(hidden | unknown, process.vocab.masked)
        best = model.predict(z, times, model.read(batch).context).at(hidden).max(-1)
        tokens = torch.zeros_like(z).masked_scatter(hidden, best.indices)
        written = _most_confident(ops.scatter(best.values.exp(), hidden), hidden, model.block)
        greedy = greedy & ~(written & (tokens != batch.tokens)).any(-1)
        hidden = hidden & ~written & greedy[:, None]
    return greedy.cpu()


def _most_confident(confidence: Tensor, hidden: Tensor, block: int | None) -> Tensor:
    """(B, L) bool: the most confident hidden position of each block; ties go to the first, as in `Confidence`."""
    (B, L), size = hidden.shape, block or hidden.shape[1]
    rest = -L % size
    scores = F.pad((confidence * 2**16).round(), (0, rest)).view(-1, size)
    candidates = F.pad(hidden, (0, rest)).view(-1, size)
    return ops.top_per_row(scores, candidates, torch.ones(len(candidates), device=hidden.device)).view(B, -1)[:, :L]


def _rows_at_once(model: TextModel, length: int) -> int:
    """Return the number of rows of this length that fit into half of the free memory, at most a full batch."""
    free = model.free_memory
    return _BATCH_ROWS if free is None else int(min(_BATCH_ROWS, max(1, free // 2 // (length * model.bytes_per_token))))
