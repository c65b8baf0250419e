"""The tables of docs/results/bench.md and reliability.md, from the rows in bench/results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bench.race import Row

# files of ratios
MEASURED = (
    *("quick", "training", "decoding", "steps", "causal", "blocks"),
    *("constraints", "schemas", "serving", "parts"),
)


def tables(results: Path) -> dict[str, str]:
    """By file; `results` is the folder of the recipes' rows."""
    folder = results.parents[1] / "bench" / "results"
    ratios = {name: table(read(folder / f"{name}.jsonl")) for name in MEASURED}
    return {**ratios, "reliability": reliability(read(folder / "reliability.jsonl"))}


def reliability(rows: Sequence[Row]) -> str:
    lines = ["| id | what | measured | count | size | load | met | ledger |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        met, book = ("yes" if row.get(name) else "**no**" if row.get(name) is False else "–" for name in ("ok", "n1"))
        cells = [row.get(name, "") for name in ("id", "goal", "measured", "count", "size", "load")]
        lines.append(f"| {' | '.join(map(str, cells))} | {met} | {book} |")
    return "\n".join(lines)


def table(rows: Sequence[Row]) -> str:
    """Markdown: where it was measured, the limit, and a line per ratio."""
    lines = [line for row in rows for line in _line(row)]
    return "\n".join([*_machine(rows), "| what | ratio | goal | met |", "|---|---|---|---|", *lines])


def _machine(rows: Sequence[Row]) -> list[str]:
    place = next(row for row in rows if "machine" in row)
    where = "{command}: {machine}, cores {cores}, threads {threads}, load before {load}, torch {torch}".format(**place)
    limits = [f"{row['limit']} {row['gflops']:.0f}" for row in rows if "limit" in row]
    speed = f" Best matrix speed, GFLOP/s: {', '.join(limits)}." if limits else ""
    return [f"`{where}. Precision: {place.get('precision', 'fp32')}.{speed}`", ""]


def _line(row: Row) -> list[str]:
    if "ratio" not in row:
        return []
    goal = "none" if row["goal"] is None else f"{'≤' if row['at_most'] else '≥'} {row['goal']:g}"
    return [f"| {row['bench']} | {row['ratio']:.3g} | {goal} | {_MET[row['ok']]} |"]


_MET = {True: "yes", False: "**no**", None: "–"}


def read(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
