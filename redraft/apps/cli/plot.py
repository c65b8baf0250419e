"""Plots in the terminal, with Braille characters of 2 × 4 dots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

_Point = tuple[float, float]
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # bit of each dot, by row and column


def plot(
    curve: Sequence[_Point], level: float | None = None, width: int = 60, height: int = 10, x: str = "step"
) -> list[str]:
    """Return the lines of a plot of a curve, labeled with its largest and smallest value.

    `level` draws a dotted horizontal line.
    """
    values = [y for _, y in curve] + ([] if level is None else [level])
    left, right, low, high = curve[0][0], curve[-1][0], min(values), max(values)
    wide, tall = 2 * width - 1, 4 * height - 1

    def dot(point: _Point) -> tuple[int, int]:
        across, down = (point[0] - left) / (right - left or 1), (high - point[1]) / (high - low or 1)
        return round(wide * across), round(tall * down)

    dots = [point for a, b in pairwise([curve[0], *curve]) for point in _segment(dot(a), dot(b))]
    if level is not None:
        dots += [(column, dot((left, level))[1]) for column in range(0, wide + 1, 4)]
    labels = [f"{high:.3f}", *[""] * (height - 2), f"{low:.3f}", x]
    steps = f"{left:g}".ljust(width - len(f"{right:g}")) + f"{right:g}"
    return [f"{label:>8} {row}" for label, row in zip(labels, [*_braille(dots, width, height), steps], strict=True)]


def _segment(a: tuple[int, int], b: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the dots of a straight line from a to b."""
    count = max(abs(b[0] - a[0]), abs(b[1] - a[1]), 1)
    return (
        (round(a[0] + (b[0] - a[0]) * i / count), round(a[1] + (b[1] - a[1]) * i / count)) for i in range(count + 1)
    )


def _braille(dots: Iterable[tuple[int, int]], width: int, height: int) -> Iterator[str]:
    """Yield `height` rows of up to `width` characters that show the dots (x, y)."""
    cells = [[0x2800] * width for _ in range(height)]
    for x, y in dots:
        cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
    return ("".join(map(chr, row)).rstrip("\u2800") for row in cells)
