"""A file of result rows, one JSON object per line. Rows that are already in the file are not measured again.

Each row records its provenance: the commit and the machine, and for each training stage the run, steps, batch, seed and
precision. The full configuration of a run is stored beside the rows in configs/RUN.json, where RUN is the digest of the
run; `filed_digest` recomputes it from the file. Rows without provenance say `"provenance": "not recorded"`.

A standard error is named after its figure: `share_stderr` beside `share`. A bare `stderr` is refused, because a reader
could not tell which figure it belongs to.
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
    """A file of JSON lines, one per row of a table; each row has a unique name."""

    file: Path

    def read(self) -> dict[str, dict[str, Any]]:
        """Return the rows by name; a last line that was cut off by a kill is ignored."""
        return {row["name"]: row for row in (self._parse(*line) for line in enumerate(self._complete_lines(), 1))}

    def _complete_lines(self) -> list[str]:
        text = self.file.read_text("utf-8") if self.file.exists() else ""
        return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def _parse(self, number: int, line: str) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or "name" not in row:
            raise ValueError(f"{self.file}:{number} is not a row; fix or remove this line")
        return row

    def add(self, name: str, measure: Callable[[], dict[str, Any]]) -> bool:
        """Measure a row and append it, unless the file has it; returns whether it was measured."""
        if name in self.read():
            return False
        row = {"name": name, **measure(), "commit": _code_version(), "machine": _machine_name()}
        require_units(row)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        for stage in row.get("stages", ()):
            _store_config(self.file.parent, stage["run"], stage["config"])
        if "stages" in row:  # the config is stored once, since several rows may measure one training
            row["stages"] = [{key: stage[key] for key in stage if key != "config"} for stage in row["stages"]]
        size = len("".join(self._complete_lines()).encode())
        with self.file.open("ab") as file:
            file.truncate(size)
            file.write(json.dumps(row).encode() + b"\n")
        return True


def require_units(row: Any) -> None:
    """Raise unless every standard error in the row, at any depth, is next to the figure it belongs to."""
    for key, value in row.items() if isinstance(row, dict) else ():
        if key.endswith("stderr") and key[: -len("_stderr")] not in row:
            raise ValueError(
                f"{key!r} belongs to no figure in this row; name an error after its figure, as in share_stderr"
            )
        require_units(value)


def _store_config(results: Path, run: str, config: Any) -> None:
    """Store the configuration of a run beside the rows, under the digest of the run."""
    file = results / "configs" / f"{run}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(config, ensure_ascii=False) + "\n", "utf-8")


def filed_digest(results: Path, run: str, trust: Sequence[str] = ()) -> str:
    """Recompute the digest of a stored configuration; it equals `run` unless the file was changed.

    `trust`: modules outside the package whose classes the configuration may name.
    """
    config = serialization.from_json(json.loads((results / "configs" / f"{run}.json").read_text("utf-8")), trust=trust)
    assert isinstance(config, Run)
    return config.digest


@dataclass
class _CpuTime:
    """CPU seconds of this process, summed over cores."""

    seconds: float = 0.0


@contextmanager
def cpu_timer() -> Iterator[_CpuTime]:
    """Measure the CPU time of a `with` block; unlike elapsed time it does not depend on other work on the machine."""
    start, clock = time.process_time(), _CpuTime()
    yield clock
    clock.seconds = time.process_time() - start


def _code_version(home: Path = Path(__file__).parent) -> str:
    """Return the commit of the code, with "-dirty" if its files differ; outside a repository, the package version."""

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(home), *arguments], capture_output=True, text=True, check=False)

    try:
        tracked = git("ls-files", "*.py").stdout != ""  # an installed package may lie inside some other repository
        commit = git("rev-parse", "--short=12", "HEAD").stdout.strip() if tracked else ""
    except OSError:
        commit = ""
    if not commit:
        return f"redraft {version('redraft')}"
    return commit + ("-dirty" if git("diff", "--quiet", "HEAD", "--", ":/*.py").returncode else "")


def _machine_name() -> str:
    """Return the name of the CPU, the number of torch's threads and the version of torch."""
    file = Path("/proc/cpuinfo")
    match = re.search(r"model name\s*:\s*(.+)", file.read_text() if file.exists() else "")
    return f"{match[1] if match else platform.processor()}, {torch.get_num_threads()} thread, torch {torch.__version__}"
