"""`redraft doctor` on this very machine, the limits of containers from their files, and a line for each trouble."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from redraft.core import InstructionSet, MemoryInfo, SystemReport, diagnose_system
from redraft.core.hardware.forked import _can_fork
from redraft.core.hardware.system import _GB, _cpu_quota, _CpuInfo, _memory_limit

HEALTHY = SystemReport(
    redraft="0.1.0",
    python="3.11",
    platform="Linux",
    torch="2.13",
    cpu=_CpuInfo("a CPU", cores=8, allowed=8, quota=None, threads=2),
    memory=MemoryInfo(int(16 * _GB), int(8 * _GB), None),
    instructions=(InstructionSet("AVX2", "", 80.0, 1.0), InstructionSet("AVX512_CORE_BF16", "", 90.0, 200.0)),
    fp32=170.0,
    disk_free=int(100 * _GB),
    gpus=("a GPU, 24 GB",),
    packages={},
    precision="bf16",
    reason="bf16 takes 0.45 × the time of fp32 here",
)


def doctor(*flags: str, **more: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("ONEDNN_MAX_CPU_ISA", "REDRAFT_PRECISION")} | more
    command = [sys.executable, "-m", "redraft.apps.cli", "doctor", *flags]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_this_machine() -> None:
    found = json.loads(doctor("--json"))
    assert found["torch"] == torch.__version__
    assert found["cpu"]["allowed"] <= found["cpu"]["cores"]
    assert found["fp32"] > 0
    assert found["disk_free"] > 0
    assert found["precision"] in ("fp32", "bf16")
    assert {"pyarrow", "matplotlib", "transformers"} <= found["packages"].keys()
    assert "pytest" not in found["packages"], "the tools of developers are no options"
    if _can_fork() and Path("/proc/cpuinfo").exists() and "avx2" in Path("/proc/cpuinfo").read_text():
        assert found["instructions"][0]["name"] == "AVX2"
        levels = found["instructions"]
        assert all(bool(level["trouble"]) != bool(level["fp32"] and level["bf16"]) for level in levels)
        assert any(level["trouble"] for level in levels) == any("the CPU claims" in line for line in found["advice"])


def test_as_text_even_where_the_environment_is_wrong() -> None:
    text = doctor(REDRAFT_PRECISION="fp8")
    for word in ("redraft ", "CPU ", "memory ", "disk ", "GPUs ", "speed ", "optional "):
        assert f"\n{word}" in f"\n{text}"
    assert "\n! REDRAFT_PRECISION=fp8: it must be fp32, bf16 or auto\n" in text


def test_nothing_is_wrong() -> None:
    assert list(diagnose_system(HEALTHY)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cpu": _CpuInfo("a CPU", 64, 64, 1.5, 64)}, "64 threads for 1.5 granted cores: set OMP_NUM_THREADS=1"),
        ({"cpu": _CpuInfo("a CPU", 64, 4, None, 8)}, "8 threads for 4 granted cores: set OMP_NUM_THREADS=4"),
        ({"fp32": 20.0}, "2 threads are no faster than one"),
        (
            {"instructions": (InstructionSet("AVX512_CORE_AMX", "dies of SIGILL"),)},
            "the CPU claims AVX512_CORE_AMX, but a product with it dies of SIGILL: Redraft avoids it; "
            "for other programs set ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16",
        ),
        ({"precision": None, "reason": "REDRAFT_PRECISION=fp8: it must be"}, "REDRAFT_PRECISION=fp8: it must be"),
        ({"memory": MemoryInfo(int(8 * _GB), int(_GB), None)}, "1.0 GB of memory are free"),
        ({"disk_free": int(_GB / 2)}, "0.5 GB of disk are free here"),
    ],
)
def test_a_line_for_each_trouble(change: dict[str, Any], words: str) -> None:
    (line,) = diagnose_system(replace(HEALTHY, **change))
    assert words in line


def test_a_gpu_that_torch_does_not_find(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    (line,) = diagnose_system(replace(HEALTHY, gpus=()))
    assert line.startswith("this torch is built for CUDA but finds no GPU")


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_container_of_today(tmp_path: Path) -> None:
    """Version 2: the tightest of the groups around the process counts."""
    files = {
        "proc/self/cgroup": "0::/pod/box\n",
        "sys/fs/cgroup/pod/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/pod/box/cpu.max": "max 100000\n",
        "sys/fs/cgroup/pod/memory.max": "max\n",
        "sys/fs/cgroup/pod/box/memory.max": "4000\n",
        "sys/fs/cgroup/pod/box/memory.current": "3000\n",
        "sys/fs/cgroup/pod/box/memory.stat": "anon 7\ninactive_file 500\n",
    }
    root = written(tmp_path, files)
    assert _cpu_quota(root) == 1.5
    assert _memory_limit(root) == (4000, 2500)


def test_a_container_of_old(tmp_path: Path) -> None:
    """Version 1: one tree for each resource; the path of the host does not exist inside."""
    files = {
        "proc/self/cgroup": "4:memory:/docker/1234\n3:cpuset:/\n2:cpu,cpuacct:/docker/1234\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "4000\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n",
    }
    root = written(tmp_path, files)
    assert _cpu_quota(root) == 0.5
    assert _memory_limit(root) == (4000, 1000)


def test_no_container(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/\n1:cpu:/\n1:memory:/\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    }
    assert _cpu_quota(written(tmp_path, files)) is None
    assert _memory_limit(tmp_path) == (None, 0)
    assert _cpu_quota(tmp_path / "elsewhere") is None
