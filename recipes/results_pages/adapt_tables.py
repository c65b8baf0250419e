"""The tables and the picture of docs/results/adapt.md."""

from __future__ import annotations

from pathlib import Path

from rows import Rows

from redraft.apps import Chart, Curve, Point, chart_picture
from results_pages.tables import MISSING, Held, Row, markdown

WAYS = {
    "unadapted": "the unadapted model, both sides",
    "left only": "left side only",
    "causal, rescored": "16 causal candidates, rescored with the right side",
    "adapter": "the adapter alone",
    "both": "both models: `redraft infill`",
}


def tables(results: Path) -> dict[str, str]:
    held = Rows(results / "adapt.jsonl").read()
    return {"holes": _table(held), "curve": curve_table(held)}


def pictures(results: Path) -> dict[str, str]:
    return {"adapt": picture(Rows(results / "adapt.jsonl").read())}


def final(held: Held, kind: str) -> Row | None:
    """The row with the most holes of a kind; of several, that of the adapter which gives the most."""
    rows = [row for row in held.values() if row["kind"] == kind]
    return max(rows, key=lambda row: (row["holes"], row["shares"]["both"]), default=None)


def share(row: Row | None, way: str) -> str:
    if row is None:
        return MISSING
    p, n = row["shares"][way], row["holes"]
    return f"{100 * p:.1f} ± {100 * (p * (1 - p) / n) ** 0.5:.1f}"


def _table(held: Held) -> str:
    words, spans = final(held, "words"), final(held, "spans")
    counts = [f"{row['holes']:,} {kind}" if row else kind for kind, row in (("words", words), ("spans of 2–5", spans))]
    rows = [[label, share(words, way), share(spans, way)] for way, label in WAYS.items()]
    return markdown(["exact answers, %", *counts], rows)


def curve(held: Held) -> list[Row]:
    """One row for each checkpoint, that with the most holes."""
    words = sorted((row for row in held.values() if row["kind"] == "words"), key=lambda row: row["holes"])
    by_tokens = {row["tokens"]: row for row in words}
    return [by_tokens[tokens] for tokens in sorted(by_tokens)]


CURVES = {"causal, rescored": "16 causal candidates", "adapter": "the adapter alone", "both": "both models"}


def curve_table(held: Held) -> str:
    """Lines were measured on different numbers of words, so each also gives the causal model's share on its own."""
    rows = [
        [f"{row['tokens'] / 1000:,.0f}", f"{row['holes']:,}", *(share(row, way) for way in CURVES)]
        for row in curve(held)
    ]
    return markdown(["thousand tokens", "words", *(f"{label}, %" for label in CURVES.values())], rows)


def picture(held: Held) -> str:
    rows = curve(held)
    curves = tuple(Curve(label, tuple(_point(row, way) for row in rows)) for way, label in CURVES.items())
    ticks = tuple(round(row["tokens"] / 1000) for row in rows)
    title, x = "Held-out words filled in exactly", "thousands of tokens seen in training"
    return chart_picture([Chart(title, x, "%", curves, top=60, x_ticks=ticks)])


def _point(row: Row, way: str) -> Point:
    p = row["shares"][way]
    return Point(row["tokens"] / 1000, 100 * p, 100 * (p * (1 - p) / row["holes"]) ** 0.5)
