"""Does masked diffusion come close to a causal model, and pass it when text is scarce?

    python recipes/scarce.py --stories tiny_stories.txt --sets shakespeare=input.txt ptb=ptb.test.txt
    python recipes/scarce.py --stories tiny_stories.txt --only "ar, scarce, seed 0"

Three models (causal, MDLM, SEDD) with the same network learn TinyStories in byte pairs, from all of the text and from
a fifth of it. A causal model soon knows a small text by heart, so the weights with the lowest held-out bits are kept;
masked diffusion sees the same rows under ever new masks and goes on learning (Prabhudesai et al. 2025).

Each row has held-out bits per character, the curve of them over passes through the text, and bits per character of
other texts, which the model has never seen; diffusion's are bounds. Minutes are CPU minutes of one core. Rows go to
recipes/results/scarce.jsonl as they are finished, models to runs/scarce.
Answer: docs/results/claims.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rows import Budget, Measure, Rows, add_places, measure_all, run_recipe, train_under_budget

from redraft.core import HubTokenizer, train_bpe
from redraft.evaluation import unseen_bits
from redraft.training import DataStats, DetokenizedCorpus, Run, TextFiles, detokenizer_for, load, presets
from redraft.training.runs import variations

SEEDS = 2
VOCABULARY = 2048
LENGTH = 128
POINTS = 12  # of the curve
HELD_OUT = 128  # rows of the test text
MINUTES = {"ar": (4.0, 2.0), "mdlm": (12.0, 8.0), "sedd": (8.0, 5.0)}  # on all of the text, on a fifth of it
SIZES = ("all", "scarce")
_BITS = "valid_bits_per_char"


def split_text(stories: Path, out: Path) -> dict[str, TextFiles]:
    """Write the parts of a text into files: nine tenths to learn from, the rest held out, a fifth of the former."""
    out.mkdir(parents=True, exist_ok=True)
    lines = stories.read_text("utf-8").splitlines(keepends=True)
    ends = {"train": (0.0, 0.9), "valid": (0.9, 0.95), "test": (0.95, 1.0), "scarce": (0.0, 0.18)}
    for name, (start, end) in ends.items():
        part = lines[round(start * len(lines)) : round(end * len(lines))]
        (out / f"{name}.txt").write_text("".join(part), "utf-8")
    train, valid, test, scarce = ((str(out / f"{name}.txt"),) for name in ends)
    return {
        "all": TextFiles(train, valid, test, split_by="file"),
        "scarce": TextFiles(scarce, valid, test, split_by="file"),
    }


def runs(data: TextFiles, tokenizer: HubTokenizer) -> dict[str, Run]:
    """Return the three methods with the same network of 4 × 192."""
    methods = {"ar": presets.ar_tiny(), "mdlm": presets.mdlm_tiny(), "sedd": presets.sedd_tiny()}
    sizes = {"width": 192, "layers": 4, "heads": 6}
    return {
        name: variations.with_network(
            replace(run, batch=16, samples=0).on(data, tokenizer, LENGTH), positions=None, **sizes
        )
        for name, run in methods.items()
    }


def curve(folder: Path, passes_per_step: float) -> list[list[float]]:
    """Return [passes over the text, held-out bits per character] at each evaluation."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [[line["step"] * passes_per_step, line[_BITS]] for line in lines if _BITS in line]


def row(run: Run, out: Path, minutes: float, sets: Mapping[str, DetokenizedCorpus | TextFiles]) -> dict[str, Any]:
    made = train_under_budget(run, out, Budget(minutes=minutes), evaluations=POINTS)
    best = load(out)  # the checkpoint with the lowest held-out bits
    tokens = sum(len(run.tokenizer.encode(text)) + 1 for text in run.data.documents("train", DataStats()))
    figures = unseen_bits(best, run, HELD_OUT)
    elsewhere = {name: unseen_bits(best, replace(run, data=data), HELD_OUT) for name, data in sets.items()}
    return {
        **made.cost(),
        **figures,
        "train_tokens": tokens,
        "curve": curve(out, run.batch * LENGTH / tokens),
        "zero_shot": {name: [bits["bits_per_char"], bits["bits_per_char_stderr"]] for name, bits in elsewhere.items()},
    }


def other_texts(named: Sequence[str]) -> dict[str, DetokenizedCorpus | TextFiles]:
    """Return the texts that "name=file" names, those of language modeling benchmarks as people write them."""
    texts: dict[str, DetokenizedCorpus | TextFiles] = {}
    for item in named:
        name, _, file = item.partition("=")
        if not Path(file).is_file():
            raise ValueError(f"--sets {item}: there is no file {file!r}; give name=file")
        text, rules = TextFiles((file,), (file,), (file,), split_by="file"), detokenizer_for(name)
        texts[name] = text if rules is None else DetokenizedCorpus(text, rules)
    return texts


def jobs(stories: Path, sets: Sequence[str], out: Path, factor: float) -> Iterator[tuple[str, Measure]]:
    """Yield all rows; `factor` scales the minutes of each training."""
    texts, elsewhere = split_text(stories, out), other_texts(sets)
    tokenizer = train_bpe(texts["all"].documents("train", DataStats()), VOCABULARY)
    for seed in range(SEEDS):
        for index, size in enumerate(SIZES):
            for name, run in runs(texts[size], tokenizer).items():
                minutes, folder = factor * MINUTES[name][index], out / f"{name}-{size}-{seed}"
                yield f"{name}, {size}, seed {seed}", partial(row, replace(run, seed=seed), folder, minutes, elsewhere)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stories", type=Path, required=True, help="a file of text to learn")
    parser.add_argument("--sets", nargs="*", default=[], metavar="NAME=FILE", help="other texts to measure")
    parser.add_argument("--minutes", type=float, default=1.0, help="factor of all CPU minutes of training")
    add_places(parser, "runs/scarce")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows = Rows(options.results / "scarce.jsonl")
    measure_all(rows, jobs(options.stories, options.sets, options.out, options.minutes), options.only)


if __name__ == "__main__":
    run_recipe(main)
