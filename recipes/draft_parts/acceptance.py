"""At which place of a draft does a drafter go wrong, and do more steps of it help?

    python recipes/drafts.py acceptance                 # about five CPU minutes in all
    python recipes/drafts.py acceptance --only "sure, 1 step, T = 0"

A causal model writes stories with drafts of eight tokens by masked diffusion. With one step a drafter draws all eight
as if they were independent; with more steps it draws them in groups, each given those before it. The *sure* drafter is
trained as long as the causal model, the *unsure* one for a quarter of that. At temperature 1 a draft is accepted by
`TokenwiseRule`, which leaves the causal model's distribution as it is.

Each row has the share of drafts that are right up to each place, and the tokens written per pass of the causal model.
Minutes are CPU minutes of one core. Rows go to recipes/results/acceptance.jsonl as they are finished, models to
runs/acceptance; an interrupted recipe continues where it stopped. Answer: docs/results/speculation.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from results_pages.tables import Held, cell, markdown
from rows import Measure, Rows, Trained, add_places, cpu_timer, measure_all, trained

from redraft.apps import Chart, Curve, Svg, chart_picture
from redraft.core import join_words, rng, split_words
from redraft.decoding import DiffusionDraft, SpeculativeSampler, TokenwiseRule, final_canvas
from redraft.decoding.samplers.base import DraftStats
from redraft.training import STORY_LANGUAGE, presets, split_seed

LENGTH, STEPS, TEMPERATURES = 8, (1, 2, 4, 8), (0, 1)
SHARES = {"ar": 1.0, "sure": 1.0, "unsure": 0.25}  # of the minutes
PROMPTS, GIVEN, NEW = 24, 8, 48  # stories, their given words, and tokens to write


@dataclass
class CountByPlace(DraftStats):
    """Counts how often all tokens up to a place were accepted, of full drafts."""

    full: int = 0
    right: list[int] = field(default_factory=lambda: [0] * LENGTH)

    def add(self, drafted: int, accepted: int, written: int) -> None:
        super().add(drafted, accepted, written)
        if drafted == LENGTH:
            self.full += 1
            for place in range(accepted):
                self.right[place] += 1


def row(causal: Trained, drafter: Trained, steps: int, temperature: int) -> dict[str, Any]:
    model, other, counts = causal.model.eval(), drafter.model.eval(), CountByPlace()
    draft = DiffusionDraft(other, other.process, steps, row_length=presets.STORY_LENGTH)
    sampler = SpeculativeSampler(draft, TokenwiseRule(), LENGTH, None, temperature, tally=counts)
    stories = (split_words(STORY_LANGUAGE.text(split_seed(0, "test"), index))[:GIVEN] for index in range(PROMPTS))
    with torch.no_grad(), cpu_timer() as clock:
        for seed, words in enumerate(stories):
            final_canvas(sampler(model, model.process, model.canvas(join_words(words), new=NEW), rng=rng(seed)))
    return {
        **causal.cost(),
        "stages": [*drafter.stages(), *causal.stages()],
        "by_place": [count / max(1, counts.full) for count in counts.right],
        "drafts": counts.full,
        "tokens_per_pass": counts.tokens_per_round,
        "seconds": clock.seconds,
        "prompts": PROMPTS,
    }


def row_name(drafter: str, steps: int, temperature: int) -> str:
    return f"{drafter}, {steps} step{'s' * (steps > 1)}, T = {temperature}"


def jobs(out: Path, minutes: float) -> Iterator[tuple[str, Measure]]:
    runs = {"ar": presets.ar_tiny(), "sure": presets.mdlm_tiny(), "unsure": presets.mdlm_tiny()}
    made = cache(lambda name: trained(runs[name], out / name, minutes * SHARES[name]))
    for temperature, drafter, steps in product(TEMPERATURES, ("sure", "unsure"), STEPS):
        yield row_name(drafter, steps, temperature), partial(measured, made, drafter, steps, temperature)


def measured(made: Any, drafter: str, steps: int, temperature: int) -> dict[str, Any]:
    return row(made("ar"), made(drafter), steps, temperature)


# --- the page ---


def tables(results: Path) -> Mapping[str, str]:
    rows = Rows(results / "acceptance.jsonl").read()
    if not rows:
        return {"places": "*No rows yet; this makes them:* `python recipes/drafts.py acceptance`"}
    heads = (f"{steps} step{'s' * (steps > 1)}" for steps in STEPS)
    lines = [
        [f"{drafter} drafter, temperature {temperature}", *(passes(rows, drafter, n, temperature) for n in STEPS)]
        for temperature, drafter in product(TEMPERATURES, ("sure", "unsure"))
    ]
    return {"places": markdown(["tokens per pass", *heads], lines)}


def passes(rows: Held, drafter: str, steps: int, temperature: int) -> str:
    return cell(rows.get(row_name(drafter, steps, temperature)), lambda row: f"{row['tokens_per_pass']:.2f}")


def pictures(results: Path) -> dict[str, Svg]:
    """The share of drafts that are right up to each place, by steps of the drafter."""
    rows = Rows(results / "acceptance.jsonl").read()
    charts = [
        Chart(
            f"Accepted up to each place: {drafter} drafter, temperature {temperature}",
            "place in the draft",
            "% of drafts",
            tuple(
                Curve.through(
                    f"{steps} step{'s' * (steps > 1)}",
                    ((place, 100 * share) for place, share in enumerate(rows[name]["by_place"], 1)),
                )
                for steps in STEPS
                if (name := row_name(drafter, steps, temperature)) in rows
            ),
            top=100,
            x_ticks=tuple(range(1, LENGTH + 1)),
        )
        for drafter, temperature in (("sure", 0), ("unsure", 1))
    ]
    return {"acceptance": chart_picture(charts)}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.5, help="CPU minutes for the causal model")
    add_places(parser, "runs/acceptance")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    measure_all(Rows(options.results / "acceptance.jsonl"), jobs(options.out, options.minutes), options.only)
