"""Curves and dots with error bars, side by side in one SVG with light and dark colors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from redraft.apps.reports.charts import _Scale

WIDTH, HEIGHT, HEAD, FOOT = 421, 250, 62, 26  # of a panel, in pixels; what its title and its axis take
LEFT, RIGHT, LINE = 52, 24, 20
_BRIGHT = ("#3b5bdb", "#c2570c", "#2b8a3e", "#862e9c", "#6b7280")
_DARK = ("#8ea6ff", "#ffa05c", "#69db7c", "#da77f2", "#b4bac4")
STYLE = (
    "text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#62666d}.name{fill:#23262b}"
    ".end{text-anchor:end}.middle{text-anchor:middle}.card{fill:#fffdf8;stroke:#e4dfd3}.grid{stroke:#e5e1d7}"
    "polyline{fill:none;stroke-width:2.2}path{fill:none;stroke-width:1.4}.limit{stroke:#62666d;stroke-dasharray:5 4}"
    + "".join(f".s{i} circle,.s{i}.key{{fill:{c}}}.s{i} *{{stroke:{c}}}" for i, c in enumerate(_BRIGHT))
    + "@media(prefers-color-scheme:dark){text{fill:#9a9fa8}.name{fill:#e6e4df}.card{fill:#1e2128;stroke:#31353e}"
    ".grid{stroke:#31353e}.limit{stroke:#9a9fa8}"
    + "".join(f".s{i} circle,.s{i}.key{{fill:{c}}}.s{i} *{{stroke:{c}}}" for i, c in enumerate(_DARK))
    + "}"
)


@dataclass(frozen=True)
class Point:
    """A figure at some place, and its standard error."""

    x: float
    y: float
    error: float = 0.0


Curves = Mapping[str, Sequence[Point]]  # by the name of the series


@dataclass(frozen=True)
class Panel:
    """Curves over a common axis; `limit`: a named height to compare with."""

    title: str
    note: str
    curves: Curves
    x: _Scale
    y: _Scale
    x_ticks: Sequence[float]
    limit: tuple[str, float] | None = None

    def svg(self) -> Iterator[str]:
        yield f'<text class="name" x="20" y="26">{escape(self.title)}</text>'
        yield f'<text x="20" y="44">{escape(self.note)}</text>'
        for tick in (tick for tick in self.y.ticks() if tick >= self.y.low):
            y = self._up(tick)
            yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text class="end" x="{LEFT - 7}" y="{y + 4:.1f}">{tick:g}</text>'
        for tick in self.x_ticks:
            yield f'<text class="middle" x="{self._along(tick):.1f}" y="{HEIGHT - FOOT + 18}">{tick:g}</text>'
        if self.limit is not None:
            name, value = self.limit
            yield f'<path class="limit" d="M{LEFT} {self._up(value):.1f}H{WIDTH - RIGHT}"/>'
            yield f'<text class="end" x="{WIDTH - RIGHT}" y="{self._up(value) + 16:.1f}">{escape(name)}</text>'
        yield from (self._curve(number, points) for number, points in enumerate(self.curves.values()) if points)
        for number, (name, x, y) in enumerate(self._keys()):
            yield f'<circle class="s{number} key" cx="{x}" cy="{y}" r="5"/>'
            yield f'<text x="{x + 11}" y="{y + 4}">{escape(name)}</text>'

    @property
    def height(self) -> int:
        """With its legend."""
        return max(y for _, _, y in self._keys()) + LINE

    def _keys(self) -> list[tuple[str, int, int]]:
        """The names of the series, and where they stand."""
        found, x, y = list[tuple[str, int, int]](), 26, HEIGHT + 14
        for name in self.curves:
            room = 30 + round(6.8 * len(name))
            if x + room > WIDTH and x > 26:
                x, y = 26, y + LINE
            found.append((name, x, y))
            x += room
        return found

    def spoken(self) -> str:
        said = (
            f"{name}: {', '.join(f'{p.y:.3g} at {p.x:g}' for p in points[:: max(1, len(points) // 6)])}"
            for name, points in self.curves.items()
        )
        return f"{self.title}. {'; '.join(said)}"

    def _curve(self, number: int, points: Sequence[Point]) -> str:
        places = [(self._along(p.x), self._up(p.y)) for p in points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places if len(places) < 20)
        ends = ((self._along(p.x), self._up(p.y - p.error), self._up(p.y + p.error)) for p in points if p.error)
        errors = "".join(f'<path d="M{x:.1f} {low:.1f}V{high:.1f}"/>' for x, low, high in ends)
        return f'<g class="s{number}"><polyline points="{line}"/>{errors}{dots}</g>'

    def _along(self, x: float) -> float:
        return LEFT + (WIDTH - RIGHT - LEFT) * self.x.fraction(x)

    def _up(self, y: float) -> float:
        return HEIGHT - FOOT - (HEIGHT - FOOT - HEAD) * min(1.0, max(0.0, self.y.fraction(y)))


def drawn(panels: Sequence[Panel]) -> str:
    """Panels side by side, each with its legend, but those for which nothing is measured yet."""
    panels = [panel for panel in panels if any(panel.curves.values())] or panels
    width, height = WIDTH * len(panels), max(panel.height for panel in panels)
    inside = [f'<g transform="translate({WIDTH * i} 0)">{"".join(panel.svg())}</g>' for i, panel in enumerate(panels)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(" ".join(panel.spoken() for panel in panels))}"><style>{STYLE}</style>'
        f'<rect class="card" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="10"/>\n'
        + "\n".join(inside)
        + "\n</svg>\n"
    )
