"""Admission control, the request queue, and accounting: every accepted request is completed, cancelled or failed.

Admission is by cost, the tokens that the network will process (tokens × steps × texts). The queue is bounded in
requests and in cost; the response to a rejected request says when to retry. Short requests run first, but waiting time
counts too, so that no request starves.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, Protocol

from redraft.apps.server.errors import _ApiError, _JsonObject, _too_many_requests, _unavailable

_LONGEST_RETRY = 30.0  # longest retry delay in seconds
_Outcome = Literal["completed", "cancelled", "failed"]


class _WorkerChannel(Protocol):
    """Connection to the model process."""

    @property
    def ready(self) -> bool: ...

    def send(self, message: _JsonObject) -> None: ...


@dataclass
class _RequestLedger:
    """Counts of requests. Invariant: accepted = completed + cancelled + failed + open."""

    accepted: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)  # failures by reason
    rejected: int = 0

    @property
    def open(self) -> int:
        return self.accepted - sum(self.ends.values())

    def as_json(self) -> _JsonObject:
        ends = {name: self.ends[name] for name in ("completed", "cancelled", "failed")}
        return {"accepted": self.accepted, **ends, "open": self.open, "rejected": self.rejected}


@dataclass(eq=False)
class _QueuedRequest:
    """An accepted request. Its events are in order; the last one is `done` or `failed`."""

    number: int
    message: _JsonObject
    cost: float
    until: float  # deadline on the time.monotonic() clock
    arrived: float
    events: asyncio.Queue[_JsonObject] = field(default_factory=asyncio.Queue)
    started: float | None = None
    outcome: _Outcome | None = None


@dataclass(frozen=True)
class QueueLimits:
    """Capacity of the queue."""

    max_running: int = 8
    """Maximum number of requests running at the same time."""
    max_waiting: int = 64
    """Maximum number of waiting requests."""
    max_cost: float = 2e7
    """Maximum total cost of the waiting requests, in tokens."""
    deadline: float = 120.0
    """Seconds a request may take, including its time in the queue."""


class _RequestQueue:
    """Accepts requests, sends them to the model process in turn, and records how each one ended."""

    def __init__(self, worker: _WorkerChannel, limits: QueueLimits) -> None:
        self.worker, self.limits, self.ledger = worker, limits, _RequestLedger()
        self.draining = False
        self.running: dict[int, _QueuedRequest] = {}
        self.rate = 20_000.0  # tokens processed per second, smoothed
        self._waiting: list[tuple[float, int, _QueuedRequest]] = []
        self._booked = 0.0  # retry time given to the last rejected request
        self._numbers = itertools.count()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waiting(self) -> int:
        return sum(request.outcome is None for _, _, request in self._waiting)

    def require_capacity(self) -> None:
        """Raises if any request would be rejected; needs no body."""
        if self.draining:
            raise _unavailable("draining", "the server is shutting down; it accepts no new requests")
        if not self.worker.ready:
            raise _unavailable("loading", "the model is still loading; try again in a moment")
        costs = [request.cost for _, _, request in self._waiting if request.outcome is None]
        if len(costs) >= self.limits.max_waiting:
            raise self._reject(sum(costs), sum(costs) / len(costs))

    def submit(self, message: _JsonObject, cost: float) -> _QueuedRequest:
        """Queues a request, or raises an error that says when to retry."""
        self.require_capacity()
        ahead = sum(request.cost for _, _, request in self._waiting if request.outcome is None)
        if ahead and ahead + cost > self.limits.max_cost:
            raise self._reject(ahead, cost)
        now = time.monotonic()
        request = _QueuedRequest(next(self._numbers), message, cost, now + self.limits.deadline, now)
        self.ledger.accepted += 1
        self._idle.clear()
        heapq.heappush(self._waiting, (now + cost / self.rate, request.number, request))
        self.dispatch()
        return request

    def _reject(self, ahead: float, cost: float) -> _ApiError:
        """429 with a retry time. Rejected requests get staggered times, so that they do not all return at once."""
        now = time.monotonic()
        self.ledger.rejected += 1
        self._booked = min(max(self._booked, now + ahead / self.rate) + cost / self.rate, now + _LONGEST_RETRY)
        return _too_many_requests(self._booked - now)

    def dispatch(self) -> None:
        """Sends waiting requests to the model process, up to `limits.max_running` at a time."""
        while self.worker.ready and self._waiting and len(self.running) < self.limits.max_running:
            _, _, request = heapq.heappop(self._waiting)
            if request.outcome is not None:
                continue
            now = time.monotonic()
            if now > request.until:
                self._end(request, "failed", {"event": "failed", "kind": "deadline"})
                continue
            request.started = now
            self.running[request.number] = request
            self.worker.send({"do": "start", "id": request.number, "seconds": request.until - now} | request.message)

    def handle_event(self, event: _JsonObject) -> None:
        """Handles an event about a request from the model process."""
        request = self.running.get(event["id"])
        if request is None:
            return
        if event["event"] == "frame":
            request.events.put_nowait(event)
            return
        del self.running[request.number]
        cancelled = event.get("kind") == "cancelled"
        self._end(request, "completed" if event["event"] == "done" else "cancelled" if cancelled else "failed", event)
        if event["event"] == "done" and request.started is not None:
            self._update_rate(request, time.monotonic() - request.started)
        self.dispatch()

    def cancel(self, request: _QueuedRequest) -> None:
        """Cancels a request: ends it now if it is waiting, or tells the model process to stop it if it is running."""
        if request.outcome is not None:
            return
        if request.number in self.running:
            self.worker.send({"do": "cancel", "id": request.number})
        else:
            self._end(request, "cancelled", {"event": "failed", "kind": "cancelled"})

    def fail_running(self) -> None:
        """Fails the running requests after the model process ended; waiting ones stay in the queue."""
        for request in list(self.running.values()):
            del self.running[request.number]
            self._end(request, "failed", {"event": "failed", "kind": "restarted"})

    def fail_overdue(self) -> None:
        """Fails waiting requests that have missed their deadline."""
        now = time.monotonic()
        for _, _, request in self._waiting:
            if request.outcome is None and now > request.until:
                self._end(request, "failed", {"event": "failed", "kind": "deadline"})

    async def drain(self, seconds: float) -> None:
        """Rejects new requests and waits for the accepted ones; those left after `seconds` fail."""
        self.draining = True
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            for request in [*self.running.values(), *(request for _, _, request in self._waiting)]:
                self._end(request, "failed", {"event": "failed", "kind": "restarted"})

    def _end(self, request: _QueuedRequest, outcome: _Outcome, event: _JsonObject) -> None:
        if request.outcome is not None:
            return
        request.outcome = outcome
        self.ledger.ends[outcome] += 1
        if outcome == "failed":
            self.ledger.reasons[event["kind"]] += 1
        request.events.put_nowait(event)
        if self.ledger.open == 0:
            self._idle.set()

    def _update_rate(self, request: _QueuedRequest, seconds: float) -> None:
        """Updates the smoothed rate of all concurrent requests together."""
        rate = request.cost * (len(self.running) + 1) / max(seconds, 1e-3)
        self.rate = max(100.0, 0.9 * self.rate + 0.1 * rate)
