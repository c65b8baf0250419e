"""`python -m bench.parts`: time of each part of a training step, by torch's profiler on one thread; 6 × 384, batch 8.

Values are fractions of the CPU time of all tensor operations, without the operations that they call. Rows go to
bench/results/parts.jsonl, from which `make results` makes a table in docs/results/bench.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from bench.core import LENGTH, build, our_step
from bench.limit import machine
from bench.race import Row, report, tell

RESULTS = Path(__file__).parent / "results" / "parts.jsonl"
VOCAB, BATCH, STEPS = 8192, 8, 3
PARTS = {  # by the beginning of an operation's name, the first that fits
    "products of the linear layers": ("aten::mm", "aten::addmm", "aten::bmm"),
    "attention kernel, forward and backward": ("aten::_scaled_dot_product",),
    "products and sums of elements: norms, rotary positions, gates, residuals": ("aten::mul", "aten::add"),
    "AdamW, average of the weights, norm of the gradient": ("aten::_fused_adam", "aten::lerp", "aten::linalg_vector"),
    "gated layer: SiLU": ("aten::silu",),
    "softmax and cross-entropy": ("aten::_log_softmax", "aten::exp"),
}


def shares(spent: Mapping[str, float]) -> dict[str, float]:
    """The share of each part in the time of all operations; what fits nowhere is the rest."""
    seconds = dict.fromkeys([*PARTS, "the rest"], 0.0)
    for name, time in spent.items():
        seconds[next((part for part, begins in PARTS.items() if name.startswith(begins)), "the rest")] += time
    whole = sum(seconds.values())
    return {part: time / whole for part, time in seconds.items()}


def profiled(vocab: int = VOCAB, batch: int = BATCH, steps: int = STEPS, **sizes: int) -> dict[str, float]:
    """Microseconds of each operation over some training steps, after one that does not count."""
    model = build(vocab, **sizes)
    step = our_step(model, torch.randint(vocab, (batch, LENGTH), generator=torch.Generator().manual_seed(0)), "fp32")
    step()
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        for _ in range(steps):
            step()
    return {event.key: event.self_cpu_time_total for event in prof.key_averages()}


def rows() -> Iterator[Row]:
    torch.set_num_threads(1)
    yield machine("python -m bench.parts")
    for part, share in shares(profiled()).items():
        yield report(part, None, ratio=share)


if __name__ == "__main__":
    sys.exit(tell(rows(), RESULTS))
