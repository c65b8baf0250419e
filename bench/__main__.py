"""`python -m bench --device cuda`: training and sampling on one device, as a table to paste into an issue.

Each row has the milliseconds of a step or call and the tokens per second, in the precisions that the device has, with
and without `compile`. No row has a goal, and nothing is written to a file.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from bench.core import LENGTH, autocast, build, our_step
from bench.limit import processor
from redraft.core import Canvas, find_device, rng
from redraft.decoding import AnyOrder, EntropyBound, Sampler, Unmask, final_canvas
from redraft.models.networks.executors.compiled import Compiled

SAMPLERS: dict[str, Sampler] = {
    "any-order, 64 steps": Unmask(64, AnyOrder()),
    "confidence, 64 steps": Unmask(64),
    "entropy-bound": Unmask(None, EntropyBound()),
}


@dataclass(frozen=True)
class Sizes:
    """What is run: the network, the rows and how often."""

    vocab: int = 8192
    width: int = 384
    layers: int = 6
    length: int = LENGTH
    batches: tuple[int, ...] = (1, 8, 64)
    tries: int = 5


@dataclass(frozen=True)
class Measured:
    """A row of the table."""

    what: str
    batch: int
    precision: str
    ms: float  # of a training step, or of a network call with everything around it
    tokens_per_second: float


def taken(job: Callable[[], object], device: torch.device, tries: int) -> float:
    """Seconds of a job, the median after two runs that do not count; a GPU is waited for."""
    times = []
    for _ in range(tries + 2):
        begin = time.perf_counter()
        job()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - begin)
    return statistics.median(times[2:])


def precisions(device: torch.device) -> tuple[str, ...]:
    """fp32, and bf16 on GPUs that have it."""
    return ("fp32", "bf16") if device.type == "cuda" and torch.cuda.is_bf16_supported() else ("fp32",)


def training(device: torch.device, sizes: Sizes, compiled: bool) -> Iterator[Measured]:
    """Noise, loss, backward, clip, optimizer, average."""
    for precision in precisions(device):
        for batch in sizes.batches[1:]:
            model = build(sizes.vocab, sizes.width, sizes.layers).to(device)
            for block in model.network.blocks if compiled else ():
                block.compile()
            tokens = torch.randint(sizes.vocab, (batch, sizes.length), device=device)
            spent = taken(our_step(model, tokens, precision), device, sizes.tries)
            yield Measured("training step", batch, precision, 1000 * spent, tokens.numel() / spent)


@torch.no_grad()
def sampling(device: torch.device, sizes: Sizes, compiled: bool) -> Iterator[Measured]:
    """Whole texts; the milliseconds are those of a network call."""
    model, calls = build(sizes.vocab, sizes.width, sizes.layers).to(device).eval(), list[int]()
    model = model.on(Compiled(graphs=device.type == "cuda")) if compiled else model
    for precision in precisions(device):
        for batch in sizes.batches:
            blank = torch.zeros(batch, sizes.length, dtype=torch.int64, device=device)
            canvas = Canvas(blank, torch.zeros_like(blank, dtype=torch.bool))
            for name, sampler in SAMPLERS.items():

                def write(sampler: Sampler = sampler, canvas: Canvas = canvas, precision: str = precision) -> None:
                    calls.clear()
                    keys = rng(0, len(canvas.z), device)
                    with autocast(precision, device.type):
                        final_canvas(sampler(model, model.process, canvas, rng=keys))

                with model.network.count_rows(calls.append):
                    spent = taken(write, device, sizes.tries)
                yield Measured(name, batch, precision, 1000 * spent / len(calls), blank.numel() / spent)


def rows(device: torch.device, sizes: Sizes, compiled: bool) -> Iterator[Measured]:
    yield from training(device, sizes, compiled)
    yield from sampling(device, sizes, compiled)


def table(device: torch.device, sizes: Sizes, measured: Sequence[Measured], compiled: bool) -> str:
    """Markdown: the device, the sizes, and a line per row."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    versions = f"torch {torch.__version__}, CUDA {torch.version.cuda or 'none'}, Python {platform.python_version()}"
    shape = f"{sizes.layers} layers of width {sizes.width}, vocabulary {sizes.vocab}, rows of {sizes.length} tokens"
    lines = [
        f"`python -m bench --device {device}{' --compile' if compiled else ''}`: {name}, {versions}; {shape}.",
        "",
        "| what | batch | precision | ms | tokens/s |",
        "|---|---:|---|---:|---:|",
    ]
    cells = ((m.what, m.batch, m.precision, f"{m.ms:.3g}", f"{m.tokens_per_second:,.0f}") for m in measured)
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in cells)])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    whole = Sizes()
    parser.add_argument("--device", default="auto", help="cuda, cuda:1, mps or cpu")
    parser.add_argument(
        "--compile", action="store_true", help="compile the network; on a GPU sampling replays CUDA graphs"
    )
    parser.add_argument("--width", type=int, default=whole.width, help="a multiple of 64")
    parser.add_argument("--layers", type=int, default=whole.layers)
    parser.add_argument("--length", type=int, default=whole.length, help="tokens per row")
    parser.add_argument("--batches", type=int, nargs="+", default=whole.batches, help="rows; training skips the first")
    parser.add_argument("--tries", type=int, default=whole.tries)
    given = parser.parse_args(arguments)
    try:
        device = find_device(given.device)
    except ValueError as error:
        parser.error(str(error))
    sizes = Sizes(whole.vocab, given.width, given.layers, given.length, tuple(given.batches), given.tries)
    print(table(device, sizes, list(rows(device, sizes, given.compile)), given.compile))


if __name__ == "__main__":
    main()
