"""`redraft check`, `redraft doctor` and `redraft demo`: see for yourself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional

from redraft.apps.cli.arguments import Flag
from redraft.apps.cli.checks import require_python_file, require_seed_flag
from redraft.apps.cli.output import emit
from redraft.apps.cli.progress import Progress
from redraft.tasks.arguments.settings import optional_argument

_MONTH = 31 * 24 * 60  # in minutes

if TYPE_CHECKING:
    from redraft.core.hardware.system import InstructionSet, MemoryInfo, SystemReport
    from redraft.evaluation.laws.law import Law


@dataclass(frozen=True)
class Check:
    """Prove processes and samplers by exact enumeration on a toy language."""

    file: Annotated[Positional[Path | None], optional_argument("[FILE.py]")] = None
    """A Python file with your own processes; by default the built-in ones are checked."""
    json: Flag = False
    """One JSON object per law."""

    def __post_init__(self) -> None:
        require_python_file(self.file)

    def __call__(self) -> None:
        from redraft.evaluation.laws import suite

        failed = 0
        rows = suite.check_built_in() if self.file is None else suite.check_all(suite.processes_of(self._module()))
        for row in rows:
            failed += not row.ok
            emit(asdict(row), self.json, _law(row))
        if failed:
            raise SystemExit(1)

    def _module(self) -> ModuleType:
        from redraft.apps.cli.user_code import load_module

        assert self.file is not None
        with Progress(f"importing {self.file}"):
            return load_module(self.file)


def _law(row: Law) -> str:
    within = f" ± {row.tolerance:g}" if row.tolerance else ""
    within += f", integrated to {row.error:.0e}" if row.error else ""
    sign = "ok  " if row.ok else "FAIL"
    return f"{sign}  {row.process:<22} {row.law:<52} {row.value:.6g} {row.rule} {row.expected:.6g}{within}"


@dataclass(frozen=True)
class Demo:
    """Train a small model on an embedded corpus, measure it against the truth, let it write, leave a report."""

    out: Path = Path("runs/demo")
    """Where the run, report.html and result.json go."""
    seed: int = 0
    """Seed of the weights, the noise and the texts."""
    minutes: float = 4.0
    """Approximate training time on two cores."""
    json: Flag = False
    """The result as one JSON object on stdout."""
    quiet: Flag = False
    """Print no progress."""

    def __post_init__(self) -> None:
        require_seed_flag(self.seed)
        if not 0 < self.minutes <= _MONTH:  # nan is neither
            raise ValueError(f"--minutes {self.minutes}: it must be above 0 and at most a month ({_MONTH:,} minutes)")

    def __call__(self) -> None:
        from redraft.apps.reports.demo import demo

        demo(self.out, seed=self.seed, minutes=self.minutes, json=self.json, quiet=self.quiet)


@dataclass(frozen=True)
class Doctor:
    """Examine this machine: cores, memory, working instruction sets, speed, precision; what is wrong and how to fix it.

    Please include the output in bug reports.
    """

    json: Flag = False
    """One JSON object."""

    def __call__(self) -> None:
        from redraft.core.hardware.system import diagnose_system, inspect_system

        facts = inspect_system()
        wrong = list(diagnose_system(facts))
        emit({**asdict(facts), "advice": wrong}, self.json, "\n".join([*_lines(facts), "", *_judgement(wrong)]))


def _lines(facts: SystemReport) -> Iterator[str]:
    cpu = facts.cpu
    quota = "no quota" if cpu.quota is None else f"a quota of {cpu.quota:g}"
    cores = f"{cpu.cores} cores, {cpu.allowed} allowed, {quota}"
    yield f"redraft       {facts.redraft}, torch {facts.torch}, Python {facts.python}, {facts.platform}"
    yield f"CPU           {cpu.name}: {cores}; torch uses {cpu.threads} threads"
    yield f"memory        {_memory(facts.memory)}"
    yield f"disk          {_gb(facts.disk_free)} free here"
    yield f"GPUs          {', '.join(facts.gpus) or 'none'}"
    for i, level in enumerate(facts.instructions):
        yield f"{'instructions' if i == 0 else '':<13} {_instructions(level)}"
    one = "" if facts.one_core is None else "; one core: {:.0f} fp32, {:.0f} bf16".format(*facts.one_core)
    yield f"speed         {facts.fp32:.0f} GFLOP/s fp32 with all threads{one}"
    yield f"precision     {facts.precision or 'none'}: {facts.reason}"
    packages = (f"{name} {version or '(not installed)'}" for name, version in facts.packages.items())
    yield f"optional      {', '.join(packages)}"


def _instructions(level: InstructionSet) -> str:
    if level.trouble:
        return f"{level.name:<17} a product {level.trouble}"
    return f"{level.name:<17} works: {level.fp32:.0f} GFLOP/s fp32, {level.bf16:.0f} bf16, one core"


def _memory(memory: MemoryInfo | None) -> str:
    if memory is None:
        return "unknown on this system"
    limit = "no limit" if memory.limit is None else f"a limit of {_gb(memory.limit)}"
    return f"{_gb(memory.total)}, {_gb(memory.free)} free, {limit} of the container"


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


def _judgement(wrong: list[str]) -> list[str]:
    return [f"! {line}" for line in wrong] or ["nothing is wrong"]
