"""Inputs and outputs of a training step: batches, noisy samples, times, losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from redraft.core.canvas import Context
from redraft.core.condition import Condition
from redraft.core.ops import _map_tensors


@dataclass(frozen=True)
class BatchOrigin:
    """Where the rows of a batch come from: their samples in the data, and their place in the global batch of a step."""

    sample: Tensor | None = None  # (B,) int64: index of the sample, which keys its random numbers
    first: int = 0  # index of row 0 in the global batch, for stratified times
    total: int | None = None  # rows of the global batch; None if this batch is all of it
    step: int = 0  # training step, counted from 0


@dataclass(frozen=True)
class Batch:
    """Clean sequences to learn from, with their condition and their origin."""

    tokens: Tensor  # (B, L) int64: ids of the clean tokens
    learn: Tensor  # (B, L) bool: tokens that count in the loss; False on prompts and padding
    pad: Tensor | None = None  # (B, L) bool: True on padding; None if there is no padding
    unknown: Tensor | None = None  # (B, L) bool: unknown tokens, treated as noise at all times
    condition: Condition = Condition()
    origin: BatchOrigin = BatchOrigin()

    @classmethod
    def of(cls, tokens: Tensor, pad: Tensor | None = None) -> Batch:
        """A batch in which every token but padding counts in the loss."""
        return cls(tokens, torch.ones_like(tokens, dtype=torch.bool) if pad is None else ~pad, pad)

    def to(self, device: torch.device) -> Batch:
        def move(tensor: Tensor) -> Tensor:
            return tensor.to(device)

        condition, origin = (_map_tensors(record, move) for record in (self.condition, self.origin))
        return _map_tensors(self, move, condition=condition, origin=origin)


class CleanBatch(NamedTuple):
    """A batch as a model reads it: the tokens to be noised, or the codec's vectors for them. All fields are aligned."""

    x: Tensor  # (B, L) ids, or (B, N, D)
    learn: Tensor  # (B, L) or (B, N) bool: positions that count in the loss
    pad: Tensor | None  # (B, L) or (B, N) bool; None if there is no padding
    context: Context = Context()  # padding, label, source, and the clean tokens for causal and block patterns

    @property
    def given(self) -> Tensor:
        """(B, L) or (B, N) bool: neither learned nor padding (prompts), so clean at all times."""
        return ~self.learn if self.pad is None else ~self.learn & ~self.pad


class NoisySample(NamedTuple):
    """A draw z ~ q_t(z | x). Gap i is the one before token i; the last gap follows the last token."""

    z: Tensor  # (B, L) ids, or (B, N, D) vectors
    t: Tensor  # (B, 1) or (B, L): time of each row or token
    target: Tensor  # clean x, in the shape of z
    pad: Tensor | None = None  # (B, L) or (B, N) bool; None if there is no padding
    gaps: Tensor | None = None  # (B, L + 1) insertion: number of tokens missing in each gap
    open: Tensor | None = None  # (B, L + 1) bool: gaps in which tokens may be missing; closed inside prompts
    arrived: Tensor | None = None  # (B, 1) insertion: number of tokens present that were not given


class NoiseTimes(NamedTuple):
    """The times a batch is noised to."""

    t: Tensor  # (B, 1) or (B, L): time of each row or token
    s: Tensor | None = None  # earlier time, for T-step bounds; None in continuous time
    weight: float = 1.0  # importance weight of the draw: T if it is one of T steps


@dataclass(frozen=True)
class Loss:
    """The loss of a batch in nats: differentiate `mean`; the rest is for logging."""

    mean: Tensor  # nats per learned token
    nats: Tensor  # (B,) nats per row, summed over the parts
    count: Tensor  # (B,) learned tokens per row
    parts: dict[str, Tensor]  # nats per learned token of each term

    @classmethod
    def of(cls, count: Tensor, total: Tensor | None = None, **parts: Tensor) -> Loss:
        """Sum (B,) nats per row over the parts; divide by `total` tokens, or by the batch's own count if None."""
        nats = torch.stack(list(parts.values())).sum(0)
        tokens = (count.sum() if total is None else total).clamp(min=1)
        return cls(nats.sum() / tokens, nats.detach(), count, {n: p.detach().sum() / tokens for n, p in parts.items()})
