"""`python -m bench.speculation DIR [--draft DIR]`: what speculation can win with a causal model on this CPU.

First the cost of reading n tokens behind a cache, c(n)/c(1), which decides it. Then tokens per CPU second of plain
decoding (the ordinary pass, the lean one, int8 weights) and of speculation, side by side on the same prompts: each
round runs all of them in turn, on one thread. Rows go to bench/results/speculation.jsonl.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

from bench.limit import machine
from redraft import load
from redraft.model import DiffusionLM
from redraft.networks import Transformer
from redraft.ops import rng
from redraft.runs import in_int8, in_weights
from redraft.samplers import Blocks, Costs, DiffusionDraft, Drafter, PromptLookup, Sampler, Speculate, Unmask, last
from redraft.types import Context
from redraft.write import opened

RESULTS = Path(__file__).parent / "results" / "speculation.jsonl"
PROMPTS = (
    "The children walked to the garden because",
    "Repeat after me: the quick brown fox jumps over the lazy dog. The quick brown fox",
    "A list of colours: red, green, blue, red, green,",
)
SIZES = (1, 2, 3, 5, 9, 16, 32)


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of this thread: other work on the machine does not count."""
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def reading(model: DiffusionLM, held: int = 64, rounds: int = 5) -> dict[int, float]:
    """Seconds to read n tokens behind `held` others and to say what follows each, by n."""
    states = model.config.vocab.size - 1
    ids = torch.arange(held + max(SIZES))[None] % states
    place = torch.arange(ids.shape[1])[None]

    def read(n: int) -> None:
        cache = model.absorb(ids[:, :held], Context(place=place[:, :held])).cache
        found.setdefault(n, []).append(seconds(lambda: said(n, cache)))

    def said(n: int, cache: Any) -> object:
        window = slice(held, held + n)
        after = model.absorb(ids[:, window], Context(place=place[:, window], cache=cache)).cache
        return model.network.logits(after.said.states)  # type: ignore[union-attr]

    found: dict[int, list[float]] = {}
    with torch.no_grad():
        for _ in range(rounds + 1):
            for n in SIZES:
                read(n)
    return {n: median(each[1:]) for n, each in found.items()}


def ordinary() -> Any:
    """Without the lean pass."""
    return patch.object(Transformer, "_leanly", lambda *_: False)


def raced(sides: dict[str, tuple[DiffusionLM, Sampler]], new: int, rounds: int) -> dict[str, dict[str, Any]]:
    """Tokens per CPU second of each side, and its texts."""
    spent, texts = dict.fromkeys(sides, 0.0), {name: [] for name in sides}  # type: dict[str, float], dict[str, list[str]]
    for number in range(rounds):
        prompt = PROMPTS[number % len(PROMPTS)]
        for name, (model, sampler) in sides.items():
            canvas = model.canvas(prompt, new=new)

            def write(model: DiffusionLM = model, sampler: Sampler = sampler, canvas: Any = canvas) -> None:
                texts[name].append(model.text(last(sampler(model, model.process, canvas, rng=rng(0))))[0])  # noqa: B023

            with ordinary() if name.endswith("ordinary") else patch.dict({}):
                spent[name] += seconds(write)
    return {name: {"tokens_per_second": rounds * new / spent[name], "texts": texts[name]} for name in sides}


def samplers(drafts: dict[str, Drafter], costs: Any) -> dict[str, Sampler]:
    return {f"speculation, {name}": Speculate(d, length=8, temperature=0, costs=costs) for name, d in drafts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--draft", type=Path, help="a diffusion model with the same tokenizer")
    parser.add_argument("--new", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    model = load(asked.model).eval()
    small, packed = in_int8(load(asked.model)).eval(), in_weights(load(asked.model), "packed").eval()
    drafts: dict[str, Drafter] = {"lookup": PromptLookup()}
    if asked.draft is not None:
        other = opened(asked.draft)
        drafts["draft"] = DiffusionDraft(other.model.eval(), other.model.process, canvas=other.always)  # type: ignore[arg-type]
    row: dict[str, Any] = {"model": asked.model.name, **machine(f"python -m bench.speculation {asked.model.name}")}
    for name, each in (("fp32", model), ("int8", small), ("packed", packed)):
        cost = reading(each)
        row[f"c(n)/c(1) {name}"] = {n: round(cost[n] / cost[1], 2) for n in SIZES}
        row[f"c(1) ms {name}"] = round(1e3 * cost[1], 1)
        print(name, f"c(1) = {1e3 * cost[1]:.1f} ms,", "c(n)/c(1):", row[f"c(n)/c(1) {name}"], flush=True)
    plain = Blocks(Unmask(1))
    costs = Costs(read=(row["c(n)/c(1) int8"][5] - 1) / 4, draft=0.0 if asked.draft is None else 0.5)
    sides: dict[str, tuple[DiffusionLM, Sampler]] = {
        "plain, ordinary": (model, plain),
        "plain": (model, plain),
        "plain, int8": (small, plain),
        "plain, packed": (packed, plain),
    }
    tallies = samplers(drafts, costs)
    sides |= {f"{name}, int8": (small, sampler) for name, sampler in tallies.items()}
    found = raced(sides, asked.new, asked.rounds)
    for name, each in found.items():
        row[name] = round(each["tokens_per_second"], 1)
        print(f"{name:32} {each['tokens_per_second']:7.1f} tokens per CPU second", flush=True)
    for name, sampler in tallies.items():
        assert isinstance(sampler, Speculate)
        same = sum(a == b for a, b in zip(found["plain, int8"]["texts"], found[f"{name}, int8"]["texts"], strict=True))
        row[name] = {
            "acceptance": round(sampler.tally.acceptance, 3),
            "tokens_per_round": round(sampler.tally.tokens_per_round, 2),
            "same_texts": f"{same}/{asked.rounds}",
        }
        print(name, row[name], flush=True)
    with asked.out.open("a") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
