"""Workers: one process or many, on PyTorch's own engine. On one device everything here does nothing."""

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

from redraft.core.hardware.system import best_device
from redraft.training.objectives.objective import TrainStep


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
        return flag if self.world == 1 else bool(self.sum(torch.tensor(int(flag), device=self.device)))

    def agree(self, number: int) -> int:
        """The number of the first worker, on all of them."""
        return int(self.sum(torch.tensor(number if self.first else 0, device=self.device)))

    def wait(self) -> None:
        """Until all are here."""
        if self.world > 1:
            dist.barrier()

    def wrap(self, step: TrainStep, shard: bool) -> nn.Module:
        """DDP, or FSDP2 with every block a unit of its own."""
        if self.world == 1:
            return step
        if shard:
            warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view")  # nobody writes into it
            for block in step.model.network.blocks:
                fully_shard(block)
            fully_shard(step)
            return step
        return DistributedDataParallel(step, device_ids=[self.device] if self.device.type == "cuda" else None)


@contextmanager
def join_workers() -> Iterator[Workers]:
    """Joins the process group that torchrun announces, and leaves it at the end, unless it was joined before."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    rank, place = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    device, joining = best_device(place), world > 1 and not dist.is_initialized()
    if joining:
        _join(device)
    try:
        yield Workers(rank, world, device)
    finally:
        if joining:
            dist.destroy_process_group()


def _join(device: torch.device) -> None:
    """torchrun keeps its store over a restart, and addresses of the dead in it would hang the living (pytorch#135712).

    On one node each attempt gets names of its own. Nodes count attempts differently: on several, restarts need
    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in the environment of torchrun.
    """
    store, rank, world = next(iter(rendezvous("env://")))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        store = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT')}", store)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", store=store, rank=rank, world_size=world)


# --- tensors of which every worker holds some rows ---


def local_rows(tensor: Tensor) -> Tensor:
    """The rows that this worker holds: all of them, unless the tensor is sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def gather_rows(tensor: Tensor) -> Tensor:
    """All rows; every worker must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor on the device, and in the shards, of another; every worker keeps its own rows."""
    tensor = tensor.to(like.device)
    if not isinstance(like, DTensor):
        return tensor
    return DTensor.from_local(tensor, like.device_mesh).redistribute(placements=like.placements)


@contextmanager
def unsharded(step: nn.Module) -> Iterator[None]:
    """The model of a sharded step can be used on its own for a while; blocks still come and go one by one."""
    if not isinstance(step, FSDPModule):
        yield
        return
    step.unshard()
    try:
        yield
    finally:
        step.reshard()


@contextmanager
def accumulate_gradients(step: nn.Module, last: bool) -> Iterator[None]:
    """Workers exchange gradients once per step, with its last part."""
    if isinstance(step, FSDPModule):
        step.set_requires_gradient_sync(last)
    with step.no_sync() if isinstance(step, DistributedDataParallel) and not last else nullcontext():
        yield


# --- the process itself ---


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """The signals SIGINT and SIGTERM that have come; the second of a kind acts at once."""
    asked: list[int] = []
    main = threading.current_thread() is threading.main_thread()  # in other threads signals are somebody else's
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM) if main}

    def note(number: int, _: object) -> None:
        asked.append(number)
        signal.signal(number, usual[signal.Signals(number)])

    for number in usual:
        signal.signal(number, note)
    try:
        yield asked
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


@contextmanager
def deterministic_kernels() -> Iterator[None]:
    """Kernels that give the same bits at every run, wherever torch has them."""
    mode, memory = torch.get_deterministic_debug_mode(), cast(Any, torch.utils.deterministic)
    filling = memory.fill_uninitialized_memory
    torch.set_deterministic_debug_mode("warn")
    memory.fill_uninitialized_memory = False  # it would find bugs, and costs time
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        memory.fill_uninitialized_memory = filling
