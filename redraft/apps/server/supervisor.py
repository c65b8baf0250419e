"""Starts the model process, receives its events, and replaces it when it crashes or hangs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from redraft.apps.server.errors import _JsonObject
from redraft.apps.server.request_queue import QueueLimits, _RequestQueue

_LINE = 1 << 26  # maximum size of an event in bytes
_SINGLE_THREAD_ENV = {"MKL_CBWR": "AVX512,STRICT"}  # same summation order for any batch size
_SHARING = {"OMP_WAIT_POLICY": "passive"}  # spinning threads would take the HTTP process's core


class _WorkerStartError(Exception):
    """The model process cannot start (for example, a bad model path); restarting would not help."""


@dataclass(frozen=True)
class SupervisorTimeouts:
    """Heartbeat timeouts of the model process."""

    silence: float = 4.0
    """Seconds without a heartbeat after which the process is replaced."""
    loading: float = 600.0
    """Seconds without a heartbeat after which it is replaced while it loads the models."""


@dataclass
class Supervisor:
    """Runs one model process at a time and feeds it from the request queue."""

    models: dict[str, str]
    threads: int | None = None
    timeouts: SupervisorTimeouts = SupervisorTimeouts()
    queue_limits: QueueLimits = QueueLimits()
    model_flags: Mapping[str, str | None] = field(
        default_factory=dict
    )  # mask and attention, for model files that do not state them
    restarts: int = 0
    model_infos: list[_JsonObject] = field(default_factory=list)  # `_model_info` of each model, once loaded
    batch_invariant_rows: int | None = None  # see `batch_invariant_rows` in core; None if results depend on the batch
    log: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)

    def __post_init__(self) -> None:
        self.queue = _RequestQueue(self, self.queue_limits)
        self.process: asyncio.subprocess.Process | None = None
        self._ready = False
        self._closing = False
        self._last_event = time.monotonic()
        self._loaded: asyncio.Future[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def ready(self) -> bool:
        return self._ready

    async def start(self) -> None:
        """Starts the process and its monitoring tasks; await `loaded` for readiness."""
        self._loaded = asyncio.get_running_loop().create_future()
        self._tasks = [asyncio.create_task(self._keep_running()), asyncio.create_task(self._watch())]

    async def loaded(self) -> None:
        """Waits until the models are loaded; raises `_WorkerStartError` if loading fails."""
        assert self._loaded is not None
        await asyncio.shield(self._loaded)

    async def close(self) -> None:
        self._closing, self._ready = True, False
        for task in self._tasks:
            task.cancel()
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()

    def send(self, message: _JsonObject) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    async def _keep_running(self) -> None:
        """Restarts the process, with a growing pause, until `close`."""
        pause = 0.1
        while not self._closing:
            start = time.monotonic()
            await self._run_process()
            self._ready = False
            self.queue.fail_running()
            if self._loaded is not None and not self._loaded.done():
                self._loaded.set_exception(
                    _WorkerStartError("the model process ended while loading the models; see its messages above")
                )
                return
            pause = 0.1 if time.monotonic() - start > 30 else min(10.0, 2 * pause)
            self.restarts += 1
            self.log("redraft serve: the model process has ended; restarting it")
            await asyncio.sleep(pause)

    async def _run_process(self) -> None:
        """Starts a process and handles its events until it ends."""
        arguments = json.dumps({"models": self.models, "threads": self.threads, "model_flags": dict(self.model_flags)})
        command = [sys.executable, "-m", "redraft.apps.server.worker", arguments]
        pipe, environment = asyncio.subprocess.PIPE, {**_SINGLE_THREAD_ENV, **_SHARING, **os.environ}
        self._last_event = time.monotonic()
        self.process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, limit=_LINE, start_new_session=True, env=environment
        )
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self._last_event = time.monotonic()
            self._handle_event(json.loads(line))
        await self.process.wait()

    def _handle_event(self, event: _JsonObject) -> None:
        if event["event"] == "ready":
            self.model_infos, self.batch_invariant_rows, self._ready = (
                event["models"],
                event["batch_invariant_rows"],
                True,
            )
            if self._loaded is not None and not self._loaded.done():
                self._loaded.set_result(None)
            self.queue.dispatch()
        elif event["event"] == "start_failed":
            if self._loaded is not None and not self._loaded.done():
                self._loaded.set_exception(_WorkerStartError(event["message"]))
            self.log(f"redraft serve: {event['message']}")
        elif event["event"] != "alive":
            self.queue.handle_event(event)

    async def _watch(self) -> None:
        """Kills a process without heartbeats, and fails overdue requests."""
        while not self._closing:
            await asyncio.sleep(0.25)
            timeout = self.timeouts.silence if self._ready else self.timeouts.loading
            alive = self.process is not None and self.process.returncode is None
            if self.process is not None and alive and time.monotonic() - self._last_event > timeout:
                self.log(f"redraft serve: no heartbeat from the model process for {timeout:g} s; replacing it")
                with suppress(ProcessLookupError):
                    self.process.kill()
                self._last_event = time.monotonic()
            self.queue.fail_overdue()
