"""How far a long job is, told on stderr: in a terminal in place, elsewhere a line from time to time."""

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
    """Speaks while it lasts, from a thread: also when the job does not come up for air, say in an endless import.

    what    "texts written", or what is going on where nothing can be counted
    total   how many there are to be; None: nobody knows
    every   seconds between two lines; by default half a second in a terminal, ten elsewhere
    """

    def __init__(self, what: str, total: int | None = None, every: float | None = None) -> None:
        self.what, self.total = what, total
        self.done, self.steps = 0, 0
        self._live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn = False
        self._every = every if every is not None else 0.5 if self._live else 10.0
        self._began = time.monotonic()
        self._ended, self._lock = Event(), RLock()
        self._thread = Thread(target=self._speak, daemon=True)

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
        """So many more are done; the steps towards the next ones are counted anew."""
        self.done, self.steps = self.done + count, 0

    def turn_to(self, what: str, total: int | None = None) -> None:
        """The next part of the job begins."""
        with self._lock:
            self.what, self.total, self.done, self.steps, self._began = what, total, 0, 0, time.monotonic()

    def counting(self, items: Iterable[_T]) -> Iterator[_T]:
        """The same items, each a step towards the next result."""
        for item in items:
            self.steps += 1
            yield item

    def over(self, items: Iterable[_T], count: Callable[[_T], int]) -> Iterator[_T]:
        """The same items, each of which counts for so many when it is done."""
        for item in items:
            yield item
            self.advance(count(item))

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Time to print a result, without a half-written line before it."""
        with self._lock:
            self._clear()
            yield

    def __str__(self) -> str:
        seconds = time.monotonic() - self._began
        steps = f", step {self.steps:,}" if self.steps else ""
        if self.total is None:
            return f"{self.what}{steps}, {_duration(seconds)} so far"
        said = f"{self.done:,} of {self.total:,} {self.what}"
        steps += " of the next" if steps else ""
        left = f", about {_duration(seconds / self.done * (self.total - self.done))} left" if self.done else ""
        return said + steps + left

    def _speak(self) -> None:
        while not self._ended.wait(self._every):
            with self._lock:
                if self._live:
                    print(f"\r\x1b[K{self}", end="", file=sys.stderr, flush=True)
                    self._drawn = True
                else:
                    print_note(str(self))

    def _clear(self) -> None:
        if self._drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        self._drawn = False


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s"
