"""What the states of a network know: masked diffusion, a 15 % masked language model, left to right.

    redraft train mdlm_tiny && redraft train mlm_tiny && redraft train ar_tiny
    python recipes/probing.py --model runs/mdlm_tiny --model runs/mlm_tiny --model runs/ar_tiny
    python recipes/probing.py authors --prose PATH --wiki PATH      # real text: trains on it, as recipes/letters.py
    python recipes/probing.py tables --write docs/probe.md

*Stories.* Attributes of held-out stories are told from the last twenty words alone, in which they are seldom named: a
season by what is eaten, a mood by how it ends.
*Authors.* Pieces of 256 letters of four authors who have two books or more in the folder: which of them wrote it? A
piece to be told is never of a book whose label was seen. The models read books and WikiText-2 in 27 letters.
Both: a linear layer on the mean state, and the same with the network trained along. Rows go to
recipes/results/probing.jsonl, one per model and question; a row that is there is not measured again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import letters
import torch
from rows import Rows, add_page, commit, cpu, machine, trained
from spellers import in_letters, paragraphs
from tables import filled_in, markdown, right

from redraft.corpora import StoryClasses
from redraft.data import JsonlClasses, Labelled, Split, evaluation, tokenise
from redraft.evaluate import linear_probe, tuned_probe, windowed
from redraft.model import DiffusionLM
from redraft.runs import Run
from redraft.types import Batch
from redraft.write import Opened, opened

TOPICS = ("mood", "season", "where")
AUTHORS = ("charles-dickens", "h-g-wells", "jane-austen", "mark-twain")
LAST, TUNED = 20, 64
NAMES = {"mdlm_tiny": "masked diffusion", "mlm_tiny": "masked language model, 15 %", "ar_tiny": "left to right"}


def probed(it: Opened, topic: str, count: int) -> dict[str, Any]:
    """Both probes of one attribute."""
    assert it.run is not None
    train, test = (classed(it.run, StoryClasses(topic), split, count, LAST) for split in ("train", "test"))
    row = {"run": it.name, "step": it.step, "topic": topic, "last": LAST, "texts": count, "tuned_steps": TUNED}
    return row | both(it.model, train, test) | {"commit": commit(), "machine": machine()}


def classed(run: Run, data: StoryClasses | JsonlClasses, split: Split, count: int, last: int | None) -> list[Batch]:
    """Rows with their classes, as far as a probe may look."""
    framing = Labelled(run.framing.length, tail=not run.framing.padded)
    found = evaluation(tokenise(data, split, run.tokenizer, framing), count, 32)
    return [windowed(batch, run.model.vocab, None, last) for batch in found]


def both(model: DiffusionLM, train: Sequence[Batch], test: Sequence[Batch]) -> dict[str, float]:
    with cpu() as clock:
        linear, tuned = linear_probe(model, train, test), tuned_probe(model, train, test, TUNED)
    row = {"linear": linear.accuracy, "linear_stderr": linear.accuracy_stderr, "majority": linear.majority}
    return row | {"tuned": tuned.accuracy, "tuned_stderr": tuned.accuracy_stderr, "seconds": clock.seconds}


# --- real text ---


def author_files(prose: Path, out: Path, each: int) -> JsonlClasses:
    """Pieces of every author in turn: to learn from of all their books but the last, to measure on of that one."""
    files = [out / f"authors.{split}.jsonl" for split in ("train", "test")]
    out.mkdir(parents=True, exist_ok=True)
    for file, some in zip(files, (slice(None, -1), slice(-1, None)), strict=True):
        turns = zip(*(_pieces(_books(prose, author)[some], each) for author in AUTHORS), strict=True)
        pairs = (pair for turn in turns for pair in zip(AUTHORS, turn, strict=True))
        file.write_text("".join(json.dumps({"text": piece, "label": author}) + "\n" for author, piece in pairs))
    train, test = map(str, files)
    return JsonlClasses((train,), (test,), (test,), classes=AUTHORS)


def _books(prose: Path, author: str) -> list[Path]:
    found = sorted(prose.glob(f"{author}_*.txt"))
    if len(found) < 2:
        raise SystemExit(f"{prose} has {len(found)} books {author}_*.txt; two are needed, one of them to measure on")
    return found


def _pieces(books: Sequence[Path], count: int) -> list[str]:
    """At equal distances."""
    text = in_letters([line for book in books for line in paragraphs(book)])
    step = (len(text) - letters.LENGTH) // count
    return [text[i * step : i * step + letters.LENGTH] for i in range(count)]


def author_row(run: Run, out: Path, minutes: float, data: JsonlClasses, count: int) -> dict[str, Any]:
    made = trained(run, out, minutes)
    train, test = (classed(run, data, split, count, None) for split in ("train", "test"))
    row = {"topic": "author", "letters": letters.LENGTH, "texts": count, "tuned_steps": TUNED}
    return row | both(made.model, train, test) | made.cost()


# --- the table ---


def probe_table(results: Path) -> str:
    held, topics = Rows(results / "probing.jsonl").held(), (*TOPICS, "author")
    head = ["model", *(f"{topic}, {way}" for topic in topics for way in ("linear", "tuned"))]
    lines = [
        [name, *(right(held.get(f"{model}, {topic}"), way) for topic in topics for way in ("linear", "tuned"))]
        for model, name in NAMES.items()
    ]
    most = [next((row for row in held.values() if row["topic"] == topic), None) for topic in topics]
    chance = [cell for row in most for cell in ([f"{100 * row['majority']:.0f}"] * 2 if row else ["–"] * 2)]
    return markdown(head, [*lines, ["the commonest class", *chance]])


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, action="append", default=[], help="a trained model; several are fine")
    parser.add_argument("--texts", type=int, default=512, help="to learn from, and as many to measure on")
    parser.add_argument("--prose", type=Path, help="for `authors`: a folder of books, named author_title.txt")
    parser.add_argument("--wiki", type=Path, help="for `authors`: a folder with the three files of WikiText-2")
    parser.add_argument("--minutes", type=float, default=20.0, help="for `authors`: of one core, for each training")
    parser.add_argument("--out", type=Path, default=Path("runs/letters"), help="for `authors`: where the models go")
    add_page(parser, "authors")
    told = parser.parse_args(argv)
    rows = Rows(told.results / "probing.jsonl")
    for path in told.model:
        it = opened(path)
        for topic in TOPICS:
            rows.add(f"{path.name}, {topic}", partial(probed, it, topic, told.texts))
    if told.what == "authors":
        if told.prose is None or told.wiki is None:
            parser.error("`authors` needs --prose and --wiki")
        torch.set_num_threads(1)
        data = author_files(told.prose, told.out, told.texts // len(AUTHORS))
        for name, run in letters.runs(letters.local(told.prose, told.wiki, told.out), list(NAMES)).items():
            rows.add(f"{name}, author", partial(author_row, run, told.out / name, told.minutes, data, told.texts))
    if told.what == "tables":
        table = probe_table(told.results)
        print(table)
        if told.write is not None:
            told.write.write_text(filled_in(told.write.read_text("utf-8"), {"probing": table}), "utf-8")


if __name__ == "__main__":
    main()
