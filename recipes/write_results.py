"""Writes the results wing from the committed rows: `make results`. Nothing is measured.

    python recipes/write_results.py

- docs/templates/NAME.md becomes docs/results/NAME.md. A template is a page with `{{ table("FILE: NAME") }}`,
  `{{ fig("FILE: ROW: KEY: FORMAT") }}`, `{{ given("TEXT", by="SOURCE") }}` for a figure that was not measured,
  `{% if has("FILE: ROW") %}` for a sentence that waits for a row.
- Sentences of docs/figures.json get their figures, in whichever page they are.
- Pictures that show rows are drawn to docs/pictures.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import claims
import control
import costs
import drafts
import infill
import pairs
import probing
import spelling
import typos
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from method_parts import scale
from results_pages import adapt_tables, claim_tables, picture, tables
from results_pages.figures import figure, sentences, with_figures
from rows import RESULTS, Rows, run_recipe

from bench import curve, table as bench_table

ROOT = Path(__file__).parents[1]
TABLES: dict[str, Callable[[Path], Mapping[str, str]]] = {  # each maps the folder of rows to tables by name
    "adapt": adapt_tables.tables,
    "audits": claims.audit_tables,
    "bench": bench_table.tables,
    "candidates": pairs.tables,
    "certainty": drafts.certainty_tables,
    "claims": claim_tables.tables,
    "coding": infill.program_tables,
    "control": control.tables,
    "drafts": drafts.tables,
    "holes": infill.hole_tables,
    "methods": lambda results: tables.tables(results) | scale.tables(results),
    "own_text": costs.readable_tables,
    "probing": probing.tables,
    "sizes": costs.cost_tables,
    "spelling": spelling.tables,
    "typos": typos.tables,
}
SEVERAL_SEEDS = (
    "methods: seeds",
    "claims: training",
    "claims: writing",
    "claims: adapting",
    "claims: scarce",
)
NO_SEED = (
    "audits",
    "bench",
    "sizes",
    "claims: lengths",
    "claims: pos_texts",
    "drafts: costs",
    "drafts: plain",
    "methods: reuse",
    "typos",
)
PICTURES: tuple[Callable[[Path], Mapping[str, str]], ...] = (  # each maps the folder of rows to SVGs by name
    adapt_tables.pictures,
    claim_tables.pictures,
    control.pictures,
    curve.pictures,
    drafts.pictures,
    picture.pictures,
    scale.pictures,
)


def pages(templates: Path = ROOT / "docs" / "templates", results: Path = RESULTS) -> dict[str, str]:
    """The text of each page of docs/results, by name."""
    tables_of = cache(lambda file: TABLES[file](results))

    def table(name: str) -> str:
        file, _, part = name.partition(": ")
        text = tables_of(file)[part]
        return text if name.startswith((*SEVERAL_SEEDS, *NO_SEED)) else of_one_seed(text)

    env = Environment(loader=FileSystemLoader(templates), undefined=StrictUndefined, keep_trailing_newline=True)
    env.globals |= {
        "table": table,
        "fig": lambda mark: figure(mark, results),
        "has": lambda row: is_measured(row, results),
        "given": lambda text, by: text,
    }
    return {file.name: env.get_template(file.name).render() for file in sorted(templates.glob("*.md"))}


def is_measured(row: str, results: Path) -> bool:
    """Whether there is a row "FILE: ROW", or any in "FILE"."""
    file, _, name = row.partition(": ")
    held = Rows(results / f"{file}.jsonl").read()
    return name in held if name else bool(held)


def of_one_seed(table: str) -> str:
    """A table whose head says that every model in it was trained once."""
    return table.replace(" |", " (one seed) |", 1)


def written(root: Path = ROOT, results: Path = RESULTS) -> dict[Path, str]:
    """All files that the rows determine: pages of results, pages that quote figures, and pictures."""
    quoting = {
        root / page: with_figures((root / page).read_text("utf-8"), s, results) for page, s in sentences().items()
    }
    wing = {root / "docs" / "results" / name: text for name, text in pages(results=results).items()}
    drawn = {name: svg for draw in PICTURES for name, svg in draw(results).items()}
    return {**quoting, **wing, **{root / "docs" / "pictures" / f"{name}.svg": svg for name, svg in drawn.items()}}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for file, text in written().items():
        if not file.exists() or file.read_text("utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
            print(file.relative_to(ROOT))


if __name__ == "__main__":
    run_recipe(main)
