"""Charts for reports, notebooks and the documentation: curves as SVG, bars as HTML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import accumulate

from redraft.apps.reports.svg import Svg, framed, series_color


@dataclass(frozen=True)
class _Bar:
    """A quantity with its standard error and a note."""

    name: str
    value: float
    note: str = ""
    error: float = 0.0


@dataclass(frozen=True)
class _Bars:
    """Horizontal bars from zero, each with a whisker of one standard error to either side."""

    bars: tuple[_Bar, ...]
    unit: str

    def html(self) -> str:
        return f'<div class="bars">{"".join(self._bar(bar, i) for i, bar in enumerate(self.bars))}</div>'

    def _bar(self, bar: _Bar, index: int) -> str:
        most = max(_LEAST, *(b.value + b.error for b in self.bars))
        low, value, high = (100 * max(0.0, v) / most for v in (bar.value - bar.error, bar.value, bar.value + bar.error))
        error = f" ± {bar.error:.4f}" if bar.error else ""
        return (
            f'<div class="bar series-{index % _COLORS}"><b>{escape(bar.name)}</b><span class="track">'
            f'<i class="length" style="width:{value:.2f}%"></i>'
            f'<i class="error" style="left:{low:.2f}%;width:{high - low:.2f}%"></i></span>'
            f"<span>{bar.value:.4f}{error} {escape(self.unit)} <small>{escape(bar.note)}</small></span></div>"
        )


@dataclass(frozen=True)
class Point:
    """A point of a curve, with the standard error of y."""

    x: float
    y: float
    error: float = 0.0


@dataclass(frozen=True)
class Curve:
    """A named sequence of points. Curves with the same name, such as the seeds of a method, share a color."""

    name: str
    points: tuple[Point, ...]
    dashed: bool = False

    @classmethod
    def through(cls, name: str, pairs: Iterable[tuple[float, float]]) -> Curve:
        """The curve through pairs (x, y)."""
        return cls(name, tuple(Point(x, y) for x, y in pairs))


@dataclass(frozen=True)
class _Charts:
    """Charts of a page, side by side where there is room."""

    charts: tuple[Chart, ...]

    def html(self) -> str:
        return f'<div class="charts">{"".join(chart_picture([chart]) for chart in self.charts)}</div>'


@dataclass(frozen=True)
class _Scale:
    """A linear or logarithmic axis from low to high."""

    low: float
    high: float
    log: bool

    def fraction(self, value: float) -> float:
        """Position of a value along the axis, from 0 (low) to 1 (high)."""
        if self.log:
            return math.log(max(_LEAST, value) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        every = _log_ticks(self.low, self.high) if self.log else _ticks(self.high)
        return [tick for tick in every if tick >= self.low]


@dataclass(frozen=True)
class Chart:
    """Curves in one coordinate system."""

    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]
    limit: tuple[str, float] | None = None
    """A name and a height at which a horizontal line is drawn, such as a bound that no curve can cross."""
    x_log: bool = False
    y_log: bool = False
    x_range: tuple[float, float] | None = None
    """Ends of the axis. By default a linear axis starts at zero, and a logarithmic one leaves some room."""
    y_range: tuple[float, float] | None = None
    x_ticks: tuple[float, ...] = ()
    top: float = 0.0
    """A linear y axis reaches at least this value."""

    width: int = 440

    HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 294, 58, 24, 60, 46

    def _repr_svg_(self) -> str:
        return chart_picture([self])

    def svg(self) -> str:
        """The inside of a picture: axes, curves and the legend below them."""
        return self._axes() + self._limit() + "".join(map(self._curve, self.curves)) + "".join(self._legend())

    @property
    def height(self) -> int:
        """Height of the chart and its legend."""
        return max((y for _, _, y in self._keys()), default=self.HEIGHT - _KEY) + _KEY

    @property
    def is_empty(self) -> bool:
        return not any(curve.points for curve in self.curves)

    @cached_property
    def _names(self) -> list[str]:
        return list(dict.fromkeys(curve.name for curve in self.curves))

    def description(self) -> str:
        """Describes the chart for screen readers."""
        ends = [f"{c.name} ends at {c.points[-1].y:.3f}" for c in self.curves if c.points]
        limit = [] if self.limit is None else [f"{self.limit[0]}: {self.limit[1]:.3f}"]
        return f"{self.title}: {self.y} over {self.x}. " + "; ".join([*ends, *limit])

    @cached_property
    def _scales(self) -> tuple[_Scale, _Scale]:
        """The x and y axes."""
        points = [point for curve in self.curves for point in curve.points] or [Point(1.0, 1.0)]
        xs, ys = [point.x for point in points], [point.y for point in points]
        ys += [] if self.limit is None else [self.limit[1]]
        x_range = self.x_range or ((min(xs) / 1.3, 1.15 * max(xs)) if self.x_log else (0.0, max(_LEAST, *xs, 0.0)))
        log_range = max(_LEAST, min(ys)) / 1.3, 1.1 * max(_LEAST, *ys)
        y_range = self.y_range or (log_range if self.y_log else (0.0, max(_LEAST, self.top, *ys)))
        return _Scale(*x_range, self.x_log), _Scale(*y_range, self.y_log)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        """Returns the coordinates at which a point is drawn; points beyond the ends of an axis are drawn at its end."""
        across, up = (min(1.0, max(0.0, scale.fraction(v))) for scale, v in zip(self._scales, (x, y), strict=True))
        width, height = self.width - self.LEFT - self.RIGHT, self.HEIGHT - self.TOP - self.BOTTOM
        return self.LEFT + width * across, self.HEIGHT - self.BOTTOM - height * up

    def _axes(self) -> str:
        across, up = self._scales
        bottom, right = self.HEIGHT - self.BOTTOM, self.width - self.RIGHT
        parts = [f'<text class="name" x="18" y="26">{escape(self.title)}</text>']
        parts.append(f'<text x="18" y="45">{escape(self.y)}</text>')
        for tick in up.ticks():
            _, y = self._at(across.high, tick)
            parts.append(f'<line class="grid" x1="{self.LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text class="end tick" x="{self.LEFT - 7}" y="{y + 4:.1f}">{tick:g}</text>')
        parts.append(f'<line class="axis" x1="{self.LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
        for tick in self.x_ticks or across.ticks():
            parts.append(f'<text class="middle" x="{self._at(tick, up.high)[0]:.1f}" y="{bottom + 17}">{tick:g}</text>')
        parts.append(f'<text class="end" x="{right}" y="{bottom + 36}">{escape(self.x)}</text>')
        return "".join(parts)

    def _limit(self) -> str:
        if self.limit is None:
            return ""
        name, value = self.limit
        _, y = self._at(self._scales[0].high, value)
        return (
            f'<line class="limit" x1="{self.LEFT}" x2="{self.width - self.RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="limit" x="{self.LEFT + 6}" y="{y + 15:.1f}">{escape(name)} {value:.3f}</text>'
        )

    def _curve(self, curve: Curve) -> str:
        dots_at = [self._at(point.x, point.y) for point in curve.points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots_at)
        dots = "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2">'
            f"<title>{escape(curve.name)}, {escape(self.x)} {point.x:.4g}: {point.y:.3f}</title></circle>"
            for (x, y), point in zip(dots_at, curve.points, strict=True)
            if len(dots_at) <= 20
        )
        errors = "".join(self._error(point) for point in curve.points if point.error)
        dashed = " dashed" * curve.dashed
        return f'<g class="{self._series(curve.name)}{dashed}">{errors}<polyline points="{line}"/>{dots}</g>'

    def _series(self, name: str) -> str:
        return f"series-{self._names.index(name) % _COLORS}"

    def _error(self, point: Point) -> str:
        low = self._scales[1].low
        (x, top), (_, bottom) = (self._at(point.x, max(low, y)) for y in (point.y + point.error, point.y - point.error))
        return f'<path class="whisker" d="M{x:.1f} {top:.1f}V{bottom:.1f}"/>'

    def _legend(self) -> Iterator[str]:
        for name, x, y in self._keys():
            yield f'<g class="{self._series(name)}"><circle cx="{x}" cy="{y - 4}" r="5"/></g>'
            yield f'<text x="{x + 11}" y="{y}">{escape(name)}</text>'

    def _keys(self) -> list[tuple[str, int, int]]:
        """The names of the curves that have points, and where they are written."""
        drawn = {curve.name for curve in self.curves if curve.points}
        keys, x, y = list[tuple[str, int, int]](), 24, self.HEIGHT + 14
        for name in (name for name in self._names if name in drawn):
            room = 32 + round(7 * len(name))
            if x + room > self.width and x > 24:
                x, y = 24, y + _KEY
            keys.append((name, x, y))
            x += room
        return keys


def chart_picture(charts: Sequence[Chart]) -> Svg:
    """One picture of charts side by side, each with its legend; empty charts are left out, unless all are empty."""
    shown = [chart for chart in charts if not chart.is_empty] or list(charts)
    starts = [0, *accumulate(chart.width for chart in shown)]
    parts = (f'<g transform="translate({x} 0)">{chart.svg()}</g>' for x, chart in zip(starts, shown, strict=False))
    size = (starts[-1], max(chart.height for chart in shown))
    description = " ".join(chart.description() for chart in shown)
    return framed("redraft-chart", size, description, _LOOKS, "\n".join(parts))


_COLORS = 8  # further curves reuse the colors from the first on
_KEY = 20  # height of a line of the legend, in pixels
_LEAST = 1e-4  # bits: lower values are drawn at this height
_LOOKS = {
    ".end": "text-anchor:end",
    ".middle": "text-anchor:middle",
    ".grid": "stroke:$grid",
    ".axis": "stroke:$quiet",
    "line.limit": "stroke:$limit;stroke-width:1.6;stroke-dasharray:6 4",
    "text.limit": "fill:$limit",
    "polyline": "fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round",
    ".dashed polyline": "stroke-dasharray:6 4",
    "circle": "fill:currentColor",
    ".whisker": "stroke:currentColor;stroke-width:1.5;opacity:.5",
} | {f".series-{i}": f"color:{series_color(i)}" for i in range(_COLORS)}


def _ticks(most: float, about: float = 5) -> list[float]:
    """Returns evenly spaced round numbers from zero up to `most`, about `about` of them."""
    raw = most / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
    return [round(k * step, 12) for k in range(math.floor(most / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Returns 1, 2, 5, 10, … between low and high; in a narrow range, at least three evenly spaced round numbers."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [m * 10.0**p for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]
    return ticks if len(ticks) > 2 else [tick for tick in _ticks(high, 8 * high / (high - low)) if tick >= low]
