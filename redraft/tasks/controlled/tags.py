"""Guidance toward tags of words, such as parts of speech, by a lexicon or a trained tagger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from redraft.core.canvas import Canvas, Context
from redraft.decoding.guidance.lookahead import LookAhead
from redraft.decoding.guidance.per_position import PositionClassifier
from redraft.decoding.guidance.token_classifier import FirstOrderClassifier
from redraft.decoding.samplers.base import Sampler, SamplerWrapper
from redraft.decoding.samplers.guided import GuidedSampler
from redraft.decoding.solvers.gradient_control import GradientControl
from redraft.decoding.solvers.ode import Ddim
from redraft.models.codecs.base import Codec
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.parts.tagger import FutureTagger, Tagger
from redraft.tasks.arguments.setting import ArgumentError
from redraft.tasks.engine.model import TextModel, open_model


@dataclass(frozen=True)
class _TagGuidance:
    """Guidance toward a tag at each position, by the lexicon's table and, if there is one, a tagger."""

    model: TextModel
    table: Tensor  # (L, V) log p(requested tag | token)
    scale: float | None  # strength γ; None for hard constraints
    tagger: DiffusionLM | None = None
    tag_ids: Tensor | None = None  # (L,) the tagger's index of each requested tag; −1 for any

    def guide(self, sampler: Sampler) -> Sampler:
        """The sampler with this guidance."""
        scale = 1.0 if self.scale is None else self.scale
        lexicon = PositionClassifier(self.table, scale)
        if self.tagger is None or self.tag_ids is None or scale == 0:
            return self._with_rounding(GuidedSampler(sampler, lexicon))
        if self.tagger.config.network.pattern.causal:
            lookahead = LookAhead(self.tagger.part(FutureTagger).log_prob(self.tag_ids), scale)
            return GuidedSampler(GuidedSampler(sampler, lookahead), lexicon)
        log_prob = self.tagger.part(Tagger).log_prob(self.tagger, self.tag_ids)
        if not self.model.lm.process.vectors:
            return GuidedSampler(GuidedSampler(sampler, FirstOrderClassifier(log_prob, scale)), lexicon)
        controlled = _with_gradient_control(sampler, _TagEnergy(log_prob, scale))
        return controlled if self.scale is not None else self._with_rounding(GuidedSampler(controlled, lexicon))

    def _with_rounding(self, sampler: Sampler) -> Sampler:
        """Under hard constraints, rounds the final vectors to allowed words."""
        codec = self.model.lm.codec
        return sampler if codec is None or self.scale is not None else _RoundToAllowed(sampler, codec, self.table)


@dataclass(frozen=True, eq=False)
class _TagEnergy:
    """The energy −γ·log p(y | z, t) of a classifier of noisy vectors, for `GradientControl`."""

    log_prob: Callable[[Tensor, Tensor, Context], Tensor]
    scale: float = 1.0

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Tensor:
        return -self.scale * self.log_prob(z, t, context)


def _with_gradient_control(sampler: Sampler, energy: _TagEnergy) -> Sampler:
    """Replaces the innermost ancestral sampler by one with gradient control."""
    if not sampler.is_ancestral:
        raise ArgumentError("sampler", "a tagger of vectors needs ancestral sampling; leave sampler=… out")
    return sampler.with_core(GradientControl(energy, Ddim(int(sampler.setting("steps") or 1), eta=1.0)))


@dataclass(frozen=True, eq=False)
class _RoundToAllowed(SamplerWrapper):
    """A sampler that rounds its final vectors to those of allowed words."""

    sampler: Sampler
    codec: Codec
    table: Tensor  # (L, V) −inf where a token is forbidden

    def __call__(self, denoise: Any, process: Any, canvas: Canvas, *, rng: Any) -> Iterator[Canvas]:
        last = canvas
        for last in self.sampler(denoise, process, canvas, rng=rng):
            yield last
        with torch.no_grad():
            logits = self.codec.logits(last.z)
            count = min(len(self.table), logits.shape[1])
            logits = torch.cat([logits[:, :count] + self.table[:count], logits[:, count:]], 1)
            yield last.write(self.codec.encode(logits.argmax(-1)))


def _find_tagger(model: TextModel, path: str | None) -> DiffusionLM | None:
    """The model with the tagger, loaded from `path` and checked against `model`; by default `model` itself, or None."""
    if path is None:
        return model.lm if "tagger" in model.lm.parts else None
    lm = open_model(path, device=next(model.lm.parameters()).device).lm
    if "tagger" not in lm.parts:
        raise ArgumentError(
            "classifier",
            f"classifier={path!r} holds no tagger; train one for this model: "
            f"redraft train mdlm_tagger_tiny --base {model.display_name} (ar_tagger_tiny, diffusion_lm_tagger_tiny)",
        )
    same_noise = model.lm.config.process == lm.config.process and model.lm.block == lm.block
    if model.lm.tokenizer != lm.tokenizer or not same_noise or not _same_vectors(model.lm, lm):
        raise ArgumentError(
            "classifier",
            f"classifier={path!r} has other noise or other words than {model.display_name}; train one for this model",
        )
    return lm


def _same_vectors(a: DiffusionLM, b: DiffusionLM) -> bool:
    """Whether words have the same vectors in both models."""
    if a.codec is None or b.codec is None:
        return a.codec is b.codec
    table_a, table_b = a.codec.table, b.codec.table
    return table_a is not None and table_b is not None and torch.equal(table_a, table_b)
