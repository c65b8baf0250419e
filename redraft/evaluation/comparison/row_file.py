"""Rows of figures that grow one by one: what a file of JSON lines holds is not measured again.

A row says how it came to be: commit and machine, which are noted here, and for each stage of its training the run,
steps, batch, seed and precision. The whole configuration of a run lies beside the rows, in configs/RUN.json, where RUN
is its digest: that can be computed again from the file (`filed_digest`). Rows of before say `"provenance": "not recorded"`.
An error carries the name of its figure: `share_stderr` beside `share`. A bare `stderr` is refused, since bits per
character once stood beside the error of bits per token.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from redraft.models.checkpoints import serialization
from redraft.training.runs.run import Run


@dataclass(frozen=True)
class RowFile:
    """A file of JSON lines, one per row of a table, each with a name of its own."""

    file: Path

    def held(self) -> dict[str, dict[str, Any]]:
        """The rows by name; a line that was cut off while it was written does not count."""
        return {row["name"]: row for row in (self._parsed(*line) for line in enumerate(self._whole(), 1))}

    def _whole(self) -> list[str]:
        text = self.file.read_text("utf-8") if self.file.exists() else ""
        return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def _parsed(self, number: int, line: str) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or "name" not in row:
            raise ValueError(f"{self.file}:{number} is not a row; mend or remove this line")
        return row

    def add(self, name: str, measure: Callable[[], dict[str, Any]]) -> bool:
        """Measures the row, unless it is there; says whether it had to."""
        if name in self.held():
            return False
        row = {"name": name, **measure(), "commit": code_version(), "machine": machine_name()}
        require_units(row)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        for stage in row.get("stages", ()):
            store_config(self.file.parent, stage["run"], stage["config"])
        if "stages" in row:  # several rows may measure one training
            row["stages"] = [{key: stage[key] for key in stage if key != "config"} for stage in row["stages"]]
        whole = len("".join(self._whole()).encode())
        with self.file.open("ab") as file:
            file.truncate(whole)
            file.write(json.dumps(row).encode() + b"\n")
        return True


def require_units(row: Any) -> None:
    """Every error stands beside the figure that it is the error of."""
    for key, value in row.items() if isinstance(row, dict) else ():
        if key.endswith("stderr") and key[: -len("_stderr")] not in row:
            raise ValueError(f"{key!r} is the error of nothing in this row; name it after its figure: share_stderr")
        require_units(value)


def store_config(results: Path, run: str, described: Any) -> None:
    """Keeps the configuration of a run beside the rows, under its digest."""
    file = results / "configs" / f"{run}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(described, ensure_ascii=False) + "\n", "utf-8")


def filed_digest(results: Path, run: str, trust: Sequence[str] = ()) -> str:
    """The digest that a filed configuration has: that of its row, unless one of them was changed.

    `trust`: modules outside the package whose classes it may name.
    """
    found = serialization.from_json(json.loads((results / "configs" / f"{run}.json").read_text("utf-8")), trust=trust)
    assert isinstance(found, Run)
    return found.digest


@dataclass
class CpuTime:
    """Seconds of this process on all cores."""

    seconds: float = 0.0


@contextmanager
def cpu_timer() -> Iterator[CpuTime]:
    """Counts the CPU time spent inside: other work on the machine does not lengthen it."""
    began, clock = time.process_time(), CpuTime()
    yield clock
    clock.seconds = time.process_time() - began


def code_version(home: Path = Path(__file__).parent) -> str:
    """The commit of the code, marked if its files differ from it; the version of a package that no repository holds."""

    def git(*told: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(home), *told], capture_output=True, text=True, check=False)

    try:
        held = git("ls-files", "*.py").stdout != ""  # not just a package that lies somewhere in a repository
        found = git("rev-parse", "--short=12", "HEAD").stdout.strip() if held else ""
    except OSError:
        found = ""
    if not found:
        return f"redraft {version('redraft')}"
    return found + ("-dirty" if git("diff", "--quiet", "HEAD", "--", ":/*.py").returncode else "")


def machine_name() -> str:
    """The CPU by its name, and what is used of it."""
    file = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*:\s*(.+)", file.read_text() if file.exists() else "")
    return f"{named[1] if named else platform.processor()}, {torch.get_num_threads()} thread, torch {torch.__version__}"
