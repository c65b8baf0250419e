"""Tables and pictures of repair.py, learning.py and adapting.py, for docs/results/claims.md."""

from __future__ import annotations

from redraft.apps import Chart, Curve, Point
from results_pages.tables import Held, Row, above, cell, markdown, percent, right

COUNTS = (1, 2, 4)  # wrong words per story
REPAIRS = {
    "gidd 0.05": "GIDD, noise level 0.05",
    "gidd 0.01": "GIDD, 0.01",
    "gidd 0.1": "GIDD, 0.1",
    "udlm 0.05": "UDLM, 0.05",
    "udlm 0.01": "UDLM, 0.01",
    "udlm 0.1": "UDLM, 0.1",
    "gstar": "G-Star, its error head",
    "mdlm": "MDLM, its own doubt",
    "ar": "causal, best of 16",
}
DETECTORS = {"mdlm": "MDLM, all other words", "gidd": "GIDD", "udlm": "UDLM", "gstar": "G-Star", "ar": "causal"}
DRIFTS = {"ar": "causal", "mdlm": "MDLM", "gidd": "GIDD", "udlm": "UDLM"}
DRAWN = ("gidd 0.05", "udlm 0.05", "gstar", "mdlm", "ar")
MINUTES = "1.5 min"
TRAININGS = ("preset", "time", "time, heads, muon, weight", "time, warmup", "time, qk_norm")
WRITERS = {
    "unmask": "unmasking, equal parts",
    "entropy bound": "adaptive pick alone",
    "gibbs, 1 token": "adaptive pick, then Gibbs with 1 token",
    "gibbs, 2 tokens": "2 tokens",
    "gibbs, 4 tokens": "4 tokens",
    "gibbs, 4 unlikely": "4 unlikely tokens (sharpens)",
    "remdm": "ReMDM",
    "star": "star-shaped",
    "gstar": "G-Star (sharpens)",
}
ADAPTED = {
    "scratch": "from scratch",
    "naive": "causal weights, full attention at once",
    "shift": "and the shift kept",
    "whole": "and the attention opened over half of the steps",
}
SEEDS = (0, 1, 2)


def repair_table(rows: Held) -> str:
    head = ["method", *(f"right, {n} wrong, %" for n in COUNTS), "exact, 1 wrong, %", "spoilt, 1 wrong, %", "calls"]
    lines = []
    for name, said in REPAIRS.items():
        found = [rows.get(f"{name}, {count} wrong") for count in COUNTS]
        one = (lambda row: percent(row["exact"]), lambda row: percent(row["spoilt"]), lambda row: f"{row['calls']:.0f}")
        lines.append([said, *map(right, found), *(cell(found[0], show) for show in one)])
    return markdown(head, lines)


def detect_table(rows: Held) -> str:
    head = ["the most suspect words by", *(f"found, {n} wrong, %" for n in COUNTS)]
    return markdown(
        head,
        [
            [said, *(cell(rows.get(f"detect {name}, {n} wrong"), lambda row: percent(row["found"])) for n in COUNTS)]
            for name, said in DETECTORS.items()
        ],
    )


def drift_table(rows: Held) -> str:
    head = ["the rest is right, %", "after a right half", "after a half with a wrong word"]
    return markdown(
        head,
        [
            [said, *(right(rows.get(f"drift {name}, {kind}")) for kind in ("right", "wrong"))]
            for name, said in DRIFTS.items()
        ],
    )


def training_table(rows: Held) -> str:
    lines = []
    for name in TRAININGS:
        found = {seed: rows.get(f"{name} seed {seed}, {MINUTES}") for seed in SEEDS}
        if name in TRAININGS[:2] or any(found.values()):
            shown = [right(None if row is None else row["written"]) for row in found.values()]
            lines.append([name, *shown, above(rows, f"{name} seed 0, {MINUTES}")])
    return markdown(
        ["network", *(f"right, seed {seed}, %" for seed in SEEDS), "bits/char above the truth, seed 0"], lines
    )


def writing_table(rows: Held) -> str:
    models = [f"{name} seed {seed}" for seed in SEEDS for name in ("time", "preset")]
    models = [model for model in models if any(f"; {model}, {MINUTES}" in row for row in rows)] or ["time seed 0"]
    lines = []
    for name, said in WRITERS.items():
        found = [rows.get(f"{name}; {model}, {MINUTES}") for model in models]
        entropy = cell(found[0], lambda row: f"{row['unigram_entropy']:.2f}")
        lines.append([said, *map(right, found), cell(found[0], lambda row: f"{row['nfe']:.0f}"), entropy])
    return markdown(["at most 64 calls", *(f"right, {model}, %" for model in models), "calls", "entropy, nats"], lines)


def adapting_table(rows: Held) -> str:
    lines = []
    for name, said in ADAPTED.items():
        row = rows.get(f"{name} seed 0")
        shown = (right(None if row is None else row["written"]), cell(row, lambda row: percent(row["holes"])))
        lines.append([said, above(rows, f"{name} seed 0"), *shown, cell(row, lambda row: f"{row['steps']:,}")])
    return markdown(["start", "bits/char above the truth", "right at 64 calls, %", "holes right, %", "steps"], lines)


def tables(repair: Held, learning: Held, writing: Held, adapting: Held) -> dict[str, str]:
    return {
        "repair": repair_table(repair),
        "detect": detect_table(repair),
        "drift": drift_table(repair),
        "training": training_table(learning),
        "writing": writing_table(writing),
        "adapting": adapting_table(adapting),
    }


def repairs(rows: Held) -> list[Chart]:
    """Right stories and spoilt words against the number of wrong words."""
    right = tuple(Curve(REPAIRS[name], _by_count(rows, name, "share")) for name in DRAWN)
    spoilt = tuple(Curve(REPAIRS[name], _by_count(rows, name, "spoilt")) for name in DRAWN)
    counts, ticks = (0.8, 4.2), tuple(COUNTS)
    return [
        Chart("Right stories after the repair", "wrong words", "%", right, x_range=counts, x_ticks=ticks, top=100),
        Chart("Right words spoilt", "wrong words", "%", spoilt, x_range=counts, x_ticks=ticks),
    ]


def adaptation(rows: Held) -> list[Chart]:
    """The bound over the steps of each adaptation."""
    curves = tuple(Curve(said, _learned(rows.get(f"{name} seed 0"))) for name, said in ADAPTED.items())
    title, unit = "Held-out stories while a causal model is adapted", "bits per character above the truth"
    return [Chart(title, "steps of adaptation", unit, curves, y_log=True)]


def _by_count(rows: Held, name: str, key: str) -> tuple[Point, ...]:
    """Percentages."""
    measured = ((count, rows.get(f"{name}, {count} wrong")) for count in COUNTS)
    return tuple(
        Point(count, 100 * row[key], 100 * row.get(f"{key}_stderr", 0.0)) for count, row in measured if row is not None
    )


def _learned(row: Row | None) -> tuple[Point, ...]:
    return () if row is None else tuple(Point(step, max(1e-3, bits)) for step, bits in row["curve"])
