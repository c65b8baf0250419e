"""The methods side by side, as a picture: what each costs above the truth, and how much of what it writes is right."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from rows import Rows
from tables import METHODS, SYSTEMS

TOKENS, VECTORS = "tab:blue", "tab:orange"


@dataclass(frozen=True)
class Bar:
    """A method that writes stories from nothing."""

    name: str
    excess: float  # bits per character above the truth
    right: float  # share of stories
    colour: str


def bars(results: Path) -> list[Bar]:
    """What is measured so far, the best bound last, which is drawn on top; without those told what to write."""
    methods, systems = (Rows(results / f"{name}.jsonl").held() for name in ("methods", "continuous_systems"))
    truth = {row["bits_per_char"] - row["excess"] for row in methods.values()}
    tokens = [
        Bar(METHODS[name], row["excess"], row["steps_written"]["64"]["share"], TOKENS) for name, row in methods.items()
    ]
    vectors = [
        Bar(SYSTEMS[name], row["bits_per_char"] - min(truth), row["share"], VECTORS)
        for name, row in systems.items()
        if truth and "attributes" not in row
    ]
    return sorted(tokens + vectors, key=lambda bar: -bar.excess)


def draw(results: Path, file: Path) -> None:
    """A dot and a bar for each method; the same rows give the same file."""
    shown = bars(results)
    figure = Figure(figsize=(8, 1.2 + 0.27 * len(shown)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    names, colours = [bar.name for bar in shown], [bar.colour for bar in shown]
    left.scatter([bar.excess for bar in shown], names, color=colours)
    left.set(xscale="log", xlabel="bits/char above the truth, log scale", axisbelow=True)
    left.grid(color="0.9")
    right.barh(names, [100 * bar.right for bar in shown], color=colours)
    right.set(xlabel="stories right, %", xlim=(0, 100))
    keys = [Patch(color=TOKENS, label="tokens"), Patch(color=VECTORS, label="vectors")]
    right.legend(handles=keys, frameon=False, loc="lower right")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
    file.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": "redraft", "svg.fonttype": "none"}):
        figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
