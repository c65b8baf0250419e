"""`redraft audit`: is this loss a bound, is this sampler exact?"""

from __future__ import annotations

import json as jsonlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

from redraft.apps.cli.output import emit
from redraft.apps.cli.user_code import require_python_file
from redraft.tasks.arguments.setting import MOST_SEED, REQUIRED, Checked, setting


@dataclass(frozen=True)
class Audit(Checked):
    """Judge a loss, sampler, process or estimate of log p in your own file, on languages whose answers are known.

    Exit code 0: a bound, exact, unbiased; 1: not, or undecided; 2: the file or a function in it is wrong.
    """

    subject: str = setting(
        REQUIRED,
        "A Python file, and which function in it; without :NAME, every function that can be audited.",
        metavar="FILE.py:NAME",
        positional=True,
    )
    rows: int = setting(
        4_000_000,
        "Maximum number of rows per language and denoiser. More give a smaller error.",
        least=1000,
        most=10**9,
    )
    resolution: float = setting(
        0.05,
        "Nats per row. The verdict is undecided if a violation larger than this cannot be ruled out.",
        least=1e-4,
        most=100,
    )
    seed: int = setting(0, "Seed of the generator that your functions get.", least=0, most=MOST_SEED)
    minutes: float = setting(
        10.0, "Time limit of the process that runs your file.", least=0.01, most=100_000, group="Limits"
    )
    gigabytes: float = setting(8.0, "Memory limit of that process.", least=1, most=10_000, group="Limits")
    json: bool = setting(False, "Print a JSON object per verdict.", group="Output")

    def _require_agreement(self) -> None:
        require_python_file(self._file)

    def __call__(self) -> None:
        failed = False
        for record in self._records():
            text = record.pop("text")
            failed |= record["passed"] is False
            emit(record, self.json, text)
        if failed:
            raise SystemExit(1)

    @property
    def _file(self) -> Path:
        return Path(self.subject if self.subject.endswith(".py") else self.subject.rpartition(":")[0] or self.subject)

    def _records(self) -> Iterator[dict[str, Any]]:
        """Run the file in a process of its own, and yield its verdicts as they come."""
        name = None if self.subject.endswith(".py") else self.subject.rpartition(":")[2]
        limits = {"seconds": 60 * self.minutes, "gigabytes": self.gigabytes}
        effort = {"rows": self.rows, "resolution": self.resolution, "seed": self.seed}
        request = jsonlib.dumps({"file": str(self._file), "name": name, "effort": effort, **limits})
        command = [sys.executable, "-m", "redraft.apps.cli.commands.measure.audit_child", request]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") as child:
            timer = Timer(60 * self.minutes, child.kill)
            timer.start()
            try:
                assert child.stdout is not None
                for line in child.stdout:
                    if "text" not in (record := jsonlib.loads(line)):
                        raise ValueError(record["error"])
                    yield record
            finally:
                timer.cancel()
                if sys.exc_info()[0] is not None:
                    child.kill()
        self._require_end(child.returncode)

    def _require_end(self, code: int) -> None:
        """Refuse a result that is not complete."""
        if code == 130:
            raise KeyboardInterrupt
        if code:
            limits = f"{self.minutes:g} minutes of time and {self.gigabytes:g} GB of memory"
            raise ValueError(f"{self._file}: its process ended with code {code}, perhaps at a limit ({limits})")
