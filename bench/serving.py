"""`python -m bench.serving`: eight requests on one network, with merged passes against one after the other.

Both run the same samplers on the same canvases, in turn, and must give the same texts bit for bit. The gain is the
sequential time divided by the merged time, in CPU seconds on one thread. With --before DIR, a checkout of another
commit serves the same eight requests in turn. Rows go to bench/results/serving.jsonl. With --small, only the smallest
network runs, beside the matrix products of its passes, and rows go to bench/results/clients.jsonl.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from bench import limit
from bench.core import build
from bench.products import recorded, repeated
from bench.race import Row, compared, report, rounds, tell
from bench.steps import child
from redraft.apps import BatchScheduler
from redraft.apps.server.supervisor import _SINGLE_THREAD_ENV
from redraft.core import Canvas, batch_invariant_rows, rng
from redraft.decoding import (
    Ancestral,
    AnyOrder,
    Blocks,
    Confidence,
    ConfidenceThreshold,
    DualCache,
    FirstHitting,
    Sampler,
    Unmask,
    final_canvas,
)
from redraft.models import BlockCausal, DiffusionLM, KeyValueCache
from redraft.models.networks.executors.base import Executor, Network
from redraft.models.networks.executors.packed import Packed
from redraft.models.networks.forward_pass import ForwardPass, PassOutput
from redraft.models.networks.kv_cache import TokenPositions

RESULTS = Path(__file__).parent / "results" / "serving.jsonl"
SMALL_RESULTS = RESULTS.with_name("clients.jsonl")
VOCAB, WRITERS = 4096, 8
WINDOW_GOAL, FULL_GOAL = 2.0, 1.2  # times faster than one after the other
MIXED_GOAL = {384: 1.35, 128: 1.25}  # by width
FASTER_GOAL = 1.2  # times as many texts a second as the code before
OVERHEAD_GOAL = 0.1  # ms of a merged pass beside the network
PATIENCE_GOAL = 2.0  # a short request beside a long one, against alone
Request = tuple[Sampler, Canvas, int]  # sampler, canvas, seed


def blank(given: int, new: int) -> Canvas:
    """A prompt, and tokens to write."""
    z = torch.arange(given + new)[None] % VOCAB
    return Canvas(z, torch.arange(given + new)[None] < given)


def one(model: DiffusionLM, request: Request) -> Tensor:
    sampler, canvas, seed = request
    return final_canvas(sampler(model, model.process, canvas, rng=rng(seed, 1))).z


def alone(model: DiffusionLM, requests: Sequence[Request], least: int) -> list[Tensor]:
    """One after the other, each through a switchboard of its own, so that bits can be compared."""
    return [together(model, [request], least)[0] for request in requests]


def together(model: DiffusionLM, requests: Sequence[Request], least: int) -> list[Tensor]:
    written: dict[int, Tensor] = {}
    board = BatchScheduler(min_rows=least)
    shared = model.on(Packed(board))

    def work(i: int) -> Callable[[], None]:
        def run() -> None:
            written[i] = one(shared, requests[i])

        return run

    board.run([work(i) for i in range(len(requests))])
    board.close()
    return [written[i] for i in range(len(requests))]


def gain(name: str, goal: float, model: DiffusionLM, requests: Sequence[Request], least: int, count: int) -> Row:
    """How much faster the requests are together; plain is the library's own path, without a switchboard."""
    plain = lambda: [one(model, request) for request in requests]  # noqa: E731
    times = rounds([plain, lambda: together(model, requests, least)], count, clock=time.process_time)
    ratio = statistics.median(before / merged for before, merged in times)
    pairs = zip(alone(model, requests, least), together(model, requests, least), strict=True)
    same = sum(torch.equal(a, b) for a, b in pairs)
    seconds = statistics.median(merged for _, merged in times)
    return report(name, goal, ratio=ratio, at_most=False, same=f"{same} of {len(requests)}", seconds=seconds)


def limit_of(name: str, model: DiffusionLM, requests: Sequence[Request], least: int, count: int) -> Row:
    """The merged requests against the matrix products of their passes, and those one after the other against theirs."""
    merged = lambda: together(model, requests, least)  # noqa: E731
    plain = lambda: [one(model, request) for request in requests]  # noqa: E731
    jobs = [merged, repeated(recorded(merged)), plain, repeated(recorded(plain))]
    times = rounds(jobs, count, clock=time.process_time)
    more = {"plain_ratio": compared([lap[2:] for lap in times])["ratio"]}
    more["products_ratio"] = compared([(lap[3], lap[1]) for lap in times])["ratio"]
    return report(f"merged / its matrix products, {name}", None, **compared(times), **more)


def requests_of(width: int, layers: int) -> Iterator[tuple[str, float, DiffusionLM, list[Request]]]:
    """Name, goal, network and requests."""
    shape = f"{layers} × {width}"
    for window in (8, 32):
        model = build(VOCAB, width, layers, BlockCausal(window)).eval()
        blocks = Blocks(Unmask(window, AnyOrder()))
        windows: list[Request] = [(blocks, blank(64, 2 * window), seed) for seed in range(WRITERS)]
        yield f"windows of {window} behind a cache, {shape}", WINDOW_GOAL, model, windows
    model = build(VOCAB, width, layers).eval()
    whole: list[Request] = [(Unmask(16, AnyOrder()), blank(32, 96), seed) for seed in range(WRITERS)]
    yield f"full canvases of 128, {shape}", FULL_GOAL, model, whole
    lengths = (16, 32, 48, 64, 96, 128, 192, 256)
    mixed: list[Request] = [(Unmask(12, AnyOrder()), blank(4, n - 4), seed) for seed, n in enumerate(lengths)]
    yield f"mixed lengths 16 to 256, {shape}", MIXED_GOAL[width], model, mixed


def gains(width: int, layers: int, least: int, count: int) -> Iterator[Row]:
    for name, goal, model, requests in requests_of(width, layers):
        yield gain(name, goal, model, requests, least, count)


def limits(width: int, layers: int, least: int, count: int) -> Iterator[Row]:
    for name, _, model, requests in requests_of(width, layers):
        yield limit_of(name, model, requests, least, count)


class Idle(BatchScheduler):
    """One whose network takes no time."""

    def _pass(self, network: Network, each: Executor | None, passes: Sequence[ForwardPass]) -> list[PassOutput]:
        self.passes += 1
        return [NOTHING] * len(passes)


NOTHING = PassOutput(torch.zeros(0), None, [])


def overhead(count: int) -> Row:
    """What the switchboard itself costs a pass of eight writers."""
    model = build(VOCAB, 64, 1).eval()
    z = torch.zeros(1, 16, dtype=torch.int64)
    forward = ForwardPass(z, None, TokenPositions.of(None, z, KeyValueCache()), None)
    board = Idle()

    def work() -> None:
        for _ in range(count):
            board.run_pass(model.network, forward, None)

    begin = time.process_time()
    board.run([work] * WRITERS)
    ms = (time.process_time() - begin) / board.passes * 1000
    board.close()
    return report("overhead of a merged pass, ms", OVERHEAD_GOAL, ratio=ms)


def patience(least: int, count: int) -> Row:
    """A short request that joins a long one: its time, against its time alone; the 95th of a hundred."""
    model = build(VOCAB, 384, 6).eval()
    long, short = (Unmask(64, AnyOrder()), blank(4, 252), 0), (Unmask(8, AnyOrder()), blank(4, 28), 1)

    def beside() -> float:
        took: list[float] = []
        board = BatchScheduler(min_rows=least)
        shared = model.on(Packed(board))

        def run() -> None:
            begin = time.process_time()
            one(shared, short)
            took.append(time.process_time() - begin)

        board.start(lambda: one(shared, long) and None)
        board.run_round()
        board.start(run)
        while not took:
            board.run_round()
        board.close()
        return took[0]

    def by_itself() -> float:
        begin = time.process_time()
        together(model, [short], least)
        return time.process_time() - begin

    pairs = [(beside(), by_itself()) for _ in range(count)]
    p95 = sorted(a for a, _ in pairs)[int(0.95 * (len(pairs) - 1))] / statistics.median(b for _, b in pairs)
    return report("a short request beside a long one, p95 / alone", PATIENCE_GOAL, ratio=p95)


def company(least: int, requests: int) -> Row:
    """Texts of many requests with mixed samplers and lengths, alone and eight at a time."""
    model = build(VOCAB, 128, 2).eval()
    samplers: list[Sampler] = [
        Ancestral(6),
        FirstHitting(),
        Unmask(6, Confidence()),
        Unmask(6, ConfidenceThreshold(0.3)),
        Blocks(Unmask(4), decode_block=8),
        Blocks(Unmask(4), decode_block=8, cache=DualCache()),
    ]
    wanted = [(samplers[i % len(samplers)], blank(i % 5, 8 + 7 * (i % 11)), i) for i in range(requests)]
    lone = alone(model, wanted, least)
    shared = [z for i in range(0, requests, WRITERS) for z in together(model, wanted[i : i + WRITERS], least)]
    same = sum(torch.equal(a, b) for a, b in zip(lone, shared, strict=True))
    return report("texts that are the same alone and in company, share", 1.0, ratio=same / requests, at_most=False)


CLIENTS = """
import sys, time, torch
from bench import serving
from bench.core import build
torch.set_grad_enabled(False)
model = build(serving.VOCAB, 128, 2).eval()
canvas, sampler = serving.blank(32, 96), serving.Unmask(16, serving.AnyOrder())
for line in sys.stdin:
    begin = time.process_time()
    serving.together(model, [(sampler, canvas, seed) for seed in range(serving.WRITERS)], int(line))
    print(time.process_time() - begin, flush=True)
"""


def against(tree: Path, least: int, count: int) -> Row:
    """Eight requests at once, by the code of another checkout and by this one, in processes of their own, in turn."""
    label = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=tree, text=True).strip()
    with child(tree, CLIENTS) as before, child(Path(__file__).parents[1], CLIENTS) as now:
        found = compared([(before(least), now(least)) for _ in range(3 * count + 1)][1:])
    more = {"before_seconds": found["ours_seconds"], "now_seconds": found["theirs_seconds"]}
    what = f"texts per second of 8 clients, now / at {label}, full canvases of 128, 2 × 128"
    return report(what, FASTER_GOAL, ratio=found["ratio"], at_most=False, **more)


def rows(count: int, trees: Sequence[Path]) -> Iterator[Row]:
    yield limit.machine("python -m bench.serving") | {"seconds": "CPU, one thread"}
    model = build(VOCAB)
    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
    least = batch_invariant_rows([(m.in_features, m.out_features) for m in linear])
    yield {"steady rows": least, "order": os.environ.get("MKL_CBWR", "")}
    with torch.no_grad():
        least = least or 1
        yield company(least, 100)
        yield overhead(200 * count)
        yield from gains(384, 6, least, count)
        yield from gains(128, 2, least, count)
        yield patience(least, 10 * count)
        yield from (against(tree, least, count) for tree in trees)


def small_rows(count: int, trees: Sequence[Path]) -> Iterator[Row]:
    """Of the smallest network: the gains, what limits them, and the code before."""
    yield limit.machine("python -m bench.serving --small") | {"seconds": "CPU, one thread"}
    with torch.no_grad():
        yield from (against(tree, 1, count) for tree in trees)
        yield from gains(128, 2, 1, count)
        yield from limits(128, 2, 1, count)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--before", type=Path, nargs="*", default=[], help="checkouts of other commits")
    parser.add_argument(
        "--pad",
        action="store_true",
        help="pad batches to batch-invariant sizes, without MKL's fixed order of summation",
    )
    parser.add_argument("--small", action="store_true", help="only the smallest network, with a profile")
    parser.add_argument("--no-file", action="store_true")
    given = parser.parse_args()
    if not given.pad and "MKL_CBWR" not in os.environ:  # heeded before the first product of a process
        os.execve(
            sys.executable, [sys.executable, "-m", "bench.serving", *sys.argv[1:]], {**os.environ, **_SINGLE_THREAD_ENV}
        )
    file, measure = (SMALL_RESULTS, small_rows) if given.small else (RESULTS, rows)
    sys.exit(tell(measure(given.rounds, given.before), None if given.no_file else file))
