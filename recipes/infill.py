"""How often is a hole filled right: in stories, English and programs, and with given answers?

    python recipes/infill.py stories --model story          # also runs/flex_tiny, after `redraft train flex_tiny`
    python recipes/infill.py english --data FILE                                        # smol: words, spans
    python recipes/infill.py programs                       # trains both models, 5 CPU minutes each, and measures
    redraft import smollm2 --out models/smollm2
    python recipes/infill.py choose --model smol --model models/smollm2

*Stories.* One or two spans of 1 to 8 words are cut out of each story of the test stream, and the length is unknown. A
hole counts as right if it gets exactly the words that were cut out. Often the context does not determine them (a name,
a color), so the true length does not give 100 % either: the goal is 85 % of its accuracy.
*English.* Words of one token, spans of 2 to 5 words, and parts of words are cut out of sentences (the last 2 to 4
letters, so the hole touches a letter on its left), with up to 32 words before the hole and 6 after it. Holes have as
many tokens as were cut out. Each hole is filled as `infill` does and in another way: words and parts of words without
rules for the given text in the tokens of the hole, where only the space before a hole is left to it; words of unknown
length, `[[?]]`, as `[[1]]`; spans token by token, as several holes of one template are. The search for spans was
designed on other novels.
*Programs.* The right-hand side of one statement is removed from a program of the test stream: the middle statement, or
the last, whose value is printed after it. The filled program is right if its types fit and its result is true, by an
exact checker. Diffusion sees both sides and is given the number of missing tokens. The autoregressive model writes from
the left until the semicolon, once or k times. Of k candidates, the one with the likeliest whole program is kept, at k
times the cost.
*Choose.* recipes/cloze.txt has questions whose hole follows a space; in recipes/cloze_cuts.txt the hole touches part of
a word, a quotation mark or a digit. Both were written before any of them was scored. Each question is also scored with
the hole moved: the space, or the text that touches the hole, is part of the answers instead of the template. The
probabilities must not change. A model adapted from a causal one, such as smol, is also scored from the masks, with its
adapter on.
Rows go to infill.jsonl, holes.jsonl, coding.jsonl and cloze.jsonl; existing rows are not measured again.
Answer: docs/results/infill.md, docs/results/coding.md and docs/guides/choose.md.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import torch
from results_pages.tables import markdown, right
from rows import RESULTS, Part, Rows, Trained, cpu_timer, run_part, run_recipe, trained

from redraft.core import join_words, split_words
from redraft.core.text.tokenizers import UNKNOWN
from redraft.models.causal_base import is_adapted
from redraft.tasks import ChoiceResult, TextModel, choose, generate, infill, open_model, score
from redraft.tasks.arguments.templates import HOLE
from redraft.tasks.choice import choice
from redraft.tasks.infilling import infilling
from redraft.training import STORY_LANGUAGE, Programs, brackets_match, presets, split_seed

# --- stories ---

LONGEST = 8  # words of a hole
GOAL = 0.85


class Torn(NamedTuple):
    """A story with holes, and what was in them."""

    words: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]

    def template(self, hole: str | None = None) -> str:
        """With holes of the true lengths, or with this one at each place."""
        words = list(self.words)
        for begin, end in reversed(self.spans):
            words[begin:end] = [f"[[{end - begin}]]" if hole is None else hole]
        return join_words(words)

    @property
    def lost(self) -> list[tuple[str, ...]]:
        return [self.words[begin:end] for begin, end in self.spans]


def torn(index: int, holes: int) -> Torn:
    """Story number `index` of the test stream, with holes that do not touch each other or the ends."""
    words, draw = split_words(STORY_LANGUAGE.text(split_seed(0, "test"), index)), Random(f"{index}/{holes}")
    while True:
        sizes = [draw.randint(1, LONGEST) for _ in range(holes)]
        begins = sorted(draw.sample(range(1, len(words) - LONGEST), holes))
        spans = tuple((begin, begin + size) for begin, size in zip(begins, sizes, strict=True))
        if all(end < begin for (_, end), (begin, _) in pairwise(spans)):
            return Torn(words, spans)


def right_holes(result: Any, story: Torn) -> list[bool]:
    return [split_words(fill) == lost for fill, lost in zip(result.fills, story.lost, strict=True)]


def measured(model: TextModel, stories: Sequence[Torn], hole: str | None) -> dict[str, Any]:
    """How many holes are right, how many have the right length, how many stories are grammatical, and the cost."""
    options: dict[str, Any] = {"room": 32, "temperature": 0.0, "sampler": "confidence", "steps": 64}
    if model.lm.process.grows:
        options |= {"temperature": None, "sampler": "own"}
    with cpu_timer() as clock:
        results = infill(model, [story.template(hole) for story in stories], **options)
    holes = [yes for text, story in zip(results, stories, strict=True) for yes in right_holes(text, story)]
    sizes = [
        len(split_words(fill)) == len(lost)
        for text, story in zip(results, stories, strict=True)
        for fill, lost in zip(text.fills, story.lost, strict=True)
    ]
    inside = [STORY_LANGUAGE.log_prob(text.text) > -math.inf for text in results]
    means = {"right": holes, "length_right": sizes, "grammatical": inside}
    shares = {name: sum(values) / len(values) for name, values in means.items()}
    return shares | {"nfe": results.nfe, "seconds_per_text": clock.seconds / len(stories)}


def compared(model: TextModel, count: int, holes: int) -> dict[str, Any]:
    stories = [torn(index, holes) for index in range(count)]
    ways: dict[str, str | None] = {"true": None, "free": "[[*]]", "range": f"[[1-{LONGEST}]]"}
    if model.lm.process.grows:
        ways.pop("range")
    by_way = {way: measured(model, stories, hole) for way, hole in ways.items()}
    true = by_way["true"]["right"]
    kept = by_way["free"]["right"] / true
    error = math.sqrt(true * (1 - true) / (count * holes)) / true
    row = {"run": model.name, "step": model.step, "stories": count, "holes": holes, "kept": kept, "kept_stderr": error}
    return row | {"goal": GOAL, "reached": kept >= GOAL} | by_way


def stories_main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, action="append", required=True, help="a trained model; repeatable")
    parser.add_argument("--stories", type=int, default=200)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args(argv)
    for path in options.model:
        for holes in (1, 2):
            name = f"{path.name}, {holes} hole{'s' * (holes > 1)}"
            rows = Rows(options.results / "infill.jsonl")
            rows.add(name, lambda path=path, holes=holes: compared(open_model(path), options.stories, holes))  # type: ignore[misc]


# --- English ---

BEFORE, AFTER = 32, 6  # words of context


class Cut(NamedTuple):
    template: str
    lost: str


def cuts(model: TextModel, text: str, kind: str, count: int) -> list[Cut]:
    """Random cuts of one kind, the same for the same text."""
    words, draw, chosen = text.split(), Random(f"{kind} {len(text)}"), list[Cut]()
    while len(chosen) < count:
        at = draw.randrange(BEFORE, len(words) - AFTER - 4)
        chosen += _cut(model, words, at, kind, draw)
    return chosen[:count]


def _cut(model: TextModel, words: list[str], at: int, kind: str, draw: Random) -> Iterator[Cut]:
    """The cut at a word, if it is possible there."""
    size = int(kind.split()[2]) if kind.startswith("spans") else 1
    lost, encode = words[at : at + size], model.tokenizer.encode_inside
    match = re.fullmatch(r"(.*?)([a-z]+)(\W*)", lost[-1])
    if match is None or (size == 1 and match[1]) or any(re.search(r"[^A-Za-z]", word) for word in lost[:-1]):
        return
    before, after = " ".join(words[at - BEFORE : at]), " ".join(words[at + size : at + size + AFTER])
    inside = " ".join([*lost[:-1], match[1] + match[2]])
    kept = "" if kind != "parts" else inside[: -draw.randint(2, 4)]
    tokens = len(encode(f" {inside}"))
    if (kind.startswith("words") and tokens > 1) or (kind == "parts" and (len(kept) < 2 or tokens < 2)):
        return
    hole = f"[[1-{tokens}]]" if kind == "parts" else f"[[{tokens}]]"
    yield Cut(f"{before} {kept}{hole}{match[3]} {after}", inside[len(kept) :])


def _filled(model: TextModel, cut: Cut) -> str:
    return str(infill(model, cut.template)[0].fills[0])


def _filled_as_word(model: TextModel, cut: Cut) -> str:
    return _filled(model, cut._replace(template=HOLE.sub("[[?]]", cut.template)))


def _filled_without(function: str, nothing: object, model: TextModel, cut: Cut) -> str:
    """Fills a hole while a function of infilling returns nothing."""
    with mock.patch.object(infilling, function, return_value=nothing):
        return _filled(model, cut)


Fill = Callable[[TextModel, Cut], str]
RULES: Mapping[str, Fill] = {"with rules": _filled, "without": partial(_filled_without, "_rules_work", False)}
SEARCH: Mapping[str, Fill] = {"searched": _filled, "token by token": partial(_filled_without, "_span_fillings", [])}
WAYS: Mapping[str, Mapping[str, Fill]] = {
    "words": RULES,
    "words of unknown length": {"[[?]]": _filled_as_word, "[[1]]": _filled},
    "parts": RULES,
    **{f"spans of {words} words": SEARCH for words in range(2, 6)},
}
COUNTS = {"words": 60, "words of unknown length": 40, "parts": 30}  # 10 of all other kinds


def measure_holes(model: TextModel, text: str, kind: str, count: int, spec: str) -> dict[str, Any]:
    chosen = cuts(model, text, kind, count)
    right, seconds = dict.fromkeys(WAYS[kind], 0), dict.fromkeys(WAYS[kind], 0.0)
    for cut in chosen:
        for way, fill in WAYS[kind].items():
            with cpu_timer() as clock:
                right[way] += fill(model, cut) == cut.lost
            seconds[way] += clock.seconds
    shares = {way: value / count for way, value in right.items()}
    examples = [[cut.template, cut.lost] for cut in chosen[:3]]
    first, second = seconds.values()
    cost = {"seconds_per_hole": {way: value / count for way, value in seconds.items()}, "seconds_ratio": first / second}
    return (
        {"model": spec, "run": model.name, "kind": kind, "holes": count, "right": shares}
        | cost
        | {"examples": examples}
    )


def english_main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a file of English text")
    parser.add_argument("--model", default="smol")
    parser.add_argument("--only", choices=list(WAYS), nargs="+", default=list(WAYS), help="kinds of holes")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args(argv)
    model, text = open_model(args.model), args.data.read_text("utf-8")
    rows = Rows(args.results / "holes.jsonl")
    for kind in args.only:
        name, count = f"{Path(args.model).name}, {kind}", COUNTS.get(kind, 10)
        rows.add(name, partial(measure_holes, model, text, kind, count, args.model))


def hole_tables(results: Path) -> dict[str, str]:
    """A row for each kind of hole and way to fill it, and for all spans together if there are several kinds."""
    held = [row for row in Rows(results / "holes.jsonl").read().values() if "seconds_per_hole" in row]
    spans = [row for row in held if row["kind"].startswith("spans")]
    lines = [_hole_line(row["kind"], [row], way) for row in held for way in row["right"]]
    lines += [_hole_line("all spans", spans, way) for way in SEARCH if len(spans) > 1]
    return {"holes": markdown(["cut out", "way", "holes", "right", "CPU s per hole"], lines)}


def _hole_line(kind: str, rows: Sequence[Mapping[str, Any]], way: str) -> list[str]:
    count = sum(row["holes"] for row in rows)
    right_holes = sum(row["holes"] * row["right"][way] for row in rows)
    seconds = sum(row["holes"] * row["seconds_per_hole"][way] for row in rows) / count
    return [kind, way, str(count), f"{right_holes:.0f} ({100 * right_holes / count:.0f} %)", f"{seconds:.1f}"]


# --- answers to choose from ---

FOLDER = Path(__file__).parent
GOALS = {"masked": 34 / 40, "causal": 37 / 40}  # of cloze.txt


class Question(NamedTuple):
    template: str
    answers: tuple[str, ...]  # the first one is right

    def moved(self) -> Question:
        """The same texts with the characters that touch the hole in the answers, up to the next space on each side."""
        before, after = self.template.split("[[?]]")
        left, right = re.search(r" ?[^ ]*$", before), re.search(r"^[^ ]*", after)
        assert left
        assert right
        template = f"{before[: left.start()]}[[?]]{after[right.end() :]}"
        return Question(template, tuple(f"{left[0]}{answer}{right[0]}" for answer in self.answers))


def questions(name: str) -> list[Question]:
    lines = (FOLDER / f"{name}.txt").read_text("utf-8").splitlines()
    fields = [[field.strip() for field in line.split("|")] for line in lines if not line.startswith("#")]
    return [Question(template, tuple(answers)) for template, *answers in fields]


def measure_choices(model: TextModel, name: str, spec: str) -> dict[str, Any]:
    choices = [(question, _choose(model, question), _choose(model, question.moved())) for question in questions(name)]
    right = [typed.best == question.answers[0] for question, typed, _ in choices]
    shift = max(
        abs(p - q) for _, typed, moved in choices for p, q in zip(typed.probabilities, moved.probabilities, strict=True)
    )
    kind = choose(model, *choices[0][0]).kind
    return {
        "model": spec,
        "run": model.name,
        "questions": len(choices),
        "right": sum(right),
        "kind": kind,
        "goal": GOALS.get(kind) if name == "cloze" else None,
        "wrong": [question.template for question, ok in zip([q for q, _, _ in choices], right, strict=True) if not ok],
        "largest_difference_if_moved": float(f"{shift:.2g}"),
        "command": f"python recipes/infill.py choose --model {spec}",
    }


def measure_masked(model: TextModel, name: str, spec: str) -> dict[str, Any]:
    """Reads the answer from the masked hole and the text on both sides of it, also with an adapted model."""
    with mock.patch.object(choice, "is_adapted", return_value=False):
        return measure_choices(model, name, spec)


def _choose(model: TextModel, question: Question) -> ChoiceResult:
    return choose(model, question.template, question.answers)[0]


def choose_main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help="a model or its directory; may be repeated", default=[])
    parser.add_argument("--results", type=Path, default=FOLDER / "results")
    options = parser.parse_args(argv)
    rows = Rows(options.results / "cloze.jsonl")
    for spec in options.model or ["smol"]:
        model = open_model(spec)
        for name in ("cloze", "cloze_cuts"):
            rows.add(f"{Path(spec).name}, {name}", partial(measure_choices, model, name, spec))
            if is_adapted(model.lm):
                rows.add(f"{Path(spec).name}, {name}, masked", partial(measure_masked, model, name, spec))


# --- programs ---

PROGRAMS = Programs()
HOLES = {"middle": 2, "last": 4}  # the number of the statement that is lost
CANDIDATES = (1, 4, 16)


class TornProgram(NamedTuple):
    """A program without the body of one statement."""

    before: str
    lost: str
    after: str

    @property
    def template(self) -> str:
        return f"{self.before} [[{len(self.lost.split())}]]{self.after}"

    def filled(self, body: str) -> str:
        return f"{self.before} {body}{self.after}"


def torn_program(index: int, number: int) -> TornProgram:
    statements = PROGRAMS.document("test", index).split("; ")
    name, _, body = statements[number].partition(" = ")
    before = "; ".join([*statements[:number], f"{name} ="])
    return TornProgram(before, body, "; " + "; ".join(statements[number + 1 :]))


def diffused(model: TextModel, torn: Sequence[TornProgram], steps: int) -> tuple[list[str], float]:
    """Whole programs, and network calls for each."""
    filled = infill(model, [one.template for one in torn], sampler="confidence", temperature=0.0, steps=steps)
    return filled.texts, filled.nfe


def continued(model: TextModel, torn: Sequence[TornProgram], candidates: int) -> tuple[list[str], float]:
    """The likeliest whole program among those that begin alike, each written on from the left until a semicolon."""
    written = generate(model, [one.before for one in torn], n=candidates, stop=[";"], max_new_tokens=8)
    whole = [torn[i // candidates].filled(_body(torn[i // candidates], each.text)) for i, each in enumerate(written)]
    if candidates == 1:
        return whole, written.nfe
    known = [text for text in whole if UNKNOWN not in text]
    scores = dict(zip(known, score(model, known), strict=True)) if known else {}
    bits = [scores[text].bits if text in scores else math.inf for text in whole]
    best = [min(range(i, i + candidates), key=bits.__getitem__) for i in range(0, len(whole), candidates)]
    return [whole[k] for k in best], written.nfe * candidates + candidates


def _body(torn: TornProgram, text: str) -> str:
    return text[len(torn.before) :].strip(" ;")


def judged(texts: Sequence[str], nfe: float, seconds: float) -> dict[str, Any]:
    right = sum(map(PROGRAMS.is_valid, texts)) / len(texts)
    error = math.sqrt(right * (1 - right) / len(texts))
    brackets = sum(map(brackets_match, texts)) / len(texts)
    return {
        "right": right,
        "right_stderr": error,
        "brackets": brackets,
        "nfe": nfe,
        "seconds_per_program": seconds / len(texts),
        "programs": len(texts),
    }


def program_row(model: TextModel, made: Trained, way: str, number: int, count: int) -> dict[str, Any]:
    torn = [torn_program(index, number) for index in range(count)]
    with cpu_timer() as clock, torch.no_grad():
        kind, _, times = way.partition(" ")
        texts, nfe = diffused(model, torn, 8) if kind == "diffusion" else continued(model, torn, int(times or 1))
    return judged(texts, nfe, clock.seconds) | made.cost()


def program_tables(results: Path) -> dict[str, str]:
    """The table: a row for each way, columns for the holes."""
    held = Rows(results / "coding.jsonl").read()
    ways = {"diffusion": "masked diffusion, 8 steps"} | {
        f"left {k}": "autoregressive" if k == 1 else f"autoregressive, {k} candidates" for k in CANDIDATES
    }
    lines = []
    for way, name in ways.items():
        rows = [held.get(f"{way}, {hole}") for hole in HOLES]
        lines.append(
            [name, *(right(row, "right") for row in rows), next((f"{row['nfe']:.1f}" for row in rows if row), "–")]
        )
    return {"coding": markdown(["method", *(f"{hole} statement, % right" for hole in HOLES), "network calls"], lines)}


def programs_main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="CPU minutes of training for each of the two models")
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("runs") / "coding")
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory for the rows")
    args = parser.parse_args(argv)
    runs = {"diffusion": presets.mdlm_code_tiny, "left": presets.ar_code_tiny}
    rows = Rows(args.results / "coding.jsonl")
    for kind, preset in runs.items():
        out = args.out / preset.__name__
        made = trained(preset(), out, args.minutes)
        for way in ["diffusion"] if kind == "diffusion" else [f"left {k}" for k in CANDIDATES]:
            for hole, number in HOLES.items():
                rows.add(f"{way}, {hole}", partial(program_row, open_model(out), made, way, number, args.programs))


# --- the parts ---


PARTS: Mapping[str, Part] = {
    "stories": stories_main,
    "english": english_main,
    "choose": choose_main,
    "programs": programs_main,
}


def main(argv: Sequence[str] | None = None) -> None:
    run_part(PARTS, argv, __doc__)


if __name__ == "__main__":
    run_recipe(main)
