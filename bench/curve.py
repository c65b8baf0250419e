"""The picture of quality against tokens per forward, from the rows of bench.picks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from bench.race import Row
from bench.table import read

WIDTH, HEIGHT, TOP, BOTTOM = 842, 450, 64, 366  # pixels
PANELS = {"as diverse as the model": (56, 396), "sharper: less diverse": (466, 806)}
DIVERSE = 4.4  # nats, entropy of the words of all texts; below it a pick sharpens
TICKS = (1, 2, 3, 4, 5, 7)
LIGHT = ("#3b5bdb", "#c2570c", "#2b8a3e", "#a61e4d", "#5f3dc4", "#0b7285")
DARK = ("#91a7ff", "#ff9f5a", "#69db7c", "#f783ac", "#b197fc", "#3bc9db")
SHAPES = ("circle", "square", "diamond", "triangle", "cross", "ring")


def _painted(colors: Sequence[str]) -> str:
    """A class for each of the colors."""
    return "".join(f".c{i}{{stroke:{color};color:{color}}}" for i, color in enumerate(colors))


STYLE = (
    "text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#62666d}.name{fill:#23262b}"
    ".end{text-anchor:end}.middle{text-anchor:middle}.card{fill:#fffdf8;stroke:#e4dfd3}.grid{stroke:#e5e1d7}"
    "path,circle{fill:none;stroke-width:1.6}.full{fill:currentColor}"
    f"{_painted(LIGHT)}"
    "@media(prefers-color-scheme:dark){text{fill:#9a9fa8}.name{fill:#e6e4df}.card{fill:#1e2128;stroke:#31353e}"
    f".grid{{stroke:#31353e}}{_painted(DARK)}}}"
)


def pictures(results: Path) -> dict[str, str]:
    """`results` is the folder of the recipes' rows."""
    return {"decoding": drawn(read(results.parents[1] / "bench" / "results" / "curve.jsonl"))}


def curves(rows: Sequence[Row]) -> dict[str, list[tuple[str, list[Row]]]]:
    """The points of each pick, by panel, in the order of the rows."""
    found: dict[str, list[tuple[str, list[Row]]]] = {panel: [] for panel in PANELS}
    diverse, sharper = PANELS
    for pick, some in groupby((row for row in rows if "curve" in row), key=lambda row: row["curve"]):
        points = sorted(some, key=lambda row: row["tokens_per_forward"])
        mean = sum(row["diversity"] for row in points) / len(points)
        found[diverse if mean > DIVERSE else sharper].append((pick, points))
    return found


def drawn(rows: Sequence[Row]) -> str:
    """The whole picture; the same rows give the same file."""
    parts = [part for panel, picks in curves(rows).items() for part in _panel(panel, picks)]
    said = "; ".join(_spoken(pick, points) for picks in curves(rows).values() for pick, points in picks)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(said)}"><style>{STYLE}</style>'
        f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="10"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _spoken(pick: str, points: Sequence[Row]) -> str:
    pairs = ", ".join(f"{row['grammatical']:.0%} at {row['tokens_per_forward']:.2g}" for row in points)
    return f"{pick}: right stories {pairs} tokens per forward"


def _panel(name: str, picks: Sequence[tuple[str, list[Row]]]) -> Iterator[str]:
    left, right = PANELS[name]
    yield f'<text class="name" x="{left}" y="28">{name}</text>'
    yield f'<text x="{left}" y="46">stories right, %, against tokens per forward</text>'
    for tick in TICKS:
        x = _x(tick, left, right)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{BOTTOM}"/>'
        yield f'<text class="middle" x="{x:.1f}" y="{BOTTOM + 18}">{tick}</text>'
    for share in (0, 0.25, 0.5, 0.75, 1):
        yield f'<line class="grid" x1="{left}" x2="{right}" y1="{_y(share):.1f}" y2="{_y(share):.1f}"/>'
        yield f'<text class="end" x="{left - 8}" y="{_y(share) + 4:.1f}">{share:.0%}</text>'.replace("%<", "<")
    for number, (pick, points) in enumerate(picks):
        yield from _curve(pick, points, number, left, right)


def _curve(pick: str, points: Sequence[Row], number: int, left: int, right: int) -> Iterator[str]:
    color, shape = f"c{number % len(LIGHT)}", SHAPES[number % len(SHAPES)]
    places = [(_x(row["tokens_per_forward"], left, right), _y(row["grammatical"])) for row in points]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    yield f'<path class="{color}" d="M{path}"/>'
    yield from (_mark(shape, x, y, color) for x, y in places)
    column, line = divmod(number, 3)
    x, y = left + 150 * column, BOTTOM + 40 + 15 * line
    yield _mark(shape, x, y - 4, color) + f'<text x="{x + 10}" y="{y}">{pick}</text>'


def _mark(shape: str, x: float, y: float, color: str) -> str:
    outline = {
        "square": f"M{x - 3.5:.1f} {y - 3.5:.1f}h7v7h-7z",
        "diamond": f"M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z",
        "triangle": f"M{x:.1f} {y - 5:.1f}l5 8h-10z",
        "cross": f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8",
    }.get(shape)
    if outline is not None:
        return f'<path class="{color if shape == "cross" else f"{color} full"}" d="{outline}"/>'
    return f'<circle class="{f"{color} full" if shape == "circle" else color}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'


def _x(tokens: float, left: int, right: int) -> float:
    low, high = 0.75, 8.0
    return left + (right - left) * math.log(min(max(tokens, low), high) / low) / math.log(high / low)


def _y(share: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * share
