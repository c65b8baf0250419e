"""Fills the figures in the prose of all pages from the rows, as the tables are filled.

    python recipes/figures.py           # for all pages; `make tables` does this at its end

A page marks each figure by comments that readers do not see:

    <!-- fig methods: mdlm_tiny: steps_written/64/share: ±% -->62 ± 3<!-- end --> % of its stories are right
    <!-- fig remask: gstar 64 / mdlm 64: nfe: .1f -->2.0<!-- end --> times the network calls

A mark names a file of recipes/results (or several, joined by +; bench/NAME is one of bench/results), a row or the
quotient of two rows, a key, and a format: one of Python's, `%` or `.1%` for a fraction in percent (without the sign),
`,` for a count. `±` before the format adds the standard error of the figure.

A figure that was not measured (a setting, a definition, a claim of a paper) is written as code, or between marks that
name its source:

    the rates of the papers (<!-- set: the papers -->0.008, 0.015, 0.02<!-- end -->)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rows import Rows, run_recipe

from redraft.evaluation import summaries

ROOT = Path(__file__).parents[1]
_MARK = re.compile(r"<!-- fig (.*?) -->(.*?)<!-- end -->", re.DOTALL)
_HIDDEN = re.compile(  # code, tables and what stands between marks: no prose
    r"```.*?```|<!-- (?:table |rows of |fig |set: ).*?<!-- end -->|`[^`\n]*`|\]\([^)]*\)|!\[[^\]]*\]",
    re.DOTALL,
)
_PARTS = "half|thirds?|quarters?|fifths?|sixths?|sevenths?|eighths?|tenths?"
_FIGURE = re.compile(
    rf"\d[\d,]*\.\d+|\d{{1,3}},\d{{3}}|\d+ ?%|\b(?:a|one|two|three) (?:{_PARTS})\b|\btwice\b|\w+ times as\b"
)


def with_figures(page: str, results: Path) -> str:
    """The page with the text between its marks written anew."""
    return _MARK.sub(lambda found: f"<!-- fig {found[1]} -->{figure(found[1], results)}<!-- end -->", page)


def unfounded(page: str) -> list[str]:
    """Figures in the prose of a page that stand between no marks: measured or guessed, nobody can tell."""
    return _FIGURE.findall(_HIDDEN.sub(" ", page))


def figure(mark: str, results: Path) -> str:
    """What a mark asks for, as text."""
    parts = [part.strip() for part in mark.split(":")]
    if len(parts) != 4:
        raise ValueError(f"`fig {mark}` has {len(parts)} parts; it needs FILE: ROW: KEY: FORMAT")
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
        raise ValueError(f"`fig {mark}` asks for the error of a quotient, which no row has")
    error = _value(held, names, f"{key}_stderr", mark)
    return f"{_shown(first, form[1:])} ± {_shown(error, form[1:])}"


def _held(file: str, results: Path) -> dict[str, Any]:
    """The rows of a file by name; those of several seeds also together, by their method.

    Those of the benchmarks are named by what they measure, and some have no name.
    """
    folder, _, name = file.rpartition("/")
    if folder != "bench":
        held = Rows(results / f"{file}.jsonl").read()
        return held | {each["method"]: each for each in summaries([row for row in held.values() if "method" in row])}
    lines = (results.parents[1] / "bench" / "results" / f"{name}.jsonl").read_text("utf-8").splitlines()
    found = [row | {"name": row[key]} for row in map(json.loads, lines) for key in _NAMES if key in row]
    found += [row | {"name": f"{row['curve']}, {row['setting']}"} for row in map(json.loads, lines) if "curve" in row]
    return {row["name"]: row for row in found}


_NAMES = ("name", "bench", "id")


def _value(held: Mapping[str, Any], name: str, key: str, mark: str) -> float:
    found: Any = held.get(name)
    for part in key.split("/"):
        found = found.get(part) if isinstance(found, Mapping) else None
    if not isinstance(found, int | float):
        raise ValueError(f"`fig {mark}`: no row {name!r} with a figure {key!r}; measure it, or delete the sentence")
    return float(found)


def _shown(value: float, form: str) -> str:
    form = form.strip()
    if form.endswith("%"):
        return f"{100 * value:{form[:-1] or '.0'}f}"
    return f"{value:,.0f}" if form == "," else f"{value:{form}}"


def main() -> None:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = page.read_text("utf-8")
        if _MARK.search(text):
            page.write_text(with_figures(text, ROOT / "recipes" / "results"), "utf-8")


if __name__ == "__main__":
    run_recipe(main)
