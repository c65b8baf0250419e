"""Trains the models that `recipes/spelling.py` corrects with: their data, sizes and steps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from redraft.core import CharTokenizer, HybridNoise, Interpolating, WordTokenizer
from redraft.core.text.tokenizers import TEXT8
from redraft.decoding import Ancestral, Blocks
from redraft.models import Causal, DiffusionLM
from redraft.training import (
    Bound,
    DataStats,
    DynamicWeight,
    Objective,
    OptimizerConfig,
    PackedRows,
    Run,
    StratifiedTimes,
    TextFiles,
    TokenCrossEntropy,
    fit,
    presets,
)
from redraft.training.runs import variations

VALID, TEST = "treasure-island", "war-of-the-worlds"  # books that are held out
OLD = "samuel-pepys"  # of the 17th century: its spelling is not ours
VOCABULARY = 16_384
WATCHED: dict[str, Any] = {"save_every": 100, "eval_every": 10_000, "eval_rows": 16, "samples": 0, "keep": 1}
DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def books(folder: Path) -> TextFiles:
    """The prose of a folder: one book for valid, one for test, the others to learn from."""
    names = {str(path): path.name for path in sorted(folder.glob("*.txt")) if OLD not in path.name}
    held = {part: tuple(path for path, name in names.items() if part in name) for part in (VALID, TEST)}
    train = tuple(path for path, name in names.items() if VALID not in name and TEST not in name)
    return TextFiles(train, held[VALID], held[TEST])


def prose(folder: Path) -> Run:
    """Masked diffusion of words: rows of 64, of which at most half are hidden, as when a text is corrected."""
    data = books(folder)
    words = WordTokenizer.collect(data.documents("train", DataStats()), VOCABULARY)
    base = variations.with_text(presets.mdlm_tiny(), words, data, PackedRows(64))
    base = variations.with_network(base, width=160, layers=2, heads=5, positions=None, rotary=10_000.0, tied=True)
    optimizer = OptimizerConfig(lr=2e-3, muon=0.01, warmup=100, floor=0.05, ema=0.998)
    return replace(
        base,
        objective=Objective(TokenCrossEntropy(), StratifiedTimes(0.02, 0.5)),
        optimizer=optimizer,
        **WATCHED,
        steps=1200,
    )


def prose_ar(folder: Path) -> Run:
    """The same network and words, from left to right."""
    run = variations.with_network(prose(folder), pattern=Causal())
    return replace(run, objective=Objective(Bound(steps=1)), sampler=Blocks(Ancestral(1), stop=True))


def letters(file: Path) -> Run:
    """Hybrid noise of 27 letters, at most half of it: some are hidden, some are wrong."""
    text = CharTokenizer(TEXT8)
    data = TextFiles((str(file),), valid=(str(file.with_suffix(".valid")),), split_by="file", max_line=10**9)
    base = variations.with_text(presets.mdlm_tiny(), text, data, PackedRows(128))
    base = variations.with_network(base, width=192, layers=4, heads=6, positions=None, rotary=10_000.0)
    process = Interpolating(text.vocab, mixing=HybridNoise(0.1))
    run = variations.with_noise(base, process, Objective(Bound(weight=DynamicWeight()), StratifiedTimes(0.02, 0.5)))
    run = variations.with_network(run, time=None)  # the hidden letters tell it
    optimizer = OptimizerConfig(lr=2e-3, muon=0.01, warmup=100, floor=0.05, ema=0.998)
    return replace(run, optimizer=optimizer, **WATCHED, steps=6500)


def write_letters(folder: Path, wiki: Path, file: Path) -> None:
    """Prose and WikiText-2 in 27 letters, as text8 is made: paragraphs in turn, numbers spelled digit by digit."""
    if file.exists():
        return
    sources = [list(books(folder).documents("train", DataStats())), paragraphs(wiki / "train.txt")]
    order = sorted((i / len(source), text) for source in sources for i, text in enumerate(source))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_suffix(".valid").write_text(in_letters(paragraphs(wiki / "valid.txt")))
    file.write_text(in_letters([text for _, text in order]))


def paragraphs(file: Path) -> list[str]:
    return [line for line in file.read_text("utf-8").splitlines() if line.strip() and not line.strip().startswith("=")]


def in_letters(texts: Sequence[str]) -> str:
    return " ".join(filter(None, map(to_letters, texts)))


def to_letters(text: str) -> str:
    """The 27 letters of text8: lower case, digits as words, anything else a space."""
    text = re.sub(r"[0-9]", lambda digit: f" {DIGITS[int(digit[0])]} ", text.replace("<unk>", " ").lower())
    return " ".join(re.sub(r"[^a-z]+", " ", text).split())


def runs(names: Sequence[str], prose_folder: Path | None, wiki: Path | None, out: Path) -> Iterator[tuple[str, Run]]:
    """The runs by name, in the order of training; those whose text is not at hand are left out."""
    yield "ar", presets.ar_tiny()
    if prose_folder is not None and {"prose", "prose_ar"} & set(names or ["prose"]):
        yield "prose", prose(prose_folder)
        yield "prose_ar", prose_ar(prose_folder)
    if prose_folder is not None and wiki is not None:
        write_letters(prose_folder, wiki, out / "letters.txt")
        yield "letters", letters(out / "letters.txt")
    yield "chars", presets.mdlm_tiny_chars()


def train(names: Sequence[str], prose_folder: Path | None, wiki: Path | None, out: Path) -> dict[str, DiffusionLM]:
    """Trains the models that are asked for and not there yet, or goes on where it was stopped."""
    all_runs = runs(names, prose_folder, wiki, out)
    wanted = ((name, run) for name, run in all_runs if not names or name in names)
    return {name: fit(run, out / name) for name, run in wanted if not (out / name / f"step-{run.steps:08d}").exists()}
