"""The training log: metrics.jsonl, further sinks and the progress bar."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

from redraft.training.distributed import _Workers
from redraft.training.optimizers import _learning_rate_fraction
from redraft.training.progress import Progress
from redraft.training.runs import metrics
from redraft.training.runs.run import Run
from redraft.training.sinks import open_sinks
from redraft.training.state import _TrainState


class _Log:
    """Writes metrics.jsonl, further sinks, and the progress bar; only on the first worker.

    A resumed run first truncates the file to its step. Speeds exclude evaluation and checkpoints.
    """

    def __init__(
        self,
        run: Run,
        out: Path,
        state: _TrainState,
        team: _Workers,
        quiet: bool,
        tell: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.run, self.file, self.active, self.tell = run, out / metrics.METRICS_FILE, team.first, tell
        self.seconds, self.tokens = 0.0, 0
        self.loss, self.held_out, self.talks = "", "", self.active and not quiet
        self.warned = False
        self.sinks = open_sinks(run, out, state.step) if team.first else []
        if self.active and self.file.exists():
            os.truncate(self.file, _size_up_to(state.step, self.file))
        shown = self.active and not quiet
        self.bar = Progress("training steps", run.steps, state.step, shown=shown, stays=True).start()
        earlier = metrics.read_metrics(out) if self.active else []
        self.evaluations = [record for record in earlier if "valid_bits_per_char" in record]

    @contextmanager
    def clock(self, state: _TrainState) -> Iterator[None]:
        """Adds the time and the tokens of the enclosed step to the counters behind `tokens_per_second`."""
        began, before = time.perf_counter(), state.tokens
        yield
        self.seconds, self.tokens = self.seconds + time.perf_counter() - began, self.tokens + state.tokens - before
        self.bar.done = state.step

    def progress(self, state: _TrainState, norm: float) -> None:
        """Writes one record for all steps since the last one, and resets the sums."""
        bits, speed = state.nats / max(1, state.tokens) / math.log(2), self.tokens / self.seconds
        record = {
            "step": state.step,
            "train_loss_bits_per_token": bits,
            "gradient_norm": norm,
            "learning_rate": self.run.optimizer.lr
            * _learning_rate_fraction(self.run.optimizer, state.step - 1, self.run.steps),
            "tokens_per_second": speed,
            "precision": state.precision.name,
        }
        self.write(record)
        self.loss = f"loss {bits:.3f} bits/token, {speed:,.0f} tokens/s"
        self._note()
        state.nats, state.tokens, self.seconds, self.tokens = 0.0, 0, 0.0, 0

    def write_evaluation(self, record: dict[str, Any]) -> bool:
        """Writes a held-out evaluation, and shows it in the progress bar from now on; returns whether it is the best.

        Warns once if held-out bits have risen.
        """
        self.held_out = metrics.format_brief(record)
        self._note()
        self.write(record)
        self.evaluations.append(record)
        if (rise := metrics.overfitting(self.evaluations)) is not None and self.talks and not self.warned:
            self.warned = True
            with self.bar.paused():
                print(metrics.format_overfitting(*rise), file=sys.stderr, flush=True)
        return metrics.best_record(self.evaluations) is record

    def _note(self) -> None:
        self.bar.note = "; ".join(filter(None, (self.loss, self.held_out)))

    def write(self, record: dict[str, Any]) -> None:
        if self.active:
            with self.file.open("a") as file:
                file.write(json.dumps(record) + "\n")
            if self.tell is not None:
                self.tell(record)
        numbers = {name: value for name, value in record.items() if isinstance(value, float)}
        for sink in self.sinks:
            sink.add(record["step"], numbers)

    def sync(self) -> None:
        """Flushes metrics.jsonl to disk, so that a power failure cannot lose records older than a checkpoint."""
        if self.active:
            with self.file.open("a") as file:
                os.fsync(file.fileno())

    def close(self) -> None:
        self.bar.close()
        for sink in self.sinks:
            sink.close()


def _size_up_to(step: int, file: Path) -> int:
    """Size in bytes of the complete lines up to a step; a line that a crash cut short does not count."""
    lines = metrics.whole_lines(file)
    steps = (metrics.parse_line(file, number, line)["step"] for number, line in enumerate(lines, 1))
    earlier = takewhile(lambda pair: pair[1] <= step, zip(lines, steps, strict=True))
    return sum(len(line) for line, _ in earlier)
