"""LLaDA's published decoder, written out for comparison."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core import Canvas
from redraft.models import DiffusionLM


@dataclass(frozen=True)
class Reference:
    """LLaDA's `generate` (Nie et al. 2025): one pass over the canvas per step, all logits, float64 Gumbel noise.

    As published, but for one thing that makes it better: the mask itself is never drawn.
    """

    steps: int
    block: int
    temperature: float = 1.0
    by_confidence: bool = False  # "low_confidence"; else "random"
    draws_everywhere: bool = True  # as published; False: noise and softmax at masked positions alone

    def __call__(self, model: DiffusionLM, canvas: Canvas, seed: int) -> Tensor:
        *_, end = self.walk(model, canvas, seed)
        return end

    @torch.no_grad()
    def walk(self, model: DiffusionLM, canvas: Canvas, seed: int) -> Iterator[Tensor]:
        """The canvas after each step."""
        generator, mask = torch.Generator().manual_seed(seed), model.config.vocab.masked
        z = canvas.z.masked_fill(~canvas.fixed, mask)
        begin, length = int(canvas.fixed[0].sum()), z.shape[1]
        for lo in range(begin, length, self.block):
            hi = min(lo + self.block, length)
            steps = max(1, round(self.steps * (hi - lo) / (length - begin)))
            for count in _transfers(hi - lo, steps):
                z = self._step(model, z, hi, count, mask, generator)
                yield z

    def _step(
        self, model: DiffusionLM, z: Tensor, hi: int, count: int, mask: int, generator: torch.Generator
    ) -> Tensor:
        logits = model.network.logits(model.network(z))[..., : model.config.vocab.size]
        logits[..., mask] = -torch.inf
        hidden = z == mask
        queried = logits if self.draws_everywhere else logits[hidden]
        drawn, sure = self._drawn(queried, generator)
        if not self.draws_everywhere:
            drawn, sure = (torch.zeros(z.shape, dtype=a.dtype).masked_scatter(hidden, a) for a in (drawn, sure))
        sure[:, hi:] = -torch.inf
        sure = torch.where(hidden, sure, -torch.inf)
        written = z.clone()
        for row in range(len(z)):
            best = sure[row].topk(count).indices
            written[row, best] = drawn[row, best]
        return written

    def _drawn(self, logits: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Tokens by Gumbel's trick, exp(logit)/(−log u)^T, and how sure each is."""
        wide = logits.double()
        noise = (-torch.rand(wide.shape, dtype=torch.float64, generator=generator).log()) ** self.temperature
        drawn = (wide.exp() / noise).argmax(-1)
        if not self.by_confidence:
            return drawn, torch.rand(drawn.shape, dtype=torch.float64, generator=generator)
        return drawn, F.softmax(wide, -1).gather(-1, drawn[..., None]).squeeze(-1)


def _transfers(masked: int, steps: int) -> list[int]:
    """How many tokens each step writes: even, the remainder first."""
    return [masked // steps + (i < masked % steps) for i in range(min(steps, masked))]


def empty(length: int, rows: int = 1) -> Canvas:
    """A canvas of ids without anything given."""
    return Canvas(torch.zeros(rows, length, dtype=torch.int64), torch.zeros(rows, length, dtype=torch.bool))
