"""Drafters with a network: they propose the next tokens of a text, which a causal model then accepts or rejects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.processes.masked import Masked
from redraft.core.vocab import require_range
from redraft.decoding.samplers.base import Sampler, final_canvas
from redraft.decoding.speculation.acceptance import AcceptRule, Proposal, _RoundNoise
from redraft.decoding.speculation.costs import DraftCosts


@dataclass(frozen=True)
class DraftRequest:
    """A request for a draft."""

    z: Tensor  # (1, n) the text so far
    count: int  # maximum number of tokens to propose
    vocab_size: int  # number of ids of the target model
    temperature: float
    rule: AcceptRule
    noise: _RoundNoise
    context: Context = Context()  # the target's context; its cache holds all tokens but the last


class Drafter(ABC):
    """Proposes the next tokens of a text."""

    @property
    @abstractmethod
    def ordered(self) -> bool:
        """Whether it drafts left to right, so that the distribution of each token given those before it is known."""

    @abstractmethod
    def __call__(self, request: DraftRequest) -> Proposal:
        """Propose up to `request.count` tokens."""

    def costs(self) -> DraftCosts:
        """Return a rough cost of a draft, in passes of the target over one token."""
        return DraftCosts()

    def fresh(self) -> Drafter:
        """Return a drafter without state, for a new row."""
        return self

    def observe(self, z: Tensor, context: Context) -> None:  # noqa: B027 - most drafters have no state
        """Update the state after a round; z: (1, n) the text. The context's cache holds all tokens but the last."""


@dataclass(frozen=True)
class NoDraft(Drafter):
    """Proposes nothing: plain decoding, with the random numbers of the acceptance rule."""

    ordered = True

    def __call__(self, request: DraftRequest) -> Proposal:
        return Proposal(request.z[:, :0], torch.zeros(1, 0, request.vocab_size, device=request.z.device))


@dataclass(frozen=True)
class DiffusionDraft(Drafter):
    """A diffusion model with the target's tokenizer, which fills masks after the text from left to right.

    With one step all tokens are drawn independently from one pass. With more steps they are drawn in that many groups,
    each given the groups before it. So the distribution of each token given those to its left is known, as
    `TokenwiseRule` needs it.
    """

    denoise: Denoiser = field(repr=False)
    process: Masked = field(repr=False)
    steps: int = 1
    row_length: int | None = None  # rows are filled up to this length with masks, as in training; None for no filling
    window: int | None = None  # reads at most this many tokens of the text; None for all
    ordered = True

    def __post_init__(self) -> None:
        require_range(self, 1, 4096, "steps")
        require_range(self, 1, 2**24, "row_length", "window")

    def __call__(self, request: DraftRequest) -> Proposal:
        canvas, begin = _masked_canvas(request, self.process, self.row_length, self.window)
        tokens: list[Tensor] = []
        log_q: list[Tensor] = []
        for first, end in _groups(request.count, self.steps):
            columns = torch.arange(begin + first, begin + end, device=canvas.z.device)
            log_probs = self._log_probs(canvas, columns, 1 - first / request.count, request)[None]
            position = request.z.shape[1] + torch.arange(first, end, device=canvas.z.device)
            group = request.rule.propose(log_probs, position, request.noise)
            canvas = canvas.write(canvas.z.index_copy(1, columns, group))
            tokens, log_q = [*tokens, group], [*log_q, log_probs]
        return Proposal(torch.cat(tokens, 1), torch.cat(log_q, 1))

    def _log_probs(self, canvas: Canvas, columns: Tensor, hidden: float, request: DraftRequest) -> Tensor:
        """Return (n, V) log-probabilities of the target's tokens at these columns, with the temperature applied.

        hidden: fraction of the draft that is still masked
        """
        t = self.process.time_when_masked(
            torch.full((1, 1), hidden, dtype=ops.widest_float(canvas.z.device), device=canvas.z.device)
        )
        where = torch.zeros_like(canvas.fixed).index_fill(1, columns, True)
        with torch.no_grad():
            logits = self.denoise.predict(canvas.z, canvas.time(t), canvas.context).at(where)
        return _target_log_probs(logits, request)


class _DraftStateProtocol(Protocol):
    """The state of a drafter that belongs to the target; implemented by `redraft.models.DraftState`."""

    @property
    def target_tokens(self) -> int: ...

    def fresh(self) -> _DraftStateProtocol: ...

    def observe(self, z: Tensor, context: Context) -> None: ...

    def logits(self, z: Tensor, context: Context, count: int) -> Tensor | None: ...

    def bigram_logits(self, previous: Tensor) -> Tensor | None: ...


@dataclass(frozen=True)
class OwnDrafter(Drafter):
    """The target's own drafter: a small network that reads its hidden states, or the target with an adapter on masks.

    One pass predicts a block of tokens. Each is then drawn given the one before it, so its distribution is known.
    """

    state: _DraftStateProtocol = field(repr=False)
    ordered = True

    def costs(self) -> DraftCosts:
        own = self.state.target_tokens  # tokens that the target predicts itself
        return DraftCosts(draft=1.2, always_accepted=own) if own else DraftCosts()

    def fresh(self) -> OwnDrafter:
        return OwnDrafter(self.state.fresh())

    def observe(self, z: Tensor, context: Context) -> None:
        self.state.observe(z, context)

    def __call__(self, request: DraftRequest) -> Proposal:
        logits = self.state.logits(request.z, request.context, request.count)
        if logits is None:  # the target has not read any token yet
            return NoDraft()(request)
        tokens: list[Tensor] = []
        log_q: list[Tensor] = []
        previous = request.z[:, -1]
        for i in range(logits.shape[1]):
            bigram = None if i < self.state.target_tokens else self.state.bigram_logits(previous)
            token_logits = logits[:, i] if bigram is None else logits[:, i] + bigram
            if not request.temperature:  # greedy decoding never uses log_q
                previous = token_logits.argmax(-1)
                tokens.append(previous)
                continue
            log_probs = _target_log_probs(token_logits, request)
            position = torch.arange(request.z.shape[1] + i, request.z.shape[1] + i + 1, device=logits.device)
            previous = request.rule.propose(log_probs[:, None], position, request.noise)[:, 0]
            tokens.append(previous)
            log_q.append(log_probs)
        return Proposal(torch.stack(tokens, 1), torch.stack(log_q, 1) if log_q else None)


def _target_log_probs(logits: Tensor, request: DraftRequest) -> Tensor:
    """Turn (N, V_drafter) logits into (N, V) log-probabilities of the target's tokens, with the temperature applied."""
    missing = max(0, request.vocab_size - logits.shape[1])
    logits = F.pad(logits[:, : request.vocab_size], (0, missing), value=-torch.inf)
    return (logits.double() / (request.temperature or 1)).log_softmax(-1)


@dataclass(frozen=True)
class SampledDraft(Drafter):
    """A diffusion model that fills masks after the text with any sampler, in any order.

    The probability of a token when it was written is not its probability given the tokens to its left. So only rules
    that do not need `Proposal.log_q` can accept these drafts.
    """

    denoise: Denoiser = field(repr=False)
    process: Process = field(repr=False)
    sampler: Sampler
    row_length: int | None = None  # rows are filled up to this length with masks, as in training; None for no filling
    window: int | None = None  # reads at most this many tokens of the text; None for all
    ordered = False

    def __post_init__(self) -> None:
        require_range(self, 1, 2**24, "row_length", "window")

    def __call__(self, request: DraftRequest) -> Proposal:
        canvas, begin = _masked_canvas(request, self.process, self.row_length, self.window)
        canvas = final_canvas(self.sampler(self.denoise, self.process, canvas, rng=request.noise.fresh()[0]))
        tokens = canvas.z[:, begin : begin + request.count]
        return Proposal(tokens[:, : _leading_valid(tokens, request.vocab_size)])


def _leading_valid(tokens: Tensor, vocab_size: int) -> int:
    """Return the number of tokens before the first one that is not in the target's vocabulary."""
    return int((tokens < vocab_size).long().cumprod(-1).sum())


def _masked_canvas(
    request: DraftRequest, process: Process, row_length: int | None, window: int | None
) -> tuple[Canvas, int]:
    """Return a canvas with the end of the text and masks after it, and the column of the first mask."""
    text = request.z if window is None else request.z[:, -window:]
    begin = text.shape[1]
    free = max(request.count, 0 if row_length is None else row_length - begin)
    z = F.pad(text, (0, free), value=process.vocab.masked)
    return Canvas(z, torch.arange(begin + free, device=z.device)[None] < begin), begin


def _groups(count: int, steps: int) -> list[tuple[int, int]]:
    """Split the draft into groups of nearly equal size; returns the (begin, end) of each."""
    steps = min(steps, count)
    ends = [count * i // steps for i in range(steps + 1)] if steps else [0]
    return list(pairwise(ends))
