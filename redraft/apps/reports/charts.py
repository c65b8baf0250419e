"""Bar charts and line charts of a page, as HTML and SVG."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from html import escape


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
            f'<div class="bar series-{index % _SERIES}"><b>{escape(bar.name)}</b><span class="track">'
            f'<i class="length" style="width:{value:.2f}%"></i>'
            f'<i class="error" style="left:{low:.2f}%;width:{high - low:.2f}%"></i></span>'
            f"<span>{bar.value:.4f}{error} {escape(self.unit)} <small>{escape(bar.note)}</small></span></div>"
        )


@dataclass(frozen=True)
class _Curve:
    """A named sequence of points (x, y). Curves with the same name, such as the seeds of a method, share a color."""

    name: str
    points: tuple[tuple[float, float], ...]
    errors: tuple[float, ...] = ()  # standard error of each y; empty if unknown


@dataclass(frozen=True)
class _Charts:
    """Charts side by side."""

    charts: tuple[_Chart, ...]

    def html(self) -> str:
        return f'<div class="charts">{"".join(chart.html() for chart in self.charts)}</div>'


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
        return _log_ticks(self.low, self.high) if self.log else _ticks(self.high)


@dataclass(frozen=True)
class _Chart:
    """Curves in one coordinate system; `limit` draws a horizontal line at a bound that no curve can cross."""

    title: str
    x: str
    y: str
    curves: tuple[_Curve, ...]
    limit: _Bar | None = None
    x_log: bool = False
    y_log: bool = True
    top: float = 0.0  # a linear y axis reaches at least this value

    WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 440, 280, 58, 24, 26, 42

    def html(self) -> str:
        drawn = {curve.name for curve in self.curves if curve.points}
        legend = [(i, name) for i, name in enumerate(self._names) if name in drawn]
        keys = "".join(f'<span class="series-{i % _SERIES}">{escape(name)}</span>' for i, name in legend)
        inside = self._axes() + self._limit() + "".join(map(self._curve, self.curves))
        return f"""<figure class="chart">
<figcaption><b>{escape(self.title)}</b><span class="keys">{keys}</span></figcaption>
<svg viewBox="0 0 {self.WIDTH} {self.HEIGHT}" role="img" aria-label="{escape(self._description())}">{inside}</svg>
</figure>"""

    @cached_property
    def _names(self) -> list[str]:
        return list(dict.fromkeys(curve.name for curve in self.curves))

    def _description(self) -> str:
        """Describes the chart for screen readers."""
        ends = [f"{c.name} ends at {c.points[-1][1]:.3f}" for c in self.curves if c.points]
        limit = [] if self.limit is None else [f"{self.limit.name}: {self.limit.value:.3f}"]
        return f"{self.title}: {self.y} over {self.x}. " + "; ".join([*ends, *limit])

    @cached_property
    def _scales(self) -> tuple[_Scale, _Scale]:
        """The x and y axes. A linear axis starts at zero; a logarithmic one leaves a margin around the values."""
        points = [point for curve in self.curves for point in curve.points] or [(1.0, 1.0)]
        xs, ys = ([point[axis] for point in points] for axis in (0, 1))
        ys += [] if self.limit is None else [self.limit.value]
        across = _Scale(min(xs) / 1.3, 1.15 * max(xs), True) if self.x_log else _Scale(0.0, max(xs), False)
        low, high = max(_LEAST, min(ys)) / 1.3, 1.1 * max(_LEAST, *ys)
        return across, _Scale(low, high, True) if self.y_log else _Scale(0.0, max(_LEAST, self.top, *ys), False)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        """Returns the coordinates at which a point is drawn."""
        across, up = self._scales
        width, height = self.WIDTH - self.LEFT - self.RIGHT, self.HEIGHT - self.TOP - self.BOTTOM
        return self.LEFT + width * across.fraction(x), self.HEIGHT - self.BOTTOM - height * up.fraction(y)

    def _axes(self) -> str:
        across, up = self._scales
        bottom, right = self.HEIGHT - self.BOTTOM, self.WIDTH - self.RIGHT
        parts = [f'<line class="axis" x1="{self.LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>']
        for tick in up.ticks():
            _, y = self._at(across.high, tick)
            parts.append(f'<line class="grid" x1="{self.LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text class="end" x="{self.LEFT - 6}" y="{y + 4:.1f}">{tick:g}</text>')
        for tick in across.ticks():
            parts.append(f'<text class="middle" x="{self._at(tick, 1)[0]:.1f}" y="{bottom + 17}">{tick:g}</text>')
        parts.append(f'<text class="end" x="{right}" y="{self.HEIGHT - 6}">{escape(self.x)}</text>')
        parts.append(f'<text x="4" y="13">{escape(self.y)}</text>')
        return "".join(parts)

    def _limit(self) -> str:
        if self.limit is None:
            return ""
        _, y = self._at(self._scales[0].high, self.limit.value)
        return (
            f'<line class="limit" x1="{self.LEFT}" x2="{self.WIDTH - self.RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="limit" x="{self.LEFT + 6}" y="{y + 15:.1f}">'
            f"{escape(self.limit.name)} {self.limit.value:.3f}</text>"
        )

    def _curve(self, curve: _Curve) -> str:
        dots_at = [self._at(*point) for point in curve.points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots_at)
        dots = "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2">'
            f"<title>{escape(curve.name)}, {escape(self.x)} {at:.4g}: {value:.3f}</title></circle>"
            for (x, y), (at, value) in zip(dots_at, curve.points, strict=True)
            if len(dots_at) <= 16
        )
        errors = "".join(map(self._error, curve.points, curve.errors))
        series = self._names.index(curve.name) % _SERIES
        return f'<g class="series-{series}">{errors}<polyline points="{line}"/>{dots}</g>'

    def _error(self, point: tuple[float, float], error: float) -> str:
        x, y = point
        (at, top), (_, bottom) = (self._at(x, max(self._scales[1].low, value)) for value in (y + error, y - error))
        return f'<path class="whisker" d="M{at:.1f} {top:.1f}V{bottom:.1f}"/>'


_SERIES = 8  # colors in page.css; further curves reuse them from the first on
_LEAST = 1e-4  # bits: lower values are drawn at this height


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
