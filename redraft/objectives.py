"""Objectives: which times to draw, and the loss. The probability itself sits in the process."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft import ops
from redraft.model import DiffusionLM
from redraft.ops import Rng
from redraft.processes.base import Process
from redraft.processes.gaussian import Gaussian
from redraft.processes.interpolating import Interpolating
from redraft.types import ABOVE_0, FINITE, Batch, Canvas, Encoded, Loss, Noised, Prediction, Times, require_range

_GOLDEN = 0.6180339887498949


class Clock(ABC):
    """Which times a batch is noised to."""

    @abstractmethod
    def __call__(self, batch: Batch, *, rng: Rng) -> Tensor:
        """(B, 1), or (B, L) where tokens have times of their own."""

    def weight(self, t: Tensor) -> Tensor | float:
        """What a draw at t stands for, so that the mean is that over all times: one over its density."""
        return 1.0


@dataclass(frozen=True)
class Stratified(Clock):
    """Uniform times in [low, high], one stratum per row of the *global* batch, whatever its split over workers.

    Row i of n: t = (i + u)/n. With `block`, each block of tokens has a time of its own: block b turns the strata by
    b golden sections, so that every block is stratified over the rows and the blocks of a row are spread.
    Clipping to [low, high] trains on the levels that teach most (BD3-LM); evaluation uses all. With `power` t is a
    power of the uniform number: above one, times near zero are drawn more often, and their loss counts less. Bounds
    whose weight is singular there (insertion) are much less noisy so, and mean the same.
    """

    low: float = 0.0
    high: float = 1.0
    block: int | None = None
    power: float = 1.0

    def __post_init__(self) -> None:
        require_range(self, 1, FINITE, "power")
        require_range(self, 1, math.inf, "block")
        if not 0 <= self.low < self.high <= 1:
            raise ValueError(f"times must satisfy 0 <= low < high <= 1; got low={self.low}, high={self.high}")

    def __call__(self, batch: Batch, *, rng: Rng) -> Tensor:
        (B, L), device = batch.tokens.shape, batch.tokens.device
        blocks = 1 if self.block is None else -(-L // self.block)
        row = torch.arange(batch.first, batch.first + B, device=device)[:, None]
        turn = torch.arange(blocks, device=device) * _GOLDEN
        t = ((row + rng.uniform(blocks)) / (batch.total or B) + turn) % 1
        t = self.low + (self.high - self.low) * t**self.power
        return t if self.block is None else t.repeat_interleave(self.block, 1)[:, :L]

    def weight(self, t: Tensor) -> Tensor | float:
        """What the loss at a drawn time counts: one over its density, relative to even draws."""
        if self.power == 1:
            return 1.0
        u = ((t - self.low) / (self.high - self.low)) ** (1 / self.power)
        return (self.power * u ** (self.power - 1)).float()


@dataclass(frozen=True)
class Importance(Clock):
    """Times drawn by densities over equal parts of [0, 1], and weighed so that the mean stays the same.

    The variance is least for a density ∝ √E[loss²] (Hoogeboom et al. 2021 keep a running mean of it). Here the table is
    a value, as all settings are: `importance` measures it with a model, and a run with it resumes as any other.
    """

    density: tuple[float, ...]  # only its proportions matter
    block: int | None = None  # as of `Stratified`

    def __post_init__(self) -> None:
        if not self.density or min(self.density) <= 0:
            raise ValueError(f"density={self.density}; every part of the time needs a density above 0")

    def __call__(self, batch: Batch, *, rng: Rng) -> Tensor:
        u = Stratified(block=self.block)(batch, rng=rng)
        share = self._shares(u)
        ends = share.cumsum(0)
        part = torch.searchsorted(ends, u.contiguous(), right=True).clamp(max=len(share) - 1)
        return (part + 1 - ((ends[part] - u) / share[part]).clamp(0, 1)) / len(share)

    def weight(self, t: Tensor) -> Tensor:
        share = self._shares(t)
        part = (t * len(share)).floor().long().clamp(max=len(share) - 1)
        return (1 / (len(share) * share[part])).float()

    def _shares(self, like: Tensor) -> Tensor:
        density = torch.tensor(self.density, dtype=like.dtype, device=like.device)
        return density / density.sum()


def importance(model: DiffusionLM, batch: Batch, loss: Term, parts: int = 20, *, rng: Rng) -> Importance:
    """√E[loss²] of a batch in each part of the time: train for a while, measure, go on with this clock."""
    roots = []
    with torch.no_grad():
        for i in range(parts):
            objective = Objective(loss, Stratified(i / parts, (i + 1) / parts))
            roots.append(float(objective(model, batch, rng=rng.fold(i)).nats.square().mean().sqrt()))
    floor = 1e-4 * max(roots)  # as rare as may be, but never never
    return Importance(tuple(max(root, floor) / sum(roots) for root in roots))


def intervals(shortest: float = 0.5, step: float = 0.05) -> list[tuple[float, float]]:
    """All of the time, and every part of it on a grid that is not shorter than `shortest`."""
    parts, least = round(1 / step), round(shortest / step)
    ends = [(low, low + width) for width in range(parts, least - 1, -1) for low in range(parts - width + 1)]
    return [(low / parts, high / parts) for low, high in ends]


def clipped(
    model: DiffusionLM,
    batches: Sequence[Batch],
    loss: Term,
    grid: Iterable[tuple[float, float]] = tuple(intervals()),
    *,
    rng: Rng,
) -> Stratified:
    """Times clipped to the interval whose loss varies least (Arriola et al. 2025, §5.2), a time for each block.

    Intervals are judged on the same rows with the same random numbers. Their losses have different means, so what is
    compared is `relative_variance`. As with `importance`: train for a while, measure, go on with this clock.
    """
    clocks = [Stratified(low, high, model.block) for low, high in grid]
    return min(clocks, key=lambda clock: relative_variance(model, batches, Objective(loss, clock), rng=rng))


@torch.no_grad()
def relative_variance(model: DiffusionLM, batches: Sequence[Batch], objective: Objective, *, rng: Rng) -> float:
    """Var/mean² of the nats per token of a row, over the rows of all batches.

    A loss of half the size and half the deviation teaches as much: optimisers divide by the size of the gradient.
    """
    losses = [objective(model, batch, rng=rng.fold(i)) for i, batch in enumerate(batches)]
    nats = torch.cat([loss.nats / loss.count.clamp(min=1) for loss in losses])
    return float(nats.var() / nats.mean() ** 2)


class Term(ABC):
    """What is minimised at the drawn times."""

    def grid(self, t: Tensor) -> Times:
        """Drawn times → those that the term needs; continuous unless it says otherwise."""
        return Times(t)

    @abstractmethod
    def __call__(self, process: Process, pred: Prediction, noised: Noised, times: Times) -> Tensor:
        """(B, L) nats; with gaps (B, L + 1), the last one at the end"""


class Weight(ABC):
    """Another weight than the bound's own, to train with: the ELBO's grows without limit at both ends of time."""

    @abstractmethod
    def __call__(self, process: Process, noised: Noised) -> Tensor:
        """(B, L) what to multiply the bound by; zero where it is zero itself."""


@dataclass(frozen=True)
class Clip(Weight):
    """w = r_t[z]/q_t(z | x) of interpolating noise, held within [low, high] (GIDD's "clip")."""

    low: float = 0.0
    high: float = 2.0

    def __post_init__(self) -> None:
        require_range(self, 0, math.inf, "low", "high")

    def __call__(self, process: Process, noised: Noised) -> Tensor:
        w = _interpolating(process).weight(noised)
        return torch.where(w > 0, w.clamp(self.low, self.high) / w, 0.0)


@dataclass(frozen=True)
class Dynamic(Weight):
    """w relative to that of a token of uniform noise, at most `high` (GIDD's "dynamic", its default).

    For γ = 1: 2 for the mask, 1 for uniform noise, (c/K)/(1 − t + c/K) for a token that is still itself. The released
    code has another factor for the last, which hardly depends on t; this is the ratio of the bound's own weights.
    """

    high: float = 2.0

    def __post_init__(self) -> None:
        require_range(self, 0, math.inf, "high")

    def __call__(self, process: Process, noised: Noised) -> Tensor:
        process = _interpolating(process)
        w, rate, mix = process.weight(noised), process.rate(noised.t), process.mix(noised.t)
        if float(process.mixing.mix(torch.tensor(0.5), process.words).word) == 0:
            raise ValueError("Dynamic() needs uniform noise, a Hybrid with p_u > 0; for mask noise use Recover()")
        even = rate.word / (rate.keep * mix.word)
        return torch.where(w > 0, (w / even).clamp(max=self.high) / w, 0.0)


def _interpolating(process: Process) -> Interpolating:
    if not isinstance(process, Interpolating):
        raise ValueError(f"this weight is that of Interpolating noise; for {type(process).__name__} leave it out")
    return process


@dataclass(frozen=True)
class Bound(Term):
    """The negative evidence lower bound: in continuous time, or of a chain of `steps` steps (one of them drawn, ×T).

    `steps=1` is the whole way at once: with a causal network exactly the autoregressive likelihood. With a `weight` it
    is no bound any more, but may learn faster; evaluate without.
    """

    steps: int | None = None
    weight: Weight | None = None

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps={self.steps}; a chain has at least one step (None: continuous time)")
        if self.steps is not None and self.weight is not None:
            raise ValueError("a weight changes the bound in continuous time; leave out steps, or weight")

    def grid(self, t: Tensor) -> Times:
        if self.steps is None:
            return Times(t)
        index = (t * self.steps).ceil().clamp(min=1)
        return Times(index / self.steps, (index - 1) / self.steps, float(self.steps))

    def __call__(self, process: Process, pred: Prediction, noised: Noised, times: Times) -> Tensor:
        nats = times.weight * process.nelbo(pred, noised, times.s)
        return nats if self.weight is None else nats * self.weight(process, noised).float()


@dataclass(frozen=True)
class Recover(Term):
    """−log x̂[x] wherever z does not tell x, weighted by t^(−power).

    power 0 is plain masked cross-entropy, which learns faster at small scale; power 1 is LLaDA's loss, for mask noise
    with the linear schedule the same as `Bound`. Of insertion also −log p(g) of the missing tokens g of each gap.
    Whatever the training, evaluate with `Bound`.
    """

    power: float = 0.0

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "power")

    def __call__(self, process: Process, pred: Prediction, noised: Noised, times: Times) -> Tensor:
        where = process.unsure(noised)
        weight = noised.t.float() ** -self.power if self.power else 1.0
        loss = torch.where(where, weight * pred.nll(where, noised.target), 0.0)
        if noised.gaps is None or noised.open is None:
            return loss
        return F.pad(loss, (0, 1)) + torch.where(noised.open, weight * pred.gaps.nll(noised.gaps), 0.0)


class BySnr(ABC):
    """How much the squared error counts at a noise level, by its log signal-to-noise ratio λ."""

    @abstractmethod
    def __call__(self, logsnr: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Simple(BySnr):
    """1: the plain error of x (Diffusion-LM, DiffuSeq, GENIE, TEncDM)."""

    def __call__(self, logsnr: Tensor) -> Tensor:
        return torch.ones_like(logsnr)


@dataclass(frozen=True)
class Snr(BySnr):
    """SNR + `offset`: offset 0 is the plain error of ε (DDPM; score matching with λ(t) = s²), 1 that of v (LD4TG)."""

    offset: float = 0.0

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "offset")

    def __call__(self, logsnr: Tensor) -> Tensor:
        return logsnr.exp() + self.offset


@dataclass(frozen=True)
class MinSnr(BySnr):
    """min(SNR, most) (Hang et al. 2023)."""

    most: float = 5.0

    def __post_init__(self) -> None:
        require_range(self, ABOVE_0, math.inf, "most")

    def __call__(self, logsnr: Tensor) -> Tensor:
        return logsnr.exp().clamp(max=self.most)


@dataclass(frozen=True)
class P2(BySnr):
    """SNR/(k + SNR)^p (Choi et al. 2022); k = p = 1 is a_t² of variance-preserving noise (PLANNER)."""

    k: float = 1.0
    power: float = 1.0

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "k", "power")

    def __call__(self, logsnr: Tensor) -> Tensor:
        snr = logsnr.exp()
        return snr / (self.k + snr) ** self.power


@dataclass(frozen=True)
class Match(Term):
    """w(λ_t)·mean_D (x − x̂)²: every loss of Gaussian diffusion is this with a weight of its own.

    ‖ε − ε̂‖² = SNR·‖x − x̂‖², ‖v − v̂‖² = (SNR + 1)·‖x − x̂‖²; score matching with λ(t) = g² is twice `Bound`.
    """

    weight: BySnr = Simple()

    def __call__(self, process: Process, pred: Prediction, noised: Noised, times: Times) -> Tensor:
        if not isinstance(process, Gaussian):
            raise ValueError(f"Match is the squared error of vectors; {type(process).__name__} needs Recover or Bound")
        weight = self.weight(process.path.logsnr(noised.t)).float()
        error = (noised.target - pred.x).square().mean(-1)
        return torch.where(process.unsure(noised), weight * error, 0.0)


@dataclass(frozen=True)
class Sum(Term):
    """loss + factor·extra at the same times: D3PM's hybrid L_vb + λ·E[−log x̂[x]] as Sum(Bound(T), Recover(), λT).

    The factor is λT since its code adds λ to the KL of one drawn step, of which the bound here has T.
    """

    loss: Term
    extra: Term
    factor: float = 1.0

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "factor")

    def grid(self, t: Tensor) -> Times:
        return self.loss.grid(t)

    def __call__(self, process: Process, pred: Prediction, noised: Noised, times: Times) -> Tensor:
        return self.loss(process, pred, noised, times) + self.factor * self.extra(process, pred, noised, times)


@dataclass(frozen=True)
class Objective:
    """The three terms of variational diffusion: diffusion, prior, reconstruction.

    With an `anchor` also −log p(w | x̂) of vectors, weighted by it: what they say, beside how far off they are (Gao et
    al. 2022, "Difformer", eq. 6).
    """

    loss: Term = Bound()
    times: Clock = Stratified()
    anchor: float = 0.0  # to train with; it is no part of the bound
    untold: float = 0.0  # share of the rows that lose source and label: 0.1 for classifier-free guidance

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "anchor")
        require_range(self, 0, 1, "untold")

    def learns(self, model: DiffusionLM, name: str) -> bool:
        """Whether a parameter is trained: not the error layer, nor a codec that was trained before."""
        codec = model.codec is not None and not model.codec.frozen
        return codec if name.startswith("codec.") else not name.startswith("errors.")

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        """`total`: tokens to divide by, if the batch is a part of a larger one."""
        early, late, last, first, which = rng.split(5)
        process, encoded = model.process, model.encode(batch)
        t = self.times(batch, rng=early)
        times = self.loss.grid(t)
        times = times._replace(t=_given_at_zero(times.t, encoded))
        noised = process.noise(encoded.x, times.t, pad=encoded.pad, rng=late)
        context = model.untold(model.context(batch, encoded), self.untold, rng=which)
        context = model.hinted(noised, replace(context, pad=noised.pad), rng=first)
        pred = model(noised.z, noised.t, context)
        nats = self.times.weight(t) * self.loss(process, pred, noised, times)
        parts = {
            "diffusion": _summed(nats, encoded.learn if noised.open is None else noised.open),
            "prior": _summed(process.prior_kl(encoded.x), encoded.learn),
        }
        if process.jump and (times.s is None or model.codec is not None):
            parts["reconstruction"] = _summed(_reconstruction(model, batch, encoded, rng=last), batch.learn)
        if self.anchor and model.codec is not None:
            parts["anchor"] = self.anchor * _summed(model.codec.nll(pred.x, batch.tokens, batch.pad), batch.learn)
        return Loss.of(batch.learn.sum(-1), total, **parts)


def _summed(nats: Tensor, learn: Tensor) -> Tensor:
    """(B,) nats of the rows; prompts count in no term."""
    return torch.where(learn, nats, 0.0).sum(-1)


def _given_at_zero(t: Tensor, encoded: Encoded) -> Tensor:
    """Prompts are clean: their time is zero."""
    return torch.where(encoded.given, 0.0, t) if bool(encoded.given.any()) else t


def _reconstruction(model: DiffusionLM, batch: Batch, encoded: Encoded, *, rng: Rng) -> Tensor:
    """(B, L) nats of the last jump, from the least noisy z that the schedule knows to the tokens."""
    tiny = torch.full_like(encoded.learn, 1e-12, dtype=ops.wide(batch.tokens.device))
    t = _given_at_zero(tiny, encoded)
    noised = model.process.noise(encoded.x, t, pad=encoded.pad, rng=rng)
    if model.codec is not None:
        return model.codec.nll(noised.z, batch.tokens, batch.pad)
    pred = model(noised.z, noised.t, model.context(batch))
    return model.process.nelbo(pred, noised, torch.zeros_like(t))


@dataclass(frozen=True)
class Mistakes:
    """Trains the error layer alone, on what the model itself gets wrong (G-Star; Meshchaninov et al. 2025).

    A text is noised to t and written anew in one step, visible tokens included: x̂ ~ p(x | z_t). The label of a token is
    1[x̂ ≠ x], the loss its binary cross-entropy, all times alike.
    """

    times: Clock = Stratified()

    def learns(self, model: DiffusionLM, name: str) -> bool:
        """Whether a parameter is trained."""
        return name.startswith("errors.")

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        early, late, last = rng.split(3)
        model.network.eval()  # it does not learn: no dropout
        t = _given_at_zero(self.times(batch, rng=early), model.encode(batch))
        noised = model.process.noise(batch.tokens, t, pad=batch.pad, rng=late)
        with torch.no_grad():
            context = model.context(batch)
            canvas = Canvas(noised.z, ~batch.learn, context)
            written = model.process.step(model(noised.z, t, context), canvas, torch.zeros_like(t), t, rng=last).z
        wrong = (written != batch.tokens).float()
        nats = F.binary_cross_entropy_with_logits(model.doubt(written, context), wrong, reduction="none")
        return Loss.of(batch.learn.sum(-1), total, mistakes=_summed(nats, batch.learn))


@dataclass(frozen=True)
class Autoencode:
    """Trains the codec alone, by its own loss: before the diffusion, whose codec stays as it is."""

    def learns(self, model: DiffusionLM, name: str) -> bool:
        """Whether a parameter is trained."""
        return name.startswith("codec.")

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        if model.codec is None:
            raise ValueError("this model has no codec to train: its process works on tokens")
        costs = model.codec.losses(batch.tokens, batch.pad, rng=rng)
        parts = {name: _summed(cost, batch.learn) for name, cost in costs.items()}
        return Loss.of(batch.learn.sum(-1), total, **parts)


class Goal(Protocol):
    """What is trained, and on which loss: `Objective`, `Mistakes` or `Autoencode`."""

    def learns(self, model: DiffusionLM, name: str) -> bool: ...

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss: ...


class Step(nn.Module):
    """Noise, network and loss as one module: the only thing that DDP, FSDP2, autocast and compile wrap."""

    def __init__(self, model: DiffusionLM, objective: Goal) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        for name, p in model.named_parameters():
            p.requires_grad_(objective.learns(model, name))

    def forward(self, batch: Batch, rng: Rng, total: Tensor | None = None) -> Loss:
        return self.objective(self.model, batch, rng=rng, total=total)
