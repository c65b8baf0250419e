"""`python recipes/holes.py --data FILE`: how often `infill smol` fills a hole in English text exactly.

Words of one token, spans of 2 to 4 tokens that begin and end with a word, and parts of words are cut out of sentences
(the last 2 to 4 letters, so the hole touches a letter on its left), with up to 32 words before the hole and 6 after it.
Each hole is filled twice: as `infill` does, with rules for the given text in the tokens of the hole, and without them,
where only the space before a hole is left to it. Rows: recipes/results/holes.jsonl.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest import mock

from rows import Rows, run_recipe

from redraft.tasks import TextModel, infill, open_model
from redraft.tasks.infilling import infilling

BEFORE, AFTER = 32, 6  # words of context


class Cut(NamedTuple):
    template: str
    lost: str


def cuts(model: TextModel, text: str, kind: str, count: int) -> list[Cut]:
    """Random cuts of one kind, the same for the same text."""
    words, draw, chosen = text.split(), Random(f"{kind} {len(text)}"), list[Cut]()
    while len(chosen) < count:
        at = draw.randrange(BEFORE, len(words) - AFTER - 4)
        chosen += _cut(model, words, at, kind, draw)
    return chosen[:count]


def _cut(model: TextModel, words: list[str], at: int, kind: str, draw: Random) -> Iterator[Cut]:
    """The cut at a word, if it is possible there."""
    size = draw.randint(2, 4) if kind == "spans" else 1
    lost, encode = words[at : at + size], model.tokenizer.encode_inside
    match = re.fullmatch(r"(.*?)([a-z]+)(\W*)", lost[-1])
    if match is None or (size == 1 and match[1]) or any(re.search(r"[^A-Za-z]", word) for word in lost[:-1]):
        return
    before, after = " ".join(words[at - BEFORE : at]), " ".join(words[at + size : at + size + AFTER])
    inside = " ".join([*lost[:-1], match[1] + match[2]])
    kept = "" if kind != "parts" else inside[: -draw.randint(2, 4)]
    tokens = len(encode(f" {inside}"))
    if (kind == "words" and tokens > 1) or (kind == "parts" and (len(kept) < 2 or tokens < 2)):
        return
    hole = f"[[1-{tokens}]]" if kind == "parts" else f"[[{tokens}]]"
    yield Cut(f"{before} {kept}{hole}{match[3]} {after}", inside[len(kept) :])


def measure(model: TextModel, text: str, kind: str, count: int, spec: str) -> dict[str, Any]:
    chosen = cuts(model, text, kind, count)
    ways = {}
    for way in ("with rules", "without"):
        with mock.patch.object(infilling, "_rules_work", infilling._rules_work if way == "with rules" else _never):
            filled = [infill(model, cut.template)[0] for cut in chosen]
        right = [result.fills[0] == cut.lost for result, cut in zip(filled, chosen, strict=True)]
        ways[way] = sum(right) / count
    examples = [[cut.template, cut.lost] for cut in chosen[:3]]
    return {"model": spec, "run": model.name, "kind": kind, "holes": count, "right": ways, "examples": examples}


def _never(*_: object) -> bool:
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a file of English text")
    parser.add_argument("--model", default="smol")
    parser.add_argument("--count", type=int, default=60, help="words; half as many spans and parts of words")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    model, text = open_model(args.model), args.data.read_text("utf-8")
    rows = Rows(args.results / "holes.jsonl")
    for kind, count in (("words", args.count), ("parts", args.count // 2), ("spans", args.count // 2)):
        name = f"{Path(args.model).name}, {kind}"
        rows.add(name, partial(measure, model, text, kind, count, args.model))


if __name__ == "__main__":
    run_recipe(main)
