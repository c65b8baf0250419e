"""`redraft picture`: what Gaussian noise and its samplers do, as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg

from redraft.apps.cli.arguments import Flag
from redraft.apps.cli.checks import require_in_range, require_seed_flag, require_svg
from redraft.apps.cli.model_flags import ModelFlags
from redraft.apps.cli.output import emit
from redraft.tasks.arguments.settings import optional_argument

if TYPE_CHECKING:
    from redraft.apps.reports.score_field import ScoreScene
    from redraft.evaluation.laws.gaussian import Mixture
    from redraft.training.runs.run import Run


@dataclass(frozen=True)
class Picture:
    """Draw points of a known mixture under Gaussian noise: its score, the paths of samplers, the effect of guidance.

    Without a model everything is exact: the score of the mixture is known at every noise level.
    """

    what: Annotated[Positional[Literal["score"]], arg(metavar="score")]
    """score: the field, Langevin, SDE and ODE paths through it, and samples at three scales of guidance."""
    model: Annotated[Positional[Path | None], optional_argument("[DIR]", "the exact score")] = None
    """A trained model of points, as `redraft train points_tiny` or points_class_tiny leave it."""
    out: Path = Path("score.svg")
    """The picture."""
    toward: int = 1
    """The blob that guidance aims at, counted from 0."""
    gamma: tuple[float, float, float] = (0.0, 1.0, 4.0)
    """Scales of guidance: 0 no condition, 1 the condition, above it exaggerated."""
    seed: int = 0
    """Seed of the paths and samples."""
    json: Flag = False
    """What was drawn, as one JSON object."""
    opening: OmitArgPrefixes[ModelFlags] = ModelFlags()

    def __post_init__(self) -> None:
        require_svg("--out", self.out)
        require_seed_flag(self.seed)
        require_in_range("--toward", self.toward, 0, 1000)
        for scale in self.gamma:
            require_in_range("--gamma", scale, 0, 100)

    def __call__(self) -> None:
        from redraft.apps.reports.score_field import score_picture

        self.out.write_text(score_picture(self._scene(), self.gamma, self.seed), "utf-8")
        by = "exact" if self.model is None else f"by {self.model}"
        drawn = {"picture": str(self.out), "score": by, "toward": self.toward, "gamma": list(self.gamma)}
        emit(drawn, self.json, f"{self.out}: score, paths and guidance, {by}")

    def _scene(self) -> ScoreScene:
        from redraft.apps.reports.score_field import exact_scene, learned_scene
        from redraft.core.processes.gaussian import Gaussian
        from redraft.training.presets.vectors import points_tiny

        if self.model is None:
            process = (run := points_tiny()).model.process
            assert isinstance(process, Gaussian)
            return exact_scene(self._mixture(run), process, self.toward)
        from redraft.apps.cli.models import open_model

        it = open_model(self.model, self.opening)
        return learned_scene(self._mixture(it.run), it.lm.eval(), self.toward)

    def _mixture(self, run: Run | None) -> Mixture:
        """The true distribution of the points that a run learns."""
        from redraft.evaluation.laws.gaussian import Mixture, PointMixture

        data = None if run is None else run.data
        if not isinstance(data, PointMixture) or len(data.means[0]) != 2:
            raise ValueError(f"{self.model} is no model of points of the plane; train one: redraft train points_tiny")
        if self.toward >= len(data.means):
            raise ValueError(f"--toward {self.toward}: the mixture has {len(data.means)} blobs, counted from 0")
        return Mixture.of_blobs(data)
