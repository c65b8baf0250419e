"""Writing in one call: texts, and what they cost.

Every row draws from its own key, (seed, number of the row), so no text depends on the batch size.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from redraft import ops
from redraft.data import Framing
from redraft.model import DiffusionLM
from redraft.samplers import Sampler, last
from redraft.types import Batch, Canvas, Vocab


@contextmanager
def _evaluating(model: DiffusionLM) -> Iterator[torch.device]:
    """The model's device; inside, gradients and dropout are off, and afterwards every module is as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield next(model.parameters()).device
    finally:
        for module, mode in modes:
            module.training = mode


@dataclass
class Calls:
    """Network calls, counted per row; divided by the rows written this is the NFE of a sampler."""

    rows: int = 0


@contextmanager
def calls(model: DiffusionLM) -> Iterator[Calls]:
    """Counts the network's calls while it lasts, those that only fill a cache included."""
    counted = Calls()

    def count(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        counted.rows += len(inputs[0])

    handle = model.network.blocks[0].register_forward_pre_hook(count)
    try:
        yield counted
    finally:
        handle.remove()


def written(start: Canvas, end: Canvas, vocab: Vocab) -> Tensor:
    """(B,) tokens generated: no given tokens, no padding, nothing from the first new end token on."""
    same = end.open is None and start.z.shape[1] == end.z.shape[1]
    filled = start if same else end  # insertion moves what is given; a compressed text has nothing given
    new = ~filled.fixed if filled.context.pad is None else ~filled.fixed & ~filled.context.pad
    ended = (new & (end.z == vocab.eos)).cumsum(-1) > 0 if vocab.eos is not None else torch.zeros_like(new)
    return (new & ~ended).sum(-1)


@dataclass(frozen=True)
class Generated:
    """Texts and what they cost."""

    texts: list[str]
    nfe: float  # network calls per row
    seconds: float  # of sampling
    tokens: int  # generated ones, as `written` counts

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


def generate(
    model: DiffusionLM, sampler: Sampler, canvas: Canvas, *, seed: int = 0, batch: int = 64, first: int = 0
) -> Generated:
    """Fills all rows of a canvas, `batch` at a time; row i draws from the key (seed, first + i), whatever its batch."""
    texts: list[str] = []
    seconds, tokens = 0.0, 0
    with _evaluating(model), calls(model) as counted:
        for rows in torch.arange(len(canvas.z), device=canvas.z.device).split(batch):
            clock = time.perf_counter()
            start = canvas.rows(rows)
            end = last(sampler(model, model.process, start, rng=ops.rng(seed, first + rows)))
            end = model.to_tokens(end)
            tokens += int(written(start, end, model.config.vocab).sum())  # also waits for the device
            seconds += time.perf_counter() - clock
            texts += model.text(end)
    return Generated(texts, counted.rows / len(texts), seconds, tokens)


def to_write(model: DiffusionLM, framing: Framing, rows: int, held_out: Batch) -> Canvas:
    """Empty canvases as long as the training rows; for models that answer sources, one per held-out source.

    At most as many answers as the batch has rows.
    """
    device = next(model.parameters()).device
    if framing.asked:
        answers = model.blank(held_out.to(device))
        return answers.rows(torch.arange(min(rows, len(answers.z)), device=device))
    given = model.config.vocab.bos is not None  # a canvas begins with it
    return model.canvas(new=framing.length - given, rows=rows)
