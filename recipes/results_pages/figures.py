"""Figures in the prose of pages, each from a committed row.

A figure is written as FILE: ROW: KEY: FORMAT:

    methods: mdlm_tiny: steps_written/64/share: ±%
    remask: gstar 64 / mdlm 64: nfe: .1f

It names a file of recipes/results (or several, joined by +; bench/NAME is one of bench/results), a row or the quotient
of two rows, a key, and a format: one of Python's, `%` or `.1%` for a fraction in percent (without the sign), `,` for a
count. `±` before the format adds the standard error of the figure.

Pages of results are made from templates, which contain such figures (write_results.py). For all other pages,
docs/figures.json lists the sentences that quote figures: `{}` stands for a figure, and `figures` says where each comes
from. A figure that was not measured (a setting, a definition, a claim of a paper) is {"given": TEXT, "by": SOURCE}.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rows import RESULTS, Rows

from redraft.evaluation import summaries

ROOT = Path(__file__).parents[2]
SENTENCES = ROOT / "docs" / "figures.json"
_HIDDEN = re.compile(  # code, tables, addresses and what a template fills in: no prose
    r"```.*?```|\{\{.*?\}\}|\{%.*?%\}|`[^`\n]*`|\]\([^)]*\)|!\[[^\]]*\]|^\|.*\|$", re.DOTALL | re.MULTILINE
)
_PARTS = "half|thirds?|quarters?|fifths?|sixths?|sevenths?|eighths?|tenths?"
_FIGURE = re.compile(
    rf"\d[\d,]*\.\d+|\d{{1,3}},\d{{3}}|\d+ ?%|\b(?:a|one|two|three) (?:{_PARTS})\b|\btwice\b|\w+ times as\b"
)
_NAMES = ("name", "bench", "id")  # keys that name a row of a benchmark


@dataclass(frozen=True)
class Sentence:
    """A sentence with `{}` for each of its figures."""

    sentence: str
    figures: tuple[str | Mapping[str, str], ...]

    def values(self, results: Path) -> list[str]:
        return [figure(part, results) if isinstance(part, str) else part["given"] for part in self.figures]

    def places(self, page: str) -> list[tuple[int, int]]:
        """Where the figures are in a page, which may break its lines anywhere. A sentence begins with a word."""
        parts = [r"\s+".join(map(re.escape, part.split(" "))) for part in self.sentence.split("{}")]
        matches = [*re.finditer(r"(?<!\S)" + r"(\S.{0,60}?)".join(parts) + r"(?=\s|$)", page, re.DOTALL)]
        if len(matches) != 1 or len(parts) != len(self.figures) + 1 or not parts[0]:
            raise ValueError(f"{len(matches)} places for {len(self.figures)} figures of {self.sentence!r}")
        return [matches[0].span(i + 1) for i in range(len(self.figures))]


def sentences(file: Path = SENTENCES) -> dict[str, list[Sentence]]:
    """The sentences with figures, by page (its path from the top of the repository)."""
    pages = json.loads(file.read_text("utf-8"))
    return {page: [Sentence(one["sentence"], tuple(one["figures"])) for one in own] for page, own in pages.items()}


def with_figures(page: str, known: Sequence[Sentence], results: Path = RESULTS) -> str:
    """The page with the figures of these sentences written anew."""
    spans = [(span, value) for one in known for span, value in zip(one.places(page), one.values(results), strict=True)]
    for (start, end), value in sorted(spans, reverse=True):
        if page[start:end].split() != value.split():  # a line may break inside it
            page = page[:start] + value + page[end:]
    return page


def unfounded(page: str, known: Sequence[Sentence] = ()) -> list[str]:
    """Figures in the prose of a page or template that no row and no source accounts for."""
    for start, end in sorted((span for one in known for span in one.places(page)), reverse=True):
        page = f"{page[:start]} {page[end:]}"
    return _FIGURE.findall(_HIDDEN.sub(" ", page))


def figure(mark: str, results: Path = RESULTS) -> str:
    """What a mark asks for, as text."""
    parts = [part.strip() for part in mark.split(": ")]
    if len(parts) != 4:
        raise ValueError(f"figure `{mark}` has {len(parts)} parts; it needs FILE: ROW: KEY: FORMAT")
    files, names, key, form = parts
    held: dict[str, Any] = {}
    for file in files.split("+"):
        held |= _held(file.strip(), results)
    quotient = [names] if names in held else names.split(" / ")  # benchmarks have quotients as names
    first, *others = (_value(held, name.strip(), key, mark) for name in quotient)
    for other in others:
        first /= other
    if not form.startswith("±"):
        return _shown(first, form)
    if others:
        raise ValueError(f"figure `{mark}` asks for the error of a quotient, which no row has")
    error = _value(held, names, f"{key}_stderr", mark)
    return f"{_shown(first, form[1:])} ± {_shown(error, form[1:])}"


def _held(file: str, results: Path) -> dict[str, Any]:
    """The rows of a file by name; those of several seeds also together, by their method.

    Rows of benchmarks are named by what they measure, and some have no name.
    """
    folder, _, name = file.rpartition("/")
    if folder != "bench":
        held = Rows(results / f"{file}.jsonl").read()
        return held | {each["method"]: each for each in summaries([row for row in held.values() if "method" in row])}
    lines = (results.parents[1] / "bench" / "results" / f"{name}.jsonl").read_text("utf-8").splitlines()
    rows = [row | {"name": row[key]} for row in map(json.loads, lines) for key in _NAMES if key in row]
    rows += [row | {"name": f"{row['curve']}, {row['setting']}"} for row in map(json.loads, lines) if "curve" in row]
    return {row["name"]: row for row in rows}


def _value(held: Mapping[str, Any], name: str, key: str, mark: str) -> float:
    value: Any = held.get(name)
    for part in key.split("/"):
        value = value.get(part) if isinstance(value, Mapping) else None
    if not isinstance(value, int | float):
        raise ValueError(f"figure `{mark}`: no row {name!r} with a figure {key!r}; measure it, or delete the sentence")
    return float(value)


def _shown(value: float, form: str) -> str:
    form = form.strip()
    if form.endswith("%"):
        return f"{100 * value:{form[:-1] or '.0'}f}"
    return f"{value:,.0f}" if form == "," else f"{value:{form}}"
