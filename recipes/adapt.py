"""`python recipes/adapt.py --data PATH --out DIR`: adapt a causal model to fill holes, and measure what that gives.

Trains an adapter on real text (full attention, the shift kept, few masks, states aligned with the causal model's) by
`redraft adapt`, and then fills holes of held-out text, single tokens and spans of 2 to 5, in five ways: the unadapted
model that sees both sides, the causal model that sees the left side only, 16 continuations of the causal model rescored
with the right side, the adapter alone, and the adapter's candidates judged by the causal model (`redraft infill`).

Both parts continue where they were stopped: the training by its checkpoints, bit for bit, the holes by the rows in
DIR/holes.jsonl. When all are filled, one row with the shares of exact answers goes to recipes/results/adapt.jsonl.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from redraft.cli.adapt import AdaptModel
from redraft.data import evaluation, tokenise
from redraft.model import DiffusionLM
from redraft.networks import Causal, adapter_off
from redraft.ops import rng
from redraft.samplers import ProposeAndJudge, last
from redraft.types import Canvas, Context
from redraft.write import CausalJudge, Opened, opened

RESULTS = Path(__file__).parent / "results" / "adapt.jsonl"
WAYS = ("unadapted", "left only", "causal, rescored", "adapter", "both")
TRIES = 16


def train(asked: argparse.Namespace) -> None:
    """The adapter; the same command continues."""
    AdaptModel(
        asked.model,
        asked.out / "run",
        (asked.data,),
        length=asked.length,
        steps=asked.steps,
        batch=asked.batch,
        lr=1e-3,
        lora=asked.lora,
        align=10.0,
        rates=(0.05, 0.6),
        even=True,
        save_every=50,
    )()


def holes(it: Opened, count: int) -> list[tuple[Tensor, int, int]]:
    """Held-out rows of the run, each with the place and the length of a hole: 1 token, or 2 to 5, in turn."""
    assert it.run is not None
    batches = evaluation(tokenise(it.run.data, "test", it.run.tokenizer, it.run.framing), count)
    rows = [row for batch in batches for row in batch.tokens][:count]
    sizes = [1 if number % 2 == 0 else 2 + number // 2 % 4 for number in range(len(rows))]
    return [(row, len(row) // 2 - size // 2, size) for row, size in zip(rows, sizes, strict=True)]


def masked(model: DiffusionLM, row: Tensor, begin: int, size: int) -> Canvas:
    fixed = torch.ones(1, len(row), dtype=torch.bool)
    fixed[0, begin : begin + size] = False
    return Canvas(row[None].masked_fill(~fixed, model.config.vocab.masked), fixed)


def by_both(model: DiffusionLM, canvas: Canvas, judge: Any) -> Tensor:
    return last(ProposeAndJudge(judge, TRIES)(model, model.process, canvas, rng=rng(0))).z[0]


def nothing(z: Tensor, pad: Tensor | None) -> Tensor:
    return torch.zeros(len(z))


def continued(model: DiffusionLM, row: Tensor, begin: int, size: int) -> Tensor:
    """(16, L) the likeliest continuations of the left side by the causal model, by beam search, and the right side."""
    beams, score = row[None, :begin], torch.zeros(1, dtype=torch.float64)
    mask = model.config.vocab.masked
    with torch.no_grad(), adapter_off(model):
        for _ in range(size):
            states = model.network(beams, None, Context(pattern=Causal()))[:, -1]
            said = (
                model.network.logits(states).double().index_fill(-1, torch.tensor([mask]), -torch.inf).log_softmax(-1)
            )
            total = (score[:, None] + said).flatten()
            best, at = total.topk(min(TRIES, int(total.isfinite().sum())))
            score, width = best, said.shape[-1]
            beams = torch.cat([beams[at // width], (at % width)[:, None]], 1)
    return torch.cat([beams, row[None, begin + size :].expand(len(beams), -1)], 1)


def answers(model: DiffusionLM, row: Tensor, begin: int, size: int) -> dict[str, bool]:
    """Which ways give the right tokens."""
    judge, canvas, window = CausalJudge(model), masked(model, row, begin, size), slice(begin, begin + size)
    left = continued(model, row, begin, size)
    with adapter_off(model):
        unadapted = by_both(model, canvas, nothing)
    found = {
        "unadapted": unadapted,
        "left only": left[0],
        "causal, rescored": left[int(judge(left, None).argmax())],
        "adapter": by_both(model, canvas, nothing),
        "both": by_both(model, canvas, judge),
    }
    return {way: torch.equal(z[window], row[window]) for way, z in found.items()}


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    it, file = opened(asked.out / "run"), asked.out / "holes.jsonl"
    model = it.model.eval()
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for number, (row, begin, size) in enumerate(holes(it, asked.holes)):
        if number >= len(rows):
            rows.append({"size": size, **answers(model, row, begin, size)})
            with file.open("a") as out:
                out.write(json.dumps(rows[-1]) + "\n")

    def shares(some: list[dict[str, Any]]) -> dict[str, float]:
        return {way: round(sum(row[way] for row in some) / max(1, len(some)), 4) for way in WAYS}

    single, spans = ([row for row in rows if (row["size"] == 1) == one] for one in (True, False))
    return {"holes": [len(single), len(spans)], "single": shares(single), "spans of 2-5": shares(spans)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--model", type=Path, default=Path("models/smollm2"), help="a causal model: redraft import smollm2"
    )
    parser.add_argument("--data", required=True, help="files, or a directory, of text")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lora", type=int, default=32)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=64, help="tokens of a row, in training and around a hole")
    parser.add_argument("--holes", type=int, default=1000)
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    train(asked)
    told = {"model": asked.model.name, "lora": asked.lora, "steps": asked.steps, "batch": asked.batch}
    row = {**told, **measured(asked), "command": " ".join(["python recipes/adapt.py", *sys.argv[1:]])}
    with asked.results.open("a") as out:
        out.write(json.dumps(row) + "\n")
    print(json.dumps(row, indent=1))


if __name__ == "__main__":
    main()
