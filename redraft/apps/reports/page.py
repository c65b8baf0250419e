"""HTML pages: elements that hold plain data and render themselves, and the page around them.

A page is one self-contained file: style, script and drawings are inline, and nothing is fetched. It works without the
script, in light and dark mode, in print and with a screen reader. All text from outside is escaped.

    _write_page("report.html", "A run", "A summary.", [_Section("Texts", (_Samples((_Sample("Once."),)),))])
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Protocol

from redraft.apps.reports.watch import Frame, Token, _TokenState
from redraft.core.text.tokenizers import MASK_GLYPH
from redraft.training.data.annotations import as_annotated
from redraft.training.heldout import NATS_PER_BIT

_STATES: dict[_TokenState, str] = {
    "given": "given",
    "noise": "not yet written",
    "new": "just written",
    "settled": "written before",
}


class _Element(Protocol):
    """An element of the page."""

    def html(self) -> str: ...


@dataclass(frozen=True)
class _Section:
    """Elements under an optional heading and an explanatory note."""

    title: str
    blocks: tuple[_Element, ...]
    note: str = ""

    def html(self) -> str:
        heading = f"<h2>{escape(self.title)}</h2>\n" if self.title else ""
        note = f'<p class="note">{escape(self.note)}</p>\n' if self.note else ""
        inside = "\n".join(block.html() for block in self.blocks)
        return f"<section>\n{heading}{note}{inside}\n</section>"


def _render_page(title: str, summary: str, sections: Iterable[_Section], footer: str = "") -> str:
    """Returns the whole HTML document."""
    style, script = (
        files("redraft.apps.reports").joinpath(f"page.{kind}").read_text("utf-8") for kind in ("css", "js")
    )
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


def _write_page(path: str | Path, title: str, summary: str, sections: Iterable[_Section], footer: str = "") -> Path:
    """Writes the page to `path` and returns that path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_render_page(title, summary, sections, footer), "utf-8")
    return path


@dataclass(frozen=True)
class _Figure:
    """A headline number: its name, the formatted value, and a note such as its error."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class _Figures:
    """Headline numbers side by side."""

    figures: tuple[_Figure, ...]

    def html(self) -> str:
        tiles = (
            f"<div><dt>{escape(f.name)}</dt>"
            f"<dd><strong>{escape(f.value)}</strong><small>{escape(f.note)}</small></dd></div>"
            for f in self.figures
        )
        return f'<dl class="figures">{"".join(tiles)}</dl>'


@dataclass(frozen=True)
class _DataTable:
    """A table of text; the first cell of a row is its header."""

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
class Command:
    """A command line and what it is for."""

    purpose: str
    line: str


@dataclass(frozen=True)
class _Commands:
    """Command lines to copy."""

    commands: tuple[Command, ...]

    def html(self) -> str:
        items = (f"<dt>{escape(c.purpose)}</dt><dd><code>{escape(c.line)}</code></dd>" for c in self.commands)
        return f'<dl class="commands">{"".join(items)}</dl>'


def _format_duration(seconds: float) -> str:
    """Formats a duration, such as 41.2 s or 3 min 52 s."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def _format_number(number: str) -> str:
    """Replaces hyphens in a formatted number by minus signs."""
    return number.replace("-", "−")


@dataclass(frozen=True)
class _Sample:
    """A text and its true probability, if known."""

    text: str
    bits: float | None = None  # true log2-probability, −inf outside the language; None if unknown
    right: int | None = None  # leading characters that some text of the language begins with; None if unknown
    label: str = ""

    @property
    def whole(self) -> bool:
        return self.bits is not None and math.isfinite(self.bits)

    def html(self) -> str:
        label = f'<p class="label">{escape(self.label)}</p>' if self.label else ""
        return f'<article>{label}<p class="text">{self._marked()}</p>{self.verdict()}</article>'

    def _parts(self) -> tuple[str, str, str]:
        """Splits the text into the correct beginning, the first wrong word with the space before it, and the rest."""
        right = len(self.text) if self.whole or self.right is None else self.right
        wrong = re.compile(r"\s*(\w+|\S|)").match(self.text, right)
        end = right if wrong is None else wrong.end()
        return self.text[:right], self.text[right:end], self.text[end:]

    def _marked(self) -> str:
        """Returns the text as HTML, with the first wrong word highlighted and the rest after it dimmed."""
        good, wrong, after = self._parts()
        lead, word = _split_lead(wrong)
        mark = f'{lead}<mark class="wrong">{escape(word)}</mark><s>{escape(after)}</s>' if wrong else ""
        return escape(good) + mark

    def verdict(self) -> str:
        """Returns a line of HTML with the true log-probability or the first error; empty if the truth is unknown."""
        if self.bits is None:
            return ""
        if self.whole:
            bits = _format_number(f"{self.bits:.1f}\N{NO-BREAK SPACE}bits")
            return f'<p class="verdict yes"><b>✓ grammatical</b> true log-probability {bits}</p>'
        good, wrong, _ = self._parts()
        count = len(good.split())
        right = f"correct for {count} word{'s' * (count > 1)}, " if count else ""
        error = f"but “{wrong.strip()}” cannot follow" if wrong else "but it does not end"
        error = error if count else f"no text begins with “{wrong.strip()}”"
        return f'<p class="verdict no"><b>✗ ungrammatical</b> {escape(right + error)}</p>'


def _judged_sample(text: str, corpus: object) -> _Sample:
    """Returns the text with its true log-probability and the length of its correct beginning, if known."""
    judgment = as_annotated(corpus).judge(text)
    return _Sample(text) if judgment is None else _Sample(text, judgment.log_prob / NATS_PER_BIT, judgment.right)


@dataclass(frozen=True)
class _Samples:
    """Texts side by side."""

    samples: tuple[_Sample, ...]
    narrow: bool = False

    def html(self) -> str:
        return (
            f'<div class="samples{" narrow" * self.narrow}">{"".join(sample.html() for sample in self.samples)}</div>'
        )


@dataclass(frozen=True)
class _FilledText:
    """A text whose gaps were filled: its tokens, its true probability, and the words that were removed."""

    tokens: tuple[Token, ...]
    sample: _Sample
    hidden: tuple[str, ...] = ()

    def html(self) -> str:
        spans = groupby(self.tokens, lambda token: token.state == "given")
        text = "".join(self._span(given, "".join(token.text for token in span)) for given, span in spans)
        hidden = " · ".join(f"“{words}”" for words in self.hidden)
        removed = f'<p class="label">Original: {escape(hidden)}</p>' if hidden else ""
        return f'<article><p class="text">{text}</p>{removed}{self.sample.verdict()}</article>'

    def _span(self, given: bool, text: str) -> str:
        lead, body = _split_lead(text)
        return escape(text) if given else f'{lead}<mark class="written">{escape(body)}</mark>'


@dataclass(frozen=True)
class _FilledTexts:
    """Filled texts side by side."""

    infills: tuple[_FilledText, ...]

    def html(self) -> str:
        return f'<div class="samples two">{"".join(infill.html() for infill in self.infills)}</div>'


def _split_lead(text: str) -> tuple[str, str]:
    """Splits a text into leading white space and the rest; white space alone counts as the rest."""
    body = text.lstrip() or text
    return text[: len(text) - len(body)], body


@dataclass(frozen=True)
class _TokenSpan:
    """Steps lo ≤ step < hi in which one position looks the same; the token is None if the text ended before it."""

    lo: int
    hi: int
    token: Token | None


def _token_spans(frames: Sequence[Frame]) -> list[list[_TokenSpan]]:
    """Returns the spans of each position of the canvas, from the first frame to the last."""
    by_position = [{token.position: token for token in frame.tokens} for frame in frames]
    length = 1 + max((position for tokens in by_position for position in tokens), default=-1)
    return [_column([tokens.get(position) for tokens in by_position]) for position in range(length)]


def _column(tokens: list[Token | None]) -> list[_TokenSpan]:
    column: list[_TokenSpan] = []
    for step, token in enumerate(tokens):
        if column and _look(column[-1].token) == _look(token):
            column[-1] = replace(column[-1], hi=step + 1)
        else:
            column.append(_TokenSpan(step, step + 1, token))
    return column


def _look(token: Token | None) -> tuple[str, str]:
    """Returns state and text, without leading white space, which depends on the neighbors; masks have no text."""
    if token is None:
        return "gone", ""
    body = _split_lead(token.text)[1]
    return token.state, "" if body == MASK_GLYPH else body


@dataclass(frozen=True)
class _Playback:
    """A text as it was written: a grid of positions and steps, and the text at any step, with playback."""

    frames: tuple[Frame, ...]

    def html(self) -> str:
        columns = _token_spans(self.frames)
        steps, last = len(self.frames) - 1, self.frames[-1]
        data = json.dumps({"columns": [[(s.lo, *_look(s.token)) for s in column] for column in columns]})
        data = data.replace("<", "\\u003c")  # so that no text can close the script element
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
        """The states that occur, and their names in the legend."""
        seen = {token.state for frame in self.frames for token in frame.tokens}
        return [(state, name) for state, name in _STATES.items() if state in seen]


def _cells(column: list[_TokenSpan]) -> str:
    return "".join(
        f'<rect class="{s.token.state}" x="{s.token.position}" y="{s.lo}" width="1" height="{s.hi - s.lo}">'
        f"<title>step {s.lo}: {escape(_look(s.token)[1] or _STATES[s.token.state])}</title></rect>"
        for s in column
        if s.token is not None
    )


def _word(column: list[_TokenSpan]) -> str:
    """Returns one position of the finished text; the script needs positions after its end for earlier steps."""
    token = column[-1].token
    if token is None:
        return f' <span class="gone">{MASK_GLYPH}</span>'
    lead, body = _split_lead(token.text)
    return f'{lead}<span class="{token.state}">{escape(body)}</span>'
