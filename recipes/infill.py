"""Infilling when the length of a hole is unknown: accuracy on held-out stories with words cut out.

    redraft train mdlm_tiny && redraft train flex_tiny
    python recipes/infill.py --model runs/mdlm_tiny --model runs/flex_tiny

One or two spans of 1 to 8 words are cut out of each story of the test stream. A hole counts as right if it gets exactly
the words that were cut out. Often the context does not determine them (a name, a color), so the true length does not
give 100 % either: the goal is 85 % of its accuracy. Rows go to recipes/results/infill.jsonl, one per model and number
of holes; existing rows are not measured again.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from rows import Rows, cpu_timer, run_recipe

from redraft.core import join_words, split_words
from redraft.tasks import TextModel, infill, open_model
from redraft.training import STORY_LANGUAGE, split_seed

LONGEST = 8  # words of a hole
GOAL = 0.85


class Torn(NamedTuple):
    """A story with holes, and what was in them."""

    words: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]

    def template(self, hole: str | None = None) -> str:
        """With holes of the true lengths, or with this one at each place."""
        words = list(self.words)
        for begin, end in reversed(self.spans):
            words[begin:end] = [f"[[{end - begin}]]" if hole is None else hole]
        return join_words(words)

    @property
    def lost(self) -> list[tuple[str, ...]]:
        return [self.words[begin:end] for begin, end in self.spans]


def torn(index: int, holes: int) -> Torn:
    """Story number `index` of the test stream, with holes that do not touch each other or the ends."""
    words, draw = split_words(STORY_LANGUAGE.text(split_seed(0, "test"), index)), Random(f"{index}/{holes}")
    while True:
        sizes = [draw.randint(1, LONGEST) for _ in range(holes)]
        begins = sorted(draw.sample(range(1, len(words) - LONGEST), holes))
        spans = tuple((begin, begin + size) for begin, size in zip(begins, sizes, strict=True))
        if all(end < begin for (_, end), (begin, _) in pairwise(spans)):
            return Torn(words, spans)


def right(result: Any, story: Torn) -> list[bool]:
    return [split_words(fill) == lost for fill, lost in zip(result.fills, story.lost, strict=True)]


def measured(model: TextModel, stories: Sequence[Torn], hole: str | None) -> dict[str, Any]:
    """How many holes are right, how many have the right length, how many stories are grammatical, and the cost."""
    options: dict[str, Any] = {"room": 32, "temperature": 0.0, "sampler": "confidence", "steps": 64}
    if model.lm.process.grows:
        options |= {"temperature": None, "sampler": "own"}
    with cpu_timer() as clock:
        results = infill(model, [story.template(hole) for story in stories], **options)
    holes = [yes for text, story in zip(results, stories, strict=True) for yes in right(text, story)]
    sizes = [
        len(split_words(fill)) == len(lost)
        for text, story in zip(results, stories, strict=True)
        for fill, lost in zip(text.fills, story.lost, strict=True)
    ]
    inside = [STORY_LANGUAGE.log_prob(text.text) > -math.inf for text in results]
    means = {"right": holes, "length_right": sizes, "grammatical": inside}
    shares = {name: sum(values) / len(values) for name, values in means.items()}
    return shares | {"nfe": results.nfe, "seconds_per_text": clock.seconds / len(stories)}


def compared(model: TextModel, count: int, holes: int) -> dict[str, Any]:
    stories = [torn(index, holes) for index in range(count)]
    ways: dict[str, str | None] = {"true": None, "free": "[[*]]", "range": f"[[1-{LONGEST}]]"}
    if model.lm.process.grows:
        ways.pop("range")
    by_way = {way: measured(model, stories, hole) for way, hole in ways.items()}
    true = by_way["true"]["right"]
    kept = by_way["free"]["right"] / true
    error = math.sqrt(true * (1 - true) / (count * holes)) / true
    row = {"run": model.name, "step": model.step, "stories": count, "holes": holes, "kept": kept, "kept_stderr": error}
    return row | {"goal": GOAL, "reached": kept >= GOAL} | by_way


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, action="append", required=True, help="a trained model; repeatable")
    parser.add_argument("--stories", type=int, default=200)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args(argv)
    for path in options.model:
        for holes in (1, 2):
            name = f"{path.name}, {holes} hole{'s' * (holes > 1)}"
            rows = Rows(options.results / "infill.jsonl")
            rows.add(name, lambda path=path, holes=holes: compared(open_model(path), options.stories, holes))  # type: ignore[misc]


if __name__ == "__main__":
    run_recipe(main)
