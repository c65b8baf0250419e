"""`python recipes/typos.py`: how many misspelled English words `redraft correct` restores, and how many it spoils.

    pip install "redraft[smol,spelling]"
    python recipes/typos.py                             # a CPU minute

recipes/typos.txt has sentences with errors written as [typed|meant]. They were written before any of them was scored;
the constants of the corrector were chosen on recipes/typos_tuning.txt and on text without errors. Two choices were
made after the first score: American spellings, which the list lacks, were added, and unknown spellings got lower odds.
A typed word that is in the list of English words is a real-word error, any other one a misspelling. Every other word
counts as right, also names and code, and is spoiled if it changes. A word counts as restored only if it becomes exactly
what was meant. SymSpell corrects the same words, one by one, with the same list. The example of Hoogeboom et al. (2021)
is corrected too. Rows go to recipes/results/typos.jsonl; CPU seconds are those after opening, for 20 words.
Answer: docs/results/correct.md.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from results_pages.tables import markdown
from rows import Rows, cpu_timer, run_recipe
from spelling import MEANT, MEXICO

from redraft.tasks import TextModel, correct, open_model
from redraft.tasks.correction.english.typed_words import _typed_words
from redraft.tasks.correction.english.words import english_lexicon

FOLDER = Path(__file__).parent
FILES = {"hidden": "typos.txt", "tuning": "typos_tuning.txt"}
EXAMPLE_NOISE = 0.1  # more than its share of wrong characters
EXAMPLE_NAMES = ("estadio", "azteca")  # names in lower case that are not in the list
COMMAND = "python recipes/typos.py"
Changes = Callable[[str], dict[int, str]]  # a text → what becomes of the words that begin at these characters


class Error(NamedTuple):
    start: int
    typed: str
    meant: str


class Sentence(NamedTuple):
    text: str
    errors: tuple[Error, ...]

    @classmethod
    def parse(cls, line: str) -> Sentence:
        text, errors, at = "", [], 0
        for mark in re.finditer(r"\[(.*?)\|(.*?)\]", line):
            text += line[at : mark.start()]
            errors.append(Error(len(text), mark[1], mark[2]))
            text, at = text + mark[1], mark.end()
        return cls(text + line[at:], tuple(errors))


def sentences(name: str) -> Iterator[Sentence]:
    for line in (FOLDER / name).read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            yield Sentence.parse(line)


# --- correctors ---


def by_model(model: TextModel) -> Changes:
    return lambda text: {change.start: change.now for change in correct(model, text)[0].changes}


@cache
def _symspell() -> Any:
    from symspellpy import SymSpell

    speller = SymSpell(2, 7)
    for word, count in english_lexicon().counts.items():
        speller.create_dictionary_entry(word, int(count))
    return speller


def by_symspell(text: str) -> dict[int, str]:
    """The nearest known word for each word that is no name, the most frequent of equally near ones."""
    from symspellpy import Verbosity

    words = [word for word in _typed_words(text) if not word.is_name]
    near = {
        word.start: _symspell().lookup(word.text, Verbosity.TOP, 2, include_unknown=True, transfer_casing=True)[0].term
        for word in words
    }
    return {word.start: near[word.start] for word in words if near[word.start] != word.text}


# --- rows ---


def measure(name: str, changes: Changes) -> dict[str, Any]:
    counts = dict.fromkeys(("misspelled", "restored", "real", "real_restored", "right", "spoiled", "sentences"), 0)
    wrong: list[str] = []
    with cpu_timer() as clock:
        made = [(sentence, changes(sentence.text)) for sentence in sentences(FILES[name])]
    for sentence, corrected in made:
        errors = {error.start: error for error in sentence.errors}
        counts["sentences"] += 1
        for error in sentence.errors:
            kind = "real" if error.typed.lower() in english_lexicon().folded else "misspelled"
            restored = corrected.get(error.start) == error.meant
            counts[kind] += 1
            counts["real_restored" if kind == "real" else "restored"] += restored
            wrong += (
                [] if restored else [f"{error.typed} → {corrected.get(error.start, error.typed)}, not {error.meant}"]
            )
        spoiled = [start for start in corrected if start not in errors]
        wrong += [f"{sentence.text[start:].split()[0]} → {corrected[start]}" for start in spoiled]
        counts["spoiled"] += len(spoiled)
        counts["right"] += len(sentence.text.split()) - len(errors)
    words = sum(len(sentence.text.split()) for sentence, _ in made)
    return {**counts, "wrong": wrong, "seconds_per_20_words": 20 * clock.seconds / words, "command": COMMAND}


def example(model: TextModel) -> dict[str, Any]:
    """The example of Hoogeboom et al. (2021), figure 5."""
    text = correct(model, MEXICO, noise=EXAMPLE_NOISE, keep=EXAMPLE_NAMES)[0].text
    words = list(zip(MEXICO.split(), MEANT.split(), text.split(), strict=True))
    return {
        "misspelled": sum(typed != meant for typed, meant, _ in words),
        "restored": sum(typed != meant == now for typed, meant, now in words),
        "spoiled": sum(typed == meant != now for typed, meant, now in words),
        "text": text,
        "command": COMMAND,
    }


def tables(results: Path) -> dict[str, str]:
    rows = Rows(results / "typos.jsonl").read()
    head = [
        "corrector",
        "misspellings restored",
        "real-word errors restored",
        "right words spoiled",
        "CPU s per 20 words",
    ]
    labels = {"smol": "`redraft correct` with smol", "symspell": "SymSpell, word by word"}

    def cells(name: str) -> list[str]:
        row = rows[f"{name}, hidden"]
        of = [("restored", "misspelled"), ("real_restored", "real"), ("spoiled", "right")]
        return [labels[name], *(f"{row[a]} of {row[b]}" for a, b in of), f"{row['seconds_per_20_words']:.2f}"]

    return {"english": markdown(head, map(cells, labels))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=FOLDER / "results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows, model = Rows(options.results / "typos.jsonl"), open_model("smol")
    correct(model, "Opened, and the words are read.")
    english_lexicon()
    for name in FILES:
        rows.add(f"smol, {name}", partial(measure, name, by_model(model)))
    rows.add("symspell, hidden", partial(measure, "hidden", by_symspell))
    rows.add("example", partial(example, model))


if __name__ == "__main__":
    run_recipe(main)
