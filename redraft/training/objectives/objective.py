"""Training objectives for denoisers, error heads, attribute classifiers and codecs; `TrainStep` wraps any of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core import ops
from redraft.core.batch import Batch, EncodedBatch, Loss
from redraft.core.canvas import Canvas, Context
from redraft.core.processes.gaussian import Gaussian
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

    def learns(self, model: DiffusionLM) -> list[nn.Parameter]:
        """The parameters to train: all but those of the error head, attribute classifier, tagger and a frozen codec."""
        codec = model.codec if model.codec is not None and model.codec.frozen else None
        parts = (model.errors, model.attributes, model.tagger, codec)
        fixed = {id(p) for part in parts for p in _parameters(part)}
        return [p for p in model.parameters() if id(p) not in fixed]

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        """Computes the loss of a batch; `total` is the number of tokens to divide by, if it is a micro-batch."""
        for_time, for_noise, for_reconstruction, for_previous, for_dropping, for_holes = rng.split(6)
        batch = model.learnable(batch)
        tokens = batch.learn.sum(-1)
        batch = _punch_holes(batch, self.holes, rng=for_holes) if self.holes else batch
        process, encoded = model.process, model.encode(batch)
        t = self.times(batch, rng=for_time)
        times = self.loss.grid(t)
        times = times._replace(t=_unknown_at_one(_prompts_at_zero(times.t, encoded), batch))
        noised = process.noise(encoded.x, times.t, pad=encoded.pad, rng=for_noise)
        context = _drop_condition(model, model.context(batch, encoded), self.drop_condition, rng=for_dropping)
        context = self_condition(model, noised, replace(context, pad=noised.pad), rng=for_previous)
        pred = model(noised.z, noised.t, context)
        nats = self.times.weight(t) * self.loss(process, pred, noised, times)
        parts = {
            "diffusion": _sum_rows(nats, encoded.learn if noised.open is None else noised.open),
            "prior": _sum_rows(process.prior_kl(encoded.x), encoded.learn),
        }
        if process.jump and (times.s is None or model.codec is not None) and not _skips_reconstruction(model):
            nats = _reconstruction(model, batch, encoded, rng=for_reconstruction)
            parts["reconstruction"] = _sum_rows(nats, batch.learn)
        if self.anchor and model.codec is not None:
            parts["anchor"] = self.anchor * _sum_rows(model.codec.nll(pred.x, batch.tokens, batch.pad), batch.learn)
        return Loss.of(tokens, total, **parts)


def _skips_reconstruction(model: DiffusionLM) -> bool:
    """Whether to skip the reconstruction term: in training with a frozen codec, which learns nothing from it."""
    return model.training and model.codec is not None and model.codec.frozen


def _parameters(part: nn.Module | None) -> list[nn.Parameter]:
    return [] if part is None else list(part.parameters())


def _sum_rows(nats: Tensor, learn: Tensor) -> Tensor:
    """(B,) nats of each row, summed over learned positions; prompts do not count."""
    return torch.where(learn, nats, 0.0).sum(-1)


def _prompts_at_zero(t: Tensor, encoded: EncodedBatch) -> Tensor:
    """Sets the time of given tokens to zero: prompts are clean."""
    return torch.where(encoded.given, 0.0, t) if bool(encoded.given.any()) else t


def _unknown_at_one(t: Tensor, batch: Batch) -> Tensor:
    """Sets the time of unknown tokens to one: they are pure noise."""
    return t if batch.unknown is None else torch.where(batch.unknown, 1.0, t)


def _reconstruction(model: DiffusionLM, batch: Batch, encoded: EncodedBatch, *, rng: Rng) -> Tensor:
    """(B, L) nats of decoding the tokens from the least noisy z of the schedule."""
    tiny = torch.full_like(encoded.learn, 1e-12, dtype=ops.widest_float(batch.tokens.device))
    t = _unknown_at_one(_prompts_at_zero(tiny, encoded), batch)
    noised = model.process.noise(encoded.x, t, pad=encoded.pad, rng=rng)
    if model.codec is not None:
        assert isinstance(model.process, Gaussian), "only Gaussian noise works on vectors"
        signal = model.process.path.scales(noised.t)[0][..., None].to(noised.z)
        return model.codec.nll(model.codec.decoder_input(noised.z, signal), batch.tokens, batch.pad)
    pred = model(noised.z, noised.t, model.context(batch))
    return model.process.nelbo(pred, noised, torch.zeros_like(t))


@dataclass(frozen=True)
class ErrorHeadObjective:
    """Trains only the error head, on the model's own mistakes (G-Star; Meshchaninov et al. 2025).

    A text is noised to t and rewritten in one step, x̂ ~ p(x | z_t), visible tokens included. The label of a token is
    1[x̂ ≠ x]. The loss is binary cross-entropy, with the same weight at all times.
    """

    times: TimeSampler = StratifiedTimes()

    def learns(self, model: DiffusionLM) -> list[nn.Parameter]:
        """The parameters to train."""
        return _parameters(model.errors)

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        for_time, for_noise, for_step = rng.split(3)
        model.network.eval()  # it is not trained here: no dropout
        t = _prompts_at_zero(self.times(batch, rng=for_time), model.encode(batch))
        noised = model.process.noise(batch.tokens, t, pad=batch.pad, rng=for_noise)
        with torch.no_grad():
            context = model.context(batch)
            canvas = Canvas(noised.z, ~batch.learn, context)
            written = model.process.step(model(noised.z, t, context), canvas, torch.zeros_like(t), t, rng=for_step).z
        wrong = (written != batch.tokens).float()
        nats = F.binary_cross_entropy_with_logits(model.error_logits(written, context), wrong, reduction="none")
        return Loss.of(batch.learn.sum(-1), total, mistakes=_sum_rows(nats, batch.learn))


@dataclass(frozen=True)
class AttributeObjective:
    """Trains only the attribute classifier, which predicts the class of noisy text, for guidance.

    Schiff et al. (2024, "D-CBG"). A text is noised to t as for the diffusion loss; the loss is −log p(class | z_t),
    with the same weight at all times.
    """

    times: TimeSampler = StratifiedTimes()

    def learns(self, model: DiffusionLM) -> list[nn.Parameter]:
        """The parameters to train."""
        return _parameters(model.attributes)

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        label = batch.condition.label
        if label is None:
            raise ValueError("these rows have no classes to learn; use data with labels, such as JsonlClasses")
        for_time, for_noise = rng.split(2)
        t = _prompts_at_zero(self.times(batch, rng=for_time), model.encode(batch))
        noised = model.process.noise(batch.tokens, t, pad=batch.pad, rng=for_noise)
        one_hot = F.one_hot(noised.z, model.config.vocab.size).float()
        logits = model.attribute_logits(one_hot, Context(pad=batch.pad))
        return Loss.of(batch.learn.sum(-1), total, attribution=F.cross_entropy(logits, label, reduction="none"))


@dataclass(frozen=True)
class CodecObjective:
    """Trains only the codec, by its own losses. It comes before the diffusion stage, which keeps the codec frozen."""

    def learns(self, model: DiffusionLM) -> list[nn.Parameter]:
        """The parameters to train."""
        return _parameters(model.codec)

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        if model.codec is None:
            raise ValueError("this model has no codec to train: its process works on tokens")
        losses = model.codec.losses(batch.tokens, batch.pad, rng=rng)
        not_pad = Batch.of(batch.tokens, batch.pad).learn  # decoders write given tokens too, such as the start token
        return Loss.of(batch.learn.sum(-1), total, **{name: _sum_rows(nats, not_pad) for name, nats in losses.items()})


class TrainingGoal(Protocol):
    """An objective: the parameters to train and their loss. `Objective` and `CodecObjective` are examples."""

    def learns(self, model: DiffusionLM) -> list[nn.Parameter]:
        """The parameters to train."""
        ...

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss: ...


class TrainStep(nn.Module):
    """Noise, network and loss as one module, which DDP or FSDP2 can wrap; freezes all parameters not trained."""

    def __init__(self, model: DiffusionLM, objective: TrainingGoal) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        learns = {id(p) for p in objective.learns(model)}
        for p in model.parameters():
            p.requires_grad_(id(p) in learns)

    def forward(self, batch: Batch, rng: Rng, total: Tensor | None = None) -> Loss:
        return self.objective(self.model, batch, rng=rng, total=total)
