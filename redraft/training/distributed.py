"""Distributed training on torch.distributed. With one worker, every collective operation here is a no-op."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from redraft.core.hardware.device import find_device
from redraft.training.objectives.objective import TrainStep


@dataclass(frozen=True)
class _Workers:
    """This worker's rank, the number of workers, and its device.

    `torchrun --standalone --nproc-per-node N` starts N workers.
    """

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        return self.rank == 0

    def sum(self, value: Tensor) -> Tensor:
        """Sums a value over all workers."""
        if self.world > 1:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any worker."""
        return flag if self.world == 1 else bool(self.sum(torch.tensor(int(flag), device=self.device)))

    def agree(self, value: int) -> int:
        """Returns the first worker's value on all workers."""
        return int(self.sum(torch.tensor(value if self.first else 0, device=self.device)))

    def wait(self) -> None:
        """Blocks until all workers get here."""
        if self.world > 1:
            dist.barrier()

    def wrap(self, step: TrainStep, shard: bool) -> nn.Module:
        """Wraps the step in DDP, or in FSDP2 with one unit per block; with one worker it stays as it is."""
        if self.world == 1:
            return step
        if shard:
            warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view")  # we never write into it
            for block in step.model.network.blocks:
                fully_shard(block)
            fully_shard(step)
            return step
        return DistributedDataParallel(step, device_ids=[self.device] if self.device.type == "cuda" else None)


@contextmanager
def _join_workers(device_name: str | torch.device = "auto") -> Iterator[_Workers]:
    """Joins the process group that torchrun announces and leaves it at the end, unless it was already initialized."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    rank, local_rank = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    device, joining = find_device(device_name, local_rank), world > 1 and not dist.is_initialized()
    if joining:
        _join(device)
    try:
        yield _Workers(rank, world, device)
    finally:
        if joining:
            dist.destroy_process_group()


def _join(device: torch.device) -> None:
    """Initializes the process group under a key prefix per restart.

    torchrun keeps its store across restarts, and stale addresses of dead workers in it would hang the new ones
    (pytorch#135712). On one node each attempt gets its own prefix. Several nodes count attempts differently, so there
    restarts need TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in the environment of torchrun.
    """
    store, rank, world = next(iter(rendezvous("env://")))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        store = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT')}", store)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", store=store, rank=rank, world_size=world)


# --- sharded tensors: every worker holds some of the rows ---


def _local_rows(tensor: Tensor) -> Tensor:
    """Returns the rows that this worker holds: all of them, unless the tensor is sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _gather_rows(tensor: Tensor) -> Tensor:
    """Returns the whole tensor; every worker must make this call."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Moves a whole tensor to the device of `like`, and shards it the same way; every worker keeps its own rows."""
    tensor = tensor.to(like.device)
    if not isinstance(like, DTensor):
        return tensor
    return DTensor.from_local(tensor, like.device_mesh).redistribute(placements=like.placements)


@contextmanager
def _unsharded(step: nn.Module) -> Iterator[None]:
    """Gathers the outer parameters of a sharded step, so that its model can be called directly.

    The blocks are still gathered and freed one by one.
    """
    if not isinstance(step, FSDPModule):
        yield
        return
    step.unshard()
    try:
        yield
    finally:
        step.reshard()


@contextmanager
def _accumulate_gradients(step: nn.Module, last: bool) -> Iterator[None]:
    """Synchronizes gradients between workers only for the last micro-batch of a step."""
    if isinstance(step, FSDPModule):
        step.set_requires_gradient_sync(last)
    with step.no_sync() if isinstance(step, DistributedDataParallel) and not last else nullcontext():
        yield


# --- process-wide settings ---


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """Collects SIGINT and SIGTERM in a list; a second signal of the same kind has its usual effect at once."""
    received: list[int] = []
    main = threading.current_thread() is threading.main_thread()  # only the main thread may install handlers
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM) if main}

    def note(number: int, _: object) -> None:
        received.append(number)
        signal.signal(number, usual[signal.Signals(number)])

    for number in usual:
        signal.signal(number, note)
    try:
        yield received
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


@contextmanager
def _deterministic_kernels() -> Iterator[None]:
    """Uses deterministic kernels wherever torch has them; warns where it has none."""
    mode, memory = torch.get_deterministic_debug_mode(), cast(Any, torch.utils.deterministic)
    filling = memory.fill_uninitialized_memory
    torch.set_deterministic_debug_mode("warn")
    memory.fill_uninitialized_memory = False  # a debugging aid that costs time
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        memory.fill_uninitialized_memory = filling
