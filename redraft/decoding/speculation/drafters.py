"""Drafters: who proposes the next tokens of a text, for a causal model to accept or not."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol, runtime_checkable

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
from redraft.decoding.speculation.acceptance import AcceptRule, Proposal, RoundNoise


@dataclass(frozen=True)
class DraftRequest:
    """What is asked of a drafter."""

    z: Tensor  # (1, n) the text so far
    count: int  # tokens to propose, at most
    states: int  # V of the target
    temperature: float
    rule: AcceptRule
    noise: RoundNoise
    context: Context = Context()  # what the target has read: all but the last token


class Drafter(Protocol):
    @property
    def ordered(self) -> bool:
        """Whether it knows the law of each token given those to its left: it drafts left to right."""
        ...

    def __call__(self, asked: DraftRequest) -> Proposal: ...


@runtime_checkable
class StatefulDrafter(Drafter, Protocol):
    """A drafter that follows what the target reads, row by row."""

    def fresh(self) -> StatefulDrafter:
        """The same for a new row."""
        ...

    def saw(self, z: Tensor, context: Context) -> None:
        """(1, n) the text after a round, and what the target has read of it: all but the last token."""
        ...


@dataclass(frozen=True)
class NoDraft:
    """Proposes nothing: plain decoding, by the rule's own random numbers."""

    ordered = True

    def __call__(self, asked: DraftRequest) -> Proposal:
        return Proposal(asked.z[:, :0], torch.zeros(1, 0, asked.states, device=asked.z.device))


@dataclass(frozen=True)
class DiffusionDraft:
    """A diffusion model with the target's tokenizer: the text so far, then masks, which it fills left to right.

    With one step all tokens are drawn independently from one pass; with more, in as many groups, each of which sees
    those before it. The law of each token given those to its left is then known, as `TokenwiseRule` needs it.
    """

    denoise: Denoiser = field(repr=False)
    process: Masked = field(repr=False)
    steps: int = 1
    canvas: int | None = None  # columns of its canvas, if it was trained on whole rows of this length; None: no more
    window: int | None = None  # it reads only so many tokens of the text; None: all
    ordered = True

    def __post_init__(self) -> None:
        require_range(self, 1, 4096, "steps")
        require_range(self, 1, 2**24, "canvas", "window")

    def __call__(self, asked: DraftRequest) -> Proposal:
        canvas, begin = _blank(asked, self.process, self.canvas, self.window)
        tokens: list[Tensor] = []
        log_q: list[Tensor] = []
        for first, end in _groups(asked.count, self.steps):
            columns = torch.arange(begin + first, begin + end, device=canvas.z.device)
            found = self._said(canvas, columns, 1 - first / asked.count, asked)
            place = asked.z.shape[1] + torch.arange(first, end, device=canvas.z.device)
            drawn = asked.rule.drafted(found[None], place, asked.noise)
            canvas = canvas.write(canvas.z.index_copy(1, columns, drawn))
            tokens, log_q = [*tokens, drawn], [*log_q, found[None]]
        return Proposal(torch.cat(tokens, 1), torch.cat(log_q, 1))

    def _said(self, canvas: Canvas, columns: Tensor, hidden: float, asked: DraftRequest) -> Tensor:
        """(n, V) log-probabilities of the target's tokens at these columns, at the temperature of the text."""
        t = self.process.moment(
            torch.full((1, 1), hidden, dtype=ops.widest_float(canvas.z.device), device=canvas.z.device)
        )
        where = torch.zeros_like(canvas.fixed).index_fill(1, columns, True)
        with torch.no_grad():
            said = self.denoise(canvas.z, canvas.time(t), canvas.context).at(where)
        return _of_target(said, asked)


class DrafterState(Protocol):
    """What a drafter that belongs to the target makes of its states (`redraft.models.DraftState`)."""

    @property
    def ahead(self) -> int: ...

    def fresh(self) -> DrafterState: ...

    def saw(self, z: Tensor, context: Context) -> None: ...

    def logits(self, z: Tensor, context: Context, count: int) -> Tensor | None: ...

    def follows(self, previous: Tensor) -> Tensor | None: ...


@dataclass(frozen=True)
class OwnDrafter:
    """The target's own drafter: a network beside it that reads its states, or itself with its adapter at masks.

    One pass gives a block of tokens; each is then drawn given the one before it, so their law is known.
    """

    memory: DrafterState = field(repr=False)
    ordered = True

    def fresh(self) -> OwnDrafter:
        return OwnDrafter(self.memory.fresh())

    def saw(self, z: Tensor, context: Context) -> None:
        self.memory.saw(z, context)

    def __call__(self, asked: DraftRequest) -> Proposal:
        raw = self.memory.logits(asked.z, asked.context, asked.count)
        if raw is None:  # nothing is read yet
            return NoDraft()(asked)
        tokens: list[Tensor] = []
        log_q: list[Tensor] = []
        previous = asked.z[:, -1]
        for i in range(raw.shape[1]):
            follows = None if i < self.memory.ahead else self.memory.follows(previous)
            said = raw[:, i] if follows is None else raw[:, i] + follows
            if not asked.temperature:  # all rules take the likeliest token, and none looks at its law
                previous = said.argmax(-1)
                tokens.append(previous)
                continue
            said = _of_target(said, asked)
            place = torch.arange(asked.z.shape[1] + i, asked.z.shape[1] + i + 1, device=raw.device)
            previous = asked.rule.drafted(said[:, None], place, asked.noise)[:, 0]
            tokens.append(previous)
            log_q.append(said)
        return Proposal(torch.stack(tokens, 1), torch.stack(log_q, 1) if log_q else None)


def _of_target(said: Tensor, asked: DraftRequest) -> Tensor:
    """(N, words) → (N, V) log-probabilities of the target's tokens, at the temperature of the text."""
    said = F.pad(said[:, : asked.states], (0, max(0, asked.states - said.shape[1])), value=-torch.inf)
    return (said.double() / (asked.temperature or 1)).log_softmax(-1)


@dataclass(frozen=True)
class SampledDraft:
    """A diffusion model that fills the masks with any sampler, in any order: confidence, thresholds, remasking …

    What a token's probability was when it was written is not its law given the tokens to its left, so only rules that
    do without can accept such drafts.
    """

    denoise: Denoiser = field(repr=False)
    process: Process = field(repr=False)
    sampler: Sampler
    canvas: int | None = None  # as of `DiffusionDraft`
    window: int | None = None
    ordered = False

    def __post_init__(self) -> None:
        require_range(self, 1, 2**24, "canvas", "window")

    def __call__(self, asked: DraftRequest) -> Proposal:
        canvas, begin = _blank(asked, self.process, self.canvas, self.window)
        done = final_canvas(self.sampler(self.denoise, self.process, canvas, rng=asked.noise.fresh()[0]))
        tokens = done.z[:, begin : begin + asked.count]
        return Proposal(tokens[:, : _leading_known(tokens, asked.states)])


def _leading_known(tokens: Tensor, states: int) -> int:
    """How many tokens stand before the first that the target does not have."""
    return int((tokens < states).long().cumprod(-1).sum())


def _blank(asked: DraftRequest, process: Process, columns: int | None, window: int | None) -> tuple[Canvas, int]:
    """The end of the text and masks after it, and the column of the first mask."""
    text = asked.z if window is None else asked.z[:, -window:]
    begin = text.shape[1]
    free = max(asked.count, 0 if columns is None else columns - begin)
    z = F.pad(text, (0, free), value=process.vocab.masked)
    return Canvas(z, torch.arange(begin + free, device=z.device)[None] < begin), begin


def _groups(count: int, steps: int) -> list[tuple[int, int]]:
    """The first and the last column of each group, as even as can be."""
    steps = min(steps, count)
    ends = [count * i // steps for i in range(steps + 1)] if steps else [0]
    return list(pairwise(ends))
