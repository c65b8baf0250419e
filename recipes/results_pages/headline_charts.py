"""Pictures of the field's headline results for docs/results/claims.md."""

from __future__ import annotations

from statistics import fmean

from redraft.apps import Chart, Curve, Point
from redraft.core import split_words
from redraft.training import STORY_LANGUAGE
from results_pages.headline_tables import (
    ADAPTED,
    AMOUNTS,
    CONTROLLED,
    COUNTS,
    LEARNERS,
    LONG_STEPS,
    MINUTES,
    REPAIRS,
    SEEDS,
    TRAININGS,
    TWO_SEEDS,
    WRITERS,
)
from results_pages.tables import Held, Row

DRAWN = ("gidd 0.05", "udlm 0.05", "gstar", "mdlm", "ar")
LONG = {"mdlm": "MDLM", "ssd": "SSD-LM", "ar": "causal"}


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
    """The bound over the steps of each adaptation; two seeds share a color."""
    curves = tuple(
        Curve(said, _learned(rows.get(f"{name} seed {seed}")), dashed=seed > 0)
        for name, said in ADAPTED.items()
        for seed in TWO_SEEDS
    )
    title, unit = "Held-out stories while a causal model is adapted", "bits per character above the truth"
    return [Chart(title, "steps of adaptation", unit, curves, y_log=True, width=680)]


def learning(training: Held, writing: Held) -> list[Chart]:
    """Right stories over the bound, a point for each seed; and over calls, a point for each model."""
    trained = tuple(
        Curve(name, _one(rows, "excess", "written/share"))
        for name in TRAININGS
        for seed in SEEDS
        if (rows := training.get(f"{name} seed {seed}, {MINUTES}")) is not None
    )
    ways = tuple(
        Curve(said, _one(row, "nfe", "share"))
        for name, said in WRITERS.items()
        if name != "gibbs, 4 tokens"  # charts have eight colors; the table has it
        for row in (row for key, row in writing.items() if key.startswith(f"{name}; "))
    )
    bound = "bits per character above the truth"
    return [
        Chart("Equal steps: what a network learns", bound, "right stories at 64 calls, %", trained, top=100),
        Chart("Equal weights: what a sampler writes", "network calls", "right stories, %", ways, top=100),
    ]


def long_texts(rows: Held) -> list[Chart]:
    """Right stories and nats a word over seconds; points of a curve are numbers of steps."""
    shares, nats = (
        tuple(
            Curve(said, tuple(point for steps in LONG_STEPS[name] for point in _one(rows.get(f"{name} {steps}"), *y)))
            for name, said in LONG.items()
        )
        for y in (("seconds_per_text", "share"), ("seconds_per_text", "nats_per_word", 1.0))
    )
    words = fmean(len(split_words(STORY_LANGUAGE.text(0, index))) for index in range(500))
    truth = ("stories themselves", STORY_LANGUAGE.entropy() / words)
    return [
        Chart("Texts of 2048 words", "CPU seconds a text", "right stories, %", shares, x_log=True, top=100),
        Chart("What a word costs", "CPU seconds a text", "nats under the grammar", nats, truth, x_log=True),
    ]


def scarcity(rows: Held) -> list[Chart]:
    """Held-out bits over passes through the text; two seeds share a color."""
    return [
        Chart(
            f"TinyStories: {amount}",
            "passes over the text",
            "bits per character",
            tuple(
                Curve(said, _curve(rows.get(f"{name}, {size}, seed {seed}")), dashed=seed > 0)
                for name, said in LEARNERS.items()
                for seed in TWO_SEEDS
            ),
            x_log=True,
            y_log=True,
        )
        for size, amount in AMOUNTS.items()
    ]


def parts_of_speech(rows: Held) -> list[Chart]:
    """Right tags over the perplexity of what is written."""
    curves = tuple(
        Curve(said, _one(rows.get(f"{name}, held out"), "perplexity", "success")) for name, said in CONTROLLED.items()
    )
    people = rows.get("people")
    x = "perplexity under SmolLM2" + ("" if people is None else f" (people: {people['perplexity']:.0f})")
    return [Chart("40 held-out targets", x, "tags right, %", curves, x_log=True, top=100, width=680)]


def _one(row: Row | None, x: str, y: str, factor: float = 100.0) -> tuple[Point, ...]:
    """The point of a row; a key may name a part, as in written/share."""
    *parts, last = y.split("/")
    inner = row
    for part in parts if inner is not None else ():
        inner = inner[part]
    if row is None or inner is None or inner[last] is None:
        return ()
    return (Point(row[x], factor * inner[last], factor * inner.get(f"{last}_stderr", 0.0)),)


def _curve(row: Row | None) -> tuple[Point, ...]:
    return () if row is None else tuple(Point(passes, bits) for passes, bits in row["curve"])


def _by_count(rows: Held, name: str, key: str) -> tuple[Point, ...]:
    """Percentages."""
    measured = ((count, rows.get(f"{name}, {count} wrong")) for count in COUNTS)
    return tuple(
        Point(count, 100 * row[key], 100 * row.get(f"{key}_stderr", 0.0)) for count, row in measured if row is not None
    )


def _learned(row: Row | None) -> tuple[Point, ...]:
    return () if row is None else tuple(Point(step, max(1e-3, bits)) for step, bits in row["curve"])
