"""Workers: one process or many, on PyTorch's own engine. On one device everything here does nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from redraft.objectives import Step


@dataclass(frozen=True)
class Workers:
    """This process among all. `torchrun --standalone --nproc-per-node N` starts N of them."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        return self.rank == 0

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all workers."""
        if self.world > 1:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def any(self, flag: bool) -> bool:
        """Whether it is so on any worker."""
        return bool(self.sum(torch.tensor(float(flag), device=self.device)) > 0)

    def wait(self) -> None:
        if self.world > 1:
            dist.barrier()

    def wrap(self, step: Step, shard: bool) -> nn.Module:
        """DDP, or FSDP2 with every block a unit of its own."""
        if shard:
            if self.world == 1:
                raise ValueError("shard=True spreads weights over workers and there is one; start with torchrun")
            for block in step.model.network.blocks:
                fully_shard(block)
            fully_shard(step)
            return step
        if self.world == 1:
            return step
        return DistributedDataParallel(step, device_ids=[self.device] if self.device.type == "cuda" else None)


@contextmanager
def workers() -> Iterator[Workers]:
    """Joins the process group that torchrun announces, and leaves it at the end."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    rank, local = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    device = best_device(local)
    if world > 1:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Workers(rank, world, device)
    finally:
        if world > 1:
            dist.destroy_process_group()


def best_device(local: int = 0) -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda", local)
    return torch.device("mps") if torch.backends.mps.is_available() else torch.device("cpu")


def whole(tensor: Tensor) -> Tensor:
    """A sharded tensor gathered; every worker must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def spread(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor on the device, and in the shards, of another."""
    tensor = tensor.to(like.device)
    return distribute_tensor(tensor, like.device_mesh, like.placements) if isinstance(like, DTensor) else tensor
