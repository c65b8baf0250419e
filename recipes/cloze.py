"""`python recipes/cloze.py`: how often `choose` takes the right answer to cloze questions, typed as a user types them.

    redraft import smollm2 --out models/smollm2
    python recipes/cloze.py --model smol --model models/smollm2

recipes/cloze.txt has questions whose hole follows a space; in recipes/cloze_cuts.txt the hole touches part of a word, a
quotation mark or a digit. Both were written before any of them was scored. Each question is also scored with the hole
moved: the space, or the text that touches the hole, is part of the answers instead of the template. The probabilities
must not change. A model adapted from a causal one, such as smol, is also scored from the masks, with its adapter on.
Rows go to recipes/results/cloze.jsonl, one per model, file and way.
"""

from __future__ import annotations

import argparse
import re
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from rows import Rows, run_recipe

from redraft.models.causal_base import is_adapted
from redraft.tasks import ChoiceResult, TextModel, choose, open_model
from redraft.tasks.choice import choice

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


def measure(model: TextModel, name: str, spec: str) -> dict[str, Any]:
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
        "command": f"python recipes/cloze.py --model {spec}",
    }


def measure_masked(model: TextModel, name: str, spec: str) -> dict[str, Any]:
    """Reads the answer from the masked hole and the text on both sides of it, also with an adapted model."""
    with mock.patch.object(choice, "is_adapted", return_value=False):
        return measure(model, name, spec)


def _choose(model: TextModel, question: Question) -> ChoiceResult:
    return choose(model, question.template, question.answers)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help="a model or its directory; may be repeated", default=[])
    parser.add_argument("--results", type=Path, default=FOLDER / "results")
    options = parser.parse_args()
    rows = Rows(options.results / "cloze.jsonl")
    for spec in options.model or ["smol"]:
        model = open_model(spec)
        for name in ("cloze", "cloze_cuts"):
            rows.add(f"{Path(spec).name}, {name}", partial(measure, model, name, spec))
            if is_adapted(model.lm):
                rows.add(f"{Path(spec).name}, {name}, masked", partial(measure_masked, model, name, spec))


if __name__ == "__main__":
    run_recipe(main)
