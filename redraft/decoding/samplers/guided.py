"""A sampler together with its guidance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.randomness import Rng
from redraft.decoding.guidance.base import Guidance
from redraft.decoding.guidance.classifier_free import NegativePrompt


@dataclass(frozen=True)
class GuidedSampler:
    """A sampler that asks a guided denoiser."""

    sampler: Callable[..., Iterator[Canvas]]  # a `Sampler`
    guidance: Guidance

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        return self.sampler(self.guidance(denoise), process, canvas, rng=rng)


@dataclass(frozen=True)
class PromptGuidedSampler:
    """Classifier-free guidance by the text that is given on the canvas: (1 − γ)·without + γ·with (LLaDA: w = γ − 1).

    Without: all given tokens are masked. With a negative prompt, its ids stand there instead, up to the first token to
    be written; it must not be longer than what is given there. Mask noise only.
    """

    sampler: Callable[..., Iterator[Canvas]]  # a `Sampler`
    scale: float = 1.5
    negative: tuple[int, ...] = ()

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        if canvas.z.dim() != 2 or canvas.open is not None:
            raise ValueError("a prompt can be hidden where rows are tokens of fixed places; use ClassifierFree(scale)")
        given = canvas.fixed if canvas.context.pad is None else canvas.fixed & ~canvas.context.pad
        mask = process.vocab.masked
        other = torch.where(given, self._other(canvas, given, mask), -1)
        marked = replace(canvas, context=replace(canvas.context, other=other))
        return self.sampler(NegativePrompt(mask, self.scale)(denoise), process, marked, rng=rng)

    def _other(self, canvas: Canvas, given: Tensor, mask: int) -> Tensor:
        """(B, L) what stands in the place of what is given."""
        other = torch.full_like(canvas.z, mask)
        if not self.negative:
            return other
        begins = given.int().argmax(-1)
        first = torch.where(canvas.fixed.all(-1), canvas.fixed.shape[1], (~canvas.fixed).int().argmax(-1))
        if int((first - begins).min()) < len(self.negative):
            raise ValueError(
                f"a negative prompt of {len(self.negative)} tokens is longer than a given one of "
                f"{int((first - begins).min())}; use a shorter one, or a longer prompt"
            )
        ids = torch.tensor(self.negative, device=other.device)
        return other.scatter(
            1, first[:, None] - len(ids) + torch.arange(len(ids), device=ids.device), ids.expand(len(other), -1)
        )
