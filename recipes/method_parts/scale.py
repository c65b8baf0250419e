"""How do bits fall with parameters and with tokens, for a causal model and for masked diffusion?

    python recipes/methods.py scale                     # four sizes of two methods, about 16 CPU minutes in all
    python recipes/methods.py scale --only "mdlm 64"

Networks of two layers and 32 to 256 features learn the embedded stories in equal steps, so that each size has seen the
same tokens. Each row has the bits per character above
the truth at the end, and their curve over tokens. The page fits a line to the logarithms: its slope is the exponent of
the power law.

Minutes are CPU minutes of one core. Rows go to recipes/results/scale.jsonl as they are finished, models to runs/scale.
Answer: docs/results/methods.md.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import linear_regression
from typing import Any

import torch
from results_pages.tables import Held, cell, markdown
from rows import Budget, Measure, Rows, add_places, measure_all, train_under_budget

from redraft.apps import Chart, Curve, Point, Svg, chart_picture
from redraft.evaluation import unseen_bits
from redraft.training import Run, presets
from redraft.training.runs import variations

WIDTHS = (32, 64, 128, 256)
METHODS = {"ar": "causal", "mdlm": "MDLM"}
HELD_OUT, POINTS = 256, 10
LEAST = 1e-3  # bits; a curve that reaches the truth is drawn at this height


def runs() -> dict[str, Run]:
    bases = {"ar": presets.ar_tiny(), "mdlm": presets.mdlm_tiny()}
    return {
        f"{name} {width}": variations.with_network(run, width=width, heads=width // 16)
        for name, run in bases.items()
        for width in WIDTHS
    }


def row(run: Run, out: Path, steps: int) -> dict[str, Any]:
    made = train_under_budget(run, out, Budget(steps=steps), evaluations=POINTS)
    figures = unseen_bits(made.model, made.run, HELD_OUT)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text("utf-8").splitlines()]
    tokens = run.batch * run.framing.length
    key = "valid_excess_bits_per_char"
    curve = [[line["step"] * tokens, line[key]] for line in lines if key in line]
    parameters = sum(weight.numel() for weight in made.model.network.parameters())
    return {**made.cost(), **figures, "parameters": parameters, "curve": curve}


def jobs(out: Path, steps: int) -> Iterator[tuple[str, Measure]]:
    for name, run in runs().items():
        yield name, partial(row, run, out / name.replace(" ", "-"), steps)


# --- the page ---


def tables(results: Path) -> dict[str, str]:
    rows = Rows(results / "scale.jsonl").read()
    if not rows:
        return {"scale": "*No rows yet; this makes them:* `python recipes/methods.py scale`"}
    lines = [
        [
            said,
            *(cell(rows.get(f"{name} {width}"), lambda row: f"{row['excess']:.4f}") for width in WIDTHS),
            shown(slope(by_parameters(rows, name))),
            shown(slope(by_tokens(rows, name, WIDTHS[-1]))),
        ]
        for name, said in METHODS.items()
    ]
    heads = (*(f"width {width}" for width in WIDTHS), "exponent, parameters", "exponent, tokens")
    return {"scale": markdown(["bits/char above the truth", *heads], lines)}


def by_parameters(rows: Held, name: str) -> list[tuple[float, float]]:
    found = (rows[f"{name} {width}"] for width in WIDTHS if f"{name} {width}" in rows)
    return [(row["parameters"], max(LEAST, row["excess"])) for row in found]


def by_tokens(rows: Held, name: str, width: int) -> list[tuple[float, float]]:
    row = rows.get(f"{name} {width}")
    return [] if row is None else [(tokens, max(LEAST, bits)) for tokens, bits in row["curve"]]


def slope(pairs: Sequence[tuple[float, float]]) -> float | None:
    """The exponent of the power law through these points."""
    if len(pairs) < 2:
        return None
    return linear_regression([math.log(x) for x, _ in pairs], [math.log(y) for _, y in pairs]).slope


def shown(exponent: float | None) -> str:
    return cell(None if exponent is None else {}, lambda _: f"{exponent:.2f}")


def pictures(results: Path) -> Mapping[str, Svg]:
    rows = Rows(results / "scale.jsonl").read()
    sizes = tuple(Curve.through(said, by_parameters(rows, name)) for name, said in METHODS.items())
    learning = tuple(
        Curve(f"{said}, width {width}", tuple(Point(*pair) for pair in by_tokens(rows, name, width)), name == "mdlm")
        for name, said in METHODS.items()
        for width in (WIDTHS[1], WIDTHS[-1])
    )
    unit = "bits per character above the truth"
    return {
        "scale": chart_picture(
            [
                Chart("By size, equal tokens", "parameters", unit, sizes, x_log=True, y_log=True),
                Chart("By training", "tokens", unit, learning, x_log=True, y_log=True),
            ]
        )
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1600, help="steps per training")
    add_places(parser, "runs/scale")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    measure_all(Rows(options.results / "scale.jsonl"), jobs(options.out, options.steps), options.only)
