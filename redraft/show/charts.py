"""Bars and curves of a page, as SVG."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from html import escape


@dataclass(frozen=True)
class Bar:
    """A quantity with its standard error, and a remark."""

    name: str
    value: float
    note: str = ""
    error: float = 0.0


@dataclass(frozen=True)
class Bars:
    """Quantities from zero up, each with a whisker of one standard error to both sides."""

    bars: tuple[Bar, ...]
    unit: str

    def html(self) -> str:
        return f'<div class="bars">{"".join(self._bar(bar, i) for i, bar in enumerate(self.bars))}</div>'

    def _bar(self, bar: Bar, number: int) -> str:
        most = max(_LEAST, *(b.value + b.error for b in self.bars))
        low, value, high = (100 * max(0.0, v) / most for v in (bar.value - bar.error, bar.value, bar.value + bar.error))
        error = f" ± {bar.error:.4f}" if bar.error else ""
        return (
            f'<div class="bar series-{number}"><b>{escape(bar.name)}</b><span class="track">'
            f'<i class="length" style="width:{value:.2f}%"></i>'
            f'<i class="error" style="left:{low:.2f}%;width:{high - low:.2f}%"></i></span>'
            f"<span>{bar.value:.4f}{error} {escape(self.unit)} <small>{escape(bar.note)}</small></span></div>"
        )


@dataclass(frozen=True)
class Curve:
    """A named sequence of points (x, y)."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Charts:
    """Charts side by side."""

    charts: tuple[Chart, ...]

    def html(self) -> str:
        return f'<div class="charts">{"".join(chart.html() for chart in self.charts)}</div>'


@dataclass(frozen=True)
class Chart:
    """Losses over a common axis, on a logarithmic scale; `limit` is a line that none of them can cross."""

    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]
    limit: Bar | None = None

    WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 440, 280, 58, 24, 26, 42

    def html(self) -> str:
        keys = "".join(f'<span class="series-{i}">{escape(c.name)}</span>' for i, c in enumerate(self.curves))
        inside = self._axes() + self._limit() + "".join(self._curve(i, curve) for i, curve in enumerate(self.curves))
        return f"""<figure class="chart">
<figcaption><b>{escape(self.title)}</b><span class="keys">{keys}</span></figcaption>
<svg viewBox="0 0 {self.WIDTH} {self.HEIGHT}" role="img" aria-label="{escape(self._spoken())}">{inside}</svg>
</figure>"""

    def _spoken(self) -> str:
        ends = [f"{c.name} ends at {c.points[-1][1]:.3f}" for c in self.curves if c.points]
        limit = [] if self.limit is None else [f"{self.limit.name}: {self.limit.value:.3f}"]
        return f"{self.title}: {self.y} over {self.x}. " + "; ".join([*ends, *limit])

    @cached_property
    def _extent(self) -> tuple[float, float, float]:
        """The largest x, and the range of y with some room around it."""
        points = [point for curve in self.curves for point in curve.points] or [(1.0, 1.0)]
        ys = [y for _, y in points] + ([] if self.limit is None else [self.limit.value])
        return max(x for x, _ in points), max(_LEAST, min(ys)) / 1.3, 1.1 * max(_LEAST, *ys)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        """Where a point is drawn."""
        widest, low, high = self._extent
        across, up = self.WIDTH - self.LEFT - self.RIGHT, self.HEIGHT - self.TOP - self.BOTTOM
        height = math.log(max(_LEAST, y) / low) / math.log(high / low)
        return self.LEFT + across * x / widest, self.HEIGHT - self.BOTTOM - up * height

    def _axes(self) -> str:
        widest, low, high = self._extent
        bottom, right = self.HEIGHT - self.BOTTOM, self.WIDTH - self.RIGHT
        parts = [f'<line class="axis" x1="{self.LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>']
        for tick in round_numbers(low, high):
            _, y = self._at(0, tick)
            parts.append(f'<line class="grid" x1="{self.LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text class="end" x="{self.LEFT - 6}" y="{y + 4:.1f}">{tick:g}</text>')
        for tick in ticks(widest):
            parts.append(f'<text class="middle" x="{self._at(tick, 1)[0]:.1f}" y="{bottom + 17}">{tick:g}</text>')
        parts.append(f'<text class="end" x="{right}" y="{self.HEIGHT - 6}">{escape(self.x)}</text>')
        parts.append(f'<text x="4" y="13">{escape(self.y)}</text>')
        return "".join(parts)

    def _limit(self) -> str:
        if self.limit is None:
            return ""
        _, y = self._at(0, self.limit.value)
        return (
            f'<line class="limit" x1="{self.LEFT}" x2="{self.WIDTH - self.RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="limit" x="{self.LEFT + 6}" y="{y + 15:.1f}">'
            f"{escape(self.limit.name)} {self.limit.value:.3f}</text>"
        )

    def _curve(self, number: int, curve: Curve) -> str:
        places = [self._at(*point) for point in curve.points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dots = "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2">'
            f"<title>{escape(curve.name)}, {escape(self.x)} {at:g}: {value:.3f}</title></circle>"
            for (x, y), (at, value) in zip(places, curve.points, strict=True)
            if len(places) <= 16
        )
        return f'<g class="series-{number}"><polyline points="{line}"/>{dots}</g>'


_LEAST = 1e-4  # bits: lower values are drawn here


def ticks(most: float, about: float = 5) -> list[float]:
    """Round numbers at even distances from zero up to `most`."""
    raw = most / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
    return [round(k * step, 12) for k in range(math.floor(most / step) + 1)]


def round_numbers(low: float, high: float) -> list[float]:
    """Round numbers between two positive ones: 1, 2, 5, 10, …; in a narrow range evenly spaced ones, at least three."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [m * 10.0**p for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]
    return found if len(found) > 2 else [tick for tick in ticks(high, 8 * high / (high - low)) if tick >= low]
