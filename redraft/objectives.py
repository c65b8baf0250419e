"""Objectives: which times to draw, and the loss. The probability itself sits in the process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from redraft import ops
from redraft.model import DiffusionLM
from redraft.ops import Rng
from redraft.processes.base import Process
from redraft.types import Batch, Loss, Noised, Prediction, Times

_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class Stratified:
    """Uniform times in [low, high], one stratum per row of the *global* batch, whatever its split over workers.

    Row i of n: t = (i + u)/n. With `block`, each block of tokens has a time of its own: block b turns the strata by
    b golden sections, so that every block is stratified over the rows and the blocks of a row are spread.
    Clipping to [low, high] trains on the levels that teach most (BD3-LM); evaluation uses all.
    """

    low: float = 0.0
    high: float = 1.0
    block: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high <= 1:
            raise ValueError(f"times must satisfy 0 <= low < high <= 1; got low={self.low}, high={self.high}")

    def __call__(self, batch: Batch, *, rng: Rng) -> Tensor:
        """(B, 1), or (B, L) with blocks."""
        (B, L), device = batch.tokens.shape, batch.tokens.device
        blocks = 1 if self.block is None else -(-L // self.block)
        row = torch.arange(batch.first, batch.first + B, device=device)[:, None]
        turn = torch.arange(blocks, device=device) * _GOLDEN
        t = ((row + rng.uniform(blocks)) / (batch.total or B) + turn) % 1
        t = self.low + (self.high - self.low) * t
        return t if self.block is None else t.repeat_interleave(self.block, 1)[:, :L]


class Term(ABC):
    """What is minimised at the drawn times."""

    def grid(self, t: Tensor) -> Times:
        """Drawn times → those that the term needs; continuous unless it says otherwise."""
        return Times(t)

    @abstractmethod
    def __call__(self, process: Process, pred: Prediction, noised: Noised, times: Times) -> Tensor:
        """(B, L) nats"""


@dataclass(frozen=True)
class Bound(Term):
    """The negative evidence lower bound: in continuous time, or of a chain of `steps` steps (one of them drawn, ×T).

    `steps=1` is the whole way at once: with a causal network exactly the autoregressive likelihood.
    """

    steps: int | None = None

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps={self.steps}; a chain has at least one step (None: continuous time)")

    def grid(self, t: Tensor) -> Times:
        if self.steps is None:
            return Times(t)
        index = (t * self.steps).ceil().clamp(min=1)
        return Times(index / self.steps, (index - 1) / self.steps, float(self.steps))

    def __call__(self, process: Process, pred: Prediction, noised: Noised, times: Times) -> Tensor:
        return times.weight * process.nelbo(pred, noised, times.s)


@dataclass(frozen=True)
class Recover(Term):
    """−log x̂[x] wherever z does not tell x, weighted by t^(−power).

    power 0 is plain masked cross-entropy, which learns faster at small scale; power 1 is LLaDA's loss, for mask noise
    with the linear schedule the same as `Bound`. Whatever the training, evaluate with `Bound`.
    """

    power: float = 0.0

    def __call__(self, process: Process, pred: Prediction, noised: Noised, times: Times) -> Tensor:
        where = process.unsure(noised)
        weight = times.t.float() ** -self.power if self.power else 1.0
        return torch.where(where, weight * pred.nll(where, noised.target), 0.0)


@dataclass(frozen=True)
class Objective:
    """The three terms of variational diffusion: diffusion, prior, reconstruction."""

    loss: Term = Bound()
    times: Stratified = Stratified()

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        """`total`: tokens to divide by, if the batch is a part of a larger one."""
        early, late, last = rng.split(3)
        process, learn = model.process, batch.learn
        times = self.loss.grid(self.times(batch, rng=early))
        times = times._replace(t=_given_at_zero(times.t, batch))
        noised = process.noise(batch.tokens, times.t, pad=batch.pad, rng=late)
        pred = model(noised.z, noised.t, model.context(batch))
        parts = {
            "diffusion": self.loss(process, pred, noised, times),
            "prior": process.prior_kl(batch.tokens),
        }
        if process.jump and times.s is None:
            parts["reconstruction"] = _reconstruction(model, batch, rng=last)
        return Loss.of(learn.sum(-1), total, **{n: torch.where(learn, p, 0.0).sum(-1) for n, p in parts.items()})


def _given_at_zero(t: Tensor, batch: Batch) -> Tensor:
    """Prompts are clean: their time is zero."""
    given = ~batch.learn if batch.pad is None else ~batch.learn & ~batch.pad
    return torch.where(given, 0.0, t) if bool(given.any()) else t


def _reconstruction(model: DiffusionLM, batch: Batch, *, rng: Rng) -> Tensor:
    """(B, L) nats of the last jump, from the least noisy z that the schedule knows to x."""
    tiny = torch.full_like(batch.tokens, 1e-12, dtype=ops.wide(batch.tokens.device))
    t = _given_at_zero(tiny, batch)
    noised = model.process.noise(batch.tokens, t, pad=batch.pad, rng=rng)
    pred = model(noised.z, noised.t, model.context(batch))
    return model.process.nelbo(pred, noised, torch.zeros_like(t))


class Step(nn.Module):
    """Noise, network and loss as one module: the only thing that DDP, FSDP2, autocast and compile wrap."""

    def __init__(self, model: DiffusionLM, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, batch: Batch, rng: Rng, total: Tensor | None = None) -> Loss:
        return self.objective(self.model, batch, rng=rng, total=total)
