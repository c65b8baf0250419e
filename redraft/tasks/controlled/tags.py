"""Parts of speech and other kinds of words: who guides towards them, a lexicon or a trained tagger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from redraft.core.canvas import Canvas, Context
from redraft.core.processes.gaussian import Gaussian
from redraft.decoding.guidance.lookahead import LookAhead
from redraft.decoding.guidance.per_position import PositionClassifier
from redraft.decoding.guidance.token_classifier import FirstOrderClassifier
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.base import Sampler
from redraft.decoding.samplers.guided import GuidedSampler
from redraft.decoding.solvers.gradient_control import GradientControl
from redraft.decoding.solvers.ode import Ddim
from redraft.models.auxiliary.tagger import FutureTagger
from redraft.models.codecs.base import Codec
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.tagging import future_tag_log_prob, tag_log_prob
from redraft.tasks.arguments.rules import ArgumentError
from redraft.tasks.engine.model import TextModel, open_model


@dataclass(frozen=True)
class _TagGuidance:
    """A wish about kinds: what a lexicon says of each token at each place, and the tagger, if there is one."""

    it: TextModel
    table: Tensor  # (L, V) log p(kind that is wanted | token)
    scale: float | None  # None: demanded
    tagger: DiffusionLM | None = None
    wanted: Tensor | None = None  # (L,) the numbers of the wanted kinds, as the tagger knows them; −1: free

    def guided(self, sampler: Sampler) -> Sampler:
        """The sampler, which asks a denoiser that follows the wish."""
        scale = 1.0 if self.scale is None else self.scale
        places = PositionClassifier(self.table, scale)
        if self.tagger is None or self.wanted is None or scale == 0:
            return self._rounded(GuidedSampler(sampler, places))
        if isinstance(self.tagger.tagger, FutureTagger):
            ahead = LookAhead(future_tag_log_prob(self.tagger, self.wanted), scale)
            return GuidedSampler(GuidedSampler(sampler, ahead), places)
        log_prob = tag_log_prob(self.tagger, self.wanted)
        if not isinstance(self.it.lm.process, Gaussian):
            return GuidedSampler(GuidedSampler(sampler, FirstOrderClassifier(log_prob, scale)), places)
        steered = _steered(sampler, _TagEnergy(log_prob, scale))
        return steered if self.scale is not None else self._rounded(GuidedSampler(steered, places))

    def _rounded(self, sampler: Sampler) -> Sampler:
        """Vectors are rounded at the end: to words that are allowed, where a kind is demanded."""
        codec = self.it.lm.codec
        return sampler if codec is None or self.scale is not None else _RoundToAllowed(sampler, codec, self.table)


@dataclass(frozen=True, eq=False)
class _TagEnergy:
    """−γ·log p(y | z, t): the energy of a classifier of noisy vectors, for `GradientControl`."""

    log_prob: Callable[[Tensor, Tensor, Context], Tensor]
    scale: float = 1.0

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Tensor:
        return -self.scale * self.log_prob(z, t, context)


def _steered(sampler: Any, energy: _TagEnergy) -> Any:
    """The sampler with gradient control in its steps, whatever stands around it."""
    if isinstance(sampler, Ancestral):
        return GradientControl(energy, Ddim(sampler.steps, eta=1.0))
    if not hasattr(sampler, "sampler"):
        raise ArgumentError("sampler", "a tagger of vectors steers ancestral sampling; leave sampler=… out")
    return replace(sampler, sampler=_steered(sampler.sampler, energy))


@dataclass(frozen=True, eq=False)
class _RoundToAllowed:
    """Vectors become those of words that are allowed, when they are finished."""

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


def _find_tagger(it: TextModel, path: str | None) -> DiffusionLM | None:
    """The model whose tagger guides: one of its own directory, or that of the model itself, if it has one."""
    if path is None:
        return None if it.lm.tagger is None else it.lm
    model = open_model(path).lm.to(next(it.lm.parameters()).device)
    if model.tagger is None:
        raise ArgumentError(
            "classifier",
            f"classifier={path!r} holds no tagger; train one beside this model: "
            f"redraft train mdlm_tagger_tiny --base {it.display_name} (ar_tagger_tiny, diffusion_lm_tagger_tiny)",
        )
    ours, theirs = it.lm.config, model.config
    same = it.lm.tokenizer == model.tokenizer and ours.process == theirs.process and it.lm.block == model.block
    if not same or not _same_vectors(it.lm, model):
        raise ArgumentError(
            "classifier",
            f"classifier={path!r} reads other noise or other words than {it.display_name} writes; train it there",
        )
    return model


def _same_vectors(ours: DiffusionLM, theirs: DiffusionLM) -> bool:
    """Whether words have the same vectors in both models."""
    if ours.codec is None or theirs.codec is None:
        return ours.codec is theirs.codec
    table, other = ours.codec.table, theirs.codec.table
    return table is not None and other is not None and torch.equal(table, other)
