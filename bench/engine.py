"""Overhead of the engine: `fit` against the bare training step, on the tiny preset and its stories."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle, islice
from unittest.mock import patch

import torch
from torch.optim.swa_utils import get_ema_multi_avg_fn

from bench.race import Clock, Row, report
from redraft import DiffusionLM
from redraft.core import choose_precision, randomness
from redraft.training import (
    Loader,
    Run,
    TrainStep,
    build_optimizers,
    load_rows,
    loop as train,
    setup,
    state,
)
from redraft.training.presets import (
    mdlm_tiny,
)

OVERHEAD_GOAL = 1.05  # fit / bare step: data, logging, the watch for signals and for numbers that are none


def bare_step(run: Run) -> Callable[[], None]:
    """Noise, loss, backward, clip, optimizers, average, on batches made beforehand."""
    torch.manual_seed(run.seed)
    model = DiffusionLM(run.model)
    precision = choose_precision(run.precision, shapes=setup._training_shapes(run))
    step, both = TrainStep(model, run.objective), build_optimizers(model, run.optimizer, precision.dtype)
    rows = load_rows(run.data, "train", run.tokenizer, run.framing)
    batches = cycle(list(islice(Loader(rows, run.batch).batches(), 8)))
    weights = [p.detach() for p in model.parameters()]
    ema, averaged = [w.clone() for w in weights], get_ema_multi_avg_fn(run.optimizer.ema)

    def once() -> None:
        batch = next(batches)
        assert batch.origin.sample is not None
        with precision.autocast(batch.tokens.device):
            loss = step(batch, randomness.rng(run.seed, batch.origin.sample))
        loss.mean.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), run.optimizer.clip)
        for optimizer in both:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            averaged(ema, weights, 1)

    return once


def overhead(pairs: int = 20, steps: int = 3, clock: Clock = time.perf_counter) -> Iterator[Row]:
    """Stretches of `steps` steps in turn: `fit` stops for the bare ones between two of its own.

    Each stretch of `fit` writes a line of the log, more often than the preset does.
    """
    base = mdlm_tiny()
    run = replace(base, steps=steps * (pairs + 1) + 1, log_every=steps, eval_every=10**9, save_every=10**9, samples=0)
    bare, update = bare_step(run), train._optimizer_step
    times: list[tuple[float, float]] = []
    began = clock()

    def interrupted(run: Run, state: state._TrainState, *rest: object) -> float:
        nonlocal began
        if state.step and state.step % steps == 0:
            middle = clock()
            torch.set_deterministic_debug_mode("default")
            for _ in range(steps):
                bare()
            torch.set_deterministic_debug_mode("warn")
            end = clock()
            times.append((middle - began, end - middle))
            began = end
        return update(run, state, *rest)  # type: ignore[arg-type]

    with tempfile.TemporaryDirectory() as out, patch.object(train, "_optimizer_step", interrupted):
        train.fit(run, out, quiet=True)
    engine, plain = (statistics.median(side) / steps for side in zip(*times[1:], strict=True))
    ratio = statistics.median(a / b for a, b in times[1:])
    more = {"ours_seconds": engine, "theirs_seconds": plain, "pairs": pairs}
    yield report("fit / bare training step, mdlm_tiny", OVERHEAD_GOAL, ratio=ratio, **more)
