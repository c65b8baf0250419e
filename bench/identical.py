"""`python -m bench.identical DIR [--weights int8] [--prompts 200]`: checks that drafts do not change greedy texts.

Each prompt is the beginning of an embedded story. It is continued plainly and with prompt lookup (or `--draft DIR`),
always with drafts of full length. Each prompt is a row in bench/results/identical.jsonl; existing rows are not measured
again, so the command can be interrupted and continued.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from bench.limit import machine
from redraft.core import rng
from redraft.decoding import (
    Blocks,
    DiffusionDraft,
    Drafter,
    PromptLookup,
    Sampler,
    SpeculativeSampler,
    Unmask,
    final_canvas,
)
from redraft.models import DiffusionLM
from redraft.tasks import open_model
from redraft.training import StoryCorpus, load

RESULTS = Path(__file__).parent / "results" / "identical.jsonl"


def prompts(count: int) -> list[str]:
    """The first eight words of each of `count` embedded stories."""
    return [" ".join(StoryCorpus().document("test", i).split()[:8]) for i in range(count)]


def written(model: DiffusionLM, sampler: Sampler, prompt: str, new: int) -> tuple[list[int], float]:
    """The ids, and CPU seconds."""
    begun = time.thread_time()
    canvas = final_canvas(sampler(model, model.process, model.canvas(prompt, new=new), rng=rng(0)))
    return canvas.z[0].tolist(), time.thread_time() - begun


def compared(model: DiffusionLM, draft: Drafter, prompt: str, new: int, length: int) -> dict[str, Any]:
    sampler = SpeculativeSampler(draft, length=length, costs=None, temperature=0)
    (plain, slow), (drafted, fast) = (written(model, s, prompt, new) for s in (Blocks(Unmask(1)), sampler))
    return {
        "same": plain == drafted,
        "accepted": sampler.tally.accepted,
        "drafted": sampler.tally.drafted,
        "rounds": sampler.tally.rounds,
        "seconds": [round(slow, 2), round(fast, 2)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--weights", choices=("int8", "packed"), default="int8")
    parser.add_argument("--draft", type=Path, help="a diffusion model with the same tokenizer; default: prompt lookup")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--new", type=int, default=24)
    parser.add_argument("--length", type=int, default=4)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    draft: Drafter = PromptLookup()
    if args.draft is not None:
        other = open_model(args.draft)
        draft = DiffusionDraft(other.lm.eval(), other.lm.process, row_length=other.full_row_length)  # type: ignore[arg-type]
    of = {"model": args.model.name, "weights": args.weights, "draft": getattr(args.draft, "name", "lookup")}
    known = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    rows = [row for row in known if all(row[k] == v for k, v in of.items()) and "prompt" in row]
    done = {row["prompt"] for row in rows}
    model = load(args.model, weights=args.weights).eval()
    for number, prompt in enumerate(prompts(args.prompts)):
        if number in done:
            continue
        row = {**of, "prompt": number, **compared(model, draft, prompt, args.new, args.length)}
        row |= machine("python -m bench.identical") if number == 0 else {}
        rows.append(row)
        with args.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
    same, accepted, drafted = (sum(row[name] for row in rows) for name in ("same", "accepted", "drafted"))
    print(f"{same} of {len(rows)} texts the same; {accepted} of {drafted} drafted tokens accepted")
    summed = {"name": ", ".join(of.values()), **of, "texts": len(rows), "same": same}
    sum_up(args.out, summed | {"accepted": accepted, "drafted": drafted})


def sum_up(file: Path, row: dict[str, Any]) -> None:
    """The sum of all prompts as a row with a name, in place of an older one."""
    others = [line for line in file.read_text().splitlines() if json.loads(line).get("name") != row["name"]]
    file.write_text("\n".join([*others, json.dumps(row)]) + "\n")


if __name__ == "__main__":
    main()
