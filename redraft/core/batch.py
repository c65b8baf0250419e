"""What a training step reads and gives: batches, noisy samples, times, losses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Clean sequences to learn from, and where they stand among all samples."""

    tokens: Tensor  # (B, L) int64
    learn: Tensor  # (B, L) bool: False on prompts and padding
    pad: Tensor | None = None  # (B, L) bool: True where there is no token; None: no padding at all
    sample: Tensor | None = None  # (B,) int64: number of the sample, the key of its randomness
    first: int = 0  # place of row 0 within the global batch (strata of times)
    total: int | None = None  # rows of the global batch; None: B
    step: int = 0  # of the training, counted from 0
    source: Tensor | None = None  # (B, C) int64: what an encoder reads beside the row
    source_pad: Tensor | None = None  # (B, C) bool: no token there
    label: Tensor | None = None  # (B,) int64: the class of each row
    unknown: Tensor | None = None  # (B, L) bool: nobody knows the token there, so it is noise at all times

    @classmethod
    def of(cls, tokens: Tensor, pad: Tensor | None = None) -> Batch:
        """A batch in which every token is learnt, padding excluded."""
        return cls(tokens, torch.ones_like(tokens, dtype=torch.bool) if pad is None else ~pad, pad)

    def to(self, device: torch.device) -> Batch:
        names = ("tokens", "learn", "pad", "sample", "source", "source_pad", "label", "unknown")
        return replace(self, **{n: v.to(device) for n in names if (v := getattr(self, n)) is not None})


class EncodedBatch(NamedTuple):
    """What is noised: the tokens of a batch, or the vectors that a codec makes of them; all fields aligned."""

    x: Tensor  # (B, L) ids, or (B, N, D)
    learn: Tensor  # (B, L) or (B, N) bool
    pad: Tensor | None

    @property
    def given(self) -> Tensor:
        """bool: clean by definition"""
        return ~self.learn if self.pad is None else ~self.learn & ~self.pad


class NoisySample(NamedTuple):
    """A draw z ~ q_t(z | x), all fields aligned with z; gap i stands before token i, the last one at the end."""

    z: Tensor  # (B, L) ids, or (B, N, D) vectors
    t: Tensor  # (B, 1) or (B, L)
    target: Tensor  # as z
    pad: Tensor | None = None
    gaps: Tensor | None = None  # (B, L + 1) insertion: how many tokens are missing
    open: Tensor | None = None  # (B, L + 1) bool: gaps in which tokens may be missing, not those inside a prompt
    arrived: Tensor | None = None  # (B, 1) insertion: how many tokens are there that were not given


class NoiseTimes(NamedTuple):
    """Which times a batch is noised to."""

    t: Tensor  # (B, 1) or (B, L)
    s: Tensor | None = None  # the earlier time, for T-step bounds
    weight: float = 1.0  # what one draw stands for: T for one of T steps


@dataclass(frozen=True)
class Loss:
    """Nats of a batch: `mean` is what to differentiate, the rest is for the log."""

    mean: Tensor  # nats per learnt token
    nats: Tensor  # (B,) nats per row, all parts
    count: Tensor  # (B,) learnt tokens per row
    parts: dict[str, Tensor]  # nats per learnt token of each term

    @classmethod
    def of(cls, count: Tensor, total: Tensor | None = None, **parts: Tensor) -> Loss:
        """Parts are (B,) nats per row; `total` is the number to divide by, the batch's own count if not given."""
        nats = torch.stack(list(parts.values())).sum(0)
        per = (count.sum() if total is None else total).clamp(min=1)
        return cls(nats.sum() / per, nats.detach(), count, {n: p.detach().sum() / per for n, p in parts.items()})
