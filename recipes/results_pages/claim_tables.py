"""The tables and pictures of docs/results/claims.md.

Rows of claims.py and continuous.py. headline_tables.py and headline_charts.py draw the headline results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean, stdev

import claims
import continuous
from claim_parts import diversity
from claims import PLACES
from continuous_parts import drawbacks
from rows import Rows

from redraft.apps import Chart, Curve, Point, chart_picture
from results_pages import headline_charts, headline_tables
from results_pages.tables import MISSING, Held, Row, above, bits, cell, markdown, right

FILES = ("claims", "lengths", "guided", "predicting")
STORY_WORDS = 66  # of the longest: where the curves end
Measure = Callable[[Row | None], str]
NAMES = {"mdlm_tiny": "masked diffusion", "ar_tiny": "autoregressive"}
KINDS = {"mask": "masks", "uniform": "uniform noise", "vectors": "vectors (Diffusion-LM)"}
HEADS = {"x": "x₀", "eps": "ε", "v": "v"}
LEVELS = {"linear": "linear β", "cosine": "cosine", "even": "even log-SNR"}
STORIES = {
    "words even": "words, cross-entropy, even log-SNR",
    "words sqrt": "words, cross-entropy, sqrt schedule",
    "words cosine": "words, cross-entropy, cosine schedule",
    **{f"{head} even": f"{label}, even log-SNR" for head, label in HEADS.items()},
}
HINTS = {"hints without": "without self-conditioning", "hints with": "with self-conditioning"}
SEEN = (1, 16, 32, 48)  # steps whose entropy the table tells


def tables(results: Path) -> dict[str, str]:
    errors, cost, gamma, heads = held(results, *FILES)
    return {
        "errors": errors_table(errors),
        "planning": planning_table(errors),
        "lengths": lengths_table(cost),
        "guided": guided_table(gamma),
        "heads": heads_table(heads),
        "levels": stories_table(heads),
        "hints": hints_table(heads),
        **headline_tables.tables(headlines(results)),
        **drawbacks.tables(results),
        **diversity.tables(results),
    }


def held(results: Path, *files: str) -> list[Held]:
    return [Rows(results / f"{name}.jsonl").read() for name in files]


def headlines(results: Path) -> dict[str, Held]:
    """The rows of the headline results by file."""
    return dict(zip(headline_tables.COMMANDS, held(results, *headline_tables.COMMANDS), strict=True))


def pictures(results: Path) -> dict[str, str]:
    errors, cost, gamma, heads = held(results, *FILES)
    files = headlines(results)
    return {
        "claims": chart_picture(left_to_right(errors, cost)),
        "guidance": chart_picture(guidance(gamma)),
        "predicting": chart_picture(prediction(heads)),
        **drawbacks.pictures(results),
        **diversity.pictures(results),
        "repair": chart_picture(headline_charts.repairs(files["repair"])),
        "learning": chart_picture(headline_charts.learning(files["learning"], files["writing"])),
        "adapting": chart_picture(headline_charts.adaptation(files["adapting"])),
        "long-texts": chart_picture(headline_charts.long_texts(files["long_texts"])),
        "scarce": chart_picture(headline_charts.scarcity(files["scarce"])),
        "pos": chart_picture(headline_charts.parts_of_speech(files["pos"])),
    }


# --- autoregressive models ---


def errors_table(rows: Held) -> str:
    lines = []
    for model, label in NAMES.items():
        row = rows.get(f"{model}, errors")
        at = (cell(row, lambda row, at=at: f"{100 * row[f'right_at_{at}']:.0f}") for at in PLACES)
        lines.append([label, *at, right(row, "right")])
    return markdown(["% correct up to word", *map(str, PLACES), "the end"], lines)


def planning_table(rows: Held) -> str:
    lines = [
        [label, right(row, "right"), cell(row, lambda row: f"{row['nfe']:.0f}")]
        for label, row in ((label, rows.get(f"{model}, planning")) for model, label in NAMES.items())
    ]
    return markdown(["method", "% correct stories", "network calls"], lines)


def lengths_table(rows: Held) -> str:
    head = [f"calls, {n} tokens" for n in (claims.LENGTHS[0], claims.LENGTHS[-1])]
    lines = [
        [
            way.name,
            *(
                cell(rows.get(f"{name}, {n}"), lambda row: f"{row['nfe']:.0f}")
                for n in (claims.LENGTHS[0], claims.LENGTHS[-1])
            ),
            *(cell(rows.get(f"{name}, {n}"), lambda row: f"{row['seconds']:.2f}") for n in claims.LENGTHS),
        ]
        for name, way in claims.WAYS.items()
    ]
    return markdown(["method", *head, *(f"CPU s, {n}" for n in claims.LENGTHS)], lines)


def left_to_right(errors: Held, cost: Held) -> list[Chart]:
    """Correct stories so far by position, and the cost of a text by its length."""
    right = tuple(Curve(label, _so_far(errors.get(f"{model}, errors"))) for model, label in NAMES.items())
    ways = tuple(Curve(way.name, _over_lengths(cost, name)) for name, way in claims.WAYS.items())
    tokens = claims.LENGTHS[0] / 1.1, claims.LENGTHS[-1] * 1.1
    places, words = (0, *PLACES), (0, STORY_WORDS)
    return [
        Chart("Stories without an error so far", "words", "%", right, x_range=words, top=100, x_ticks=places),
        Chart(
            "Cost of a text", "tokens", "CPU seconds", ways,
            x_log=True, y_log=True, x_range=tokens, x_ticks=tuple(claims.LENGTHS),
        ),
    ]  # fmt: skip


def _so_far(row: Row | None) -> tuple[Point, ...]:
    if row is None:
        return ()
    end = Point(STORY_WORDS, 100 * row["right"], 100 * row["right_stderr"])
    return (Point(0, 100), *(Point(at, 100 * row[f"right_at_{at}"]) for at in PLACES), end)


def _over_lengths(rows: Held, name: str) -> tuple[Point, ...]:
    measured = (rows.get(f"{name}, {size}") for size in claims.LENGTHS)
    return tuple(Point(row["length"], row["seconds"]) for row in measured if row is not None)


# --- guidance ---


def guided_table(rows: Held) -> str:
    hit: Measure = lambda row: right(row, "fidelity")  # noqa: E731
    measures: dict[str, Measure] = {
        "requested class, %": hit,
        "correct stories, %": right,
        "entropy of words, nats": lambda row: cell(row, lambda row: f"{row['entropy']:.2f}"),
    }
    kinds = [(kind, label, measures) for kind, label in KINDS.items()]
    width: Measure = lambda row: cell(row, lambda row: f"{row['width']:.2f}")  # noqa: E731
    kinds.append(("points", "points, exact", {"requested class, %": hit, "width / width of the class": width}))
    lines = [
        [label, name, *(show(rows.get(f"{kind} {scale:g}")) for scale in claims.SCALES)]
        for kind, label, shown in kinds
        for name, show in shown.items()
    ]
    return markdown(["noise", "measure", *(f"γ = {scale:g}" for scale in claims.SCALES)], lines)


def guidance(rows: Held) -> list[Chart]:
    kinds = KINDS | {"points": "points, exact"}
    hit = tuple(Curve(label, _over_scales(rows, kind, "fidelity", 100)) for kind, label in kinds.items())
    spread = tuple(Curve(label, _over_scales(rows, kind, "entropy", 1)) for kind, label in KINDS.items())
    truth = ("held-out stories", rows["truth"]["entropy"]) if "truth" in rows else None
    ticks, width = tuple(claims.SCALES), "entropy of words in texts of one class, nats"
    return [
        Chart("Requested class", "γ", "%", hit, x_ticks=ticks, top=100),
        Chart("Diversity", "γ", width, spread, truth, x_ticks=ticks, y_range=(3, 4.6)),
    ]


def _over_scales(rows: Held, kind: str, key: str, factor: float) -> tuple[Point, ...]:
    measured = ((scale, rows.get(f"{kind} {scale:g}")) for scale in claims.SCALES)
    return tuple(Point(s, factor * row[key], factor * row[f"{key}_stderr"]) for s, row in measured if row is not None)


# --- prediction targets, noise levels, self-conditioning ---


def heads_table(rows: Held) -> str:
    lines = [[label, *(_shown(over_seeds(rows, head, level)) for level in LEVELS)] for head, label in HEADS.items()]
    return markdown(["predicts", *LEVELS.values()], lines)


def over_seeds(rows: Held, head: str, level: str) -> tuple[float, float] | None:
    """Mean over seeds and its standard error; None unless all are measured."""
    names = [f"points {head} {level} {seed}" for seed in range(continuous.SEEDS)]
    if not all(name in rows for name in names):
        return None
    bits = [rows[name]["bits_above"] for name in names]
    return fmean(bits), stdev(bits) / math.sqrt(len(bits))


def _shown(estimate: tuple[float, float] | None) -> str:
    return MISSING if estimate is None else f"{estimate[0]:.2f} ± {estimate[1]:.2f}"


def stories_table(rows: Held) -> str:
    lines = [[label, cell(rows.get(f"stories {name}"), bits)] for name, label in STORIES.items()]
    return markdown(["Diffusion-LM predicts", "bits/char"], lines)


def hints_table(rows: Held) -> str:
    lines = [
        [
            label,
            *(cell(rows.get(name), lambda row, n=n: f"{row['entropy'][n - 1]:.2f}") for n in SEEN),
            above(rows, name),
            right(rows.get(name)),
        ]
        for name, label in HINTS.items()
    ]
    head = ["Diffusion-LM", *(f"entropy at step {n}" for n in SEEN), "bits/char above the truth", "correct, %"]
    return markdown(head, lines)


def prediction(rows: Held) -> list[Chart]:
    sure = tuple(Curve(label, _by_step(rows.get(name))) for name, label in HINTS.items())
    above = tuple(Curve(f"predicts {label}", _by_level(rows, head)) for head, label in HEADS.items())
    levels = ", ".join(f"{number} {label}" for number, label in enumerate(LEVELS.values(), 1))
    return [
        Chart(
            "Points, by schedule", levels, "bits above the truth", above,
            y_log=True, x_range=(0.7, 3.3), x_ticks=(1, 2, 3),
        ),
        Chart(
            "Certainty of x̂ while sampling", "step of 64", "entropy in bits per token", sure,
            x_range=(1, 64), x_ticks=(1, *SEEN[1:], 64),
        ),
    ]  # fmt: skip


def _by_level(rows: Held, head: str) -> tuple[Point, ...]:
    measured = ((number, over_seeds(rows, head, level)) for number, level in enumerate(LEVELS, 1))
    return tuple(Point(number, *figure) for number, figure in measured if figure is not None)


def _by_step(row: Mapping[str, object] | None) -> tuple[Point, ...]:
    entropies = [] if row is None else row["entropy"]
    assert isinstance(entropies, list)
    return tuple(Point(step, bits) for step, bits in enumerate(entropies, 1))
