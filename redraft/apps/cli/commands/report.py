"""`redraft report`: an HTML report about a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from redraft.apps.cli.model_flags import ModelFlags
from redraft.apps.cli.output import emit, program_name
from redraft.tasks.arguments.setting import MOST_SEED, REQUIRED, Checked, setting
from redraft.training.progress import Progress


@dataclass(frozen=True)
class ReportRun(Checked):
    """Write an HTML report about a run: likelihood, generated texts, learning curves, one text step by step."""

    model: Path = setting(REQUIRED, "Directory of a run or a checkpoint.", metavar="DIR", positional=True)
    out: Path | None = setting(
        None, "File of the report.", otherwise="run.html in the run's directory", metavar="FILE.html", group="Output"
    )
    rows: int = setting(256, "Maximum number of held-out rows.", least=1, most=1_000_000)
    draws: int = setting(
        4, "Noise levels per row, with two noise samples each. More give a smaller error.", least=1, most=4096
    )
    samples: int = setting(32, "Number of texts to generate.", least=1, most=1000)
    seed: int = setting(0, "Seed of the noise and the texts.", least=0, most=MOST_SEED)
    json: bool = setting(False, "Print a JSON object with the path of the report.", group="Output")
    model_flags: ModelFlags = ModelFlags()

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
