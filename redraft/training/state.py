"""The training state: weights, averaged weights and optimizer moments, saved to and restored from checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from redraft.core.hardware.precision import Precision
from redraft.models.checkpoints import reader
from redraft.models.checkpoints.reader import CheckpointError
from redraft.models.diffusion_lm import DiffusionLM
from redraft.training.distributed import _local_rows, _shard_like


class TrainingError(RuntimeError):
    """Training cannot continue; the last checkpoint is intact."""


@dataclass
class _TrainState:
    """Everything that changes during training, plus the precision, which does not."""

    model: DiffusionLM
    ema: dict[str, Tensor]
    optimizers: list[Optimizer]
    precision: Precision
    step: int = 0
    nats: float = 0.0  # sum of training losses in nats since the last line of the log
    tokens: int = 0  # number of learned tokens since the last line of the log

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Tensors by file: averaged weights, raw weights, moments. If sharded, only the rows of this worker."""
        names = {id(p): n for n, p in self.model.named_parameters()}
        moments = {
            f"{names[id(p)]}|{key}": _local_rows(value)
            for optimizer in self.optimizers
            for p, entry in optimizer.state.items()
            for key, value in entry.items()
        }
        weights = {n: _local_rows(p.detach()) for n, p in self.model.named_parameters()}
        return {"model": {n: _local_rows(p) for n, p in self.ema.items()}, "raw": weights, "optimizer": moments}

    @torch.no_grad()
    def restore(self, saved: reader.Checkpoint) -> None:
        parameters = dict(self.model.named_parameters())
        numbers = _whole_state(saved, parameters)
        for name, p in parameters.items():
            p.copy_(_shard_like(saved.tensors["raw"][name], p))
            self.ema[name].copy_(_shard_like(saved.tensors["model"][name], p))
        owner = {id(p): o for o in self.optimizers for g in o.param_groups for p in g["params"]}
        for key, value in saved.tensors["optimizer"].items():
            name, moment = key.rsplit("|", 1)
            p = parameters[name]
            owner[id(p)].state[p][moment] = _shard_like(value, p) if value.dim() else value.to(p.device)
        self.step, self.nats, self.tokens = numbers["step"], numbers["nats"], numbers["tokens"]


def _whole_state(saved: reader.Checkpoint, parameters: Mapping[str, Tensor]) -> dict[str, Any]:
    """Returns step, nats and tokens of a checkpoint; raises if training cannot resume from it."""
    shapes = {name: p.shape for name, p in parameters.items()}
    for part in ("raw", "model"):
        if {name: p.shape for name, p in saved.tensors.get(part, {}).items()} != shapes:
            raise CheckpointError(
                f"{part}.safetensors of step {saved.step} does not hold the weights of this run; remove this checkpoint"
            )
    moments = saved.tensors.get("optimizer", {})
    allowed = {name: (shape, torch.Size()) for name, shape in shapes.items()}  # shaped like the weight, or a step count
    if not moments or any(m.shape not in allowed.get(key.rsplit("|", 1)[0], ()) for key, m in moments.items()):
        raise CheckpointError(
            f"optimizer.safetensors of step {saved.step} does not belong to this run; remove this checkpoint"
        )
    for tensors in (saved.tensors["raw"], moments):
        if (wrong := reader.first_nonfinite(tensors)) is not None:
            raise CheckpointError(f"{wrong} of step {saved.step} has values that are nan or infinite; remove this step")
    match saved.documents.get("state"):
        case {"step": int(step), "nats": int() | float() as nats, "tokens": int(tokens)} if step == saved.step:
            return {"step": step, "nats": nats, "tokens": tokens}
    raise CheckpointError(f"state.json of step {saved.step} lacks nats, tokens or its step; remove this checkpoint")


@contextmanager
def _averaged(state: _TrainState) -> Iterator[None]:
    """Swaps the averaged weights into the model inside the context, then restores the raw ones."""
    raw = _copies(state.model)
    state.model.load_state_dict(state.ema)
    state.model.eval()
    try:
        yield
    finally:
        state.model.load_state_dict(raw)


def _copies(model: DiffusionLM) -> dict[str, Tensor]:
    return {n: p.detach().clone() for n, p in model.named_parameters()}
