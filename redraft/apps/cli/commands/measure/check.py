"""`redraft check` and `redraft demo`: see for yourself."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional

from redraft.apps.cli.arguments import Flag
from redraft.apps.cli.checks import require_python, require_seed_flag
from redraft.apps.cli.output import emit
from redraft.apps.cli.progress import Progress
from redraft.tasks.arguments.settings import optional

_MONTH = 31 * 24 * 60  # in minutes

if TYPE_CHECKING:
    from redraft.evaluation.laws.law import Law


@dataclass(frozen=True)
class Check:
    """Prove processes and samplers by exact enumeration on a toy language."""

    file: Annotated[Positional[Path | None], optional("[FILE.py]")] = None
    """A Python file with your own processes; by default the built-in ones are checked."""
    json: Flag = False
    """One JSON object per law."""

    def __post_init__(self) -> None:
        require_python(self.file)

    def __call__(self) -> None:
        from redraft.evaluation import laws

        failed = 0
        rows = laws.check_built_in() if self.file is None else laws.check_all(laws.processes_of(self._module()))
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
    """Train a small model on the embedded stories, measure it against the truth, let it write, leave a report."""

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
