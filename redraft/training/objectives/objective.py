"""A training step: the times, the noise, the prediction and the loss of a batch. `TrainStep` wraps any objective."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from redraft.core import ops
from redraft.core.batch import Batch, CleanBatch, Loss, NoiseTimes
from redraft.core.randomness import Rng
from redraft.core.vocab import FINITE, require_range
from redraft.models.diffusion_lm import DiffusionLM
from redraft.training.objectives.conditioning import _drop_condition, _punch_holes, self_condition
from redraft.training.objectives.losses import Bound, LossTerm
from redraft.training.objectives.time_samplers import StratifiedTimes, TimeSampler


@dataclass(frozen=True)
class Objective:
    """The three terms of the variational loss: diffusion, prior, reconstruction.

    For vectors, `anchor` adds anchor · (−log p(w | x̂)): x̂ must decode to the right tokens, not only be close to x
    (Gao et al. 2022, "Difformer", eq. 6).
    """

    loss: LossTerm = Bound()
    times: TimeSampler = StratifiedTimes()
    anchor: float = 0.0  # weight of the anchor loss; for training only, not part of the bound
    drop_condition: float = 0.0  # fraction of rows that lose source and label: 0.1 for classifier-free guidance
    holes: float = 0.0  # fraction of rows given except for one or two holes; for training only

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "anchor")
        require_range(self, 0, 1, "drop_condition")
        require_range(self, 0, 1, "holes")

    def trained_parameters(self, model: DiffusionLM) -> list[nn.Parameter]:
        """The parameters to train: those of the network, of a codec that is not frozen, and of joint parts."""
        parts = [part for part in model.parts.values() if part.joint]
        codec = [] if model.codec is None or model.codec.frozen else [model.codec]
        return [p for module in (model.network, *codec, *parts) for p in module.parameters()]

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        """Computes the loss of a batch; `total` is the number of tokens to divide by, if it is a micro-batch."""
        for_time, for_noise, for_reconstruction, for_previous, for_dropping, for_holes = rng.split(6)
        process, batch = model.process, model.config.learnable(batch)
        tokens = batch.learn.sum(-1)
        batch = _punch_holes(batch, self.holes, rng=for_holes)
        clean = model.read(batch)
        t = self.times(batch, rng=for_time)
        times = _clamp_times(self.loss.grid(t), clean, batch)
        noised = process.noise(clean.x, times.t, pad=clean.pad, rng=for_noise)
        context = _drop_condition(model, clean.context, self.drop_condition, rng=for_dropping)
        context = self_condition(model, noised, replace(context, pad=noised.pad), rng=for_previous)
        lazy = model.predict(noised.z, noised.t, context)  # the network runs when the loss queries this
        nats = self.times.weight(t) * self.loss(process, lazy, noised, times)
        parts = {
            "diffusion": _sum_rows(nats, clean.learn if noised.open is None else noised.open),
            "prior": _sum_rows(process.prior_kl(clean.x), clean.learn),
        }
        if process.leaves_noise and (times.s is None or model.codec is not None) and not _skips_reconstruction(model):
            nats = _reconstruction(model, batch, clean, rng=for_reconstruction)
            parts["reconstruction"] = _sum_rows(nats, batch.learn)
        if self.anchor and model.codec is not None:
            parts["anchor"] = self.anchor * _sum_rows(model.codec.nll(lazy.x, batch.tokens, batch.pad), batch.learn)
        return Loss.of(tokens, total, **parts)


def _skips_reconstruction(model: DiffusionLM) -> bool:
    """Whether to skip the reconstruction term: in training with a frozen codec, which learns nothing from it."""
    return model.training and model.codec is not None and model.codec.frozen


def _sum_rows(nats: Tensor, learn: Tensor) -> Tensor:
    """(B,) nats of each row, summed over learned positions; prompts do not count."""
    return torch.where(learn, nats, 0.0).sum(-1)


def _prompts_at_zero(t: Tensor, clean: CleanBatch) -> Tensor:
    """Sets the time of given tokens to zero: prompts are clean."""
    return t if ops.known_zero(clean.given) else torch.where(clean.given, 0.0, t)


def _clamp_times(times: NoiseTimes, clean: CleanBatch, batch: Batch) -> NoiseTimes:
    """Sets the time of prompts to zero, since they are clean, and of unknown tokens to one, since they are noise."""
    t = _prompts_at_zero(times.t, clean)
    return times._replace(t=t if batch.unknown is None else torch.where(batch.unknown, 1.0, t))


def _reconstruction(model: DiffusionLM, batch: Batch, clean: CleanBatch, *, rng: Rng) -> Tensor:
    """(B, L) nats of decoding the tokens from the least noisy z of the schedule."""
    tiny = torch.full_like(clean.learn, 1e-12, dtype=ops.widest_float(batch.tokens.device))
    t = _clamp_times(NoiseTimes(tiny), clean, batch).t
    noised = model.process.noise(clean.x, t, pad=clean.pad, rng=rng)
    if model.codec is not None:
        signal = model.config.gaussian.path.scales(noised.t)[0][..., None].to(noised.z)
        return model.codec.nll(model.codec.decoder_input(noised.z, signal), batch.tokens, batch.pad)
    pred = model.predict(noised.z, noised.t, clean.context)
    return model.process.nelbo(pred, noised, torch.zeros_like(t))


class TrainingGoal(Protocol):
    """An objective: the parameters to train and their loss. `Objective` and `ErrorHeadObjective` are examples."""

    def trained_parameters(self, model: DiffusionLM) -> list[nn.Parameter]:
        """The parameters to train."""
        ...

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss: ...


class TrainStep(nn.Module):
    """Noise, network and loss as one module, which DDP or FSDP2 can wrap; freezes all parameters not trained."""

    def __init__(self, model: DiffusionLM, objective: TrainingGoal) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        trained = {id(p) for p in objective.trained_parameters(model)}
        for p in model.parameters():
            p.requires_grad_(id(p) in trained)

    def forward(self, batch: Batch, rng: Rng, total: Tensor | None = None) -> Loss:
        return self.objective(self.model, batch, rng=rng, total=total)
