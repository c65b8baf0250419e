"""The limit of this machine: the best speed of the model's matrix products, in both precisions."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterator
from pathlib import Path

import torch

from bench.products import Operand, Product, repeated
from bench.race import Row, rounds

BATCH, LENGTH, WIDTH, HIDDEN, VOCAB = 8, 256, 384, 1024, 8193
LAYERS = {"queries, keys, values": (WIDTH, 3 * WIDTH), "attention out": (WIDTH, WIDTH), "MLP up": (WIDTH, 2 * HIDDEN)}
LAYERS |= {"MLP down": (HIDDEN, WIDTH), "output": (WIDTH, VOCAB)}
TRIES = 5


def machine(command: str) -> Row:
    """Where and how the rows that follow were measured."""
    return {
        "machine": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),  # of the minute before: other work slows both sides of a ratio unevenly
        "torch": torch.__version__,
        "python": platform.python_version(),
        "command": command,
    }


def processor() -> str:
    """The name of the CPU."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def linear(rows: int, inputs: int, outputs: int, dtype: torch.dtype) -> list[Product]:
    """A linear layer: forward, the gradient of its input, that of its weight."""
    x, w, y = (Operand(shape, (shape[1], 1), dtype) for shape in ((rows, inputs), (outputs, inputs), (rows, outputs)))
    return [Product(x, w.transposed), Product(y, w), Product(y.transposed, x)]


def limits(precisions: dict[str, torch.dtype], rows: int = BATCH * LENGTH) -> Iterator[Row]:
    """The best speed of each precision, and that of every product, in GFLOP/s; products of all precisions in turn."""
    kinds = ("forward", "input gradient", "weight gradient")
    named = [
        (name, f"{layer}, {kind}", product)
        for layer, shape in LAYERS.items()
        for name, dtype in precisions.items()
        for kind, product in zip(kinds, linear(rows, *shape, dtype), strict=True)
    ]
    times = rounds([repeated([product]) for _, _, product in named], TRIES)
    best = (min(taken) for taken in zip(*times, strict=True))
    speeds = [product.flops / taken / 1e9 for (*_, product), taken in zip(named, best, strict=True)]
    for precision in precisions:
        own = {what: round(speed, 1) for (name, what, _), speed in zip(named, speeds, strict=True) if name == precision}
        yield {
            "limit": precision,
            "gflops": max(own.values()),
            "median_gflops": statistics.median(own.values()),
            "products": own,
        }
