"""The table of multinomial diffusion: 27 characters by the protocol of text8, all methods under the same budget.

    python recipes/letters.py --prose PATH --wiki PATH      # books and WikiText-2, in the 27 characters of text8
    python recipes/letters.py --text8 PATH                  # text8 itself
    python recipes/letters.py --prose PATH --wiki PATH --sets ptb=FILE tinystories=FILE     # other test sets

Rows have 256 characters and start anywhere. The table gives bits per character of the test text: exact for the
autoregressive model, else in continuous time and for chains of 1000 and 4000 steps, as in the paper. Each method trains
for 20 CPU minutes of one core. With `--sets`, the models are measured on other kinds of text (zero-shot perplexity).
That text is detokenized, if there are rules for its name, and reduced to the same characters.
Rows go to recipes/results/letters.jsonl (letters_sets.jsonl) as they are finished, models to runs/letters; an
interrupted recipe continues where it stopped.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rows import Rows, add_places, measure_all, run_recipe, trained
from spellers import in_letters, paragraphs, write_letters

from redraft.apps.cli.commands.measure.eval import parse_named_sets
from redraft.core import CharTokenizer
from redraft.core.text.tokenizers import TEXT8
from redraft.models import Causal
from redraft.training import (
    Bound,
    Corpus,
    HeldOut,
    PackedRows,
    Run,
    Text8,
    TextFiles,
    detokenize_text,
    detokenizer_for,
    likelihood,
    presets,
    target_texts,
)
from redraft.training.runs import variations

LENGTH, BATCH = 256, 16
CHAINS = (1000, 4000)
NAMES = ("ar_tiny", "mdlm_tiny", "udlm_tiny", "multinomial_tiny")


def local(prose: Path, wiki: Path, out: Path) -> TextFiles:
    """Books and WikiText-2 to learn from, its valid and test parts to measure on."""
    file = out / "letters.txt"
    write_letters(prose, wiki, file)
    test = file.with_suffix(".test")
    if not test.exists():
        test.write_text(in_letters(paragraphs(wiki / "test.txt")))
    parts = ((str(file),), (str(file.with_suffix(".valid")),), (str(test),))
    return TextFiles(*parts, split_by="file", max_line=10**9)


def runs(data: Corpus) -> dict[str, Run]:
    """One network of four layers, rotary positions; the methods differ in noise, attention and loss alone."""
    sizes: dict[str, Any] = {"layers": 4, "positions": None, "rotary": 10_000.0}
    letters = CharTokenizer(TEXT8)
    made = {name: presets.PRESETS[name]().with_tokenizer(letters) for name in NAMES}
    return {
        name: replace(variations.with_network(run, **sizes), data=data, framing=PackedRows(LENGTH), batch=BATCH)
        for name, run in made.items()
    }


def row(run: Run, out: Path, minutes: float, count: int) -> dict[str, Any]:
    """Each bound in bits per letter, with the error of another choice of rows and noise."""
    made = trained(run, out, minutes)
    test = HeldOut.of(run.data, "test", run.tokenizer, run.framing, count).batches
    bits: dict[str, Any] = {"rows": sum(len(batch.tokens) for batch in test)}
    for name, bound in bounds(run):
        likely = likelihood(made.model, test, draws=4, bound=bound)
        bits |= {name: likely.bits_per_char, f"{name}_stderr": likely.row_error("char")}
    return {**made.cost(), **bits}


def bounds(run: Run) -> Iterator[tuple[str, Bound | None]]:
    """A causal network knows the likelihood; a chain without a limit has no bound in continuous time."""
    if isinstance(run.model.network.pattern, Causal):
        yield "exact", None
        return
    if run.model.process.continuous:
        yield "continuous", None
    for steps in CHAINS:
        yield f"chain_{steps}", Bound(steps=steps)


def others(specs: Sequence[str], out: Path) -> Iterator[tuple[str, TextFiles]]:
    """The sets of "ptb=FILE …" in 27 letters, whole."""
    for name, paths in parse_named_sets(specs).items():
        file, rules = out / f"{name}.set", detokenizer_for(name)
        texts = [text for path in paths for text in paragraphs(Path(path))]
        file.write_text(in_letters(texts if rules is None else [detokenize_text(text, rules) for text in texts]))
        yield name, TextFiles((), (), (str(file),), split_by="file", max_line=10**9)


def sets_row(run: Run, sets: Mapping[str, Corpus], out: Path, minutes: float, count: int) -> dict[str, Any]:
    """Bits per letter and perplexity per word of each set, by the exact likelihood or the first of the bounds."""
    made, (_, bound) = trained(run, out, minutes), next(bounds(run))
    by_set = {}
    for name, data in sets.items():
        test = HeldOut.of(data, "test", run.tokenizer, run.framing, count).batches
        likely = likelihood(made.model, test, draws=4, bound=bound)
        words = sum(len(text.split()) for batch in test for text in target_texts(made.model, batch))
        by_set[name] = {
            "bits_per_char": likely.bits_per_char,
            "bits_per_char_stderr": likely.row_error("char"),
            "word_perplexity": math.exp(float(likely.row_nats.sum()) / words),
            "rows": len(likely.row_nats),
        }
    return {**made.cost(), "sets": by_set}


def jobs(data: Corpus, out: Path, minutes: float, count: int) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    for name, run in runs(data).items():
        yield name, partial(row, run, out / name, minutes, count)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prose", type=Path, help="a directory of books, as for recipes/spelling.py")
    parser.add_argument("--wiki", type=Path, help="a directory with train.txt, valid.txt and test.txt of WikiText-2")
    parser.add_argument("--text8", help="the file text8, in place of --prose and --wiki")
    parser.add_argument("--sets", nargs="+", metavar="NAME=FILE", help="other texts to measure on")
    parser.add_argument("--minutes", type=float, default=20.0, help="CPU minutes per training")
    parser.add_argument("--rows", type=int, default=512, help="test rows of 256 characters")
    add_places(parser, "runs/letters")
    args = parser.parse_args(argv)
    if args.text8 is None and (args.prose is None or args.wiki is None):
        parser.error("give --prose and --wiki, or --text8")
    torch.set_num_threads(1)
    data = Text8(args.text8) if args.text8 else local(args.prose, args.wiki, args.out)
    if args.sets:
        sets = {"own": data, **dict(others(args.sets, args.out))}
        each = {n: partial(sets_row, run, sets, args.out / n, args.minutes, args.rows) for n, run in runs(data).items()}
        measure_all(Rows(args.results / "letters_sets.jsonl"), each.items(), args.only)
    else:
        rows = Rows(args.results / "letters.jsonl")
        measure_all(rows, jobs(data, args.out, args.minutes, args.rows), args.only)


if __name__ == "__main__":
    run_recipe(main)
