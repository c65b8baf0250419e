"""Common claims about autoregressive models, tested on stories whose probabilities are known.

    python recipes/claims.py --model runs/mdlm_tiny --model runs/ar_tiny

*Errors by position.* Stories are written from scratch; the grammar finds the first wrong word of each. If errors
accumulate, the fraction of stories that are correct so far falls faster and faster.
*Planning.* The last sentence of a story is given: it fixes the hero, the mood at the beginning, the season or the
place, and everything before it must fit. Diffusion fills the hole before it. The autoregressive model writes
`CANDIDATES` beginnings without seeing the end; the one with the likeliest whole story is kept.
Rows go to recipes/results/claims.jsonl, one per model and claim; existing rows are not measured again.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from claim_tables import PLACES
from rows import RESULTS, Rows, cpu_timer, run_recipe

from redraft.core import join_words, split_words
from redraft.core.text.tokenizers import UNKNOWN
from redraft.tasks import TextModel, generate, infill, open_model, score
from redraft.training import (
    STORY_LANGUAGE,
    split_seed,
)
from redraft.training.data.corpora.grammar import (
    _ParseTraversal,
    _PartialStory,
)

CANDIDATES = 8


def right_words(text: str) -> int:
    """How many words come before the first wrong one."""
    follow = _ParseTraversal(split_words(text))
    STORY_LANGUAGE.tale.expand(_PartialStory(), follow)
    return follow.matched


def errors(model: TextModel, count: int) -> dict[str, Any]:
    """The share of stories without a wrong word so far, at some places, and of those right to the end."""
    with cpu_timer() as clock:
        written = generate(model, n=count, seed=1)
    upto = [
        (right_words(text), len(split_words(text)), math.isfinite(STORY_LANGUAGE.log_prob(text)))
        for text in written.texts
    ]
    row: dict[str, Any] = {f"right_at_{at}": _share([n >= min(at, size) for n, size, _ in upto]) for at in PLACES}
    row["right"] = _share([whole for *_, whole in upto])
    return row | {"texts": count, "nfe": written.nfe, "seconds_per_text": clock.seconds / count}


def planning(model: TextModel, count: int) -> dict[str, Any]:
    """The share of right stories whose last sentence is given."""
    stories = [STORY_LANGUAGE.text(split_seed(0, "test"), index) for index in range(count)]
    torn = [_without_beginning(story) for story in stories]
    with cpu_timer() as clock:
        texts, nfe = _filled(model, torn) if model.lm.block is None else _guessed(model, torn)
    right = _share([math.isfinite(STORY_LANGUAGE.log_prob(text)) for text in texts])
    return {"right": right, "texts": count, "nfe": nfe, "seconds_per_text": clock.seconds / count}


def _without_beginning(story: str) -> tuple[int, str]:
    """How many words are lost, and what is left: the last sentence."""
    words = list(split_words(story))
    begin = max(i for i, word in enumerate(words[:-1]) if word == ".") + 1
    return begin, join_words(words[begin:])


def _filled(model: TextModel, torn: Sequence[tuple[int, str]]) -> tuple[list[str], float]:
    filled = infill(model, [f"[[{size}]] {end}" for size, end in torn], sampler="any-order", steps=64)
    return filled.texts, filled.nfe


def _guessed(model: TextModel, torn: Sequence[tuple[int, str]]) -> tuple[list[str], float]:
    guesses = generate(model, n=CANDIDATES * len(torn), seed=2)
    texts: list[str] = []
    for number, (size, end) in enumerate(torn):
        some = guesses.texts[CANDIDATES * number : CANDIDATES * (number + 1)]
        whole = [f"{join_words(split_words(text)[:size])} {end}" for text in some if UNKNOWN not in text]
        bits = [each.bits for each in score(model, whole)]
        texts.append(whole[bits.index(min(bits))])
    return texts, (guesses.nfe + 1) * CANDIDATES


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values)


CLAIMS = {"errors": errors, "planning": planning}


def measured(model: TextModel, claim: str, count: int) -> dict[str, Any]:
    row = CLAIMS[claim](model, count)
    error = math.sqrt(row["right"] * (1 - row["right"]) / count)
    return {"run": model.name, "step": model.step} | row | {"right_stderr": error}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", type=Path, action="append", default=[], help="a model trained on stories; repeatable"
    )
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory for the rows")
    args = parser.parse_args(argv)
    rows = Rows(args.results / "claims.jsonl")
    for path in args.model:
        model = open_model(path)
        for claim in CLAIMS:
            rows.add(f"{path.name}, {claim}", partial(measured, model, claim, args.texts))


if __name__ == "__main__":
    run_recipe(main)
