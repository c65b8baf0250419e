"""Samplers that change what the network predicts (guidance) or sees (prompts with noise)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Denoiser, DenoiserWrapper, Prediction
from redraft.core.processes.base import Process
from redraft.core.randomness import Rng
from redraft.core.tunable import words_of
from redraft.decoding.guidance.base import Guidance
from redraft.decoding.guidance.classifier_free import NegativePrompt
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.base import Sampler, SamplerWrapper, require_unconstrained


@dataclass(frozen=True)
class GuidedSampler(SamplerWrapper):
    """A sampler run on a guided denoiser."""

    sampler: Sampler
    guidance: Guidance
    guided = True

    @property
    def _addition(self) -> str:
        return f"with {words_of(self.guidance)}"

    @property
    def draws_exactly(self) -> bool:
        return self.guidance.draws_exactly and self.sampler.draws_exactly

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        return self.sampler(self.guidance(denoise), process, self.guidance.prepared(canvas), rng=rng)


@dataclass(frozen=True)
class PromptGuidedSampler(SamplerWrapper):
    """Classifier-free guidance by the given text: (1 − γ)·without + γ·with the prompt, γ = `scale` (LLaDA: w = γ − 1).

    "Without" means that all given tokens are masked. The ids of a negative prompt replace the last of these masks
    before the first token to write, so it must not be longer than the text given there. Mask noise only.
    """

    sampler: Sampler
    scale: float = 1.5
    negative: tuple[int, ...] = ()
    guided = True

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        if canvas.z.dim() != 2 or canvas.open is not None:
            raise ValueError(
                "PromptGuidedSampler masks the prompt, so rows must be tokens at fixed positions; "
                "use ClassifierFree(scale)"
            )
        given = canvas.fixed if canvas.context.pad is None else canvas.fixed & ~canvas.context.pad
        mask = process.vocab.masked
        other = torch.where(given, self._replacement(canvas, given, mask), -1)
        with_other = replace(canvas, context=canvas.context.with_condition(negative=other))
        return self.sampler(NegativePrompt(mask, self.scale)(denoise), process, with_other, rng=rng)

    def _replacement(self, canvas: Canvas, given: Tensor, mask: int) -> Tensor:
        """(B, L) ids that replace the given tokens in the pass without the prompt."""
        other = torch.full_like(canvas.z, mask)
        if not self.negative:
            return other
        start = given.int().argmax(-1)
        end = torch.where(canvas.fixed.all(-1), canvas.fixed.shape[1], (~canvas.fixed).int().argmax(-1))
        if int((end - start).min()) < len(self.negative):
            raise ValueError(
                f"the negative prompt has {len(self.negative)} tokens, but a prompt has only "
                f"{int((end - start).min())}; shorten the negative prompt or lengthen the prompt"
            )
        ids = torch.tensor(self.negative, device=other.device)
        columns = end[:, None] - len(ids) + torch.arange(len(ids), device=ids.device)
        return other.scatter(1, columns, ids.expand(len(other), -1))


@dataclass(frozen=True)
class NoisedPrompt(SamplerWrapper):
    """A sampler whose network sees given positions noised to the time of their row (Song et al. 2021, App. I.2).

    For networks trained with one noise level per row (Diffusion-LM), which never saw a clean position next to noisy
    ones. DiffuSeq and GENIE are trained with clean sources and do not need it. Each position keeps the same noise ε at
    all times.
    """

    sampler: Sampler = Ancestral()
    obeys_rules = False

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        require_unconstrained(canvas, self, "the network sees given positions only with noise")
        for_sampler, for_noise = rng.split(2)
        return self.sampler(_RowTimeDenoiser(denoise, process, for_noise), process, canvas, rng=for_sampler)


@dataclass(frozen=True)
class _RowTimeDenoiser(DenoiserWrapper):
    """A denoiser that noises given positions to the time of their row and passes on one time per row."""

    process: Process
    noise: Rng

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        row_time = t.amax(1, keepdim=True)
        noisy = self.process.noise(z, row_time, rng=self.noise).z
        given = (t < row_time) if z.dim() == 2 else (t < row_time)[..., None]
        return self.denoise.predict(torch.where(given, noisy, z), row_time, context)
