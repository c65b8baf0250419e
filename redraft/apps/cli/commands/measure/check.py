"""`redraft check`, `redraft demo` and `redraft doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from redraft.apps.cli.output import emit
from redraft.apps.cli.user_code import require_python_file
from redraft.tasks.arguments.setting import MOST_SEED, Checked, setting
from redraft.training.progress import Progress

_MONTH = 31 * 24 * 60  # minutes

if TYPE_CHECKING:
    from redraft.core.hardware.system import InstructionSet, MemoryInfo, SystemReport
    from redraft.evaluation.laws.law import Law


@dataclass(frozen=True)
class Check(Checked):
    """Check the laws of processes and samplers by exact enumeration on a toy language."""

    file: Path | None = setting(
        None,
        "A Python file with your own processes, samplers or picks; without it the built-in ones are checked.",
        metavar="[FILE.py]",
        positional=True,
    )
    json: bool = setting(False, "Print a JSON object per law.", group="Output")

    def _require_agreement(self) -> None:
        require_python_file(self.file)

    def __call__(self) -> None:
        from redraft.evaluation.laws import suite

        failed = 0
        rows = suite.check_built_in() if self.file is None else suite.check_all(suite.find_pieces(self._module()))
        for row in rows:
            failed += not row.ok
            emit(asdict(row), self.json, _law_line(row))
        if failed:
            raise SystemExit(1)

    def _module(self) -> ModuleType:
        from redraft.apps.cli.user_code import load_module

        assert self.file is not None
        with Progress(f"importing {self.file}"):
            return load_module(self.file)


def _law_line(row: Law) -> str:
    tolerance = f" ± {row.tolerance:g}" if row.tolerance else ""
    tolerance += f", integrated to {row.error:.0e}" if row.error else ""
    verdict = "ok  " if row.ok else "FAIL"
    return f"{verdict}  {row.process:<22} {row.law:<52} {row.value:.6g} {row.rule} {row.expected:.6g}{tolerance}"


@dataclass(frozen=True)
class Demo(Checked):
    """Train a small model on a built-in corpus, compare it with the true distribution, and write a report."""

    out: Path = setting(Path("runs/demo"), "Directory for the run, report.html and result.json.", group="Output")
    seed: int = setting(0, "Seed of the weights, the noise and the texts.", least=0, most=MOST_SEED)
    minutes: float = setting(4.0, "Approximate training time on two cores.", above=0, most=_MONTH)
    json: bool = setting(False, "Print the result as a JSON object.", group="Output")
    quiet: bool = setting(False, "Print no progress to stderr.", group="Output")

    def __call__(self) -> None:
        from redraft.apps.reports.demo import demo

        demo(self.out, seed=self.seed, minutes=self.minutes, json=self.json, quiet=self.quiet)


@dataclass(frozen=True)
class Doctor(Checked):
    """Inspect this machine: cores, memory, instruction sets, speed and precision; report problems and how to fix them.

    Please include the output in bug reports.
    """

    json: bool = setting(False, "Print a JSON object instead of text.", group="Output")

    def __call__(self) -> None:
        from redraft.core.hardware.system import diagnose_system, inspect_system

        system = inspect_system()
        advice = list(diagnose_system(system))
        lines = [*_system_lines(system), "", *([f"! {line}" for line in advice] or ["no problems found"])]
        emit({**asdict(system), "advice": advice}, self.json, "\n".join(lines))


def _system_lines(system: SystemReport) -> Iterator[str]:
    cpu = system.cpu
    quota = "no quota" if cpu.quota is None else f"a quota of {cpu.quota:g}"
    cores = f"{cpu.cores} cores, {cpu.allowed} allowed, {quota}"
    yield f"redraft       {system.redraft}, torch {system.torch}, Python {system.python}, {system.platform}"
    yield f"CPU           {cpu.name}: {cores}; torch uses {cpu.threads} threads"
    yield f"memory        {_memory(system.memory)}"
    yield f"disk          {_gb(system.disk_free)} free here"
    yield f"GPUs          {', '.join(system.gpus) or 'none'}"
    for i, level in enumerate(system.instructions):
        yield f"{'instructions' if i == 0 else '':<13} {_instructions(level)}"
    one_core = "" if system.one_core is None else "; one core: {:.0f} fp32, {:.0f} bf16".format(*system.one_core)
    yield f"speed         {system.fp32:.0f} GFLOP/s fp32 with all threads{one_core}"
    yield f"precision     {system.precision or 'none'}: {system.reason}"
    packages = (f"{name} {version or '(not installed)'}" for name, version in system.packages.items())
    yield f"optional      {', '.join(packages)}"


def _instructions(level: InstructionSet) -> str:
    if level.trouble:
        return f"{level.name:<17} fails: a matrix product {level.trouble}"
    return f"{level.name:<17} works: {level.fp32:.0f} GFLOP/s fp32, {level.bf16:.0f} bf16, one core"


def _memory(memory: MemoryInfo | None) -> str:
    if memory is None:
        return "unknown on this system"
    limit = "no container limit" if memory.limit is None else f"container limit {_gb(memory.limit)}"
    return f"{_gb(memory.total)}, {_gb(memory.free)} free, {limit}"


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
