"""Trajectories of a model (texts, and the step that wrote each token), and the loss of certainty distillation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from redraft.core import Batch, Loss, Rng, ops
from redraft.decoding import Sampler
from redraft.models import DiffusionLM
from redraft.tasks import DecodingLoop

TOGETHER = 64  # texts that are written at a time


@dataclass(frozen=True)
class Trajectories:
    """Texts that a model wrote, and when it wrote each token."""

    tokens: Tensor  # (N, L)
    when: Tensor  # (N, L) the step; 0: given

    @classmethod
    def of(cls, model: DiffusionLM, sampler: Sampler, texts: int, length: int) -> Trajectories:
        """Samples `texts` texts of `length` tokens without a prompt."""
        parts = []
        for first in range(0, texts, TOGETHER):
            canvas = model.canvas(new=length, rows=min(TOGETHER, texts - first))
            numbers = torch.arange(first, first + len(canvas.z))
            writing = DecodingLoop(model, sampler, canvas, seed=1, samples=numbers)
            writing.results()
            assert writing.steps.steps is not None
            parts.append((writing.canvas.z, writing.steps.steps))
        tokens, when = (torch.cat(some) for some in zip(*parts, strict=True))
        return cls(tokens, when)

    def save(self, file: Path) -> None:
        """All of it, or nothing."""
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file({name: tensor.contiguous() for name, tensor in vars(self).items()}, file.with_suffix(".part"))
        file.with_suffix(".part").rename(file)


@cache
def trajectories(file: str) -> Trajectories:
    """Those that were saved before."""
    return Trajectories(**load_file(file))


@dataclass(frozen=True)
class Certainty:
    """Cross-entropy on a trajectory's later tokens, and the entropy of what the student is right about."""

    file: str  # of the trajectories; a batch says only which of them
    weight: float = 1.0

    def trained_parameters(self, model: DiffusionLM) -> list[nn.Parameter]:
        """The parameters to train: all."""
        return list(model.parameters())

    def __call__(self, model: DiffusionLM, batch: Batch, *, rng: Rng, total: Tensor | None = None) -> Loss:
        assert batch.origin.sample is not None
        held, row = trajectories(self.file), batch.origin.sample % len(trajectories(self.file).tokens)
        x, when = held.tokens[row], held.when[row]
        hidden = when > (rng.once() * when.amax(-1, keepdim=True)).floor()  # a canvas of the trajectory, each alike
        z = x.masked_fill(hidden, model.config.vocab.masked)
        t = hidden.to(torch.float64).mean(-1, keepdim=True)
        log_x, target = model.predict(z, t, model.read(batch).context).at(hidden), x[hidden]
        doubt = torch.where(log_x.argmax(-1) == target, ops.entropy(log_x), 0.0)
        nll = -log_x.gather(-1, target[:, None]).squeeze(-1)
        parts = {"later": nll, "certainty": self.weight * doubt}
        return Loss.of(hidden.sum(-1), total, **{n: ops.scatter(nats, hidden).sum(-1) for n, nats in parts.items()})
