"""The tables and pictures of docs/results/claims.md.

Rows of claims.py, lengths.py, guided.py, predicting.py, repair.py, learning.py and adapting.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean, stdev

import guided
import headline_tables
import lengths
import predicting
from curves import Panel, Point, drawn
from rows import Rows
from tables import MISSING, Held, Row, above, bits, cell, markdown, right

from redraft.apps.reports.charts import _Scale

FILES = ("claims", "lengths", "guided", "predicting")
HEADLINES = ("repair", "learning", "writing", "adapting")
PLACES = (10, 20, 30, 40, 50)
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
    **{f"{head} even": f"{said}, even log-SNR" for head, said in HEADS.items()},
}
HINTS = {"hints without": "without self-conditioning", "hints with": "with self-conditioning"}
SEEN = (1, 16, 32, 48)  # steps whose entropy the table tells


def tables(results: Path) -> dict[str, str]:
    claims, cost, gamma, heads = held(results, *FILES)
    return {
        "errors": errors_table(claims),
        "planning": planning_table(claims),
        "lengths": lengths_table(cost),
        "guided": guided_table(gamma),
        "heads": heads_table(heads),
        "levels": stories_table(heads),
        "hints": hints_table(heads),
        **headline_tables.tables(*held(results, *HEADLINES)),
    }


def held(results: Path, *files: str) -> list[Held]:
    return [Rows(results / f"{name}.jsonl").read() for name in files]


def pictures(results: Path) -> dict[str, str]:
    claims, cost, gamma, heads = held(results, *FILES)
    repair, adapting = held(results, "repair", "adapting")
    return {
        "claims": drawn(left_to_right(claims, cost)),
        "guidance": drawn(guidance(gamma)),
        "predicting": drawn(prediction(heads)),
        "repair": drawn(headline_tables.repairs(repair)),
        "adapting": drawn(headline_tables.adaptation(adapting)),
    }


# --- autoregressive models ---


def errors_table(rows: Held) -> str:
    lines = []
    for model, said in NAMES.items():
        row = rows.get(f"{model}, errors")
        at = (cell(row, lambda row, at=at: f"{100 * row[f'right_at_{at}']:.0f}") for at in PLACES)
        lines.append([said, *at, right(row, "right")])
    return markdown(["% correct up to word", *map(str, PLACES), "the end"], lines)


def planning_table(rows: Held) -> str:
    lines = [
        [said, right(row, "right"), cell(row, lambda row: f"{row['nfe']:.0f}")]
        for said, row in ((said, rows.get(f"{model}, planning")) for model, said in NAMES.items())
    ]
    return markdown(["method", "% correct stories", "network calls"], lines)


def lengths_table(rows: Held) -> str:
    head = [f"calls, {n} tokens" for n in (lengths.LENGTHS[0], lengths.LENGTHS[-1])]
    lines = [
        [
            way.name,
            *(
                cell(rows.get(f"{name}, {n}"), lambda row: f"{row['nfe']:.0f}")
                for n in (lengths.LENGTHS[0], lengths.LENGTHS[-1])
            ),
            *(cell(rows.get(f"{name}, {n}"), lambda row: f"{row['seconds']:.2f}") for n in lengths.LENGTHS),
        ]
        for name, way in lengths.WAYS.items()
    ]
    return markdown(["method", *head, *(f"CPU s, {n}" for n in lengths.LENGTHS)], lines)


def left_to_right(claims: Held, cost: Held) -> list[Panel]:
    """Correct stories so far by position, and the cost of a text by its length."""
    right = {said: _so_far(claims.get(f"{model}, errors")) for model, said in NAMES.items()}
    words = _Scale(0, STORY_WORDS, log=False)
    ways = {way.name: _over_lengths(cost, name) for name, way in lengths.WAYS.items()}
    most = max((p.y for points in ways.values() for p in points), default=1.0)
    least = min((p.y for points in ways.values() for p in points), default=0.1)
    tokens = _Scale(lengths.LENGTHS[0] / 1.1, lengths.LENGTHS[-1] * 1.1, log=True)
    return [
        Panel("correct stories so far, %", "by word", right, words, _Scale(0, 100, log=False), (0, *PLACES)),
        Panel(
            "CPU seconds per text",
            "by tokens; both axes are logarithmic",
            ways,
            tokens,
            _Scale(least / 1.2, most * 1.2, log=True),
            lengths.LENGTHS,
        ),
    ]


def _so_far(row: Row | None) -> list[Point]:
    if row is None:
        return []
    end = Point(STORY_WORDS, 100 * row["right"], 100 * row["right_stderr"])
    return [Point(0, 100), *(Point(at, 100 * row[f"right_at_{at}"]) for at in PLACES), end]


def _over_lengths(rows: Held, name: str) -> list[Point]:
    found = (rows.get(f"{name}, {size}") for size in lengths.LENGTHS)
    return [Point(row["length"], row["seconds"]) for row in found if row is not None]


# --- guidance ---


def guided_table(rows: Held) -> str:
    hit: Measure = lambda row: right(row, "fidelity")  # noqa: E731
    measures: dict[str, Measure] = {
        "requested class, %": hit,
        "correct stories, %": right,
        "entropy of words, nats": lambda row: cell(row, lambda row: f"{row['entropy']:.2f}"),
    }
    kinds = [(kind, said, measures) for kind, said in KINDS.items()]
    width: Measure = lambda row: cell(row, lambda row: f"{row['width']:.2f}")  # noqa: E731
    kinds.append(("points", "points, exact", {"requested class, %": hit, "width / width of the class": width}))
    lines = [
        [said, name, *(show(rows.get(f"{kind} {scale:g}")) for scale in guided.SCALES)]
        for kind, said, shown in kinds
        for name, show in shown.items()
    ]
    return markdown(["noise", "measure", *(f"γ = {scale:g}" for scale in guided.SCALES)], lines)


def guidance(rows: Held) -> list[Panel]:
    scales = _Scale(0, guided.SCALES[-1], log=False)
    hit = {said: _over_scales(rows, kind, "fidelity", 100) for kind, said in KINDS.items()}
    spread = {said: _over_scales(rows, kind, "entropy", 1) for kind, said in KINDS.items()}
    truth = ("held-out stories", rows["truth"]["entropy"]) if "truth" in rows else None
    ticks = guided.SCALES
    return [
        Panel(
            "requested class, %",
            "by γ; exact points for comparison",
            hit | {"points, exact": _points(rows)},
            scales,
            _Scale(0, 100, log=False),
            ticks,
        ),
        Panel(
            "entropy of words in texts of one class, nats",
            "by γ",
            spread,
            scales,
            _Scale(3, 4.6, log=False),
            ticks,
            truth,
        ),
    ]


def _points(rows: Held) -> list[Point]:
    return _over_scales(rows, "points", "fidelity", 100)


def _over_scales(rows: Held, kind: str, key: str, factor: float) -> list[Point]:
    found = ((scale, rows.get(f"{kind} {scale:g}")) for scale in guided.SCALES)
    return [Point(s, factor * row[key], factor * row[f"{key}_stderr"]) for s, row in found if row is not None]


# --- prediction targets, noise levels, self-conditioning ---


def heads_table(rows: Held) -> str:
    lines = [[said, *(_shown(over_seeds(rows, head, level)) for level in LEVELS)] for head, said in HEADS.items()]
    return markdown(["predicts", *LEVELS.values()], lines)


def over_seeds(rows: Held, head: str, level: str) -> tuple[float, float] | None:
    """Mean over seeds and its standard error; None unless all are measured."""
    names = [f"points {head} {level} {seed}" for seed in range(predicting.SEEDS)]
    if not all(name in rows for name in names):
        return None
    found = [rows[name]["bits_above"] for name in names]
    return fmean(found), stdev(found) / math.sqrt(len(found))


def _shown(found: tuple[float, float] | None) -> str:
    return MISSING if found is None else f"{found[0]:.2f} ± {found[1]:.2f}"


def stories_table(rows: Held) -> str:
    lines = [[said, cell(rows.get(f"stories {name}"), bits)] for name, said in STORIES.items()]
    return markdown(["Diffusion-LM predicts", "bits/char"], lines)


def hints_table(rows: Held) -> str:
    lines = [
        [
            said,
            *(cell(rows.get(name), lambda row, n=n: f"{row['entropy'][n - 1]:.2f}") for n in SEEN),
            above(rows, name),
            right(rows.get(name)),
        ]
        for name, said in HINTS.items()
    ]
    head = ["Diffusion-LM", *(f"entropy at step {n}" for n in SEEN), "bits/char above the truth", "correct, %"]
    return markdown(head, lines)


def prediction(rows: Held) -> list[Panel]:
    sure = {said: _by_step(rows.get(name)) for name, said in HINTS.items()}
    most = max((p.y for points in sure.values() for p in points), default=1.0)
    above = {
        f"predicts {said}": [
            Point(number, *found)
            for number, level in enumerate(LEVELS, 1)
            if (found := over_seeds(rows, head, level)) is not None
        ]
        for head, said in HEADS.items()
    }
    found = [p.y for points in above.values() for p in points] or [1.0]
    bits = _Scale(max(0.01, min(found)) / 1.5, 1.5 * max(found), log=True)
    ticks = f"log scale; schedules: {', '.join(f'{n} {said}' for n, said in enumerate(LEVELS.values(), 1))}"
    return [
        Panel(
            "bits per point above the truth",
            ticks,
            above,
            _Scale(0.7, 3.3, log=False),
            bits,
            (1, 2, 3),
        ),
        Panel(
            "entropy of x̂ during sampling, bits per token",
            "by sampling step, of 64",
            sure,
            _Scale(1, 64, log=False),
            _Scale(0, most, log=False),
            (1, *SEEN[1:], 64),
        ),
    ]


def _by_step(row: Mapping[str, object] | None) -> list[Point]:
    found = [] if row is None else row["entropy"]
    assert isinstance(found, list)
    return [Point(step, bits) for step, bits in enumerate(found, 1)]
