"""Gibbs sampling: a finished text is improved by masking a few tokens and drawing them again, given all others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.processes.masked import Masked
from redraft.core.randomness import Rng
from redraft.core.tunable import Setting
from redraft.decoding.picks.adaptive import EntropyBound
from redraft.decoding.picks.order import AnyOrder
from redraft.decoding.samplers.base import Sampler, SamplerWrapper, require_steps
from redraft.decoding.samplers.unmask import Unmask


@dataclass(frozen=True)
class Gibbs(SamplerWrapper):
    """A sampler followed by Gibbs steps: each masks `tokens` written tokens and draws them again, given all others.

    `steps` counts the network calls for a row, including those of the inner sampler, which ends within them. An
    adaptive one writes a text in a third of them; the rest improve it. No error head and no training is needed.

    With one token per step this is Gibbs sampling with the model's own conditionals: each step leaves the model's joint
    distribution unchanged, whatever text it starts from. Several tokens are drawn as if they were independent, so
    tokens that depend on each other get a small bias. Positions are redrawn in random order, each once before any of
    them twice. With positions="unlikely" they are drawn with weights 1/p, where p is the probability that a token had
    when it was written. This sharpens: rare words are redrawn more often than common ones, so the distribution tends
    toward p².

    Tokens are drawn at the temperature of the inner sampler. For mask noise only.
    """

    sampler: Sampler = Unmask(None, EntropyBound(0.1, temperature=1.0))
    steps: int = 64
    tokens: int = 1  # number of tokens redrawn per step
    positions: Literal["random", "unlikely"] = "random"
    writes_once = writes_every_step = False

    def __post_init__(self) -> None:
        require_steps(self.steps)
        if self.tokens < 1:
            raise ValueError(f"tokens={self.tokens}; a step redraws at least one token")
        if self.positions not in ("random", "unlikely"):
            raise ValueError(f"positions={self.positions!r}; choose 'random' or 'unlikely'")

    @property
    def draws_exactly(self) -> bool:
        return self.sampler.draws_exactly and self.tokens == 1 and self.positions == "random"

    def with_total_steps(self, steps: int, length: int, at_once: int) -> Sampler | None:
        return Sampler.with_total_steps(self, steps, length, at_once)

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        process = process.narrowed(Masked, "Gibbs", "use SelfCorrection(sampler)")
        for_sampler, for_gibbs = rng.split(2)
        drafts = self._draft()(denoise, process, canvas, rng=for_sampler)
        yield (canvas := next(drafts))
        free, calls = process.hidden(canvas), torch.zeros_like(canvas.z[:, 0])
        for written in drafts:
            calls += (written.z != canvas.z).any(-1)
            yield (canvas := written)
        yield from self._redraw(denoise, process, canvas, free & ~canvas.fixed, self.steps - calls, for_gibbs)

    def _draft(self) -> Sampler:
        """The inner sampler with at most `steps` steps."""
        if not self.sampler.has_setting("steps"):
            return self.sampler
        own = self.sampler.setting("steps")
        return self.sampler.with_setting("steps", self.steps if own is None else min(own, self.steps))

    @torch.no_grad()
    def _redraw(
        self, denoise: Denoiser, process: Masked, canvas: Canvas, free: Tensor, left: Tensor, rng: Rng
    ) -> Iterator[Canvas]:
        """Yield the canvas after each Gibbs step. free: (B, L) positions to redraw; left: (B,) steps of each row."""
        for_order, for_steps = rng.split(2)
        rank = _ranks(for_order.uniform(free.shape[1]), free)
        for i in range(int(left.max()) if free.any() else 0):
            for_choice, for_tokens = for_steps.fold(i).split(2)
            among = free & (left > i)[:, None]
            chosen = among & self._chosen(canvas, rank, free, i, for_choice)
            canvas = self._step(denoise, process, canvas, free, chosen, for_tokens)
            yield canvas

    def _chosen(self, canvas: Canvas, rank: Tensor, free: Tensor, i: int, rng: Rng) -> Tensor:
        """(B, L) bool: the positions that step i redraws."""
        count = free.sum(-1, keepdim=True).clamp(min=1)
        if self.positions == "random":
            return (rank - i * self.tokens) % count < self.tokens
        p = torch.ones_like(rank, dtype=torch.float64) if canvas.confidence is None else canvas.confidence.double()
        gumbel = -(-rng.uniform(free.shape[1]).log()).log()
        return ops.top_per_row(gumbel - p.clamp(min=1e-9).log(), free, count.squeeze(-1).clamp(max=self.tokens))

    def _step(
        self, denoise: Denoiser, process: Masked, canvas: Canvas, free: Tensor, chosen: Tensor, rng: Rng
    ) -> Canvas:
        """Mask the chosen tokens and draw them again, at the time at which this fraction of a row is masked."""
        masked = canvas.write(canvas.z.masked_fill(chosen, process.vocab.masked))
        fraction = chosen.sum(-1, keepdim=True, dtype=torch.float64) / free.sum(-1, keepdim=True).clamp(min=1)
        t = process.time_when_masked(fraction)
        pred, temperature = (
            denoise.predict(masked.z, masked.time(t), masked.context),
            self.sampler.setting("temperature"),
        )
        pick, share = AnyOrder(1.0 if temperature is None else temperature), torch.ones_like(t)
        return process.reveal(pred, masked, t, t, pick, share=share, hidden=chosen, rng=rng).canvas

    def _owns(self, name: Setting) -> bool:
        return name == "steps"


def _ranks(scores: Tensor, free: Tensor) -> Tensor:
    """(B, L) rank of each free position by its score, 0, 1, 2 …; other positions come after them."""
    return scores.masked_fill(~free, torch.inf).argsort(dim=-1, stable=True).argsort(-1)


_NAMED = {
    "gibbs": Gibbs(),
}
