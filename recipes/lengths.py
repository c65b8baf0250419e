"""The cost of a text by its length: network calls and CPU seconds of autoregressive, diffusion and block samplers.

    python recipes/lengths.py

All use the same network of 4 layers of width 256 with random weights: the cost does not depend on the words, so nothing
is trained, and this says nothing about quality. One text at a time, no end token, one thread. Autoregressive and block
samplers have an exact cache; masked diffusion reads the whole text at every step.
Rows go to recipes/results/lengths.jsonl, one per method and length; existing rows are not measured again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rows import Rows, cpu_timer, run_recipe

from redraft.decoding import Ancestral, AnyOrder, Blocks, Sampler, Unmask
from redraft.models import AttentionPattern, BlockCausal, Causal, DiffusionLM, Full
from redraft.tasks import sample_canvases
from redraft.training import presets
from redraft.training.runs import variations

LENGTHS = (64, 128, 256, 512)
BLOCK = 16
TIMES, LONG = 2, 4.0  # repeats; a text that takes more than LONG seconds is not repeated


class Way(NamedTuple):
    """How a text is written: the attention pattern, and the sampler for a number of tokens."""

    name: str
    pattern: AttentionPattern
    sampler: Callable[[int], Sampler]


WAYS = {
    "left": Way("autoregressive, cache", Causal(), lambda size: Blocks(Ancestral(1))),
    "blocks": Way("blocks of 16, cache, one token per step", BlockCausal(BLOCK), lambda size: _blocks(BLOCK)),
    "blocks 4": Way("blocks of 16, cache, 4 steps each", BlockCausal(BLOCK), lambda size: _blocks(4)),
    "mask": Way("masked diffusion, one token per step", Full(), lambda size: Unmask(size, AnyOrder())),
    "mask 64": Way("masked diffusion, 64 steps", Full(), lambda size: Unmask(64, AnyOrder())),
}


def _blocks(steps: int) -> Sampler:
    return Blocks(Unmask(steps, AnyOrder()))


def fresh(pattern: AttentionPattern) -> DiffusionLM:
    run = presets.mdlm_tiny()
    sizes: dict[str, Any] = {"width": 256, "layers": 4, "heads": 8, "positions": None, "rotary": 10_000.0}
    run = variations.with_network(run, **sizes, pattern=pattern)
    torch.manual_seed(0)
    return DiffusionLM(run.model, run.tokenizer).eval()


def row(way: Way, size: int) -> dict[str, Any]:
    """Measures a text of `size` tokens, after a short one that warms up caches."""
    model, sampler = fresh(way.pattern), way.sampler(size)
    sample_canvases(model, way.sampler(BLOCK), model.canvas(new=BLOCK))
    spent = []
    for _ in range(TIMES):
        with cpu_timer() as clock:
            record = sample_canvases(model, sampler, model.canvas(new=size))
        spent.append(clock.seconds)
        if clock.seconds > LONG:
            break
    made = {"network": "4 × 256, fresh weights", "sampler": str(sampler)}
    return {"length": size, "nfe": record.nfe, "seconds": min(spent), "times": len(spent), **made}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument(
        "--results", type=Path, default=Path(__file__).parent / "results", help="directory for the rows"
    )
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows = Rows(args.results / "lengths.jsonl")
    for name, way in WAYS.items():
        for size in args.lengths:
            rows.add(f"{name}, {size}", partial(row, way, size))


if __name__ == "__main__":
    run_recipe(main)
