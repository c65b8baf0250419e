"""What do the hidden states of masked diffusion, a 15 % masked language model and an autoregressive model know?

    redraft train mdlm_tiny && redraft train mlm_tiny && redraft train ar_tiny
    python recipes/probing.py --model runs/mdlm_tiny --model runs/mlm_tiny --model runs/ar_tiny       # two CPU minutes
    python recipes/spelling.py --only prose prose_ar --prose PATH   # trains models of real words
    python recipes/probing.py authors --prose PATH --model runs/spelling/prose --model runs/spelling/prose_ar

*Stories.* Attributes of held-out stories are predicted from the last twenty words alone, which seldom name them: a
season from what is eaten, a mood from the ending.
*Authors.* The author of sixty words, one of four with two books or more in the directory. Test pieces come from books
that are not in the training set of the probe.
Both use a linear layer on the mean hidden state, with the network frozen or fine-tuned. Rows go to
recipes/results/probing.jsonl, one per model and question; existing rows are not measured again.
Answer: docs/results/probe.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from results_pages.tables import markdown, right
from rows import RESULTS, Rows, cpu_timer, run_recipe
from spelling_parts.spellers import paragraphs

from redraft.core import Batch, join_words, split_words
from redraft.evaluation import linear_probe, tuned_probe, window_batch
from redraft.models import DiffusionLM
from redraft.tasks import TextModel, open_model
from redraft.training import JsonlClasses, LabeledRows, Run, Split, StoryClasses, first_batches, load_rows

TOPICS = ("mood", "season", "where")
PIECE = 60  # words
REAL = {"mdlm_tiny": "prose", "mlm_tiny": "prose_mlm", "ar_tiny": "prose_ar"}  # the same methods on real words
AUTHORS = ("charles-dickens", "h-g-wells", "jane-austen", "mark-twain")
LAST, TUNED = 20, 64
NAMES = {"mdlm_tiny": "masked diffusion", "mlm_tiny": "masked language model, 15 %", "ar_tiny": "autoregressive"}


def probed(model: TextModel, topic: str, count: int) -> dict[str, Any]:
    """Both probes of one attribute."""
    assert model.run is not None
    train, test = (classed(model.run, StoryClasses(topic), split, count, LAST) for split in ("train", "test"))
    row = {"run": model.name, "step": model.step, "topic": topic, "last": LAST, "texts": count, "tuned_steps": TUNED}
    return row | both(model.lm, train, test)


def classed(run: Run, data: StoryClasses | JsonlClasses, split: Split, count: int, last: int | None) -> list[Batch]:
    """Rows with their classes, as far as a probe may look."""
    framing = LabeledRows(run.framing.length, fill_with_eos=not run.framing.padded)
    batches = first_batches(load_rows(data, split, run.tokenizer, framing), count, 32)
    return [window_batch(batch, run.model.vocab, None, last) for batch in batches]


def both(model: DiffusionLM, train: Sequence[Batch], test: Sequence[Batch]) -> dict[str, float]:
    with cpu_timer() as clock:
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
    books = sorted(prose.glob(f"{author}_*.txt"))
    if len(books) < 2:
        raise SystemExit(f"{prose} has {len(books)} books {author}_*.txt; two are needed, one of them for the test")
    return books


def _pieces(books: Sequence[Path], count: int) -> list[str]:
    """At equal distances."""
    words = [word for book in books for line in paragraphs(book) for word in split_words(line)]
    step = (len(words) - PIECE) // count
    return [join_words(words[i * step : i * step + PIECE]) for i in range(count)]


def author_row(model: TextModel, data: JsonlClasses, count: int) -> dict[str, Any]:
    assert model.run is not None
    train, test = (classed(model.run, data, split, count, None) for split in ("train", "test"))
    row = {"run": model.name, "step": model.step, "topic": "author", "words": PIECE, "texts": count}
    return row | {"tuned_steps": TUNED} | both(model.lm, train, test)


# --- the table ---


def tables(results: Path) -> dict[str, str]:
    held, topics = Rows(results / "probing.jsonl").read(), (*TOPICS, "author")
    head = ["model", *(f"{topic}, {way}" for topic in topics for way in ("linear", "tuned"))]
    held |= {f"{model}, author": held[f"{real}, author"] for model, real in REAL.items() if f"{real}, author" in held}
    lines = [
        [name, *(right(held.get(f"{model}, {topic}"), way) for topic in topics for way in ("linear", "tuned"))]
        for model, name in NAMES.items()
    ]
    most = [next((row for row in held.values() if row["topic"] == topic), None) for topic in topics]
    chance = [cell for row in most for cell in ([f"{100 * row['majority']:.0f}"] * 2 if row else ["–"] * 2)]
    return {"probing": markdown(head, [*lines, ["the commonest class", *chance]])}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, action="append", default=[], help="a trained model; repeatable")
    parser.add_argument("--texts", type=int, default=512, help="training texts, and as many test texts")
    parser.add_argument("--prose", type=Path, help="for `authors`: a directory of books, named author_title.txt")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/probing"), help="for `authors`: directory for the pieces"
    )
    parser.add_argument("what", nargs="?", choices=("stories", "authors"), default="stories")
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory for the rows")
    args = parser.parse_args(argv)
    if args.what == "authors" and args.prose is None:
        parser.error("`authors` needs --prose, a directory of books")
    rows = Rows(args.results / "probing.jsonl")
    data = author_files(args.prose, args.out, args.texts // len(AUTHORS)) if args.what == "authors" else None
    for path in args.model:
        model = open_model(path)
        for topic in TOPICS if data is None else ():
            rows.add(f"{path.name}, {topic}", partial(probed, model, topic, args.texts))
        if data is not None:
            rows.add(f"{path.name}, author", partial(author_row, model, data, args.texts))


if __name__ == "__main__":
    run_recipe(main)
