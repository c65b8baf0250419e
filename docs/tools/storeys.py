"""Draws the storeys of the package from its imports: `python docs/tools/storeys.py` writes docs/pictures/storeys.svg.

With `--check` it writes nothing and exits with 1 if the storeys, their folders or the storeys they import have changed.
Numbers are rounded and not compared, so that small edits do not make the picture stale.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from redraft.apps import Svg, framed

PICTURE = Path(__file__).parents[1] / "pictures" / "storeys.svg"
PACKAGE = Path(__file__).parents[2] / "redraft"
LEVELS = (("apps",), ("evaluation",), ("tasks",), ("training",), ("models", "decoding"), ("core",))  # top to bottom
ROLES = {
    "apps": "the command line, the server with its playground, reports",
    "evaluation": "laws, comparisons, lm-eval, text metrics, judges, probes",
    "tasks": "generate, infill, choose, correct, rewrite, control, score: one call each",
    "training": "data, objectives, runs, presets, and the loop",
    "models": "from noisy rows to a prediction",
    "decoding": "from predictions to a text",
    "core": "values, random numbers, schedules, noising processes, text, hardware",
}
WIDTH, MARGIN, GAP, PAD = 860, 20, 30, 16  # pixels
CHIP, LETTER = 24, 7.3  # height of a folder's name, width of one of its letters
LOOKS = {
    ".name": "font-size:17px;font-weight:600;fill:$ink",
    ".end": "text-anchor:end",
    ".role": "font-size:13px;font-weight:400;fill:$quiet",
    ".folder": "font:12px 'DejaVu Sans Mono',monospace;fill:$ink",
    ".box": "fill:$box;stroke:$line",
    ".chip": "fill:$card;stroke:$line",
    ".arrow": "stroke:$quiet;stroke-width:1.5;fill:none",
}


def files(storey: str) -> list[Path]:
    """The files of a storey without doors, which import a name only when it is used."""
    return [file for file in sorted((PACKAGE / storey).rglob("*.py")) if file.name != "__init__.py"]


def folders(storey: str) -> list[str]:
    return sorted(door.parent.name for door in (PACKAGE / storey).glob("*/__init__.py"))


def lines(storey: str) -> str:
    """Thousands of lines, to the nearest hundred."""
    return f"{sum(len(file.read_text('utf-8').splitlines()) for file in files(storey)) / 1000:.1f}k lines"


def imports(storey: str) -> str:
    """The other storeys that a storey imports, with the number of import statements to the nearest ten."""
    nodes = (node for file in files(storey) for node in ast.walk(ast.parse(file.read_text("utf-8"))))
    names = (f"{n.module}.{n.names[0].name}".split(".") for n in nodes if isinstance(n, ast.ImportFrom))
    counts = Counter(name[1] for name in names if name[0] == "redraft" and name[1] != storey)
    order = [name for level in LEVELS for name in level if name in counts]
    return ", ".join(f"{name} {max(10, round(counts[name], -1))}" for name in order) or "nothing of the package"


def rows_of_chips(names: Sequence[str], width: float) -> list[list[tuple[float, str]]]:
    """Names with the x at which each begins, in as many rows as they need."""
    rows: list[list[tuple[float, str]]] = [[]]
    x = 0.0
    for name in names:
        if x + len(name) * LETTER + 16 > width:
            rows, x = [*rows, []], 0.0
        rows[-1].append((x, name))
        x += len(name) * LETTER + 24
    return rows


def box(storey: str, x: float, y: float, width: float, height: float) -> Iterator[str]:
    """One storey: its name, what lives there, its folders and what it imports."""
    yield f'<rect class="box" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>'
    role = f'<tspan class="role" dx="10">{ROLES[storey]}</tspan>'
    yield f'<text class="name" x="{x + PAD}" y="{y + 27}">{storey}{role}</text>'
    yield f'<text class="end" x="{x + width - PAD}" y="{y + 27}">{lines(storey)}</text>'
    for i, row in enumerate(rows_of_chips(folders(storey), width - 2 * PAD)):
        for at, name in row:
            left, top, wide = x + PAD + at, y + 40 + i * (CHIP + 6), len(name) * LETTER + 16
            yield f'<rect class="chip" x="{left:g}" y="{top}" width="{wide:g}" height="{CHIP}" rx="5"/>'
            yield f'<text class="folder" x="{left + 8:g}" y="{top + 16}">{name}</text>'
    yield f'<text x="{x + PAD}" y="{y + height - 13}">imports {imports(storey)}</text>'


def drawn() -> Svg:
    """The picture."""
    y, parts = MARGIN, list[str]()
    for level, below in zip(LEVELS, (*LEVELS[1:], ()), strict=True):
        width = (WIDTH - 2 * MARGIN - MARGIN * (len(level) - 1)) / len(level)
        height = 72 + max(len(rows_of_chips(folders(storey), width - 2 * PAD)) for storey in level) * (CHIP + 6)
        for i, storey in enumerate(level):
            parts += box(storey, MARGIN + i * (width + MARGIN), y, width, height)
        count = max(len(level), len(below)) if below else 0
        starts = [f"M{WIDTH * (2 * i + 1) / (2 * count):g} {y + height + 4}" for i in range(count)]
        parts += [f'<path class="arrow" d="{start}v{GAP - 9}m-5 -6l5 6l5 -6"/>' for start in starts]
        y += height + GAP
    said = "; ".join(f"{storey} imports {imports(storey)}" for level in LEVELS for storey in level)
    return framed("redraft-storeys", (WIDTH, y - 10), said, LOOKS, "\n".join(parts))


def structure(picture: str) -> list[str]:
    """The words of a picture without numbers."""
    return [re.sub(r"[\d.]+k?", "", words) for words in re.findall(r">([^<>\n]+)<", picture)]


if __name__ == "__main__":
    if "--check" not in sys.argv[1:]:
        PICTURE.write_text(drawn(), "utf-8")
    elif not PICTURE.exists() or structure(PICTURE.read_text("utf-8")) != structure(drawn()):
        sys.exit(f"{PICTURE.name} is stale: run `python docs/tools/storeys.py`")
