"""`redraft picture`: a picture of Gaussian noise in the plane and of its samplers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from redraft.apps.cli.model_flags import ModelFlags
from redraft.apps.cli.output import emit, require_svg
from redraft.tasks.arguments.setting import MOST_SEED, REQUIRED, Checked, setting

if TYPE_CHECKING:
    from redraft.apps.reports.score_field import ScoreScene
    from redraft.evaluation.laws.gaussian import Mixture
    from redraft.training.runs.run import Run


@dataclass(frozen=True)
class Picture(Checked):
    """Draw the score of a Gaussian mixture under noise, the paths of samplers, and the effect of guidance.

    Without a model the exact score is drawn, which is known at every noise level.
    """

    what: Literal["score"] = setting(
        REQUIRED,
        "score: the score field, Langevin, SDE and ODE paths through it, and samples at three guidance scales.",
        metavar="score",
        positional=True,
    )
    model: Path | None = setting(
        None,
        "A trained model of points in the plane, from `redraft train points_tiny` or points_class_tiny.",
        otherwise="the exact score",
        metavar="[DIR]",
        positional=True,
    )
    out: Path = setting(Path("score.svg"), "File of the picture.", group="Output")
    toward: int = setting(
        1, "Index of the mixture component that guidance aims at, counted from 0.", least=0, most=1000
    )
    gamma: tuple[float, float, float] = setting(
        (0.0, 1.0, 4.0),
        "Guidance scales: 0 is unconditional, 1 is conditional, above 1 exaggerates the condition.",
        least=0,
        most=100,
    )
    seed: int = setting(0, "Seed of the paths and samples.", least=0, most=MOST_SEED)
    json: bool = setting(False, "Print a JSON object that describes the picture.", group="Output")
    model_flags: ModelFlags = ModelFlags()

    def _require_agreement(self) -> None:
        require_svg("--out", self.out)

    def __call__(self) -> None:
        from redraft.apps.reports.score_field import score_picture

        self.out.write_text(score_picture(self._scene(), self.gamma, self.seed), "utf-8")
        source = "exact" if self.model is None else f"by {self.model}"
        record = {"picture": str(self.out), "score": source, "toward": self.toward, "gamma": list(self.gamma)}
        emit(record, self.json, f"{self.out}: score, paths and guidance, {source}")

    def _scene(self) -> ScoreScene:
        from redraft.apps.reports.score_field import exact_scene, learned_scene
        from redraft.core.processes.gaussian import Gaussian
        from redraft.training.presets.vectors import points_tiny

        if self.model is None:
            run = points_tiny()
            process = run.model.process.narrowed(Gaussian, "a picture", "use a diffusion of vectors")
            return exact_scene(self._mixture(run), process, self.toward)
        from redraft.apps.cli.models import open_model

        model = open_model(self.model, self.model_flags)
        return learned_scene(self._mixture(model.run), model.lm.eval(), self.toward)

    def _mixture(self, run: Run | None) -> Mixture:
        """Return the true distribution of the points that a run was trained on."""
        from redraft.evaluation.laws.gaussian import Mixture, PointMixture

        data = None if run is None else run.data
        if not isinstance(data, PointMixture) or len(data.means[0]) != 2:
            raise ValueError(
                f"{self.model} is not a model of points in the plane; train one: redraft train points_tiny"
            )
        if self.toward >= len(data.means):
            raise ValueError(f"--toward {self.toward}: the mixture has {len(data.means)} components, counted from 0")
        return Mixture.of_blobs(data)
