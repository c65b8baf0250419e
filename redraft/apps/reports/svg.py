"""The look of all pictures: one palette with light and dark colors, and the frame around a picture."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

_COLORS = {  # light, dark
    "ink": ("#23262b", "#e6e4df"),
    "quiet": ("#5f636b", "#a3a8b1"),
    "card": ("#fffdf8", "#1e2128"),
    "edge": ("#e4dfd3", "#31353e"),
    "grid": ("#e5e1d7", "#31353e"),
    "limit": ("#2b7a3b", "#6fcf85"),
    "noise": ("#ddd8cc", "#3a3e48"),
    "fresh": ("#ffdf94", "#5a4210"),
    "given": ("#1864ab", "#4cc3d9"),
    "hill": ("#ffdf94", "#b98a2e"),
    "dust": ("#9a958a", "#7d828c"),
    "box": ("#f3f1ea", "#282c35"),
    "line": ("#cfc9bb", "#454b57"),
}
_SERIES = (
    ("#3b5bdb", "#8ea6ff"),
    ("#c2570c", "#ffa05c"),
    ("#2b8a3e", "#69db7c"),
    ("#9c36b5", "#da77f2"),
    ("#0b7285", "#3bc9db"),
    ("#a16207", "#ffd43b"),
    ("#d6336c", "#faa2c1"),
    ("#5c636e", "#adb5bd"),
)
_COLORS |= {f"s{i}": pair for i, pair in enumerate(_SERIES)}
SANS = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif"
MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
_COLORED = re.compile(r"([a-z-]+):\$(\w+)")


class Svg(str):
    """An SVG picture as text; a notebook shows it as a picture."""

    def _repr_svg_(self) -> str:
        return str(self)


def series_color(number: int) -> str:
    """The color of a curve or bar, for style rules; after eight they repeat."""
    return f"$s{number % len(_SERIES)}"


def framed(kind: str, size: tuple[float, float], description: str, looks: Mapping[str, str], inside: str) -> Svg:
    """A picture on a card, with a description for screen readers.

    `looks` maps selectors to declarations, in which `$ink` and other colors of the palette follow the page: dark on a
    dark page, also if the page and not the system is dark. Rules hold only inside pictures of this kind, so that
    several pictures can share a page.
    """
    width, height = size
    rules = {".card": "fill:$card;stroke:$edge", "text": f"font:13px {SANS};fill:$quiet", ".name": "fill:$ink", **looks}
    style = "".join(f".{kind} {selector}{{{_themed(css)}}}" for selector, css in rules.items())
    return Svg(
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" aria-label="{escape(description)}">'
        f"<style>svg:root{{color-scheme:light dark}}{style}</style>"
        f'<rect class="card" x=".5" y=".5" width="{width - 1:g}" height="{height - 1:g}" rx="10"/>\n{inside}\n</svg>\n'
    )


def _themed(css: str) -> str:
    """Declarations with both colors; programs that know no light-dark() use the first."""

    def both(match: re.Match[str]) -> str:
        name, (light, dark) = match[1], _COLORS[match[2]]
        return f"{name}:{light};{name}:light-dark({light},{dark})"

    return _COLORED.sub(both, css)
