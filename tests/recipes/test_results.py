"""The results wing: pages and pictures are those of the committed rows, and no figure stands without a source."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "recipes"))

import rows  # noqa: E402
import write_results  # noqa: E402
from results_pages import figures  # noqa: E402

TEMPLATES = sorted((ROOT / "docs" / "templates").glob("*.md"))
WING = ROOT / "docs" / "results"
PROSE = [
    ROOT / "README.md",
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if p.parent not in (WING, ROOT / "docs" / "templates")),
]


def test_make_results_changes_nothing() -> None:
    """Pages of results, sentences that quote figures, pictures."""
    stale = [str(file.relative_to(ROOT)) for file, text in write_results.written().items() if file.read_text() != text]
    assert stale == [], "run `make results`"
    assert [file.name for file in sorted(WING.glob("*.md"))] == [file.name for file in TEMPLATES]


def test_the_command_is_the_one_of_the_makefile() -> None:
    rule = (ROOT / "Makefile").read_text("utf-8").partition("\nresults: setup\n")[2].partition("\n\n")[0]
    assert rule.split() == ["PYTHONPATH=.", "$(BIN)/python", "recipes/write_results.py"]


def test_no_figure_is_without_a_source() -> None:
    """In templates figures are filled in; other pages list their sentences in docs/figures.json."""
    known = figures.sentences()
    found = {page.name: figures.unfounded(page.read_text("utf-8")) for page in TEMPLATES}
    found |= {
        (name := str(page.relative_to(ROOT))): figures.unfounded(page.read_text("utf-8"), known.get(name, ()))
        for page in PROSE
    }
    assert {page: some for page, some in found.items() if some} == {}


def test_pages_have_no_marks_for_machines() -> None:
    pages = (*PROSE, *TEMPLATES, *WING.glob("*.md"))
    assert [str(page.relative_to(ROOT)) for page in pages if "<!--" in page.read_text("utf-8")] == []


def test_tables_of_one_seed_say_so() -> None:
    """And no other table does."""
    heads = re.findall(r"^(\|.*)\n\| --- ", (WING / "methods.md").read_text("utf-8"), re.MULTILINE)
    assert [head for head in heads if "(one seed)" not in head] == [
        "| method | bits/char above the truth | right at 16 steps, % | 64 | 256 | training steps |",
        "| steps | network calls without reuse | with | CPU s per text without | with | right, % |",
    ]
    assert write_results.of_one_seed("| a | b |\n| - | - |") == "| a (one seed) | b |\n| - | - |"


@pytest.mark.parametrize(
    ("prose", "found"),
    [
        ("for a third more network calls", ["a third"]),
        ("85.5 calls, 1,651 steps and 30 % right", ["85.5", "1,651", "30 %"]),
        ("half as many, twice as fast, five times as long", ["twice", "five times as"]),
        ("at `p_u = 0.2` in 64 steps", []),
        ('| a | 0.25 |\n{{ fig("methods: ar_tiny: steps: ,") }} steps, {{ given("0.1", by="the paper") }}', []),
    ],
)
def test_figures_without_a_source_are_found(prose: str, found: list[str]) -> None:
    assert figures.unfounded(prose) == found


def once(value: dict[str, Any]) -> Any:
    return lambda: value


def test_a_figure_comes_from_its_row(tmp_path: Path) -> None:
    held = rows.Rows(tmp_path / "a.jsonl")
    held.add("x 8", once({"share": 0.625, "share_stderr": 0.03, "nfe": 85.5, "steps": 1651, "noisy": {"1.0": 0.5}}))
    held.add("y 8", once({"nfe": 42.1}))
    marks = ("a: x 8: share: ±%", "a: x 8 / y 8: nfe: .1f", "a: x 8: steps: ,", "a: x 8: noisy/1.0: %")
    assert [figures.figure(mark, tmp_path) for mark in marks] == ["62 ± 3", "2.0", "1,651", "50"]
    for wrong, message in {
        "a: z: nfe: .1f": "no row 'z' with a figure 'nfe'; measure it",
        "a: x 8: nfe: ±.1f": "no row 'x 8' with a figure 'nfe_stderr'",
        "a: x 8 / y 8: nfe: ±.1f": "the error of a quotient",
        "a: x 8: nfe": "3 parts; it needs FILE: ROW: KEY: FORMAT",
    }.items():
        with pytest.raises(ValueError, match=message):
            figures.figure(wrong, tmp_path)


def test_a_sentence_gets_the_figures_of_its_rows(tmp_path: Path) -> None:
    """Wherever its lines break; a sentence that the page no longer has is an error."""
    rows.Rows(tmp_path / "a.jsonl").add("x", once({"share": 0.625, "nfe": 85.5}))
    asked = {"page.md": [{"sentence": "It has {} % of {} in {} calls.", "figures": [
        "a: x: share: %", {"given": "100", "by": "the recipe"}, "a: x: nfe: .1f"]}]}  # fmt: skip
    (tmp_path / "figures.json").write_text(json.dumps(asked))
    (found,) = figures.sentences(tmp_path / "figures.json")["page.md"]
    page = "First. It has 9 %\nof 100 in 1.5\ncalls. Then 0.5."
    assert figures.with_figures(page, [found], tmp_path) == "First. It has 62 %\nof 100 in 85.5\ncalls. Then 0.5."
    assert figures.unfounded(page, [found]) == ["0.5"]
    with pytest.raises(ValueError, match="0 places for 3 figures"):
        figures.with_figures("It has 9 % of all.", [found], tmp_path)
