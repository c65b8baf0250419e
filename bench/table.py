"""`python -m bench.table`: fills the tables of docs/results/bench.md from the rows in bench/results."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.quick import RESULTS
from bench.race import Row

PAGE = Path(__file__).parents[1] / "docs" / "results" / "bench.md"
BEGIN, END = "<!-- rows of bench/results/quick.jsonl: begin -->", "<!-- end -->"
OTHERS = {  # by the line of the page that the table follows
    f"<!-- rows of bench/results/{name}.jsonl: begin -->": RESULTS.with_name(f"{name}.jsonl")
    for name in ("decoding", "blocks", "constraints", "serving", "parts")
}


def table(rows: Sequence[Row]) -> str:
    """Markdown: where it was measured, the limit, and a line per ratio."""
    found = [line for row in rows for line in _line(row)]
    return "\n".join([*_machine(rows), "| what | ratio | goal | met |", "|---|---|---|---|", *found])


def _machine(rows: Sequence[Row]) -> list[str]:
    place = next(row for row in rows if "machine" in row)
    where = "{command}: {machine}, cores {cores}, threads {threads}, load before {load}, torch {torch}".format(**place)
    limits = [f"{row['limit']} {row['gflops']:.0f}" for row in rows if "limit" in row]
    speed = f" Best matrix speed, GFLOP/s: {', '.join(limits)}." if limits else ""
    return [f"`{where}. Precision: {place.get('precision', 'fp32')}.{speed}`", ""]


def _line(row: Row) -> list[str]:
    if "bench" not in row:
        return []
    goal = "none" if row["goal"] is None else f"{'≤' if row['at_most'] else '≥'} {row['goal']:g}"
    return [f"| {row['bench']} | {row['ratio']:.3g} | {goal} | {_MET[row['ok']]} |"]


_MET = {True: "yes", False: "**no**", None: "–"}


def filled(page: str, rows: Sequence[Row], begins: str = BEGIN) -> str:
    """The page with the table between its two markers."""
    before, begin, rest = page.partition(begins)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"docs/results/bench.md needs the lines {begins} and {END} around the table")
    return f"{before}{begins}\n{table(rows)}\n{END}{after}"


def read(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    if not RESULTS.exists():
        sys.exit(f"{RESULTS} does not exist: run `make bench` first")
    page = filled(PAGE.read_text(encoding="utf-8"), read(RESULTS))
    for begins, file in OTHERS.items():
        page = filled(page, read(file), begins) if file.exists() else page
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
