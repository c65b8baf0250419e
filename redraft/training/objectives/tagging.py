"""Objectives for taggers: tags of the words in noisy rows, or of the words after a prefix."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core.batch import Batch, Loss
from redraft.core.canvas import Context
from redraft.core.randomness import Rng
from redraft.core.vocab import require_range
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.parts.tagger import FutureTagger, Tagger, TaggerConfig
from redraft.training.objectives.objective import _prompts_at_zero, _sum_rows
from redraft.training.objectives.time_samplers import StratifiedTimes, TimeSampler


@dataclass(frozen=True)
class TaggerObjective:
    """Trains only the tagger, which predicts the tag of each word of a noisy row.

    Li et al. (2022, §5.1), Schiff et al. (2024). Rows are noised to t as for the diffusion loss; the loss is
    −log p(tag of x_l | z_t), with the same weight at all times and positions.
    """

    times: TimeSampler = StratifiedTimes()

    def trained_parameters(self, model: DiffusionLM) -> list[nn.Parameter]:
        """The parameters to train."""
        return model.part(Tagger).trained_parameters(model)

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        tagger, (for_time, for_noise) = model.part(Tagger), rng.split(2)
        with torch.no_grad():
            clean = model.read(batch)
            t = _prompts_at_zero(self.times(batch, rng=for_time), clean)
            z = model.process.noise(clean.x, t, pad=clean.pad, rng=for_noise).z
        inputs = z if z.dim() == 3 else F.one_hot(z, model.config.vocab.size).float()
        logits = tagger.logits(model, inputs, t, Context(pad=batch.pad))
        nats = F.cross_entropy(logits.transpose(1, 2), _tag_ids(tagger.tags, batch.tokens), reduction="none")
        return Loss.of(batch.learn.sum(-1), total, tagging=_sum_rows(nats, batch.learn))


@dataclass(frozen=True)
class FutureTaggerObjective:
    """Trains only the tagger of a causal model, which predicts the tags after a prefix (FUDGE, Yang & Klein 2021).

    The input is the words up to a uniformly drawn position and the tags after it; the loss is −log p(next tag) at every
    position. A fraction `hidden` of the input tags is replaced by "any tag", so that wildcards can be read too.
    """

    hidden: float = 0.1  # fraction of the input tags that are hidden

    def __post_init__(self) -> None:
        require_range(self, 0, 1, "hidden")

    def trained_parameters(self, model: DiffusionLM) -> list[nn.Parameter]:
        """The parameters to train."""
        return model.part(FutureTagger).trained_parameters(model)

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        tagger, (for_split, for_hiding) = model.part(FutureTagger), rng.split(2)
        tags, length = _tag_ids(tagger.tags, batch.tokens), batch.tokens.shape[1]
        position = torch.arange(length, device=tags.device)
        tag_inputs = torch.where(for_hiding.uniform(length) < self.hidden, tagger.free, tagger.size + tags)
        inputs = torch.where(position < (length + 1) * for_split.uniform(1), batch.tokens, tag_inputs)
        nats = F.cross_entropy(tagger(inputs).transpose(1, 2), tags, reduction="none")
        return Loss.of(batch.learn.sum(-1), total, foreseeing=_sum_rows(nats, batch.learn))


def _tag_ids(tags: TaggerConfig, tokens: Tensor) -> Tensor:
    """(B, L) token ids → (B, L) tag indices"""
    return torch.tensor(tags.of, device=tokens.device)[tokens]
