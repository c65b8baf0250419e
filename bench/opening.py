"""`python -m bench.opening`: CPU seconds from the shell to the first network call of SmolLM2, which `smol` adapts.

Each run is a process of its own: Python, torch, Redraft, the model (converted into the cache before), one call of the
network on five tokens. Rows go to bench/results/opening.jsonl. Needs the extra smol.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.limit import machine
from bench.race import Row, tell

RESULTS = Path(__file__).parent / "results" / "opening.jsonl"
GOAL, RUNS = 2.0, 7
OPEN = "import redraft; model = redraft.training.load('smol')"
CALL = "\nimport torch\nwith torch.no_grad(): model.network(torch.tensor([[1, 2, 3, 4, 5]]))"


def cpu_seconds(code: str) -> float:
    """CPU seconds of a new Python process that runs the code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def rows() -> Iterator[Row]:
    yield machine("python -m bench.opening")
    cpu_seconds(OPEN)  # converts the model, if the cache does not have it
    parts = {"import redraft.tasks and torch": "import torch, redraft.tasks.infilling.infilling", "open": OPEN}
    for name, code in parts.items():
        yield {"bench": f"CPU seconds: {name}", "seconds": round(statistics.median(map(cpu_seconds, [code] * RUNS)), 2)}
    seconds = statistics.median(map(cpu_seconds, [OPEN + CALL] * RUNS))
    yield {
        "bench": "CPU seconds from the shell to the first network call, SmolLM2",
        "ratio": round(seconds, 2),
        "goal": GOAL,
        "at_most": True,
        "ok": seconds <= GOAL,
        "runs": RUNS,
    }


if __name__ == "__main__":
    sys.exit(tell(rows(), RESULTS))
