"""How many misspellings do Redraft's models put right, and two baselines?

    python recipes/spelling.py --only story ar symspell symspell_compound   # stories: trains `ar`, minutes
    python recipes/spelling.py --prose PATH --wiki PATH                     # and English: books, WikiText-2; hours
    python recipes/spelling.py --channel redraft/tasks/correction/channel.json      # learns the error channel

Rows go to recipes/results/spelling.jsonl as they are finished, models to runs/spelling; an interrupted recipe continues
where it stopped. Human misspellings and SymSpell need: pip install --no-deps nlpaug symspellpy editdistpy
Answer: docs/results/correct.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from results_pages.tables import markdown
from rows import Rows, cpu_timer, run_recipe
from spelling_parts import spellers
from spelling_parts.judged import Corrector, counted, judged
from spelling_parts.symspell import symspell, symspell_compound

import redraft
from redraft.core import randomness
from redraft.tasks import ERROR_KINDS, CorruptedText, EditChannel, ErrorGenerator, TextModel, human_errors, open_model
from redraft.tasks.correction.lexicon import LETTERS, WORD
from redraft.training import STORY_LANGUAGE, DataStats, split_seed

STORY_RATES, STORY_COUNT = (0.02, 0.05), 100
PROSE_RATE, PROSE_COUNT, HUMAN = 0.02, 120, 0.25
LETTER_RATE, LETTER_COUNT, LETTER_WORDS = 0.05, 100, 24
DISTRUST = 0.1  # the noise of the example with known words, more than its share of wrong letters
MEXICO = (
    "mexico citi the aztec stadium estadio azteca home of clup amerika is one of the world s largest stadiums with "
    "capakity to seat approximately one one zero zero zero zero fans mexico hosted the football world cup in one nine "
    "zeven zero and one nyne eiggt six"
)
MEANT = (
    "mexico city the aztec stadium estadio azteca home of club america is one of the world s largest stadiums with "
    "capacity to seat approximately one one zero zero zero zero fans mexico hosted the football world cup in one nine "
    "seven zero and one nine eight six"
)
LABELS = {
    "story": "masked diffusion of words",
    "chars": "masked diffusion of characters",
    "ar": "candidates × autoregressive",
    "prose": "masked diffusion of words",
    "prose_ar": "candidates × autoregressive",
    "letters": "hybrid noise of characters: its own channel",
    "symspell": "SymSpell, word by word",
    "symspell_compound": "SymSpell, compound with bigrams",
}


@dataclass(frozen=True)
class Setting:
    """Texts with errors, the words of the training text, and how much noise a corrector is told."""

    made: tuple[CorruptedText, ...]
    train: tuple[str, ...]
    noise: float
    names: bool

    def measure(self, correct: Corrector) -> dict[str, Any]:
        known = {word.lower() for word in counted(self.train)}
        with cpu_timer() as clock:
            texts = correct([each.text for each in self.made])
        return {**judged(self.made, texts, known), "seconds_per_text": clock.seconds / len(texts)}


# --- texts ---


def stories(rate: float) -> Setting:
    """Held-out stories with errors in a fraction of the letters; dictionaries learn from the training split."""
    test = [STORY_LANGUAGE.text(split_seed(0, "test"), index) for index in range(STORY_COUNT)]
    train = tuple(STORY_LANGUAGE.text(split_seed(0, "train"), index) for index in range(2000))
    return Setting(tuple(ErrorGenerator(rate)(text, i) for i, text in enumerate(test)), train, rate, names=True)


@cache
def paragraphs(folder: Path, split: str) -> tuple[str, ...]:
    return tuple(spellers.books(folder).documents(split, DataStats()))  # type: ignore[arg-type]


def prose(folder: Path, split: str, kind: str) -> Setting:
    """Paragraphs of a held-out book, with synthetic or human errors."""
    texts = [text for text in paragraphs(folder, split) if 200 <= len(text) <= 600][:PROSE_COUNT]
    made = map(ErrorGenerator(PROSE_RATE) if kind == "made" else human, texts, itertools.count())
    return Setting(tuple(made), paragraphs(folder, "train"), PROSE_RATE, names=False)


def human(text: str, index: int) -> CorruptedText:
    """A quarter of the words of which the test half of the table knows misspellings have one of them."""
    table, pieces, kinds = _table(), text.split(" "), []
    draws = randomness.rng(1).fold(index).uniform(len(pieces), 2)[0].tolist()
    for i, (piece, (whether, which)) in enumerate(zip(pieces, draws, strict=True)):
        word = WORD.search(piece)
        wrong = table.get(word.group(), ()) if word else ()
        if word and wrong and whether < HUMAN:
            pieces[i] = piece[: word.start()] + wrong[int(which * len(wrong))] + piece[word.end() :]
        kinds += [("human",) if piece != pieces[i] else ()] * len(piece.split())
    return CorruptedText(" ".join(pieces), text, tuple(kinds), sum(map(bool, kinds)), len(kinds))  # type: ignore[arg-type]


def letters(file: Path) -> Setting:
    """Pieces of held-out text in 27 letters, of which a share has become other letters, all alike likely."""
    words = file.with_suffix(".valid").read_text().split()
    pieces = [words[i : i + LETTER_WORDS] for i in range(0, len(words), len(words) // LETTER_COUNT)][:LETTER_COUNT]
    made = tuple(replaced(" ".join(piece), index) for index, piece in enumerate(pieces))
    return Setting(made, (file.read_text(),), LETTER_RATE, names=True)


def replaced(text: str, index: int) -> CorruptedText:
    """Each letter becomes another one with the same probability; spaces stay."""
    draws = randomness.rng(2).fold(index).uniform(len(text), 2)[0].tolist()
    wrong = [letter != " " and whether < LETTER_RATE for letter, (whether, _) in zip(text, draws, strict=True)]
    others = [LETTERS.replace(letter, "") for letter in text]
    spelled = "".join(
        other[int(which * len(other))] if error else letter
        for letter, other, error, (_, which) in zip(text, others, wrong, draws, strict=True)
    )
    pairs = zip(text.split(), spelled.split(), strict=True)
    kinds: Any = tuple(("replace",) if word != other else () for word, other in pairs)
    return CorruptedText(spelled, text, kinds, sum(wrong), len(text) - text.count(" "))


@cache
def _table() -> Mapping[str, tuple[str, ...]]:
    return human_errors("test")


# --- correctors ---


def by_model(path: Path, setting: Setting, words: Mapping[str, float] | None) -> Corrector:
    model = _opened(path)
    return lambda texts: redraft.correct(model, texts, words=words, noise=setting.noise, names=setting.names).texts


@cache
def _opened(path: Path) -> TextModel:
    return open_model(path)


def measure(rows: Rows, name: str, setting: Callable[[], Setting], correct: Callable[[Setting], Corrector]) -> None:
    def row() -> dict[str, Any]:
        made = setting()
        return made.measure(correct(made))

    rows.add(name, row)


def story_rows(rows: Rows, out: Path, only: Sequence[str]) -> None:
    for rate in STORY_RATES:
        for name, path in {"story": Path("story"), "ar": out / "ar", "chars": out / "chars"}.items():
            if (not only or name in only) and (name == "story" or path.exists()):
                measure(rows, f"stories {rate} {name}", partial(stories, rate), lambda s, p=path: by_model(p, s, None))
        for name, make in (("symspell", symspell), ("symspell_compound", symspell_compound)):
            if not only or name in only:
                measure(rows, f"stories {rate} {name}", partial(stories, rate), lambda s, m=make: m(s.train, s.names))


def prose_rows(rows: Rows, folder: Path, out: Path, only: Sequence[str]) -> None:
    for kind in ("made", "human"):
        setting = cache(partial(prose, folder, "test", kind))
        for name in ("prose", "prose_ar"):
            if (not only or name in only) and (out / name).exists():
                measure(rows, f"{kind} {name}", setting, lambda s, n=name: by_model(out / n, s, counted(s.train)))
        for name, make in (("symspell", symspell), ("symspell_compound", symspell_compound)):
            if not only or name in only:
                measure(rows, f"{kind} {name}", setting, lambda s, m=make: m(s.train, s.names))


def letter_rows(rows: Rows, out: Path, only: Sequence[str]) -> None:
    setting = cache(partial(letters, out / "letters.txt"))
    if (not only or "letters" in only) and (out / "letters").exists():
        rows.add("mexico", lambda: mexico_row(out, LETTER_RATE, None))
        rows.add("mexico words", lambda: mexico_row(out, DISTRUST, counted(setting().train)))
        measure(rows, "letters letters", setting, lambda s: by_model(out / "letters", s, None))
    if not only or "symspell" in only:
        measure(rows, "letters symspell", setting, lambda s: symspell(s.train, s.names))


def mexico_row(out: Path, noise: float, words: Mapping[str, float] | None) -> dict[str, Any]:
    """The example of Hoogeboom et al. (2021), figure 5: letter by letter, or by known words."""
    model = _opened(out / "letters")
    result = redraft.correct(model, MEXICO, noise=noise, words=words)[0]
    changes = [[c.was, c.now, round(c.probability, 3)] for c in result.changes]
    return {"run": model.name, "step": model.step, "given": MEXICO, "text": result.text, "changes": changes}


# --- the channel ---


def pairs(most: int = 6000) -> Iterator[tuple[str, str]]:
    """Human misspellings of the training half, and as many made errors."""
    table = human_errors("train")
    people = list(itertools.chain.from_iterable(([(w, x) for x in wrong[:2]] for w, wrong in table.items())))[:most]
    letters = ErrorGenerator(0.15, tuple(kind for kind in ERROR_KINDS if kind != "space"))
    yield from people
    yield from ((word, letters(word, i).text) for i, (word, _) in enumerate(people))


# --- the page ---


def tables(results: Path) -> dict[str, str]:
    held = Rows(results / "spelling.jsonl").read()
    return {"stories": table(held), "kinds": kinds(held)}


def table(held: Mapping[str, Mapping[str, Any]]) -> str:
    """The errors of the stories, by corrector and rate; the time is that of the highest rate."""
    heads = [(f"{100 * rate:.0f} % of characters: restored, %", "spoiled, %", "real words, %") for rate in STORY_RATES]
    lines = []
    for name, label in LABELS.items():
        rows = [held[f"stories {rate} {name}"] for rate in STORY_RATES if f"stories {rate} {name}" in held]
        if len(rows) == len(STORY_RATES):
            time = f"{rows[-1]['seconds_per_text']:.2g}"
            lines.append([label, *itertools.chain.from_iterable(map(cells, rows)), time])
    return markdown(["corrector", *itertools.chain.from_iterable(heads), "CPU s per text"], lines)


def cells(row: Mapping[str, Any]) -> list[str]:
    real = f"{100 * row['real_words']:.0f} ({row['real']})" if row["real"] else "–"
    return [f"{100 * row['restored']:.1f}", f"{100 * row['spoilt']:.2f}", real]


def kinds(held: Mapping[str, Mapping[str, Any]]) -> str:
    """Restored words by kind of error, in percent."""
    shown = {name: held.get(f"stories {STORY_RATES[-1]} {name}") for name in LABELS}
    rows = ((LABELS[name], row["kinds"]) for name, row in shown.items() if row is not None)
    lines = ([label, *(f"{100 * share.get(kind, 0):.0f}" for kind in ERROR_KINDS)] for label, share in rows)
    return markdown(["corrector", *ERROR_KINDS], lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prose", type=Path, help="a directory of books as plain text")
    parser.add_argument("--wiki", type=Path, help="the directory of WikiText-2, with train.txt and valid.txt")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=LABELS,
        metavar="NAME",
        default=[],
        help="models and correctors; default: all",
    )
    parser.add_argument("--out", type=Path, default=Path("runs/spelling"), help="directory for the models")
    parser.add_argument("--results", type=Path, default=Path("recipes/results"), help="directory for the rows")
    parser.add_argument("--channel", type=Path, help="learn the error channel and write it here; measures nothing")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    if args.channel:
        args.channel.write_text(json.dumps(json.loads(EditChannel.fit(pairs(), space=0.15).to_json())) + "\n")
        return
    for folder in filter(None, (args.prose, args.wiki)):
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a directory; give a directory with text files, or omit the option")
    rows = Rows(args.results / "spelling.jsonl")
    spellers.train(args.only, args.prose, args.wiki, args.out)
    story_rows(rows, args.out, args.only)
    if args.prose:
        prose_rows(rows, args.prose, args.out, args.only)
    if (args.out / "letters.txt").exists() and args.wiki:
        letter_rows(rows, args.out, args.only)


if __name__ == "__main__":
    run_recipe(main)
