"""`redraft doctor`: what this machine offers, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from redraft.apps.cli.arguments import Flag
from redraft.apps.cli.output import emit

if TYPE_CHECKING:
    from redraft.core.hardware.system import Facts, InstructionSet, Memory


@dataclass(frozen=True)
class Doctor:
    """Examine this machine: cores, memory, working instruction sets, speed, precision; what is wrong and how to fix it.

    Please include the output in bug reports.
    """

    json: Flag = False
    """One JSON object."""

    def __call__(self) -> None:
        from redraft.core.hardware.system import advice, examine

        facts = examine()
        wrong = list(advice(facts))
        emit({**asdict(facts), "advice": wrong}, self.json, "\n".join([*_lines(facts), "", *_judgement(wrong)]))


def _lines(facts: Facts) -> Iterator[str]:
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


def _memory(memory: Memory | None) -> str:
    if memory is None:
        return "unknown on this system"
    limit = "no limit" if memory.limit is None else f"a limit of {_gb(memory.limit)}"
    return f"{_gb(memory.total)}, {_gb(memory.free)} free, {limit} of the container"


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


def _judgement(wrong: list[str]) -> list[str]:
    return [f"! {line}" for line in wrong] or ["nothing is wrong"]
