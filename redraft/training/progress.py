"""Progress of a long job on stderr: a bar in a terminal (rich), elsewhere a new line from time to time."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, RLock, Thread
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

_T = TypeVar("_T")
_SHORT = 0.5  # seconds; no bar is shown for shorter jobs


def is_first_worker() -> bool:
    """Whether this is the only process of a command, or the first of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


class Progress:
    """Shows how far a job is, from a thread, even while the main thread is busy, for example in a slow import.

    Args:
        what: the items that are counted, such as "texts written"; or the job, if nothing can be counted
        total: number of items; None if nothing can be counted
        done: number of items that were done before
        shown: False prints nothing; only the first worker prints anything
        stays: leave the last state on the screen, or print it
        every: seconds between two lines, where stderr is no terminal
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        done: int = 0,
        *,
        shown: bool = True,
        stays: bool = False,
        every: float = 10.0,
    ) -> None:
        self.what, self.total, self.done, self.steps, self.note = what, total, done, 0, ""
        self._first, self._printed, self._start = done, done, time.monotonic()
        self._shown, self._stays, self._every = shown and is_first_worker(), stays, every
        self._ended, self._lock = Event(), RLock()
        self._thread: Thread | None = None
        self._bar: RichProgress | None = None

    def start(self) -> Progress:
        """Begin to show it, until `close`; `with` does both."""
        if self._shown:
            self._thread = Thread(target=self._report, daemon=True)
            self._thread.start()
        return self

    def __enter__(self) -> Progress:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._ended.set()
        if self._thread is None:
            return
        self._thread.join()
        if self._bar is not None:
            self._bar.stop()
        elif self._stays and self.done > self._printed:
            self._print()

    def advance(self, count: int) -> None:
        """Count `count` more items as done, and restart the count of steps."""
        self.done, self.steps = self.done + count, 0

    def begin(self, what: str, total: int | None = None) -> None:
        """Begin the next part of the job."""
        with self._lock:
            self.what, self.total, self.done, self.steps = what, total, 0, 0
            self._first, self._start = 0, time.monotonic()

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
        """Clear the bar and report nothing, so that a result can be printed."""
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
            yield
            if self._bar is not None:
                self._bar.start()

    def __str__(self) -> str:
        passed = time.monotonic() - self._start
        steps = f", step {self.steps:,}" if self.steps else ""
        if self.total is None:
            return f"{self.what}{steps}, {_duration(passed)} so far"
        items = f"{self.done:,} of {self.total:,} {self.what}"
        new, left = self.done - self._first, self.total - self.done
        rest = f"about {_duration(passed / new * left)} left" if new and left else ""
        ends = f"in {_duration(passed)}" if not left else rest
        return ", ".join(filter(None, (items + steps + (" of the next" if steps else ""), self.note, ends)))

    def _report(self) -> None:
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            if not self._ended.wait(_SHORT):
                with self._lock:
                    self._bar = _bar(self, transient=not self._stays)
                    self._bar.start()
            return
        while not self._ended.wait(self._every):
            with self._lock:
                self._print()

    def _print(self) -> None:
        self._printed = self.done
        with suppress(OSError):  # stderr may be closed
            print(self, file=sys.stderr, flush=True)


def _bar(progress: Progress, transient: bool) -> RichProgress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress as RichProgress, ProgressColumn, Task
    from rich.table import Column
    from rich.text import Text

    class Line(ProgressColumn):
        def render(self, task: Task) -> Text:
            task.total, task.completed = progress.total, progress.done
            return Text(str(progress), no_wrap=True, overflow="ellipsis")

    bar = RichProgress(
        Line(table_column=Column(ratio=3)),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        console=Console(stderr=True),
        expand=True,
        transient=transient,
        redirect_stdout=False,  # results are not progress
        refresh_per_second=2,
    )
    bar.add_task("", total=progress.total)
    return bar


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s"
