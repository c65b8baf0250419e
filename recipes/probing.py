"""What the states of a network know: masked diffusion, a 15 % masked language model, left to right.

    redraft train mdlm_tiny && redraft train mlm_tiny && redraft train ar_tiny
    python recipes/probing.py --model runs/mdlm_tiny --model runs/mlm_tiny --model runs/ar_tiny
    python recipes/probing.py tables --write docs/probe.md

Attributes of held-out stories are told from the last twenty words alone, in which they are seldom named: a season by
what is eaten, a mood by how it ends. A linear layer on the mean state, and the same with the network trained along.
Rows go to recipes/results/probing.jsonl, one per model and attribute; a row that is there is not measured again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rows import Rows, commit, cpu, machine
from tables import filled_in, markdown

from redraft.corpora import StoryClasses
from redraft.data import Labelled, evaluation, tokenise
from redraft.evaluate import linear_probe, tuned_probe, windowed
from redraft.write import Opened, opened

TOPICS = ("mood", "season", "where")
LAST, TUNED = 20, 64
NAMES = {"mdlm_tiny": "masked diffusion", "mlm_tiny": "masked language model, 15 %", "ar_tiny": "left to right"}


def probed(it: Opened, topic: str, count: int) -> dict[str, Any]:
    """Both probes of one attribute."""
    assert it.run is not None
    framing, vocab = Labelled(it.run.framing.length), it.model.config.vocab
    train, test = (
        [
            windowed(batch, vocab, None, LAST)
            for batch in evaluation(tokenise(StoryClasses(topic), split, it.tokenizer, framing), count, 32)
        ]
        for split in ("train", "test")
    )
    with cpu() as clock:
        linear, tuned = linear_probe(it.model, train, test), tuned_probe(it.model, train, test, TUNED)
    row = {"run": it.name, "step": it.step, "topic": topic, "last": LAST, "texts": count, "tuned_steps": TUNED}
    row |= {"linear": linear.accuracy, "linear_stderr": linear.accuracy_stderr, "majority": linear.majority}
    row |= {"tuned": tuned.accuracy, "tuned_stderr": tuned.accuracy_stderr, "seconds": clock.seconds}
    return row | {"commit": commit(), "machine": machine()}


def probe_table(results: Path) -> str:
    held = Rows(results / "probing.jsonl").held()
    head = ["model", *(f"{topic}, {way}" for topic in TOPICS for way in ("linear", "tuned"))]
    lines = [
        [name, *(_share(held.get(f"{model}, {topic}"), way) for topic in TOPICS for way in ("linear", "tuned"))]
        for model, name in NAMES.items()
    ]
    most = [next((row for row in held.values() if row["topic"] == topic), None) for topic in TOPICS]
    chance = [cell for row in most for cell in ([f"{100 * row['majority']:.0f}"] * 2 if row else ["–"] * 2)]
    return markdown(head, [*lines, ["the commonest class", *chance]])


def _share(row: dict[str, Any] | None, way: str) -> str:
    return "–" if row is None else f"{100 * row[way]:.0f} ± {100 * row[f'{way}_stderr']:.0f}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("measure", "tables"), default="measure")
    parser.add_argument("--model", type=Path, action="append", default=[], help="a trained model; several are fine")
    parser.add_argument("--texts", type=int, default=512, help="to learn from, and as many to measure on")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--write", type=Path, help="with `tables`: the page to fill in")
    told = parser.parse_args(argv)
    rows = Rows(told.results / "probing.jsonl")
    for path in told.model:
        it = opened(path)
        for topic in TOPICS:
            rows.add(f"{path.name}, {topic}", partial(probed, it, topic, told.texts))
    if told.what == "tables":
        table = probe_table(told.results)
        print(table)
        if told.write is not None:
            told.write.write_text(filled_in(told.write.read_text("utf-8"), {"probing": table}), "utf-8")


if __name__ == "__main__":
    main()
