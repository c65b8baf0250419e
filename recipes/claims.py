"""What is said against writing left to right, as experiments with known truth.

    python recipes/claims.py --model runs/mdlm_tiny --model runs/ar_tiny
    python recipes/claims.py tables --write docs/claims.md

*Errors by position.* Stories are written from nothing; the grammar finds the first wrong word of each. If errors pile
up, the share of stories that are right so far falls faster and faster.
*Planning.* The last sentence of a story is given: it fixes who the story is about, the mood it begins with, the season
or the place, and all before it must fit. Diffusion fills the hole before it. Left to right the beginning is written
blindly; of `CANDIDATES` beginnings the one is taken with which the whole story is likeliest.
Rows go to recipes/results/claims.jsonl, one per model and claim; a row that is there is not measured again.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from picture import STYLE, TOKENS, VECTORS
from rows import Rows, commit, cpu, machine
from tables import filled_in, markdown

from redraft.corpora import STORIES, Follow, Telling, split_seed
from redraft.text import UNKNOWN, spell, split_words
from redraft.write import Opened, generate, infill, opened, score

PLACES = (10, 20, 30, 40, 50)
CANDIDATES = 8
KINDS = (TOKENS, VECTORS)  # the colours of the two
NAMES = {"mdlm_tiny": "masked diffusion", "ar_tiny": "left to right"}


def right_words(text: str) -> int:
    """How many words come before the first wrong one."""
    follow = Follow(split_words(text))
    STORIES.tale.tell(Telling(), follow)
    return follow.reach


def errors(it: Opened, count: int) -> dict[str, Any]:
    """The share of stories without a wrong word so far, at some places, and of those right to the end."""
    with cpu() as clock:
        found = generate(it, n=count, seed=1)
    upto = [(right_words(text), len(split_words(text)), math.isfinite(STORIES.log_prob(text))) for text in found.texts]
    row: dict[str, Any] = {f"right_at_{at}": _share([n >= min(at, size) for n, size, _ in upto]) for at in PLACES}
    row["right"] = _share([whole for *_, whole in upto])
    return row | {"texts": count, "nfe": found.nfe, "seconds_per_text": clock.seconds / count}


def planning(it: Opened, count: int) -> dict[str, Any]:
    """The share of right stories whose last sentence is given."""
    stories = [STORIES.text(split_seed(0, "test"), index) for index in range(count)]
    torn = [_without_beginning(story) for story in stories]
    with cpu() as clock:
        texts, nfe = _filled(it, torn) if it.model.block is None else _guessed(it, torn)
    right = _share([math.isfinite(STORIES.log_prob(text)) for text in texts])
    return {"right": right, "texts": count, "nfe": nfe, "seconds_per_text": clock.seconds / count}


def _without_beginning(story: str) -> tuple[int, str]:
    """How many words are lost, and what is left: the last sentence."""
    words = list(split_words(story))
    begin = max(i for i, word in enumerate(words[:-1]) if word == ".") + 1
    return begin, spell(words[begin:])


def _filled(it: Opened, torn: Sequence[tuple[int, str]]) -> tuple[list[str], float]:
    found = infill(it, [f"[[{size}]] {end}" for size, end in torn], sampler="any-order", steps=64)
    return found.texts, found.nfe


def _guessed(it: Opened, torn: Sequence[tuple[int, str]]) -> tuple[list[str], float]:
    found = generate(it, n=CANDIDATES * len(torn), seed=2)
    texts: list[str] = []
    for number, (size, end) in enumerate(torn):
        some = found.texts[CANDIDATES * number : CANDIDATES * (number + 1)]
        whole = [f"{spell(split_words(text)[:size])} {end}" for text in some if UNKNOWN not in text]
        bits = [each.bits for each in score(it, whole)]
        texts.append(whole[bits.index(min(bits))])
    return texts, (found.nfe + 1) * CANDIDATES


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values)


CLAIMS = {"errors": errors, "planning": planning}


def measured(it: Opened, claim: str, count: int) -> dict[str, Any]:
    found = CLAIMS[claim](it, count)
    error = math.sqrt(found["right"] * (1 - found["right"]) / count)
    return {"run": it.name, "step": it.step} | found | {"right_stderr": error, "commit": commit(), "machine": machine()}


def claim_tables(results: Path) -> dict[str, str]:
    held = Rows(results / "claims.jsonl").held()
    by = {name: [held.get(f"{model}, {name}") for model in NAMES] for name in CLAIMS}
    places = [
        [said, *("–" if row is None else f"{100 * row[f'right_at_{at}']:.0f}" for at in PLACES), _right(row)]
        for said, row in zip(NAMES.values(), by["errors"], strict=True)
    ]
    plans = [
        [said, _right(row), "–" if row is None else f"{row['nfe']:.0f}"]
        for said, row in zip(NAMES.values(), by["planning"], strict=True)
    ]
    return {
        "errors": markdown(["% right up to word", *map(str, PLACES), "the end"], places),
        "planning": markdown(["way", "% right stories", "network calls"], plans),
    }


# --- the picture ---


def drawn(held: Mapping[str, dict[str, Any]]) -> str:
    """Stories that are right so far, against the place; and stories that are right if their end is given."""
    found = [(i, held.get(f"{model}, errors"), held.get(f"{model}, planning")) for i, model in enumerate(NAMES)]
    curves = [_curve(i, row) for i, row, _ in found if row is not None]
    bars = [_bar(i, row) for i, _, row in found if row is not None]
    ticks = [
        f'<line class="grid" x1="60" x2="440" y1="{_up(s):.1f}" y2="{_up(s):.1f}"/>'
        f'<text class="end" x="52" y="{_up(s) + 4:.1f}">{s}</text>'
        for s in (0, 50, 100)
    ]
    places = [f'<text class="middle" x="{_along(at):.1f}" y="216">{at}</text>' for at in (0, *PLACES)]
    places.append('<text class="end" x="444" y="216">end</text>')
    keys = [
        f'<circle class="{KINDS[i]}" cx="{70 + 160 * i}" cy="44" r="5"/><text x="{82 + 160 * i}" y="48">{name}</text>'
        for i, name in enumerate(NAMES.values())
    ]
    titles = (
        '<text class="name" x="20" y="26">stories right so far, %, by word</text>'
        '<text class="name" x="490" y="26">right, if the end is given, %</text>'
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 842 230" width="842" height="230" role="img" '
        f'aria-label="Errors by position, and planning"><style>{STYLE}.curve{{fill:none;stroke-width:2.5}}'
        ".curve.tokens{stroke:#3b5bdb}.curve.vectors{stroke:#c2570c}@media(prefers-color-scheme:dark)"
        "{.curve.tokens{stroke:#8ea6ff}.curve.vectors{stroke:#ffa05c}}</style>"
        '<rect class="card" x=".5" y=".5" width="841" height="229" rx="10"/>\n'
        + "\n".join([titles, *keys, *ticks, *places, *curves, *bars])
        + "\n</svg>\n"
    )


def _curve(number: int, row: Mapping[str, Any]) -> str:
    points = [(0, 100.0), *((at, 100 * row[f"right_at_{at}"]) for at in PLACES), (66, 100 * row["right"])]
    line = " ".join(f"{_along(at):.1f},{_up(share):.1f}" for at, share in points)
    return f'<polyline class="curve {KINDS[number]}" points="{line}" style="fill:none"/>'


def _bar(number: int, row: Mapping[str, Any]) -> str:
    y, length = 80 + 50 * number, 250 * row["right"]
    error = 250 * row["right_stderr"]
    return (
        f'<rect class="{KINDS[number]} bar" x="490" y="{y}" width="{length:.1f}" height="22" rx="2"/>'
        f'<path class="error" d="M{490 + length - error:.1f} {y + 11}h{2 * error:.1f}"/>'
        f'<text x="{500 + length + error:.1f}" y="{y + 16}">{100 * row["right"]:.0f}, {row["nfe"]:.0f} calls</text>'
    )


def _along(place: float) -> float:
    return 60 + 380 * place / 66


def _up(share: float) -> float:
    return 196 - 1.3 * share


def _right(row: dict[str, Any] | None) -> str:
    return "–" if row is None else f"{100 * row['right']:.0f} ± {100 * row['right_stderr']:.0f}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("measure", "tables"), default="measure")
    parser.add_argument("--model", type=Path, action="append", default=[], help="a trained model of stories")
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--write", type=Path, help="with `tables`: the page to fill in")
    told = parser.parse_args(argv)
    rows = Rows(told.results / "claims.jsonl")
    for path in told.model:
        it = opened(path)
        for claim in CLAIMS:
            rows.add(f"{path.name}, {claim}", partial(measured, it, claim, told.texts))
    if told.what == "tables" and told.write is not None:
        page = filled_in(told.write.read_text("utf-8"), claim_tables(told.results))
        told.write.write_text(page, "utf-8")
        (told.write.parent / "pictures" / "claims.svg").write_text(drawn(rows.held()), "utf-8")


if __name__ == "__main__":
    main()
