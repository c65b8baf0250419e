"""`redraft levels`: the useful noise levels of a vector diffusion model, and a schedule fitted to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from redraft.apps.cli.model_flags import ModelFlags, model_setting
from redraft.apps.cli.output import emit, print_note
from redraft.apps.cli.plot import plot
from redraft.tasks.arguments.setting import MOST_SEED, REQUIRED, Checked, setting

if TYPE_CHECKING:
    from redraft.evaluation.noise_levels import NoiseLevel


@dataclass(frozen=True)
class Levels(Checked):
    """Measure what a vector diffusion model (Diffusion-LM, TEncDM, …) knows at each noise level, and fit a schedule.

    Steps are wasted at noise levels that leave all tokens readable, or none. Under the printed schedule the
    cross-entropy grows linearly with time.
    """

    model: Path = model_setting(REQUIRED)
    levels: int = setting(21, "Number of times to measure at, evenly spaced from 0 to 1.", least=2, most=10_000)
    rows: int = setting(64, "Maximum number of held-out rows.", least=1, most=100_000)
    seed: int = setting(0, "Seed of the noise.", least=0, most=MOST_SEED)
    picture: Path | None = setting(
        None, "Draw the curves; needs redraft[plots].", metavar="FILE.svg|png", group="Output"
    )
    json: bool = setting(False, "Print a JSON object per level, then the schedule.", group="Output")
    model_flags: ModelFlags = ModelFlags()

    def _require_agreement(self) -> None:
        if self.picture is not None:
            _require_picture(self.picture)

    def __call__(self) -> None:
        from redraft.apps.cli.models import open_model
        from redraft.evaluation import noise_levels
        from redraft.models.checkpoints import serialization
        from redraft.training.data.loader import first_batches, load_rows

        model = open_model(self.model, self.model_flags)
        run = model.run
        if run is None or model.lm.codec is None:
            raise ValueError(
                f"{self.model} is not a run of a vector diffusion model; train one, for example diffusion_lm_tiny"
            )
        batches = first_batches(load_rows(run.data, "valid", run.tokenizer, run.framing), self.rows)
        times = [max(i / (self.levels - 1), 1e-6) for i in range(self.levels)]
        print_note(_HEADER)
        table = []
        for t in times:
            table += noise_levels.accuracy_by_noise(model.lm, batches, [t], seed=self.seed)
            emit(table[-1]._asdict(), self.json, _line(table[-1]))
        if not self.json:
            print_note("\n".join(plot([(round(row.t, 3), row.denoised_nats) for row in table], x="time")))
        if self.picture is not None:
            _draw(table, self.picture)
        schedule = noise_levels.fit_schedule(table)
        emit({"schedule": serialization.to_json(schedule)}, self.json, f"{_useful(table)}\nschedule = {schedule}")


def _require_picture(file: Path) -> None:
    """Raise if the picture cannot be drawn, before minutes of measuring."""
    if file.suffix not in (".svg", ".png", ".pdf"):
        raise ValueError(f"--picture {file}: its name must end in .svg, .png or .pdf")
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise ValueError(f"--picture {file}: give a file in an existing directory")
    if find_spec("matplotlib") is None:
        raise ValueError("--picture needs matplotlib: pip install 'redraft[plots]'")


_HEADER = f"{'time':>6} {'log-SNR':>8} {'read from z':>12} {'from x̂':>9} {'nats of x̂':>10} {'error':>7}"


def _line(row: NoiseLevel) -> str:
    accuracies = f"{row.accuracy:12.1%} {row.denoised_accuracy:8.1%}"
    return f"{row.t:6.2f} {row.logsnr:8.2f} {accuracies} {row.denoised_nats:10.3f} {row.error:7.3f}"


def _useful(table: Sequence[NoiseLevel]) -> str:
    """Return a line about the useful levels.

    At a useful level z does not determine all tokens, and x̂ knows more than at the noisiest level.
    """
    most = table[-1].denoised_nats
    useful = [row for row in table if row.accuracy < 0.99 and row.denoised_nats < 0.99 * most]
    if not useful:
        return "no level is useful: either z determines all tokens, or x̂ none"
    return (
        f"useful: {len(useful)} of {len(table)} levels, log-SNR {useful[-1].logsnr:.2f} to {useful[0].logsnr:.2f}; "
        "at lower log-SNR x̂ knows nothing, at higher log-SNR z determines all tokens"
    )


def _draw(table: Sequence[NoiseLevel], file: Path) -> None:
    """Plot accuracy and cross-entropy against the log-SNR."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    levels = [row.logsnr for row in table]
    left.plot(levels, [row.accuracy for row in table], label="read from z")
    left.plot(levels, [row.denoised_accuracy for row in table], label="read from x̂")
    left.set(xlabel="log-SNR", ylabel="accuracy of tokens", ylim=(0, 1.02))
    left.legend(frameon=False)
    right.plot(levels, [row.denoised_nats for row in table], color="tab:orange")
    right.set(xlabel="log-SNR", ylabel="nats per token, from x̂", ylim=(0, None))
    for axes in (left, right):
        axes.invert_xaxis()  # from clean to noise
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file)
