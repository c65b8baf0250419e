"""`python -m bench.steps`: what a sampler adds to its network calls, in CPU seconds on one thread.

The model is `story`. Beside it runs the loop that one would write by hand for this one case, with the same network:
no prompts, rules, schedules, records or seeds per row. With --before DIR, a checkout of another commit writes the same
texts in turn. Rows go to bench/results/steps.jsonl.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bench.limit import machine
from bench.products import recorded, repeated
from bench.race import Row, compared, report, tell
from bench.texts import cpu_seconds, rounds
from redraft.core import Context
from redraft.decoding import AnyOrder, EntropyBound, Sampler, Unmask
from redraft.models import DiffusionLM
from redraft.tasks import open_model, sample_canvases

RESULTS = Path(__file__).parent / "results" / "steps.jsonl"
GOALS = {"any-order": 0.3, "confidence": 0.3, "entropy-bound": 0.4}  # milliseconds per call, batch 1
SHARE_GOAL = 0.08  # of the network's time, batch 16
FASTER_GOAL = 1.8  # times the call of the code before
SAMPLERS: dict[str, Sampler] = {
    "any-order": Unmask(32, AnyOrder()),
    "confidence": Unmask(32),
    "entropy-bound": Unmask(None, EntropyBound()),
}
LENGTH = 68


@dataclass
class Clock:
    """CPU seconds of the network and its output layer, and the number of network calls."""

    seconds: float = 0.0
    calls: int = 0

    @contextmanager
    def on(self, model: DiffusionLM) -> Iterator[None]:
        network = model.network
        trunk, output = network.forward, network.logits

        def timed(function: Callable[..., torch.Tensor], calls: int) -> Callable[..., torch.Tensor]:
            def run(*args: object) -> torch.Tensor:
                begin = time.process_time()
                out = function(*args)
                self.seconds += time.process_time() - begin
                self.calls += calls
                return out

            return run

        network.forward, network.logits = timed(trunk, 1), timed(output, 0)  # type: ignore[method-assign]
        yield
        del network.forward, network.logits


def spent(model: DiffusionLM, sampler: Sampler, batch: int) -> tuple[float, float, int]:
    """CPU seconds of all but the network, those of the network, and how many calls there were."""
    canvas, clock = model.canvas(new=LENGTH, rows=batch), Clock()
    with clock.on(model):
        whole = cpu_seconds(partial(sample_canvases, model, sampler, canvas, batch=batch))
    return whole - clock.seconds, clock.seconds, clock.calls


class Operations(TorchDispatchMode):
    """Counts tensor operations, those of the network as well."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def operations(model: DiffusionLM, sampler: Sampler, batch: int) -> int:
    """Of a whole text."""
    canvas = model.canvas(new=LENGTH, rows=batch)
    with Operations() as counted:
        sample_canvases(model, sampler, canvas, batch=batch)
    return counted.count


def overhead(model: DiffusionLM, tries: int) -> Iterator[Row]:
    for batch, count in ((1, tries), (16, max(3, tries // 4))):
        for name, sampler in SAMPLERS.items():
            found = [spent(model, sampler, batch) for _ in range(count + 1)][1:]
            added, network = (statistics.median(lap[i] / lap[2] for lap in found) for i in (0, 1))
            share = statistics.median(lap[0] / lap[1] for lap in found)
            least = 1000 * min(lap[0] / lap[2] for lap in found)  # nearest to that of a machine with no other work
            more: Row = {"least_ms": least, "network_ms": 1000 * network, "calls": found[0][2], "tries": count}
            more["operations"] = operations(model, sampler, batch) / found[0][2]
            what = f"{name}, 2 × 128, {LENGTH} tokens, batch {batch}"
            if batch == 1:
                title = f"sampling overhead in ms per call, {what}"
                yield report(title, GOALS[name], ratio=1000 * added, share=share, **more)
            else:
                yield report(f"sampling overhead / network, {what}", SHARE_GOAL, ratio=share, ms=1000 * added, **more)


@torch.no_grad()
def by_hand(model: DiffusionLM, steps: int = 32) -> np.ndarray:
    """A text in random order, one row: numpy on the arrays that tensors share."""
    network, mask, draw = model.network, model.config.vocab.masked, np.random.default_rng(0)
    order, u = draw.permutation(LENGTH), draw.random(LENGTH)
    z = torch.full((1, LENGTH), mask)
    for part in np.array_split(order, steps):
        at = np.sort(part)
        logits = network.logits(network(z, None, Context(), torch.from_numpy(at))).numpy()
        logits[:, mask] = -np.inf
        cdf = np.exp(logits - logits.max(1, keepdims=True)).cumsum(1, dtype=np.float64)
        z.numpy()[0, at] = (cdf <= u[at, None] * cdf[:, -1:]).sum(1)
    return z.numpy()


CHILD = """
import sys, time, torch
from redraft.decoding import AnyOrder, EntropyBound, Unmask
from redraft.tasks import open_model, sample_canvases
torch.set_num_threads(1)
model = open_model("story").lm
entropy = Unmask(None, EntropyBound())
samplers = {"any-order": Unmask(32, AnyOrder()), "confidence": Unmask(32), "entropy-bound": entropy}
for line in sys.stdin:
    name, batch = line.split()
    canvas = model.canvas(new=68, rows=int(batch))
    begin = time.process_time()
    sample_canvases(model, samplers[name], canvas, batch=int(batch))
    print(time.process_time() - begin, flush=True)
"""


@contextmanager
def child(tree: Path, code: str = CHILD) -> Iterator[Callable[..., float]]:
    """A process of another checkout that runs `code`, which answers each line with the CPU seconds of a call."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, cwd=tree, **pipes) as process:  # type: ignore[call-overload]

        def run(*words: object) -> float:
            process.stdin.write(f"{' '.join(map(str, words))}\n")
            process.stdin.flush()
            return float(process.stdout.readline())

        yield run
        process.stdin.close()


def against(trees: dict[str, Path], tries: int) -> Iterator[Row]:
    """The whole call of other checkouts and of this one, in processes of their own, in turn."""
    here = Path(__file__).parents[1]
    for label, tree in trees.items():
        with child(tree) as before, child(here) as now:
            for batch, count in ((1, tries), (16, max(3, tries // 4))):
                for name in SAMPLERS:
                    times = [(before(name, batch), now(name, batch)) for _ in range(count + 1)][1:]
                    found = compared(times)
                    more: Row = {"before_ms": 1000 * found["ours_seconds"], "now_ms": 1000 * found["theirs_seconds"]}
                    what = f"whole call at {label} / now, {name}, 2 × 128, batch {batch}"
                    goal = FASTER_GOAL if batch == 1 else None
                    yield report(what, goal, ratio=found["ratio"], at_most=False, tries=count, **more)


def limits(model: DiffusionLM, tries: int) -> Iterator[Row]:
    """The whole call against the matrix products of its network alone, which no change around them makes faster."""
    packed = open_model("story", weights="packed").lm
    for batch, count in ((1, tries), (16, max(3, tries // 4))):
        call, other = (
            partial(sample_canvases, m, SAMPLERS["any-order"], m.canvas(new=LENGTH, rows=batch), batch=batch)
            for m in (model, packed)
        )
        times = rounds([call, repeated(recorded(call)), other], count)
        what = f"any-order, 2 × 128, batch {batch}"
        yield report(f"whole call / the matrix products of its network, {what}", None, **compared(times), tries=count)
        found = compared(times, 2)
        yield report(f"whole call / with packed weights, {what}", None, **found, at_most=False, tries=count)


def rows(trees: dict[str, Path], tries: int) -> Iterator[Row]:
    yield machine("python -m bench.steps") | {"precision": "fp32", "seconds": "CPU, one thread"}
    model = open_model("story").lm
    yield from overhead(model, tries)
    canvas = model.canvas(new=LENGTH)
    times = rounds([partial(sample_canvases, model, SAMPLERS["any-order"], canvas), partial(by_hand, model)], tries)
    found: Row = compared(times)
    yield report(f"whole call / loop by hand, any-order, 2 × 128, {LENGTH} tokens, batch 1", None, **found)
    yield from limits(model, tries)
    yield from against(trees, tries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, nargs="*", default=[], help="checkouts of other commits")
    parser.add_argument("--tries", type=int, default=21, help="texts per row of the table")
    asked = parser.parse_args()
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    commit = ["git", "rev-parse", "--short", "HEAD"]
    trees = {subprocess.check_output(commit, cwd=tree, text=True).strip(): tree for tree in asked.before}
    sys.exit(tell(rows(trees, asked.tries), RESULTS))


if __name__ == "__main__":
    main()
