"""A page about a run: blocks of plain data, each of which knows how it looks in HTML, and the page around them.

The page is one file: style, script and drawings are inside, nothing is fetched. It reads without the script, in light
and dark, on paper and by a screen reader. All that comes from outside is escaped.

    write("report.html", "A run", "What it learnt.", [Section("Stories", (Samples((Sample("Once."),)),))])
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Protocol

from redraft.text import HIDDEN
from redraft.watch import Frame, State, Token

STATES: dict[State, str] = {
    "given": "given",
    "noise": "not yet written",
    "new": "just written",
    "settled": "written before",
}


class Block(Protocol):
    """A part of the page."""

    def html(self) -> str: ...


@dataclass(frozen=True)
class Section:
    """Blocks under a heading, if it has one; the note says what is to be seen."""

    title: str
    blocks: tuple[Block, ...]
    note: str = ""

    def html(self) -> str:
        heading = f"<h2>{escape(self.title)}</h2>\n" if self.title else ""
        note = f'<p class="note">{escape(self.note)}</p>\n' if self.note else ""
        inside = "\n".join(block.html() for block in self.blocks)
        return f"<section>\n{heading}{note}{inside}\n</section>"


def page(title: str, summary: str, sections: Iterable[Section], footer: str = "") -> str:
    """The whole document."""
    style, script = (files("redraft").joinpath(f"report.{kind}").read_text("utf-8") for kind in ("css", "js"))
    body = "\n".join(section.html() for section in sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)} – Redraft</title>
<style>
{style}</style>
</head>
<body>
<main>
<header>
<p class="brand">Redraft</p>
<h1>{escape(title)}</h1>
<p class="summary">{escape(summary)}</p>
</header>
{body}
<footer>{escape(footer)}</footer>
</main>
<script>
{script}</script>
</body>
</html>
"""


def write(path: str | Path, title: str, summary: str, sections: Iterable[Section], footer: str = "") -> Path:
    """The page as a file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(title, summary, sections, footer), "utf-8")
    return path


# Numbers ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """A number to remember: its name, the number, and what to compare it with."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Figures:
    """Headline numbers side by side."""

    figures: tuple[Figure, ...]

    def html(self) -> str:
        tiles = (
            f"<div><dt>{escape(f.name)}</dt><dd><strong>{escape(f.value)}</strong><small>{escape(f.note)}</small></dd></div>"
            for f in self.figures
        )
        return f'<dl class="figures">{"".join(tiles)}</dl>'


@dataclass(frozen=True)
class Table:
    """Rows of words and numbers; the first column names the row."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def html(self) -> str:
        head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in self.head)
        rows = "".join(self._row(*row) for row in self.rows)
        return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'

    def _row(self, name: str, *cells: str) -> str:
        rest = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        return f'<tr><th scope="row">{escape(name)}</th>{rest}</tr>'


@dataclass(frozen=True)
class Bar:
    """A quantity with its standard error, and what else there is to say of it."""

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
class Command:
    """What one may want to do next, and the line that does it."""

    purpose: str
    line: str


@dataclass(frozen=True)
class Commands:
    """Lines to copy."""

    commands: tuple[Command, ...]

    def html(self) -> str:
        items = (f"<dt>{escape(c.purpose)}</dt><dd><code>{escape(c.line)}</code></dd>" for c in self.commands)
        return f'<dl class="commands">{"".join(items)}</dl>'


def clock(seconds: float) -> str:
    """A length of time, as one says it: 41.2 s, 3 min 52 s."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def minus(number: str) -> str:
    """A number with a real minus sign."""
    return number.replace("-", "−")


# Curves -------------------------------------------------------------------------------------------------------------


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


_LEAST = 1e-4  # bits: what is lower is drawn there


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


# Texts --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """A text, and what the truth says of it where the truth is known."""

    text: str
    bits: float | None = None  # true log2-probability, −inf outside the language; None: not known
    right: int | None = None  # so many characters from the start could begin a text of the language; None: not known
    label: str = ""

    @property
    def whole(self) -> bool:
        return self.bits is not None and math.isfinite(self.bits)

    def html(self) -> str:
        label = f'<p class="label">{escape(self.label)}</p>' if self.label else ""
        return f'<article>{label}<p class="text">{self._marked()}</p>{self.verdict()}</article>'

    def _parts(self) -> tuple[str, str, str]:
        """What is right, the first wrong word with the space before it, and what follows."""
        right = len(self.text) if self.whole or self.right is None else self.right
        wrong = re.compile(r"\s*(\w+|\S|)").match(self.text, right)
        end = right if wrong is None else wrong.end()
        return self.text[:right], self.text[right:end], self.text[end:]

    def _marked(self) -> str:
        """The first wrong word stands out, what follows it steps back."""
        good, wrong, after = self._parts()
        lead, word = _parted(wrong)
        mark = f'{lead}<mark class="wrong">{escape(word)}</mark><s>{escape(after)}</s>' if wrong else ""
        return escape(good) + mark

    def verdict(self) -> str:
        """What the truth says, if it is known."""
        if self.bits is None:
            return ""
        if self.whole:
            bits = minus(f"{self.bits:.1f}\N{NO-BREAK SPACE}bits")
            return f'<p class="verdict yes"><b>✓ grammatical</b> true log-probability {bits}</p>'
        good, wrong, _ = self._parts()
        count = len(good.split())
        right = f"right for {count} word{'s' * (count > 1)}, " if count else ""
        then = f"“{wrong.strip()}” cannot stand there" if wrong else "but it has no end"
        return f'<p class="verdict no"><b>✗ ungrammatical</b> {escape(right + then)}</p>'


@dataclass(frozen=True)
class Samples:
    """Texts side by side."""

    samples: tuple[Sample, ...]

    def html(self) -> str:
        return f'<div class="samples">{"".join(sample.html() for sample in self.samples)}</div>'


@dataclass(frozen=True)
class Infill:
    """A text whose gaps were filled: its tokens, the truth about it, and what the gaps had hidden."""

    tokens: tuple[Token, ...]
    judged: Sample
    hidden: tuple[str, ...] = ()

    def html(self) -> str:
        runs = groupby(self.tokens, lambda token: token.state == "given")
        text = "".join(self._run(given, "".join(token.text for token in run)) for given, run in runs)
        hidden = " · ".join(f"“{words}”" for words in self.hidden)
        was = f'<p class="label">Hidden were {escape(hidden)}</p>' if hidden else ""
        return f'<article><p class="text">{text}</p>{was}{self.judged.verdict()}</article>'

    def _run(self, given: bool, text: str) -> str:
        lead, body = _parted(text)
        return escape(text) if given else f'{lead}<mark class="written">{escape(body)}</mark>'


@dataclass(frozen=True)
class Infills:
    """Filled texts side by side."""

    infills: tuple[Infill, ...]

    def html(self) -> str:
        return f'<div class="samples two">{"".join(infill.html() for infill in self.infills)}</div>'


def _parted(text: str) -> tuple[str, str]:
    """White space before a text, and the text; nothing but white space is itself the text."""
    body = text.lstrip() or text
    return text[: len(text) - len(body)], body


# A text being written -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stretch:
    """Steps lo ≤ step < hi in which one position looks the same; no token: the text has ended before it."""

    lo: int
    hi: int
    token: Token | None


def stretches(frames: Sequence[Frame]) -> list[list[Stretch]]:
    """For each position of the canvas what stands there, from the first frame to the last."""
    found = [{token.position: token for token in frame.tokens} for frame in frames]
    length = 1 + max((position for tokens in found for position in tokens), default=-1)
    return [_column([tokens.get(position) for tokens in found]) for position in range(length)]


def _column(tokens: list[Token | None]) -> list[Stretch]:
    column: list[Stretch] = []
    for step, token in enumerate(tokens):
        if column and _look(column[-1].token) == _look(token):
            column[-1] = replace(column[-1], hi=step + 1)
        else:
            column.append(Stretch(step, step + 1, token))
    return column


def _look(token: Token | None) -> tuple[str, str]:
    """State and text; white space before a word depends on its neighbours, and a hidden token has no text."""
    if token is None:
        return "gone", ""
    body = _parted(token.text)[1]
    return token.state, "" if body == HIDDEN else body


@dataclass(frozen=True)
class Writing:
    """A text being written: the strip position × step, and the text at any step, to play."""

    frames: tuple[Frame, ...]

    def html(self) -> str:
        columns = stretches(self.frames)
        steps, last = len(self.frames) - 1, self.frames[-1]
        data = json.dumps({"columns": [[(s.lo, *_look(s.token)) for s in column] for column in columns]})
        data = data.replace("<", "\\u003c")  # no text may close the script
        cells, words = ("".join(map(draw, columns)) for draw in (_cells, _word))
        keys = "".join(f'<span class="{state}">{name}</span>' for state, name in self._states())
        return f"""<figure class="writing">
<div class="strip"><span>0</span><span class="name">step</span><span>{steps}</span>
<svg viewBox="0 0 {len(columns)} {steps + 1}" preserveAspectRatio="none" role="img"
 aria-label="{len(columns)} positions over {steps} steps: {escape(last.text)}">{cells}</svg></div>
<div class="controls" hidden><button type="button">▶ Play</button>
<input type="range" min="0" max="{steps}" value="{steps}" aria-label="step"><output>step {steps}</output></div>
<p class="text canvas">{words}</p>
<figcaption class="keys">{keys}</figcaption>
<script type="application/json">{data}</script>
</figure>"""

    def _states(self) -> list[tuple[str, str]]:
        seen = {token.state for frame in self.frames for token in frame.tokens}
        return [(state, name) for state, name in STATES.items() if state in seen]


def _cells(column: list[Stretch]) -> str:
    return "".join(
        f'<rect class="{s.token.state}" x="{s.token.position}" y="{s.lo}" width="1" height="{s.hi - s.lo}">'
        f"<title>step {s.lo}: {escape(_look(s.token)[1] or STATES[s.token.state])}</title></rect>"
        for s in column
        if s.token is not None
    )


def _word(column: list[Stretch]) -> str:
    """One position of the finished text; positions after its end are there for earlier steps."""
    token = column[-1].token
    if token is None:
        return f' <span class="gone">{HIDDEN}</span>'
    lead, body = _parted(token.text)
    return f'{lead}<span class="{token.state}">{escape(body)}</span>'


# A picture ----------------------------------------------------------------------------------------------------------

_CHAR, _LINE, _GUTTER, _COLUMNS, _SPARE = 7.9, 21, 84, 92, 4  # pixels, pixels, pixels, characters, characters
_LOOKS = (
    "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#23262b}"
    ".card{fill:#fffdf8;stroke:#e4dfd3}.noise{fill:#ddd8cc}.mark{fill:#ffdf94}.given{fill:#1864ab}.noised{fill:#6f6a5e}"
    ".step{fill:#6f6a5e;font-size:12px}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e4df}.card{fill:#1e2128;stroke:#31353e}.noise{fill:#3a3e48}"
    ".mark{fill:#5a4210}.given{fill:#4cc3d9}.noised,.step{fill:#9a9fa8}}"
)


def picture(frames: Sequence[Frame], shown: int = 6) -> str:
    """An SVG of a text at some evenly spaced steps, from noise to text; what is new since the last one stands out.

    Every position keeps its place: a token that is not yet written is a bar as wide as the word that will stand there.
    """
    count = max(2, min(shown, len(frames)))
    picked = [frames[round(k * (len(frames) - 1) / (count - 1))] for k in range(count)]
    places, lines = _layout(picked)
    height = lines * _LINE + 18
    width = round(_GUTTER + (_COLUMNS + _SPARE) * _CHAR)
    before: list[Frame | None] = [None, *picked[:-1]]
    parts = [
        f'<g transform="translate(0 {14 + i * height})">{_shot(frame, old, places)}</g>'
        for i, (frame, old) in enumerate(zip(picked, before, strict=True))
    ]
    total = 14 + count * height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" width="{width}" height="{total}" '
        f'role="img" aria-label="{escape(picked[-1].text)}"><style>{_LOOKS}</style>'
        f'<rect class="card" x=".5" y=".5" width="{width - 1}" height="{total - 1}" rx="10"/>'
        f"{''.join(parts)}</svg>\n"
    )


@dataclass(frozen=True)
class Place:
    """Where a position of the text is drawn, in characters and lines, and how wide."""

    column: int
    line: int
    width: int


def _layout(frames: Sequence[Frame]) -> tuple[dict[int, Place], int]:
    """The place of every position, the same in all frames, and the number of lines; lines break at white space."""
    places: dict[int, Place] = {}
    column = line = 0
    for position, stretch in enumerate(stretches(frames)):
        widths = [len(text) for s in stretch if s.token and (text := _look(s.token)[1])]
        last = stretch[-1].token
        lead, body = (" ", "") if last is None else _parted(last.text)
        width, gap = max(widths, default=2), len(lead) if column else 0
        needed = 9 if body.isspace() else gap + width  # a space alone makes room for the letters of a word
        if column + needed > _COLUMNS and (lead or body.isspace() or column > _COLUMNS + _SPARE - 3):
            column, line, gap = 0, line + 1, 0
        places[position] = Place(column + gap, line, width)
        column += gap + width
    return places, line + 1


def _shot(frame: Frame, before: Frame | None, places: dict[int, Place]) -> str:
    old = {} if before is None else {token.position: _look(token) for token in before.tokens}
    tokens = (_drawn(token, places[token.position], old.get(token.position)) for token in frame.tokens)
    return f'<text class="step" x="16" y="15">step {frame.step}</text>{"".join(tokens)}'


def _drawn(token: Token, place: Place, before: tuple[str, str] | None) -> str:
    state, text = _look(token)
    x, y = _GUTTER + place.column * _CHAR, place.line * _LINE
    if not text:
        return f'<rect class="noise" x="{x:.1f}" y="{y + 3}" width="{place.width * _CHAR - 2:.1f}" height="14" rx="3"/>'
    new = state in ("new", "settled") and before is not None and before[1] != text
    wide = len(text) * _CHAR
    mark = f'<rect class="mark" x="{x - 2:.1f}" y="{y}" width="{wide + 4:.1f}" height="20" rx="3"/>' if new else ""
    kind = {"given": ' class="given"', "noise": ' class="noised"'}.get(state, "")
    size = f'textLength="{wide:.1f}" lengthAdjust="spacingAndGlyphs"'
    return f'{mark}<text{kind} x="{x:.1f}" y="{y + 15}" {size}>{escape(text)}</text>'
