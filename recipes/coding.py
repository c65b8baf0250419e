"""Filling holes in programs: masked diffusion against autoregressive candidates.

    python recipes/coding.py                                # trains both, five minutes of one core each, and measures

The right-hand side of one statement is removed from a program of the test stream: the middle statement, or the last,
whose value is printed after it. The filled program is right if its types fit and its result is true, by an exact
checker. Diffusion sees both sides and is given the number of missing tokens. The autoregressive model writes from the
left until the semicolon, once or k times. Of k candidates, the one with the likeliest whole program is kept, at k times
the cost. Rows go to recipes/results/coding.jsonl; existing rows are not measured again.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rows import RESULTS, Rows, Trained, cpu_timer, run_recipe, trained
from tables import markdown, right

from redraft.core.text.tokenizers import UNKNOWN
from redraft.tasks import TextModel, generate, infill, open_model, score
from redraft.training import Programs, brackets_match, presets

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


def measured(model: TextModel, made: Trained, way: str, number: int, count: int) -> dict[str, Any]:
    torn = [torn_program(index, number) for index in range(count)]
    with cpu_timer() as clock, torch.no_grad():
        kind, _, times = way.partition(" ")
        texts, nfe = diffused(model, torn, 8) if kind == "diffusion" else continued(model, torn, int(times or 1))
    return judged(texts, nfe, clock.seconds) | made.cost()


def tables(results: Path) -> dict[str, str]:
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


def main(argv: Sequence[str] | None = None) -> None:
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
                rows.add(f"{way}, {hole}", partial(measured, open_model(out), made, way, number, args.programs))


if __name__ == "__main__":
    run_recipe(main)
