"""Progress of a long job on stderr: one updated line in a terminal, elsewhere a new line from time to time."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Event, RLock, Thread
from types import TracebackType
from typing import TypeVar

from redraft.apps.cli.output import is_first_worker, print_note

_T = TypeVar("_T")


class Progress:
    """Reports progress from a thread, even while the main thread is busy, for example in a slow import.

    Args:
        what: the items that are counted, such as "texts written"; or the job, if nothing can be counted
        total: number of items; None if nothing can be counted
        every: seconds between two reports; None for half a second in a terminal and ten elsewhere
    """

    def __init__(self, what: str, total: int | None = None, every: float | None = None) -> None:
        self.what, self.total = what, total
        self.done, self.steps = 0, 0
        self._in_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._line_shown = False
        self._every = every if every is not None else 0.5 if self._in_terminal else 10.0
        self._start = time.monotonic()
        self._ended, self._lock = Event(), RLock()
        self._thread = Thread(target=self._report, daemon=True)

    def __enter__(self) -> Progress:
        if is_first_worker():
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._clear()

    def advance(self, count: int) -> None:
        """Count `count` more items as done, and restart the count of steps."""
        self.done, self.steps = self.done + count, 0

    def begin(self, what: str, total: int | None = None) -> None:
        """Begin the next part of the job."""
        with self._lock:
            self.what, self.total, self.done, self.steps, self._start = what, total, 0, 0, time.monotonic()

    def count_steps(self, items: Iterable[_T]) -> Iterator[_T]:
        """Yield the items, counting each as a step toward the next result."""
        for item in items:
            self.steps += 1
            yield item

    def count_items(self, items: Iterable[_T], count: Callable[[_T], int]) -> Iterator[_T]:
        """Yield the items; when one has been processed, advance by `count(item)`."""
        for item in items:
            yield item
            self.advance(count(item))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Clear the progress line and report nothing, so that a result can be printed."""
        with self._lock:
            self._clear()
            yield

    def __str__(self) -> str:
        seconds = time.monotonic() - self._start
        steps = f", step {self.steps:,}" if self.steps else ""
        if self.total is None:
            return f"{self.what}{steps}, {_duration(seconds)} so far"
        items = f"{self.done:,} of {self.total:,} {self.what}"
        steps += " of the next" if steps else ""
        left = f", about {_duration(seconds / self.done * (self.total - self.done))} left" if self.done else ""
        return items + steps + left

    def _report(self) -> None:
        while not self._ended.wait(self._every):
            with self._lock:
                if self._in_terminal:
                    print(f"\r\x1b[K{self}", end="", file=sys.stderr, flush=True)
                    self._line_shown = True
                else:
                    print_note(str(self))

    def _clear(self) -> None:
        if self._line_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        self._line_shown = False


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s"
