"""What a text costs against its length: network calls and seconds of a core, left to right, by diffusion, by blocks.

    python recipes/lengths.py

The same network of 4 layers × 256 with fresh weights: cost does not depend on what is written, so nothing is learnt and
nothing is said about quality. One text at a time, no end token, one thread. Left to right and by blocks the network
remembers what it has read (an exact cache); masked diffusion reads the whole text at every step.
Rows go to recipes/results/lengths.jsonl, one per way and length; a row that is there is not measured again.
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
TIMES, LONG = 2, 4.0  # a text that takes less than so many seconds is written again; the least time counts


class Way(NamedTuple):
    """How a text is written: who sees whom, and by which sampler for so many tokens."""

    name: str
    pattern: AttentionPattern
    sampler: Callable[[int], Sampler]


WAYS = {
    "left": Way("left to right, cache", Causal(), lambda size: Blocks(Ancestral(1))),
    "blocks": Way("blocks of 16, cache, a token per step", BlockCausal(BLOCK), lambda size: _blocks(BLOCK)),
    "blocks 4": Way("blocks of 16, cache, 4 steps each", BlockCausal(BLOCK), lambda size: _blocks(4)),
    "mask": Way("masked diffusion, a token per step", Full(), lambda size: Unmask(size, AnyOrder())),
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
    """A short text goes before, so that what is done once does not count."""
    model, sampler = fresh(way.pattern), way.sampler(size)
    sample_canvases(model, way.sampler(BLOCK), model.canvas(new=BLOCK))
    spent = []
    for _ in range(TIMES):
        with cpu_timer() as clock:
            found = sample_canvases(model, sampler, model.canvas(new=size))
        spent.append(clock.seconds)
        if clock.seconds > LONG:
            break
    made = {"network": "4 × 256, fresh weights", "sampler": str(sampler)}
    return {"length": size, "nfe": found.nfe, "seconds": min(spent), "times": len(spent), **made}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="where the rows go")
    told = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows = Rows(told.results / "lengths.jsonl")
    for name, way in WAYS.items():
        for size in told.lengths:
            rows.add(f"{name}, {size}", partial(row, way, size))


if __name__ == "__main__":
    run_recipe(main)
