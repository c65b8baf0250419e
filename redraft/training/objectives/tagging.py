"""Objectives of taggers: kinds of words in noisy rows, or behind a beginning."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core.batch import Batch, Loss
from redraft.core.canvas import Context
from redraft.core.randomness import Rng
from redraft.core.vocab import require_range
from redraft.models.auxiliary.tagger import FutureTagger
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.tagging import tag_logits
from redraft.training.objectives.objective import prompts_at_zero, sum_rows
from redraft.training.objectives.time_samplers import StratifiedTimes, TimeSampler


@dataclass(frozen=True)
class TaggerObjective:
    """Trains the tagger alone: of which kind each word of a noisy row is (Li et al. 2022, §5.1; Schiff et al. 2024).

    Rows are noised to t as in the diffusion; the loss is −log p(kind of x_l | z_t), all times and places alike.
    """

    times: TimeSampler = StratifiedTimes()

    def learns(self, model: DiffusionLM) -> list[nn.Parameter]:
        """The parameters to train."""
        return [] if model.tagger is None else list(model.tagger.parameters())

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        early, late = rng.split(2)
        with torch.no_grad():
            encoded = model.encode(batch)
            t = prompts_at_zero(self.times(batch, rng=early), encoded)
            z = model.process.noise(encoded.x, t, pad=encoded.pad, rng=late).z
        seen = z if z.dim() == 3 else F.one_hot(z, model.config.vocab.size).float()
        logits = tag_logits(model, seen, t, Context(pad=batch.pad))
        nats = F.cross_entropy(logits.transpose(1, 2), tag_ids(model, batch.tokens), reduction="none")
        return Loss.of(batch.learn.sum(-1), total, tagging=sum_rows(nats, batch.learn))


@dataclass(frozen=True)
class FutureTaggerObjective:
    """Trains the tagger of a causal model alone: which kinds follow a beginning (FUDGE, Yang & Klein 2021).

    A row is read as words up to a place drawn evenly and as kinds behind it; the loss is −log p(next kind) everywhere.
    A share of the kinds is `hidden`, so that free ones can be read, too.
    """

    hidden: float = 0.1

    def __post_init__(self) -> None:
        require_range(self, 0, 1, "hidden")

    def learns(self, model: DiffusionLM) -> list[nn.Parameter]:
        """The parameters to train."""
        return [] if model.tagger is None else list(model.tagger.parameters())

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        if not isinstance(tagger := model.tagger, FutureTagger):
            raise ValueError("beginnings are read by the tagger of a causal model; others learn by Tagging()")
        split, hide = rng.split(2)
        kinds, length = tag_ids(model, batch.tokens), batch.tokens.shape[1]
        place = torch.arange(length, device=kinds.device)
        shown = torch.where(hide.uniform(length) < self.hidden, tagger.free, tagger.size + kinds)
        read = torch.where(place < (length + 1) * split.uniform(1), batch.tokens, shown)
        nats = F.cross_entropy(tagger(read).transpose(1, 2), kinds, reduction="none")
        return Loss.of(batch.learn.sum(-1), total, foreseeing=sum_rows(nats, batch.learn))


def tag_ids(model: DiffusionLM, tokens: Tensor) -> Tensor:
    """(B, L) ids → (B, L) the numbers of their kinds"""
    if model.config.kinds is None:
        raise ValueError("this model knows no kinds of words; give its config kinds=Kinds(…)")
    return torch.tensor(model.config.kinds.of, device=tokens.device)[tokens]
