"""`redraft report`: an HTML report about a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, Positional, arg

from redraft.apps.cli.arguments import Flag
from redraft.apps.cli.checks import require_in_range, require_seed_flag
from redraft.apps.cli.model_flags import ModelFlags
from redraft.apps.cli.output import emit, program_name
from redraft.apps.cli.progress import Progress
from redraft.tasks.arguments.settings import optional_argument


@dataclass(frozen=True)
class ReportRun:
    """Write an HTML report about a run: likelihood, generated texts, learning curves, one text step by step."""

    model: Annotated[Positional[Path], arg(metavar="DIR")]
    """Directory of a run or a checkpoint."""
    out: Annotated[Path | None, optional_argument("FILE.html", "run.html in the run's directory")] = None
    """File of the report."""
    rows: int = 256
    """Maximum number of held-out rows."""
    draws: int = 4
    """Noise levels per row, each drawn twice. More give a smaller error."""
    samples: int = 32
    """Number of texts to generate."""
    seed: int = 0
    """Seed of the noise and the texts."""
    json: Flag = False
    """Print a JSON object with the path of the report."""
    model_flags: OmitArgPrefixes[ModelFlags] = ModelFlags()

    def __post_init__(self) -> None:
        require_in_range("--rows", self.rows, 1, 1_000_000)
        require_in_range("--draws", self.draws, 1, 4096)
        require_in_range("--samples", self.samples, 1, 1000)
        require_seed_flag(self.seed)

    def __call__(self) -> None:
        from redraft.apps.cli.models import open_model
        from redraft.apps.reports.report import ReportSizes, RunReport, write_report

        model = open_model(self.model, self.model_flags)
        with Progress(f"measuring {self.model}"):
            report = RunReport.of(model, ReportSizes(self.rows, self.draws, self.samples, self.seed))
        home = self.model.parent if self.model.name.startswith("step-") else self.model
        is_shipped = not home.is_dir()  # a model in the package, where nothing may be written
        file = write_report(
            report, self.out or (Path(f"{home.name}.html") if is_shipped else home / "run.html"), program_name()
        )
        emit({"path": str(file)}, self.json, str(file))
