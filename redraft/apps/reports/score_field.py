"""A picture of the score field of points under Gaussian noise, sampling paths through it, and guidance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import torch
from torch import Tensor

from redraft.apps.reports.svg import Svg, framed
from redraft.core import randomness
from redraft.core.canvas import Canvas, Context
from redraft.core.condition import Condition
from redraft.core.prediction import Denoiser
from redraft.core.processes import gaussian
from redraft.core.processes.gaussian import Gaussian, NoisePath
from redraft.decoding.guidance.classifier_free import ClassifierFree
from redraft.decoding.guidance.vectors import GradientClassifier
from redraft.decoding.samplers.base import Sampler, final_canvas
from redraft.decoding.solvers.grids import UniformLogSnrGrid
from redraft.decoding.solvers.langevin import EulerMaruyama, Langevin
from redraft.decoding.solvers.ode import Heun
from redraft.evaluation.laws.gaussian import Mixture, MixtureOracle
from redraft.evaluation.laws.solvers import ModeClassifier
from redraft.models.diffusion_lm import DiffusionLM

_TIMES, _STEPS, _TRAILS, _SAMPLES = (0.3, 0.15, 0.06), 60, 7, 240
_SAMPLERS: dict[str, Sampler] = {  # equal steps, so all start at the same noise level
    "Langevin": Langevin(_STEPS, inner=2, rate=0.3),
    "reverse SDE": EulerMaruyama(_STEPS),
    "probability flow (ODE)": Heun(_STEPS, UniformLogSnrGrid()),
}
_REACH, _SIDE, _GAP, _HEAD, _FOOT = 3.0, 248, 18, 52, 26  # plane units; the rest in pixels
_LEVELS = (0.01, 0.05, 0.15, 0.35, 0.65)  # contour levels as fractions of the highest density
_FINE, _COARSE = 72, 15  # points along a side of the fine and the coarse grid
_LOOKS = {
    ".frame": "fill:none;stroke:$edge",
    ".hill": "fill:$hill;fill-opacity:.3",
    ".field": "stroke:$s0;fill:none;opacity:.8",
    ".trail": "stroke:$s0;stroke-width:.9;fill:none;opacity:.55;stroke-linejoin:round",
    ".dots": "stroke:$s1;stroke-width:5;stroke-linecap:round;fill:none",
    ".many": "stroke:$s1;stroke-width:3.4;stroke-linecap:round;fill:none;opacity:.55",
    ".noise": "stroke:$dust;stroke-width:4;stroke-linecap:round;fill:none",
}


@dataclass(frozen=True)
class ScoreScene:
    """The subject of the picture: a known mixture of points, its noise process, and an exact or a trained denoiser."""

    mixture: Mixture
    process: Gaussian
    denoise: Denoiser
    guided: Callable[[float], tuple[Denoiser, Context]]  # γ → guided denoiser and its context
    dtype: torch.dtype = torch.float64
    learned: bool = False  # True if the denoiser is trained, so its score error is shown

    @property
    def path(self) -> NoisePath:
        return self.process.path


def exact_scene(mixture: Mixture, process: Gaussian, toward: int) -> ScoreScene:
    """Returns a scene with the exact denoiser and classifier, which equals exact classifier-free guidance."""
    oracle, classifier = MixtureOracle(mixture, process.path), ModeClassifier(mixture, process.path, toward)
    return ScoreScene(
        mixture, process, oracle, lambda scale: (GradientClassifier(classifier, process, scale)(oracle), Context())
    )


def learned_scene(mixture: Mixture, model: DiffusionLM, toward: int) -> ScoreScene:
    """Returns a scene with a trained model: classifier-free guidance if it has classes, else the exact classifier."""
    process = model.process.narrowed(Gaussian, "a picture", "use a diffusion of vectors")
    classifier = ModeClassifier(mixture, process.path, toward)

    def guided(scale: float) -> tuple[Denoiser, Context]:
        if model.config.network.classes is None:
            return GradientClassifier(classifier, process, scale)(model), Context()
        return ClassifierFree(scale)(model), Context(condition=Condition(label=torch.full((_SAMPLES,), toward)))

    return ScoreScene(mixture, process, model, guided, torch.float32, learned=True)


def score_picture(scene: ScoreScene, scales: Sequence[float] = (0.0, 1.0, 4.0), seed: int = 0) -> Svg:
    """Returns an SVG: the score at three noise levels, paths of three samplers, and samples at guidance scales γ."""
    with torch.no_grad():
        rows = [
            [_field_panel(scene, t) for t in _TIMES],
            [_trails_panel(scene, name, sampler, seed) for name, sampler in _SAMPLERS.items()],
            [_guided_panel(scene, scale, seed) for scale in scales],
        ]
    width, height = _GAP + 3 * (_SIDE + _GAP), sum((_HEAD + _SIDE + _FOOT) for _ in rows) + 8
    parts = [
        panel.svg(_GAP + column * (_SIDE + _GAP), 8 + line * (_HEAD + _SIDE + _FOOT))
        for line, panels in enumerate(rows)
        for column, panel in enumerate(panels)
    ]
    description = "; ".join(f"{panel.name}: {panel.note}" for panels in rows for panel in panels)
    return framed("redraft-field", (width, height), description, _LOOKS, "\n".join(parts))


@dataclass(frozen=True)
class _Panel:
    """A square of the plane with a title and a note."""

    name: str
    note: str
    inside: str

    def svg(self, x: float, y: float) -> str:
        return (
            f'<g transform="translate({x} {y})"><text class="name" x="0" y="22">{escape(self.name)}</text>'
            f'<text x="0" y="40">{escape(self.note)}</text><svg y="{_HEAD}" width="{_SIDE}" height="{_SIDE}">'
            f'{self.inside}<rect class="frame" x=".5" y=".5" width="{_SIDE - 1}" height="{_SIDE - 1}" rx="4"/>'
            f"</svg></g>"
        )


# --- the panels ---


def _field_panel(scene: ScoreScene, t: float) -> _Panel:
    points = _grid(_COARSE, inner=True).to(scene.dtype)
    scales = _scales(scene.path, t)
    level = f"log-SNR {float(scene.path.logsnr(torch.tensor(t))):.1f}".replace("-", "−").replace("log−", "log-")
    note = f"{level}; learned, off by {_score_error(scene, t):.0%}" if scene.learned else f"{level}: ∇ log q(z)"
    arrows = _arrows(points, _score_of(scene.denoise, scene.path, points, t))
    return _Panel(f"score at t = {t:g}", note, _hills(scene.mixture, *scales) + f'<path class="field" d="{arrows}"/>')


def _score_of(denoise: Denoiser, path: NoisePath, z: Tensor, t: float) -> Tensor:
    """(n, 2) points → (n, 2) score ∇ log q_t(z) = (a·x̂ − z)/s² from the prediction of a denoiser."""
    time = torch.full((len(z), 1), t, dtype=torch.float64)
    x = denoise.predict(z[:, None], time, Context()).x[:, 0]
    return gaussian.score_from_x(x, z, *_scales(path, t)).to(z.dtype)


def _score_error(scene: ScoreScene, t: float, points: int = 1000) -> float:
    """√(E‖ŝ − s‖²/E‖s‖²) of a learned score at one time, over noisy points of the mixture."""
    x = scene.mixture.sample(randomness.rng(1), points)
    z = scene.process.noise(x, torch.tensor([[t]]), rng=randomness.rng(2)).z[0].to(scene.dtype)
    with torch.no_grad():
        learned = _score_of(scene.denoise, scene.path, z, t).double()
    true = _score_of(MixtureOracle(scene.mixture, scene.path), scene.path, z.double(), t)
    return float(((learned - true).square().sum() / true.square().sum()).sqrt())


def _trails_panel(scene: ScoreScene, name: str, sampler: Sampler, seed: int) -> _Panel:
    canvases = list(
        sampler(scene.denoise, scene.process, _blank(_TRAILS, scene.dtype), rng=randomness.rng(seed, _TRAILS))
    )
    trails = torch.stack([canvas.z[:, 0] for canvas in canvases], 1)  # (n, steps + 1, 2)
    inside = (
        _hills(scene.mixture, *_scales(scene.path, 0))
        + f'<path class="trail" d="{"".join(map(_line, trails.tolist()))}"/>'
        + f'<path class="noise" d="{_dots(trails[:, 0].tolist())}"/>'
        + f'<path class="dots" d="{_dots(trails[:, -1].tolist())}"/>'
    )
    return _Panel(name, f"{_STEPS} noise levels, from noise to points", inside)


def _guided_panel(scene: ScoreScene, scale: float, seed: int) -> _Panel:
    denoise, context = scene.guided(scale)
    canvas = _blank(_SAMPLES, scene.dtype, context)
    samples = final_canvas(
        Heun(20, UniformLogSnrGrid())(denoise, scene.process, canvas, rng=randomness.rng(seed, _SAMPLES))
    ).z[:, 0]
    inside = _hills(scene.mixture, *_scales(scene.path, 0)) + f'<path class="many" d="{_dots(samples.tolist())}"/>'
    meaning = {0.0: "no condition", 1.0: "the distribution of one class"}.get(scale, "exaggerated: narrower, shifted")
    return _Panel(f"guidance γ = {scale:g}", meaning, inside)


def _blank(rows: int, dtype: torch.dtype, context: Context = Context()) -> Canvas:
    return Canvas(torch.zeros(rows, 1, 2, dtype=dtype), torch.zeros(rows, 1, dtype=torch.bool), context)


def _scales(path: NoisePath, t: float) -> tuple[Tensor, Tensor]:
    """Returns a and s at time t, each (1, 1)."""
    a, s = path.scales(torch.full((1, 1), t, dtype=torch.float64))
    return a, s


# --- drawing ---


def _pixel(value: float, upwards: bool = False) -> float:
    return _SIDE * (0.5 + (-value if upwards else value) / (2 * _REACH))


def _spot(x: float, y: float) -> str:
    return f"{_pixel(x):.1f} {_pixel(y, True):.1f}"


def _line(points: Sequence[Sequence[float]]) -> str:
    """Returns an SVG path through the points, without steps that are too small to see."""
    visible = [points[0]]
    for point in points[1:-1]:
        if max(abs(a - b) for a, b in zip(point, visible[-1], strict=True)) > 0.015:
            visible.append(point)
    return "M" + "L".join(_spot(*point) for point in [*visible, points[-1]])


def _dots(points: Iterable[Sequence[float]]) -> str:
    return "".join(f"M{_spot(*point)}h0" for point in points)


def _arrows(points: Tensor, field: Tensor) -> str:
    """Returns SVG arrows along the field at these points; longer is stronger, up to the spacing of the grid."""
    size = field.norm(dim=-1, keepdim=True)
    step = 2 * _REACH / _COARSE
    arrow = field / size.clamp(min=1e-9) * step * (0.25 + 0.65 * size / (size + size.median()))
    tail, tip = points - arrow / 2, points + arrow / 2
    side = torch.stack([-arrow[:, 1], arrow[:, 0]], -1)
    left, right = (tip - 0.32 * arrow + direction * 0.2 * side for direction in (-1, 1))
    return "".join(_arrow(*ends) for ends in zip(*(p.tolist() for p in (tail, tip, left, right)), strict=True))


def _arrow(tail: list[float], tip: list[float], left: list[float], right: list[float]) -> str:
    return f"M{_spot(*tail)}L{_spot(*tip)}M{_spot(*left)}L{_spot(*tip)}L{_spot(*right)}"


def _grid(count: int, inner: bool = False) -> Tensor:
    """(count², 2) grid points that cover the square; with `inner`, the centers of its cells."""
    reach = _REACH * (1 - 1 / count) if inner else _REACH
    ticks = torch.linspace(-reach, reach, count, dtype=torch.float64)
    return torch.cartesian_prod(ticks, ticks)


def _hills(mixture: Mixture, a: Tensor, s: Tensor) -> str:
    """Returns the density of noisy points as nested SVG contours."""
    density = mixture.log_density(_grid(_FINE), a, s).exp().view(_FINE, _FINE)
    density[0], density[-1], density[:, 0], density[:, -1] = 0, 0, 0, 0  # so that contours close within the square
    highest = float(density.max())
    paths = (_contour(density.tolist(), level * highest) for level in _LEVELS)
    return "".join(f'<path class="hill" d="{path}"/>' for path in paths if path)


_Edge = tuple[int, int, int]  # column, row, and 0 if it leads right or 1 if it leads up


def _contour(height: list[list[float]], level: float) -> str:
    """Returns the closed level lines of a function on a grid as an SVG path (marching squares)."""
    next_edge: dict[_Edge, list[_Edge]] = {}
    for i in range(len(height) - 1):
        for j in range(len(height) - 1):
            for edge, other in pairwise(_crossed(height, i, j, level)):
                next_edge.setdefault(edge, []).append(other)
                next_edge.setdefault(other, []).append(edge)
    return "".join(f"M{'L'.join(_crossing(height, edge, level) for edge in ring)}Z" for ring in _rings(next_edge))


def _crossed(height: list[list[float]], i: int, j: int, level: float) -> list[_Edge]:
    """Returns the two edges of a cell that the level line crosses, or none if it crosses no edge or four (a saddle)."""
    corners = [height[i][j] > level, height[i + 1][j] > level, height[i + 1][j + 1] > level, height[i][j + 1] > level]
    edges = ((i, j, 0), (i + 1, j, 1), (i, j + 1, 0), (i, j, 1))
    crossed = [edge for edge, (a, b) in zip(edges, pairwise([*corners, corners[0]]), strict=True) if a != b]
    return crossed if len(crossed) == 2 else []


def _rings(next_edge: dict[_Edge, list[_Edge]]) -> Iterator[list[_Edge]]:
    """Yields the closed sequences of neighboring edges."""
    seen: set[_Edge] = set()
    for start in next_edge:
        ring, edge = list[_Edge](), start
        while edge not in seen:
            seen.add(edge)
            ring.append(edge)
            edge = next((other for other in next_edge[edge] if other not in seen), edge)
        if len(ring) > 2:
            yield ring


def _crossing(height: list[list[float]], edge: _Edge, level: float) -> str:
    """Returns the point where the level line crosses an edge, by linear interpolation."""
    i, j, up = edge
    low, high = height[i][j], height[i + 1 - up][j + up]
    fraction = (level - low) / (high - low)
    step = 2 * _REACH / (_FINE - 1)
    return _spot(-_REACH + step * (i + (1 - up) * fraction), -_REACH + step * (j + up * fraction))
