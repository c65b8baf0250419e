"""SVG pictures of a text as it is written or noised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from redraft.apps.reports.noising import NoisyText
from redraft.apps.reports.page import _look, _split_lead, _token_spans
from redraft.apps.reports.svg import MONO, Svg, framed
from redraft.apps.reports.watch import Frame, Token

_CHAR, _LINE, _GUTTER, _COLUMNS, _SPARE = 7.9, 21, 84, 92, 4  # pixels, pixels, pixels, characters, characters
_LOOKS = {
    "text": f"font:13px {MONO};fill:$ink",
    ".noise": "fill:$noise",
    ".mark": "fill:$fresh",
    ".given": "fill:$given",
    ".noised": "fill:$quiet",
    ".step": "fill:$quiet;font-size:12px",
}


def picture(frames: Sequence[Frame], shown: int = 6) -> Svg:
    """Returns an SVG of a text at `shown` evenly spaced steps, with new tokens highlighted.

    Words do not move between steps: a token that is not yet written is a bar as wide as the word to come.
    """
    count = max(2, min(shown, len(frames)))
    picked = [frames[round(k * (len(frames) - 1) / (count - 1))] for k in range(count)]
    return _drawing(picked, [f"step {frame.step}" for frame in picked], picked[-1].text, _layout(picked))


def strip(noisy: Sequence[NoisyText]) -> Svg:
    """Returns an SVG of a text at several times of the forward process, clean text first."""
    frames = [text.frame for text in noisy]
    return _drawing(frames, [f"t = {text.t:.2f}" for text in noisy], frames[0].text, _layout(frames[::-1]))


def _drawing(picked: Sequence[Frame], names: Sequence[str], text: str, layout: tuple[dict[int, _Cell], int]) -> Svg:
    count, (cells, lines) = len(picked), layout
    height = lines * _LINE + 18
    width = round(_GUTTER + (_COLUMNS + _SPARE) * _CHAR)
    before: list[Frame | None] = [None, *picked[:-1]]
    parts = [
        f'<g transform="translate(0 {14 + i * height})">{_frame_group(frame, name, old, cells)}</g>'
        for i, (frame, name, old) in enumerate(zip(picked, names, before, strict=True))
    ]
    return framed("redraft-text", (width, 14 + count * height), text, _LOOKS, "".join(parts))


@dataclass(frozen=True)
class _Cell:
    """Column, line and width at which a position of the text is drawn, in characters."""

    column: int
    line: int
    width: int


def _layout(frames: Sequence[Frame]) -> tuple[dict[int, _Cell], int]:
    """Returns the cell of every position, which all frames share, and the number of lines; breaks at white space."""
    cells: dict[int, _Cell] = {}
    column = line = 0
    for position, spans in enumerate(_token_spans(frames)):
        widths = [len(text) for s in spans if s.token and (text := _look(s.token)[1])]
        last = spans[-1].token
        lead, body = (" ", "") if last is None else _split_lead(last.text)
        width, gap = max(widths, default=2), len(lead) if column else 0
        needed = 9 if body.isspace() else gap + width  # after a space, require room for the first characters of a word
        if column + needed > _COLUMNS and (lead or body.isspace() or column > _COLUMNS + _SPARE - 3):
            column, line, gap = 0, line + 1, 0
        cells[position] = _Cell(column + gap, line, width)
        column += gap + width
    return cells, line + 1


def _frame_group(frame: Frame, name: str, before: Frame | None, cells: dict[int, _Cell]) -> str:
    old = {} if before is None else {token.position: _look(token) for token in before.tokens}
    tokens = (_token_svg(token, cells[token.position], old.get(token.position)) for token in frame.tokens)
    return f'<text class="step" x="16" y="15">{name}</text>{"".join(tokens)}'


def _token_svg(token: Token, cell: _Cell, before: tuple[str, str] | None) -> str:
    state, text = _look(token)
    x, y = _GUTTER + cell.column * _CHAR, cell.line * _LINE
    if not text:
        return f'<rect class="noise" x="{x:.1f}" y="{y + 3}" width="{cell.width * _CHAR - 2:.1f}" height="14" rx="3"/>'
    new = state in ("new", "settled") and before is not None and before[1] != text
    wide = len(text) * _CHAR
    mark = f'<rect class="mark" x="{x - 2:.1f}" y="{y}" width="{wide + 4:.1f}" height="20" rx="3"/>' if new else ""
    kind = {"given": ' class="given"', "noise": ' class="noised"'}.get(state, "")
    size = f'textLength="{wide:.1f}" lengthAdjust="spacingAndGlyphs"'
    return f'{mark}<text{kind} x="{x:.1f}" y="{y + 15}" {size}>{escape(text)}</text>'
