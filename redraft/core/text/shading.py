"""HTML of results for notebooks: shaded texts, marked changes, tables. Readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_STYLE = "white-space:pre-wrap;line-height:1.7;margin:0.3em 0"
_RGB = "235,110,20"  # orange; the less confident, the stronger


def shaded_html(pieces: Iterable[tuple[str, float | None, bool]]) -> str:
    """A text as HTML. Pieces are (text, confidence or None, whether it was given); unsure ones are shaded more."""
    return f'<p style="{_STYLE}">{"".join(_piece(*piece) for piece in pieces)}</p>'


def _piece(text: str, confidence: float | None, given: bool) -> str:
    if given:
        return f'<span style="opacity:0.65" title="given">{escape(text)}</span>'
    if confidence is None:
        return escape(text)
    style = f"background:rgba({_RGB},{0.6 * (1 - confidence):.2f})"
    return f'<span style="{style}" title="confidence {confidence:.1%}">{escape(text)}</span>'


def changes_html(text: str, changes: Iterable[tuple[int, str, str, float]]) -> str:
    """A text as HTML with its changes marked; each is (start, old, new, probability)."""
    parts, end = [], 0
    for start, old, new, probability in changes:
        mark = f'<ins title="probability {probability:.1%}">{escape(new)}</ins>'
        parts += [escape(text[end:start]), f"<del>{escape(old)}</del> {mark}"]
        end = start + len(old)
    return f'<p style="{_STYLE}">{"".join([*parts, escape(text[end:])])}</p>'


def table_html(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the first column is text, the others are numbers."""
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
