"""Does guidance cost diversity, on a model that writes?

    python recipes/claims.py diversity                  # five CPU minutes of training, about four of writing
    python recipes/claims.py diversity --only truth "γ = 4"

A masked diffusion model learns stories with their place as the class, for five minutes, so that most of what it writes
is right. The place itself cannot vary; what else happens there can. Each row has, over the texts of one place, how many
different heroes and things they have, as a share of the texts, and how alike the texts are (self-BLEU: the BLEU of each
text against the others). `truth` has the same of held-out stories.

Minutes are CPU minutes of one core. Rows go to recipes/results/diversity.jsonl as they are finished, models to
runs/diversity. Answer: docs/results/claims.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from repair import KINDS
from results_pages.tables import cell, markdown, right
from rows import Measure, Rows, Trained, add_places, cpu_timer, measure_all, trained

from redraft.apps import Chart, Curve, Point, Svg, chart_picture
from redraft.core import bleu, split_words
from redraft.evaluation import grammar_score, proportion
from redraft.tasks import TextModel, generate
from redraft.training import STORY_LANGUAGE, Run, StoryClasses, presets
from redraft.training.runs import variations

TOPIC = StoryClasses("where")
SCALES = (0.0, 1.0, 2.0, 4.0)
EACH = 8  # texts of a place
STEPS = 64
HEROES, THINGS = ({*KINDS[kind].split()} for kind in ("hero", "thing"))
MEASURES = {"heroes": "different heroes", "things": "different things", "self_bleu": "self-BLEU"}


def learned() -> Run:
    return variations.with_classes(variations.with_network(presets.mdlm_tiny(), time=64), TOPIC)


def guided_row(made: Trained, scale: float) -> dict[str, Any]:
    model = TextModel(made.model.eval(), made.run)
    options: dict[str, Any] = {"n": EACH, "guidance": scale, "steps": STEPS}
    with cpu_timer() as clock:
        texts = {
            name: generate(model, label=name, seed=seed, **options).texts for seed, name in enumerate(TOPIC.classes)
        }
    count = EACH * len(texts)
    right_place = sum(TOPIC.check(name, text).share for name, some in texts.items() for text in some) / count
    stories = grammar_score([text for some in texts.values() for text in some], STORY_LANGUAGE).share
    place = {f"place_{key}": value for key, value in proportion(right_place, count).items()}
    figures = {**proportion(stories, count), **place, **diversity(texts), "texts": count}
    return {**made.cost(), "scale": scale, **figures, "seconds_per_text": clock.seconds / count}


def truth_row() -> dict[str, Any]:
    texts: dict[str, list[str]] = {name: [] for name in TOPIC.classes}
    index = 0
    while any(len(some) < EACH for some in texts.values()):
        pair = TOPIC.pair("test", index)
        texts[pair.source] += [pair.target] * (len(texts[pair.source]) < EACH)
        index += 1
    return {**diversity(texts), "texts": EACH * len(texts)}


def diversity(texts: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Means over the places, and their standard errors."""
    by_place = [
        {"heroes": different(some, HEROES), "things": different(some, THINGS), "self_bleu": self_bleu(some)}
        for some in texts.values()
    ]
    means = {key: fmean(one[key] for one in by_place) for key in MEASURES}
    errors = {f"{key}_stderr": stdev(one[key] for one in by_place) / len(by_place) ** 0.5 for key in MEASURES}
    return means | errors


def different(texts: Sequence[str], words: set[str]) -> float:
    """The number of different first words of this kind, as a share of the texts."""
    firsts = (next((word for word in split_words(text) if word in words), None) for text in texts)
    return len({*firsts} - {None}) / len(texts)


def self_bleu(texts: Sequence[str]) -> float:
    return fmean(bleu([text], [[*texts[:i], *texts[i + 1 :]]]) for i, text in enumerate(texts))


def jobs(out: Path, minutes: float) -> Iterator[tuple[str, Measure]]:
    made = cache(lambda: trained(learned(), out / "mdlm", minutes))
    yield "truth", truth_row
    for scale in SCALES:
        yield f"γ = {scale:g}", lambda scale=scale: guided_row(made(), scale)


# --- the page ---


def tables(results: Path) -> dict[str, str]:
    rows = Rows(results / "diversity.jsonl").read()
    if not rows:
        return {"diversity": "*No rows yet; this makes them:* `python recipes/claims.py diversity`"}
    lines = [
        [name, right(row, "place_share"), right(row), *(cell(row, partial(shown, key)) for key in MEASURES)]
        for name, row in [(f"γ = {scale:g}", rows.get(f"γ = {scale:g}")) for scale in SCALES]
    ]
    truth = ["held-out stories", "", "", *(cell(rows.get("truth"), partial(shown, key)) for key in MEASURES)]
    return {"diversity": markdown(["", "right place, %", "right stories, %", *MEASURES.values()], [*lines, truth])}


def shown(key: str, row: Mapping[str, Any]) -> str:
    return f"{row[key]:.2f} ± {row[f'{key}_stderr']:.2f}"


def pictures(results: Path) -> dict[str, Svg]:
    rows = Rows(results / "diversity.jsonl").read()
    found = [rows[f"γ = {scale:g}"] for scale in SCALES if f"γ = {scale:g}" in rows]
    curves = tuple(
        Curve(said, tuple(Point(row["scale"], row[key], row[f"{key}_stderr"]) for row in found))
        for key, said in MEASURES.items()
    )
    chart = Chart(
        "Texts of one place", "γ", "share of the texts; self-BLEU", curves, x_ticks=SCALES, top=1.0, width=680
    )
    return {"diversity": chart_picture([chart])}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="CPU minutes of the training")
    add_places(parser, "runs/diversity")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    measure_all(Rows(options.results / "diversity.jsonl"), jobs(options.out, options.minutes), options.only)
