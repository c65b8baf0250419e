"""What this machine really offers: tested wherever a claim could be false. `redraft doctor` prints it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

import torch

from redraft.core.hardware.forked import _can_fork, run_forked
from redraft.core.hardware.precision import _BELOW_AMX, _ISA_ENV, PrecisionError, choose_precision
from redraft.core.version import __version__

_GB = 1e9
_LEVELS = {  # instruction set of oneDNN → flag of a CPU that claims to support it
    "AVX2": "avx2",
    "AVX512_CORE": "avx512f",
    "AVX512_CORE_BF16": "avx512_bf16",
    _BELOW_AMX: "avx512_fp16",
    "AVX512_CORE_AMX": "amx_tile",
}
_EXTRA = re.compile(r"([\w.-]+).*extra == ['\"]((?!dev)\w+)['\"]")
_UNLIMITED = 1 << 60  # cgroup v1 says "no limit" by a number larger than any memory


@dataclass(frozen=True)
class _CpuInfo:
    """Cores that exist, cores that this process may use, and threads that torch starts."""

    name: str
    cores: int
    allowed: int  # cores this process may use, by affinity
    quota: float | None  # CPU quota of the container, in cores; None if unlimited
    threads: int  # threads torch starts

    @property
    def granted(self) -> float:
        return min(self.allowed, self.quota or self.allowed)


@dataclass(frozen=True)
class MemoryInfo:
    """Memory of this machine, in bytes."""

    total: int
    free: int
    limit: int | None  # memory limit of the container; None if unlimited


@dataclass(frozen=True)
class InstructionSet:
    """An instruction set that the CPU claims: whether bf16 and fp32 products work, and their speed on one core."""

    name: str
    trouble: str  # empty if it works
    fp32: float | None = None  # speed of matrix products in GFLOP/s; None if they do not work
    bf16: float | None = None


@dataclass(frozen=True)
class SystemReport:
    """Everything a bug report should start with."""

    redraft: str
    python: str
    platform: str
    torch: str
    cpu: _CpuInfo
    memory: MemoryInfo | None
    instructions: tuple[InstructionSet, ...]
    fp32: float  # speed of matrix products with all threads, in GFLOP/s
    disk_free: int  # free bytes on the disk of the working directory
    gpus: tuple[str, ...]
    packages: dict[str, str | None]  # version of each optional package; None if not installed
    precision: str | None  # the precision that auto would choose; None if that fails
    reason: str

    @property
    def one_core(self) -> tuple[float, float] | None:
        """Best speed of one core in fp32 and in bf16, GFLOP/s; None if nothing could be tried."""
        both = [(level.fp32, level.bf16) for level in self.instructions if level.fp32 and level.bf16]
        return (max(a for a, _ in both), max(b for _, b in both)) if both else None


def inspect_system() -> SystemReport:
    """Tests this machine for some seconds. Call it first: after one matrix product, oneDNN ignores new limits."""
    instructions = tuple(_tried())
    precision, reason = _precision()
    return SystemReport(
        __version__,
        platform.python_version(),
        platform.platform(),
        torch.__version__,
        _cpu(),
        _system_memory(),
        instructions,
        _gflops(torch.float32),
        shutil.disk_usage(Path.cwd()).free,
        tuple(_gpus()),
        dict(_packages()),
        precision,
        reason,
    )


def diagnose_system(facts: SystemReport) -> Iterator[str]:
    """Yields a line for each problem, with its fix."""
    cpu, memory = facts.cpu, facts.memory
    if cpu.threads > max(1, cpu.granted):
        fewer = max(1, int(cpu.granted))
        yield f"torch starts {cpu.threads} threads for {cpu.granted:g} granted cores: set OMP_NUM_THREADS={fewer}"
    elif facts.one_core and cpu.threads > 1 and facts.fp32 < 1.1 * facts.one_core[0]:
        yield f"{cpu.threads} threads are no faster than one: other programs are busy; wait, or set OMP_NUM_THREADS=1"
    if broken := [level for level in facts.instructions if level.trouble]:
        limit = f"{_ISA_ENV}={_BELOW_AMX}" if broken[-1].name == "AVX512_CORE_AMX" else f"a lower {_ISA_ENV}"
        yield (
            f"the CPU claims {broken[0].name}, but a product with it {broken[0].trouble}: Redraft avoids it; "
            f"for other programs set {limit}"
        )
    if facts.precision is None:
        yield facts.reason
    if memory is not None and memory.free < 2 * _GB:
        yield f"{memory.free / _GB:.1f} GB of memory are free: use a smaller --batch, or --micro-batches 4 --recompute"
    if facts.disk_free < 2 * _GB:
        yield f"{facts.disk_free / _GB:.1f} GB of disk are free here: make room, or write elsewhere with --out"
    if not facts.gpus and torch.version.cuda is not None:
        yield "this torch is built for CUDA but finds no GPU: check nvidia-smi and the driver"
    if not facts.gpus and torch.version.cuda is None and Path("/dev/nvidia0").exists():
        yield "there is an NVIDIA GPU, but this torch is built for CPUs: install one with CUDA from pytorch.org"


# --- speed ---


def _gflops(dtype: torch.dtype, size: int = 512, rounds: int = 6) -> float:
    """Measures the best speed of a square matrix product, in GFLOP/s."""
    a = torch.linspace(-1, 1, size * size).view(size, size).to(dtype)
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - began)
        if best > 0.2:  # emulated: it will not get better
            break
    return 2 * size**3 / best / 1e9


def _tried() -> Iterator[InstructionSet]:
    claimed = _flags()
    for name in (name for name, flag in _LEVELS.items() if flag in claimed and _can_fork()):
        trial = run_forked(partial(_speeds, name), seconds=20.0)
        fp32, bf16 = trial.value or (None, None)
        yield InstructionSet(name, trial.trouble, fp32, bf16)


def _speeds(level: str) -> tuple[float, float]:
    """Measures fp32 and bf16 speeds; runs in a child process, in which oneDNN was not used before."""
    os.environ[_ISA_ENV] = level
    return _gflops(torch.float32), _gflops(torch.bfloat16)


def _precision() -> tuple[str | None, str]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        choice = choose_precision(device=device)
    except PrecisionError as error:
        return None, str(error)
    return choice.name, choice.reason


# --- what the system reports ---


def _cpu() -> _CpuInfo:
    cores = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if sys.platform == "linux" else cores
    named = re.search(r"model name\s*:\s*(.+)", _text(Path("/proc/cpuinfo")))
    name = named[1].strip() if named else platform.processor() or platform.machine()
    return _CpuInfo(name, cores, allowed, _cpu_quota(), torch.get_num_threads())


def _flags() -> set[str]:
    match = re.search(r"^flags\s*:\s*(.+)", _text(Path("/proc/cpuinfo")), re.MULTILINE)
    return set(match[1].split()) if match else set()


def free_memory(device: torch.device | str = "cpu") -> int | None:
    """Bytes this process may still allocate on a device; None if unknown."""
    if torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    memory = _system_memory()
    return None if memory is None else memory.free


def _system_memory() -> MemoryInfo | None:
    """The system's memory, and what the container allows; None if unknown."""
    fields = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", _text(Path("/proc/meminfo")), re.MULTILINE))
    if len(fields) < 2:
        return None
    total, free = int(fields["MemTotal"]) * 1024, int(fields["MemAvailable"]) * 1024
    limit, used = _memory_limit()
    return MemoryInfo(total, free if limit is None else min(free, max(0, limit - used)), limit)


def _cpu_quota(root: Path = Path("/")) -> float | None:
    """Cores' worth of CPU time that the tightest control group around this process grants; None if unlimited."""
    return min(filter(None, map(_quota, _groups("cpu", root))), default=None)


def _quota(group: Path) -> float | None:
    """Reads the CPU quota of a control group: "200000 100000" or "max 100000"; version 1 has a file per number."""
    old = [_number(group / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    quota, period = _text(group / "cpu.max").split() or old
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _memory_limit(root: Path = Path("/")) -> tuple[int | None, int]:
    """Bytes that the tightest control group allows, and how many of them are in use; None if unlimited."""
    limits = []
    for group in _groups("memory", root):
        limit = _number(group / "memory.max") or _number(group / "memory.limit_in_bytes")
        used = _number(group / "memory.current") or _number(group / "memory.usage_in_bytes") or "0"
        if limit and int(limit) < _UNLIMITED:
            cache = re.search(r"^(?:total_)?inactive_file (\d+)", _text(group / "memory.stat"), re.MULTILINE)
            limits.append((int(limit), int(used) - int(cache[1] if cache else 0)))  # the cache is released on demand
    return min(limits, key=lambda pair: pair[0] - pair[1], default=(None, 0))


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """Directories of the control groups around this process, of version 2 and 1, innermost first."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        top = root / "sys/fs/cgroup" / (controller if names else "")
        inner = top / path.strip("/")
        yield from (group for group in (inner, *inner.parents) if group.is_relative_to(top) and group.is_dir())


def _number(file: Path) -> str:
    """The digits in a file; empty if it has none ("max", "-1") or does not exist."""
    content = _text(file).strip()
    return content if content.isdigit() else ""


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def _gpus() -> Iterator[str]:
    for i in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(i)
        yield f"{device.name}, {device.total_memory / _GB:.0f} GB"
    if torch.backends.mps.is_available():
        yield "Apple GPU (mps)"


def _packages() -> Iterator[tuple[str, str | None]]:
    """The optional packages in Redraft's metadata, with installed versions."""
    for requirement in metadata.requires("redraft") or ():
        if match := _EXTRA.match(requirement):
            name = re.split(r"[<>=!~;\[ ]", match[1])[0]
            try:
                yield name, metadata.version(name)
            except metadata.PackageNotFoundError:
                yield name, None
