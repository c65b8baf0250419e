"""Overhead of the core: a training step and sampling against plain loops; 6 layers of width 384, rows of 256 tokens."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from bench.products import flops, recorded, repeated
from bench.race import Clock, Row, compared, report, rounds, seconds
from redraft import (
    Ancestral,
    Batch,
    Canvas,
    DiffusionLM,
    DiffusionLMConfig,
    Masked,
    Objective,
    TransformerConfig,
    Vocab,
    rng,
)
from redraft.decoding import final_canvas
from redraft.models import AttentionPattern, Full
from redraft.training import (
    TrainStep,
)
from redraft.training.loop import (
    _clip_gradients,
)

LENGTH = 256
PRODUCTS_GOAL = 1.30  # training step / its own matrix products, back to back
PLAIN_GOAL = {8192: 0.80, 27: 0.90}  # training step / the plain loop, by vocabulary
OVERHEAD_GOAL = 1.05  # sampling / its network calls
SAMPLE_GOAL = {"fp32": 0.65, "bf16": 0.40}  # × the reference loop at 64 steps, vocabulary 8192
LOGIT_GOAL = 1e-5  # largest difference of a row's logits in a batch and alone, fp32
LONG_GOAL = {1: 3.0, 8: 8.0}  # times faster than the reference loop at 1000 steps, by batch


def build(vocab: int, width: int = 384, layers: int = 6, pattern: AttentionPattern = Full()) -> DiffusionLM:
    torch.manual_seed(0)
    network = TransformerConfig(width=width, layers=layers, heads=max(1, width // 64), pattern=pattern)
    config = DiffusionLMConfig(Masked(Vocab(vocab + 1, mask=vocab)), network)
    model = DiffusionLM(config)
    torch.nn.init.normal_(model.network.output.weight, 0, 0.02)  # type: ignore[union-attr]
    return model


def autocast(precision: str, device: str = "cpu") -> torch.autocast:
    return torch.autocast(device, torch.bfloat16, enabled=precision == "bf16")


# --- training ---


def our_step(model: DiffusionLM, tokens: Tensor, precision: str) -> Callable[[], None]:
    """Noise, loss, backward, clip, optimizer, EMA: what `fit` does at every step."""
    step, average = TrainStep(model, Objective()), get_ema_multi_avg_fn(0.999)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    ema = [p.detach().clone() for p in model.parameters()]
    number = count()

    def run() -> None:
        with autocast(precision, tokens.device.type):
            loss = step(Batch.of(tokens), rng(next(number), len(tokens), tokens.device))
        loss.mean.backward()
        _clip_gradients(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            average(ema, [p.detach() for p in model.parameters()], 1)

    return run


def plain_step(model: DiffusionLM, tokens: Tensor, precision: str) -> Callable[[], None]:
    """The loop one would write first: the network as it is, cross-entropy over all positions."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    mask = model.config.vocab.masked

    def run() -> None:
        t = torch.rand(len(tokens), 1)
        hidden = torch.rand(tokens.shape) < t
        with autocast(precision):
            logits = model.network.logits(model.network(tokens.masked_fill(hidden, mask))).float()
        loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="none").view(tokens.shape)
        (loss * hidden / t).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return run


def training(precision: str, limit: float | None, pairs: int = 9, clock: Clock = time.perf_counter) -> Iterator[Row]:
    """Our step against its own products and against the plain loop, all three in turn; goals hold for batch 8.

    limit: GFLOP/s of the fastest of all products, which no step of many shapes can have; None if not measured

    Each step masks other positions, so the products of one step are those of all only on average; noise is stratified,
    and their number differs by some per cent at most.
    """
    for vocab, batch in ((8192, 8), (8192, 1), (27, 8), (27, 1)):
        tokens = torch.randint(0, vocab, (batch, LENGTH))
        ours, plain = (make(build(vocab), tokens, precision) for make in (our_step, plain_step))
        products = recorded(ours)
        times = rounds([ours, repeated(products), plain], pairs if batch == 8 else 5, clock=clock)
        first = vocab == 8192 and batch == 8
        speed, name = compared(times), f"vocabulary {vocab}, batch {batch}, {precision}"
        gflop = flops(products) / 1e9
        more = {
            "gflop": gflop,
            "gflops": gflop / speed["ours_seconds"],
            "products_gflops": gflop / speed["theirs_seconds"],
            "tokens_per_second": batch * LENGTH / speed["ours_seconds"],
        }
        if limit is not None:
            more["ratio_at_best_speed"] = speed["ours_seconds"] * limit / gflop
        yield report(f"training step / its matrix products, {name}", PRODUCTS_GOAL if first else None, **speed, **more)
        yield report(
            f"training step / plain loop, {name}", PLAIN_GOAL[vocab] if batch == 8 else None, **compared(times, 2)
        )


# --- sampling ---


@dataclass
class NetworkClock:
    """Seconds and rows spent in trunk and output layer."""

    seconds: float = 0.0
    rows: int = 0

    @contextmanager
    def on(self, model: DiffusionLM) -> Iterator[None]:
        network = model.network
        trunk, output = network.forward, network.logits

        def timed(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
            def run(*args: object) -> Tensor:
                begin = time.perf_counter()
                out = function(*args)
                self.seconds += time.perf_counter() - begin
                self.rows += args[0].shape[0] if function == trunk else 0  # type: ignore[attr-defined]
                return out

            return run

        network.forward, network.logits = timed(trunk), timed(output)  # type: ignore[method-assign]
        yield
        del network.forward, network.logits


def ours(model: DiffusionLM, batch: int, steps: int, precision: str) -> Iterator[Tensor]:
    blank = torch.zeros(batch, LENGTH, dtype=torch.int64)
    canvas = Canvas(blank, torch.zeros_like(blank, dtype=torch.bool))
    canvases = Ancestral(steps)(model, model.process, canvas, rng=rng(0, batch))
    next(canvases)  # the noise
    with autocast(precision):
        for canvas in canvases:
            yield canvas.z


@torch.no_grad()
def reference(model: DiffusionLM, batch: int, steps: int, precision: str) -> Iterator[Tensor]:
    """The way of the original code: full-vocabulary softmax and Gumbel noise over all positions in fp32 at every step;
    the network's output is kept until any token of the batch changes."""
    mask, network = model.config.vocab.masked, model.network
    z = torch.full((batch, LENGTH), mask)
    p: Tensor | None = None
    for i in range(steps):
        t, s = 1 - i / steps, 1 - (i + 1) / steps
        if p is None:
            with autocast(precision):
                logits = network.logits(network(z)).float()
            logits[..., mask] = -torch.inf
            p = logits.softmax(-1)
        q = p * (t - s)
        q[..., mask] = s
        gumbel = 1e-10 - (torch.rand_like(q) + 1e-10).log()
        drawn = (q / gumbel).argmax(-1)
        new = torch.where(z == mask, drawn, z)
        if not torch.equal(new, z):
            p = None
        z = new
        yield z


def sampling(precision: str) -> Iterator[Row]:
    """64 steps: everything / trunk and output layer, and against the reference loop, taken in turn."""
    for vocab, batch, pairs in ((8192, 1, 3), (8192, 8, 1), (27, 1, 3), (27, 8, 1)):
        model, name = build(vocab), f"vocabulary {vocab}, batch {batch}, {precision}"
        times = [sampled(model, batch, precision, against=vocab == 8192) for _ in range(pairs)]
        yield report(f"sampling 64 steps / its network calls, {name}", OVERHEAD_GOAL, **compared(times))
        if vocab == 8192:
            yield report(f"sampling 64 steps / reference loop, {name}", SAMPLE_GOAL[precision], **compared(times, 2))


def sampled(model: DiffusionLM, batch: int, precision: str, against: bool) -> tuple[float, ...]:
    """Seconds of all, of the network calls, and of the reference loop."""
    clock = NetworkClock()
    with clock.on(model):
        whole = seconds(lambda: deque(ours(model, batch, 64, precision), 0))
    other = [seconds(lambda: deque(reference(model, batch, 64, precision), 0))] if against else []
    return whole, clock.seconds, *other


def long_sampling(precision: str) -> Iterator[Row]:
    """The first of 1000 steps, taken in turn: all cost the same, in law."""
    small, model = build(27, width=32, layers=1), build(8192)
    for batch, first in ((1, 500), (8, 60)):
        clock = NetworkClock()
        with clock.on(small):  # the number of calls does not depend on the network
            deque(ours(small, batch, 1000, "fp32"), 0)
        yield report(f"network calls per row at 1000 steps, batch {batch}", LENGTH, ratio=clock.rows / batch)
        sides = [loop(model, batch, 1000, precision) for loop in (ours, reference)]
        times = [[seconds(partial(next, side)) for side in sides] for _ in range(first)]
        mine, theirs = (sum(side) for side in zip(*times, strict=True))
        yield report(
            f"reference loop / sampling 1000 steps, vocabulary 8192, batch {batch}, {precision}",
            LONG_GOAL[batch],
            ratio=theirs / mine,
            at_most=False,
            ours_seconds=mine,
            theirs_seconds=theirs,
            steps_timed=first,
        )


def exactness(better: str, seeds: int = 100) -> Iterator[Row]:
    """A row in a batch against the row alone, and one thread against all: fp32 must be equal, bf16 is reported."""
    model, threads = build(27), torch.get_num_threads()
    for precision in sorted({"fp32", better}, reverse=True):
        goal, far = (1.0, LOGIT_GOAL) if precision == "fp32" else (None, None)
        together = ours_short(model, rng(0, seeds), precision)
        alone = torch.cat([ours_short(model, rng(0, torch.tensor([i])), precision) for i in range(seeds)])
        yield report(f"rows equal to the row alone, {precision}", goal, ratio=equal(together, alone), at_most=False)
        torch.set_num_threads(1)
        single = ours_short(model, rng(0, seeds), precision)
        torch.set_num_threads(threads)
        name = f"rows equal on 1 and {threads} threads, {precision}"
        yield report(name, goal, ratio=equal(together, single), at_most=False)
        name = f"largest difference between logits of a row in a batch and alone, {precision}"
        yield report(name, far, ratio=difference(model, together, precision))


def equal(a: Tensor, b: Tensor) -> float:
    """The share of equal rows."""
    return float((a == b).all(-1).double().mean())


@torch.no_grad()
def difference(model: DiffusionLM, rows: Tensor, precision: str) -> float:
    """The largest between the logits of a row in the batch and alone."""
    with autocast(precision):
        together, *alone = (model.network.logits(model.network(z)).float() for z in (rows, *rows[:, None]))
    return float((together - torch.cat(alone)).abs().max())


def ours_short(model: DiffusionLM, keys: object, precision: str, length: int = 32) -> Tensor:
    rows = len(keys.key)  # type: ignore[attr-defined]
    blank = torch.zeros(rows, length, dtype=torch.int64)
    canvas = Canvas(blank, torch.zeros_like(blank, dtype=torch.bool))
    with autocast(precision):
        return final_canvas(Ancestral(16)(model, model.process, canvas, rng=keys)).z  # type: ignore[arg-type]
