"""Parts of speech → text: how well they are kept, and what it costs in fluency, over the strength of guidance γ.

    redraft train mdlm_tiny && redraft train ar_tiny
    python recipes/control.py --model runs/mdlm_tiny --model runs/ar_tiny --judge runs/ar_tiny
    python recipes/control.py --write docs/pictures/control.svg

Targets are the parts of speech of held-out stories, from the grammar itself. Every model writes one text for each, with
the same control: at each place x̂ is weighed by p(part of speech | word)^γ, and "demanded" allows nothing else. With the
autoregressive model that is FUDGE whose discriminator sees the present word alone, not what is to come. A model of mask
noise writes the places first that are nearly decided; its second curve is any order. Both models were trained for the
2,000 steps of their presets and take one network call per word. Fluency is the truth of the embedded language: the
share of texts that are stories, and their log-probability per word; the judge's perplexity covers all texts. Rows go to
recipes/results/control.jsonl; a row that is there is not measured again.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from rows import Rows, cpu

from redraft.corpora import STORIES, split_seed, tags_of
from redraft.evaluate import ModelJudge, generative_perplexity
from redraft.text import split_words
from redraft.write import Opened, control, opened

SCALES: Mapping[str, dict[str, Any]] = {
    "free": {"scale": 0.0},
    "γ = 0.25": {"scale": 0.25},
    "γ = 0.5": {"scale": 0.5},
    "γ = 1": {"scale": 1.0},
    "γ = 2": {"scale": 2.0},
    "demanded": {},
}


def measured(it: Opened, judge: Path, options: dict[str, Any], count: int) -> dict[str, Any]:
    """One text for the parts of speech of each held-out story."""
    stories = [STORIES.text(split_seed(0, "test"), index) for index in range(count)]
    wanted = [tags_of(story) for story in stories]
    with cpu() as clock:
        found = [control(it, pos=" ".join(tags), seed=i, **options) for i, tags in enumerate(wanted)]
    texts = [record[0].text for record in found]
    right = [
        sum(a == b for a, b in zip(tags_of(text), tags, strict=False)) / len(tags)
        for text, tags in zip(texts, wanted, strict=True)
    ]
    true = [STORIES.log_prob(text) for text in texts]
    inside = [log_p / len(split_words(text)) for log_p, text in zip(true, texts, strict=True) if log_p > -math.inf]
    return {
        "run": it.name,
        "step": it.step,
        "targets": count,
        "success": sum(right) / count,
        "all_right": sum(share == 1 for share in right) / count,
        "success_stderr": math.sqrt(sum((share - sum(right) / count) ** 2 for share in right)) / count,
        "grammatical": len(inside) / count,
        "true_nats_per_word": -sum(inside) / len(inside) if inside else None,
        "perplexity": generative_perplexity(texts, ModelJudge(opened(judge).model)).perplexity,
        "nfe": sum(record.nfe for record in found) / count,
        "seconds_per_text": clock.seconds / count,
        "example": texts[0],
    }


# --- the picture ---

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 560, 398, 64, 536, 48, 300  # pixels
LOW = 0.8  # of the axis of success
STYLE = (
    "text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#62666d}.name{fill:#23262b}"
    ".end{text-anchor:end}.middle{text-anchor:middle}.card{fill:#fffdf8;stroke:#e4dfd3}.grid{stroke:#e5e1d7}"
    "path{fill:none;stroke-width:1.6}.c0{stroke:#3b5bdb;color:#3b5bdb}.c1{stroke:#c2570c;color:#c2570c}"
    ".c2{stroke:#2b8a3e;color:#2b8a3e}"
    "circle{fill:currentColor}@media(prefers-color-scheme:dark){text{fill:#9a9fa8}.name{fill:#e6e4df}"
    ".card{fill:#1e2128;stroke:#31353e}.grid{stroke:#31353e}.c0{stroke:#91a7ff;color:#91a7ff}"
    ".c1{stroke:#ff9f5a;color:#ff9f5a}.c2{stroke:#69db7c;color:#69db7c}}"
)


def drawn(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Fluency against success, a curve over γ for each model."""
    models = list(dict.fromkeys(name.split(", ")[0] for name in rows))
    curves = {model: [rows[f"{model}, {way}"] for way in SCALES if f"{model}, {way}" in rows] for model in models}
    said = "; ".join(
        f"{m}: " + ", ".join(f"{r['success']:.0%} right, {r['grammatical']:.0%} stories" for r in rs)
        for m, rs in curves.items()
    )
    parts = [*_axes(), *(part for i, (model, some) in enumerate(curves.items()) for part in _curve(i, model, some))]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(said)}"><style>{STYLE}</style>'
        f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="10"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _axes() -> Iterator[str]:
    yield f'<text class="name" x="{LEFT}" y="28">stories, %, against right parts of speech, %</text>'
    for share in (0, 0.25, 0.5, 0.75, 1):
        yield f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{_y(share):.1f}" y2="{_y(share):.1f}"/>'
        yield f'<text class="end" x="{LEFT - 8}" y="{_y(share) + 4:.1f}">{100 * share:.0f}</text>'
    for share in (0.8, 0.85, 0.9, 0.95, 1):
        yield f'<text class="middle" x="{_x(share):.1f}" y="{BOTTOM + 20}">{100 * share:.0f}</text>'


def _curve(number: int, model: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    places = [(_x(row["success"]), _y(row["grammatical"])) for row in rows]
    yield f'<path class="c{number % 3}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in places)}"/>'
    yield from (f'<circle class="c{number % 3}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in places)
    y = BOTTOM + 46 + 18 * number
    yield f'<circle class="c{number % 3}" cx="{LEFT}" cy="{y - 4}" r="3.5"/>'
    ways = ", ".join(row["name"].partition(", ")[2] for row in rows)
    yield f'<text x="{LEFT + 10}" y="{y}">{escape(model)}: {escape(ways)}</text>'


def _x(success: float) -> float:
    return LEFT + (RIGHT - LEFT) * (max(success, LOW) - LOW) / (1 - LOW)


def _y(share: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * share


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", type=Path, action="append", default=[], help="a trained model of words; several are fine"
    )
    parser.add_argument("--judge", type=Path, help="a trained causal model")
    parser.add_argument("--targets", type=int, default=64)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--write", type=Path, help="draw the rows into this file")
    options = parser.parse_args(argv)
    rows = Rows(options.results / "control.jsonl")
    for path in options.model:
        it = opened(path)
        orders = (
            {"": {}, " in any order": {"sampler": "any-order", "steps": 68}} if it.model.block is None else {"": {}}
        )
        for order, more in orders.items():
            for way, settings in SCALES.items():
                found = partial(measured, it, options.judge, {**settings, **more}, options.targets)
                rows.add(f"{path.name}{order}, {way}", found)
    if options.write is not None:
        options.write.write_text(drawn(rows.held()), "utf-8")


if __name__ == "__main__":
    main()
