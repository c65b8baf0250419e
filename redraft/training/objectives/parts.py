"""Objectives for one part of a model while the rest is frozen: the error head, the attribute classifier, the codec."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core.batch import Batch, Loss
from redraft.core.canvas import Canvas, Context
from redraft.core.randomness import Rng
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.parts.attribute_classifier import AttributeClassifier
from redraft.models.parts.error_head import ErrorHead
from redraft.training.objectives.objective import _prompts_at_zero, _sum_rows
from redraft.training.objectives.time_samplers import StratifiedTimes, TimeSampler


@dataclass(frozen=True)
class ErrorHeadObjective:
    """Trains only the error head, on the model's own mistakes (G-Star; Meshchaninov et al. 2025).

    A text is noised to t and rewritten in one step, x̂ ~ p(x | z_t), visible tokens included. The label of a token is
    1[x̂ ≠ x]. The loss is binary cross-entropy, with the same weight at all times.
    """

    times: TimeSampler = StratifiedTimes()

    def trained_parameters(self, model: DiffusionLM) -> list[nn.Parameter]:
        """The parameters to train."""
        return model.part(ErrorHead).trained_parameters(model)

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        errors, (for_time, for_noise, for_step) = model.part(ErrorHead), rng.split(3)
        model.network.eval()  # it is not trained here: no dropout
        with torch.no_grad():
            clean = model.read(batch)
            t, context = _prompts_at_zero(self.times(batch, rng=for_time), clean), clean.context
            noised = model.process.noise(batch.tokens, t, pad=batch.pad, rng=for_noise)
            canvas = Canvas(noised.z, ~batch.learn, context)
            written = model.process.step(
                model.predict(noised.z, t, context), canvas, torch.zeros_like(t), t, rng=for_step
            ).z
        wrong = (written != batch.tokens).float()
        nats = F.binary_cross_entropy_with_logits(errors.logits(model, written, context), wrong, reduction="none")
        return Loss.of(batch.learn.sum(-1), total, mistakes=_sum_rows(nats, batch.learn))


@dataclass(frozen=True)
class AttributeObjective:
    """Trains only the attribute classifier, which predicts the class of noisy text, for guidance.

    Schiff et al. (2024, "D-CBG"). A text is noised to t as for the diffusion loss; the loss is −log p(class | z_t),
    with the same weight at all times.
    """

    times: TimeSampler = StratifiedTimes()

    def trained_parameters(self, model: DiffusionLM) -> list[nn.Parameter]:
        """The parameters to train."""
        return model.part(AttributeClassifier).trained_parameters(model)

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        label = batch.condition.label
        if label is None:
            raise ValueError("these rows have no classes to learn; use data with labels, such as JsonlClasses")
        for_time, for_noise = rng.split(2)
        t = _prompts_at_zero(self.times(batch, rng=for_time), model.read(batch))
        noised = model.process.noise(batch.tokens, t, pad=batch.pad, rng=for_noise)
        one_hot = F.one_hot(noised.z, model.config.vocab.size).float()
        logits = model.part(AttributeClassifier).logits(one_hot, Context(pad=batch.pad))
        return Loss.of(batch.learn.sum(-1), total, attribution=F.cross_entropy(logits, label, reduction="none"))


@dataclass(frozen=True)
class CodecObjective:
    """Trains only the codec, by its own losses. It comes before the diffusion stage, which keeps the codec frozen."""

    def trained_parameters(self, model: DiffusionLM) -> list[nn.Parameter]:
        """The parameters to train."""
        return [] if model.codec is None else list(model.codec.parameters())

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        if model.codec is None:
            raise ValueError("this model has no codec to train: its process works on tokens")
        losses = model.codec.losses(batch.tokens, batch.pad, rng=rng)
        not_pad = Batch.of(batch.tokens, batch.pad).learn  # decoders write given tokens too, such as the start token
        return Loss.of(batch.learn.sum(-1), total, **{name: _sum_rows(nats, not_pad) for name, nats in losses.items()})
