"""Training progress on stderr: a bar in a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Thread

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class _ProgressBar:
    """Shows steps done out of a total, and a `note` that may change at any time; prints nothing unless `shown`.

    Without a terminal, as in a cluster log, it prints a line every `seconds`, and one at the end.
    """

    def __init__(self, title: str, total: int, done: int = 0, *, shown: bool = True, seconds: float = 10.0) -> None:
        self.title, self.total, self.first, self.seconds = title, total, done, seconds
        self.done = self.last_printed = done
        self.note = ""
        console = Console(stderr=True)
        self.lines = shown and not console.is_terminal
        self.began = self.printed_at = time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn())
        notes = (TextColumn("{task.fields[note]}"), TimeElapsedColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, *notes, console=console, expand=True, disable=not shown or self.lines)
        self.task = self.bar.add_task(title, total=total, completed=done, note="")
        self.bar.start()

    def update(self, done: int) -> None:
        self.done = done
        self.bar.update(self.task, completed=done, note=self.note)
        if self.lines and time.monotonic() - self.printed_at >= self.seconds:
            self._print()

    def close(self) -> None:
        self.bar.update(self.task, completed=self.done, note=self.note)
        self.bar.stop()
        if self.lines and self.done > self.last_printed:
            self._print()

    def _print(self) -> None:
        self.printed_at, self.last_printed = time.monotonic(), self.done
        passed = self.printed_at - self.began
        left = passed / max(1, self.done - self.first) * (self.total - self.done)
        clocks = f"{timedelta(seconds=int(passed))} passed, {timedelta(seconds=int(left))} left"
        parts = filter(None, (f"{self.title}: step {self.done:,} of {self.total:,}", self.note, clocks))
        print(", ".join(parts), file=sys.stderr, flush=True)


@contextmanager
def _show_waiting(what: str, *, shown: bool = True, seconds: float = 10.0) -> Iterator[None]:
    """Prints every `seconds` how long a job has been running, for jobs without countable steps."""
    began, ended = time.monotonic(), Event()

    def report() -> None:
        while not ended.wait(seconds):
            print(f"{what}, {timedelta(seconds=int(time.monotonic() - began))} so far", file=sys.stderr, flush=True)

    thread = Thread(target=report, daemon=True)
    if shown:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if shown:
            thread.join()
