"""Sentences of the E2E challenge with given parts of speech: real text, by token diffusion and autoregressively.

    pip install textblob
    python recipes/restaurants.py --e2e PATH                         # trains four models, then measures
    python recipes/control.py --table docs/guides/control.md                # fills the rows into the page

The two word models learn the sentences alone, without their attributes: diffusion for 6 minutes of one core, the
autoregressive model for 3, since it learns from every word of each sentence. Their taggers train for 24 seconds each.
Targets are the parts of speech of sentences of the test set, by the lexicon of recipes/lexicon.py. The autoregressive
model is also the judge. Rows go to recipes/results/control_e2e.jsonl, models to runs/restaurants; an interrupted recipe
continues where it stopped.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from control import E2E, SCALES, written
from lexicon import brill, lexicon
from real import WORDS
from rows import Rows, run_recipe, trained

from redraft.core import WordTokenizer, split_words
from redraft.evaluation import ModelJudge, generative_perplexity
from redraft.tasks import open_model
from redraft.training import Corpus, DataStats, DocumentRows, Run, e2e_corpus, presets, tag_words
from redraft.training.runs import variations

LENGTH = 40  # tokens: 97 % of the sentences and their end token
MINUTES = {"mdlm": 6.0, "ar": 3.0}  # of one core
TAGGER = 0.4
WAYS = ("γ = 1", "demanded", "free", "γ = 2", "γ = 0.5")


def recipes(folder: str) -> dict[str, Run]:
    """Both models on the sentences."""
    text = e2e_corpus(folder)
    words = WordTokenizer.collect((pair.target for pair in text.pairs("train", DataStats())), WORDS)
    bases = {"mdlm": presets.mdlm_tiny(), "ar": presets.ar_tiny()}
    framing = DocumentRows(LENGTH, cut=False, fill_with_eos=True)
    return {
        name: variations.with_network(variations.with_text(base, words, text, framing), positions=LENGTH + 1)
        for name, base in bases.items()
    }


def train(folder: str, out: Path) -> None:
    """The models, and beside each a tagger."""
    known, runs = brill(), recipes(folder)
    bases = {name: trained(run, out / name, MINUTES[name]) for name, run in runs.items()}
    for name, run in runs.items():
        tagger = variations.with_tagger(run, str(out / name), kinds(run, known))
        trained(tagger, out / f"{name}_tagger", TAGGER, [bases[name]])


def kinds(run: Run, known: Mapping[str, str]) -> dict[str, str]:
    """The part of speech of each word that the models know."""
    return lexicon(cast(WordTokenizer, run.tokenizer).words, known)


def targets(run: Run, count: int) -> list[str]:
    """Unseen sentences whose words are all known."""
    known, data = set(cast(WordTokenizer, run.tokenizer).words), cast(Corpus, run.data)
    spelled = (text for text in data.documents("test", DataStats()) if set(split_words(text)) <= known)
    short = (text for text in dict.fromkeys(spelled) if len(split_words(text)) < LENGTH)
    return list(itertools.islice(short, 0, count * 20, 20))  # neighbors in the file tell of the same restaurant


def measure(folder: str, out: Path, count: int, results: Path) -> None:
    """All rows, the most telling first."""
    rows, run = Rows(results / "control_e2e.jsonl"), recipes(folder)["mdlm"]
    sentences, table = targets(run, count), kinds(run, brill())
    wanted, judge = [tag_words(sentence, table) for sentence in sentences], out / "ar"
    rows.add("people", lambda: {"perplexity": perplexity(sentences, judge), "targets": len(sentences)})
    with TemporaryDirectory() as place:
        file = Path(place) / "lexicon.json"
        file.write_text(json.dumps(table), "utf-8")
        for way, name in itertools.product(WAYS, E2E):
            if way == "free" and "tagger" in name:
                continue  # as without it
            given = {} if "tagger" in name else {"lexicon": str(file)}
            rows.add(f"{name}, {way}", partial(row, out / name, judge, wanted, {**SCALES[way], **given}, table))


def row(
    path: Path, judge: Path, wanted: Sequence[tuple[str, ...]], options: dict[str, Any], table: Mapping[str, str]
) -> dict[str, Any]:
    figures, texts = written(open_model(path), judge, wanted, options, table)
    return {**figures, "example": texts[0]}


def perplexity(texts: Sequence[str], judge: Path) -> float:
    return generative_perplexity(list(texts), ModelJudge(open_model(judge).lm)).perplexity


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--e2e", required=True, help="the directory with trainset.csv, devset.csv and testset_w_refs.csv"
    )
    parser.add_argument("--targets", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("runs/restaurants"), help="directory for the models")
    parser.add_argument(
        "--results", type=Path, default=Path(__file__).parent / "results", help="directory for the rows"
    )
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    train(args.e2e, args.out)
    measure(args.e2e, args.out, args.targets, args.results)


if __name__ == "__main__":
    run_recipe(main)
