"""The picture of quality against tokens per forward, from the rows of bench.picks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from bench.race import Row
from bench.table import read
from redraft.apps import Chart, Curve, Svg, chart_picture

DIVERSE = 4.4  # nats, entropy of the words of all texts; below it a pick sharpens
TITLES = {True: "As diverse as the model", False: "Sharper: less diverse"}


def pictures(results: Path) -> dict[str, Svg]:
    """`results` is the folder of the recipes' rows."""
    return {"decoding": drawn(read(results.parents[1] / "bench" / "results" / "curve.jsonl"))}


def drawn(rows: Sequence[Row]) -> Svg:
    """The whole picture; the same rows give the same file."""
    by_pick = {pick: list(points) for pick, points in groupby(filter(_is_point, rows), key=lambda row: row["curve"])}
    return chart_picture([_chart(by_pick, diverse) for diverse in TITLES])


def _is_point(row: Row) -> bool:
    return "curve" in row


def _chart(by_pick: dict[str, list[Row]], diverse: bool) -> Chart:
    curves = tuple(_curve(pick, rows) for pick, rows in by_pick.items() if _is_diverse(rows) is diverse)
    ticks, ends = (1, 2, 3, 4, 5, 7), (0.75, 8.0)
    x, y = "tokens per forward", "right stories, %"
    return Chart(TITLES[diverse], x, y, curves, x_log=True, x_range=ends, x_ticks=ticks, y_range=(0, 100))


def _is_diverse(rows: Sequence[Row]) -> bool:
    return sum(row["diversity"] for row in rows) / len(rows) > DIVERSE


def _curve(pick: str, rows: Sequence[Row]) -> Curve:
    return Curve.through(pick, sorted((row["tokens_per_forward"], 100 * row["grammatical"]) for row in rows))
