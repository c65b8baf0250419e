"""Draws the methods side by side: excess bits over the true entropy, and fraction of correct texts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from rows import Rows

from redraft.apps import Svg, framed, noise_text, series_color, strip
from redraft.apps.reports.charts import _log_ticks, _ticks
from redraft.models import DiffusionLM
from redraft.training import presets
from results_pages.tables import METHODS, SYSTEMS

TOKENS, VECTORS = "tokens", "vectors"
WIDTH, LINE, TOP, BOTTOM = 842, 24, 64, 46  # pixels
EXCESS, RIGHT = (236, 510), (560, 812)  # where the two panels begin and end
LOOKS = {
    ".end": "text-anchor:end",
    ".middle": "text-anchor:middle",
    ".grid": "stroke:$grid",
    ".tokens": f"fill:{series_color(0)}",
    ".vectors": f"fill:{series_color(1)}",
    ".bar": "opacity:.75",
    ".error": "stroke:$ink;stroke-width:1.5;fill:none",
}


NOISED = (
    "One spring day, Clara felt bored and walked to the lake. She made a red cushion by the b"
    "ridge. It was for Bruno the potter."
)
NOISES = {
    "mask": ("mdlm_tiny", 6),
    "uniform": ("udlm_tiny", 6),
    "hybrid": ("gidd_tiny", 6),
    "insertion": ("flex_tiny", 11),
}


def draw_noises(folder: Path) -> None:
    """What each kind of noise does to a text, as `redraft noise` draws it; tokens are noised without any weights."""
    for kind, (name, times) in NOISES.items():
        run = presets.PRESETS[name]()
        frames = noise_text(DiffusionLM(run.model, run.tokenizer), NOISED, [i / (times - 1) for i in range(times)])
        (folder / f"noise-{kind}.svg").write_text(strip(frames), "utf-8")


@dataclass(frozen=True)
class Measured:
    """A figure and its standard error."""

    value: float
    error: float

    @property
    def ends(self) -> tuple[float, float]:
        return self.value - self.error, self.value + self.error


@dataclass(frozen=True)
class Bar:
    """A method that writes stories from nothing."""

    name: str
    excess: Measured  # bits per character above the truth
    right: Measured  # share of stories
    kind: str


def bars(results: Path) -> list[Bar]:
    """The measured methods, best bound first; without those that are given what to write, or more time."""
    methods, systems = (Rows(results / f"{name}.jsonl").read() for name in ("methods", "continuous_systems"))
    truth = min((row["bits_per_char"] - row["excess"] for row in methods.values()), default=None)
    vectors = [
        vector_bar(name, row, truth) for name, row in systems.items() if truth is not None and "attributes" not in row
    ]
    tokens = [token_bar(name, row) for name, row in methods.items() if not name.endswith("_long")]
    return sorted([*tokens, *vectors], key=lambda b: b.excess.value)


def token_bar(name: str, row: Mapping[str, Any]) -> Bar:
    written = row["steps_written"]["64"]
    above = Measured(row["excess"], row["excess_stderr"])
    return Bar(METHODS[name], above, Measured(written["share"], written["share_stderr"]), TOKENS)


def vector_bar(name: str, row: Mapping[str, Any], truth: float) -> Bar:
    """Its row has the error of the bits per token, which is the same share of the bits per character."""
    error = row["bits_per_char_stderr"]
    above = Measured(row["bits_per_char"] - truth, error)
    return Bar(SYSTEMS[name], above, Measured(row["share"], row["share_stderr"]), VECTORS)


def pictures(results: Path) -> dict[str, str]:
    return {"methods": drawn(results)}


def drawn(results: Path) -> Svg:
    """Two panels that share their rows; the same figures give the same picture."""
    shown = bars(results)
    height = TOP + LINE * len(shown) + BOTTOM
    parts = [*keys(), *panels(shown, height), *(part for i, bar in enumerate(shown) for part in line(shown, bar, i))]
    return framed("redraft-methods", (WIDTH, height), spoken(shown), LOOKS, "\n".join(parts))


def spoken(shown: Sequence[Bar]) -> str:
    lines = (f"{bar.name}: {bar.excess.value:.4f}, {bar.right.value:.0%} right" for bar in shown)
    return "Bits per character above the truth, and share of right stories. " + "; ".join(lines)


def keys() -> Iterator[str]:
    for y, kind in ((24, TOKENS), (42, VECTORS)):
        yield f'<circle class="{kind}" cx="20" cy="{y}" r="5"/><text x="32" y="{y + 4}">noise on {kind}</text>'


def panels(shown: Sequence[Bar], height: int) -> Iterator[str]:
    """Titles, grids and ticks."""
    low, high = extent(shown)
    yield f'<text class="name" x="{EXCESS[0]}" y="28">bits per character above the truth</text>'
    yield f'<text x="{EXCESS[0]}" y="46">log scale; lower is better</text>'
    yield f'<text class="name" x="{RIGHT[0]}" y="28">stories right, %</text>'
    yield f'<text x="{RIGHT[0]}" y="46">higher is better</text>'
    powers = [tick for tick in _log_ticks(low, high) if math.log10(tick).is_integer()]
    for tick in powers if len(powers) > 2 else _log_ticks(low, high):
        yield from gridline(across(tick, low, high), f"{tick:g}", height)
    for tick in _ticks(100):
        yield from gridline(share(tick / 100), f"{tick:g}", height)
    yield f'<text class="end" x="{WIDTH - 20}" y="{height - 10}">whiskers: one standard error to both sides</text>'


def gridline(x: float, label: str, height: int) -> Iterator[str]:
    yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - BOTTOM}"/>'
    yield f'<text class="middle" x="{x:.1f}" y="{height - BOTTOM + 17}">{label}</text>'


def line(shown: Sequence[Bar], bar: Bar, number: int) -> Iterator[str]:
    """The name of a method, a dot for its bound, a bar for its stories."""
    y, (low, high) = TOP + LINE * number + LINE / 2, extent(shown)
    yield f'<text class="name end" x="{EXCESS[0] - 14}" y="{y + 4.5}">{escape(bar.name)}</text>'
    yield whisker(*(across(max(low, end), low, high) for end in bar.excess.ends), y)
    yield f'<circle class="{bar.kind}" cx="{across(bar.excess.value, low, high):.1f}" cy="{y}" r="4.5"/>'
    length = share(bar.right.value) - RIGHT[0]
    yield f'<rect class="{bar.kind} bar" x="{RIGHT[0]}" y="{y - 7}" width="{length:.1f}" height="14" rx="2"/>'
    yield whisker(*(share(min(1.0, max(0.0, end))) for end in bar.right.ends), y)


def whisker(left: float, right: float, y: float) -> str:
    ends = f"M{left:.1f} {y - 4}v8M{right:.1f} {y - 4}v8"
    return f'<path class="error" d="M{left:.1f} {y}H{right:.1f}{ends if right > left else ""}"/>'


def extent(shown: Sequence[Bar]) -> tuple[float, float]:
    """The range of the bounds, with some room around it."""
    values = [bar.excess.value for bar in shown if bar.excess.value > 0] or [1.0]
    return min(values) / 1.5, 1.3 * max(bar.excess.ends[1] for bar in shown) if shown else 1.0


def across(value: float, low: float, high: float) -> float:
    return EXCESS[0] + (EXCESS[1] - EXCESS[0]) * math.log(max(low, value) / low) / math.log(high / low)


def share(value: float) -> float:
    return RIGHT[0] + (RIGHT[1] - RIGHT[0]) * value
