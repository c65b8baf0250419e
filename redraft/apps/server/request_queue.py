"""The desk: who may come in, who is next, and a book in which every request that came in has an end.

Admission is by cost, the tokens that the network will read (tokens × steps × texts). The queue is bounded in requests
and in cost; whoever does not fit is told when to come back. Short requests come first, but waiting counts too, so that
none waits for ever.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, Protocol

from redraft.apps.server.errors import ApiError, JsonObject, too_many_requests, unavailable

_LONGEST_STAY = 30.0  # seconds after which one who was sent away may come back, at most
Outcome = Literal["completed", "cancelled", "failed"]


class WorkerChannel(Protocol):
    """The line to the model process."""

    @property
    def ready(self) -> bool: ...

    def send(self, message: JsonObject) -> None: ...


@dataclass
class RequestLedger:
    """accepted = completed + cancelled + failed + those that are here."""

    accepted: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)  # of failures
    rejected: int = 0

    @property
    def open(self) -> int:
        return self.accepted - sum(self.ends.values())

    def as_json(self) -> JsonObject:
        ends = {name: self.ends[name] for name in ("completed", "cancelled", "failed")}
        return {"accepted": self.accepted, **ends, "open": self.open, "rejected": self.rejected}


@dataclass(eq=False)
class QueuedRequest:
    """One request that came in; its events are in the order in which they happened, the last one is done or failed."""

    number: int
    message: JsonObject
    cost: float
    until: float  # time.monotonic() of its deadline
    arrived: float
    events: asyncio.Queue[JsonObject] = field(default_factory=asyncio.Queue)
    started: float | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True)
class QueueLimits:
    """How much fits in."""

    width: int = 8
    """Requests that are written at the same time."""
    waiting: int = 64
    """Requests that may wait."""
    cost: float = 2e7
    """Tokens to be read by all requests that wait."""
    seconds: float = 120.0
    """Deadline of a request, waiting included."""


class RequestQueue:
    """Takes requests, sends them to the model process when it is their turn, and books how each of them ended."""

    def __init__(self, line: WorkerChannel, room: QueueLimits) -> None:
        self.line, self.room, self.ledger = line, room, RequestLedger()
        self.draining = False
        self.running: dict[int, QueuedRequest] = {}
        self.rate = 20_000.0  # tokens read per second, as measured lately
        self._waiting: list[tuple[float, int, QueuedRequest]] = []
        self._booked = 0.0  # until when those who were sent away are told to stay away
        self._numbers = itertools.count()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waiting(self) -> int:
        return sum(ticket.outcome is None for _, _, ticket in self._waiting)

    def require_room(self) -> None:
        """Raises if no request whatever would be taken: known before its body is read."""
        if self.draining:
            raise unavailable("draining", "the server is shutting down; it takes no new requests")
        if not self.line.ready:
            raise unavailable("loading", "the model is still loading; try again in a moment")
        costs = [ticket.cost for _, _, ticket in self._waiting if ticket.outcome is None]
        if len(costs) >= self.room.waiting:
            raise self._sent_away(sum(costs), sum(costs) / len(costs))

    def submit(self, message: JsonObject, cost: float) -> QueuedRequest:
        """A ticket, or an error that says when to come back."""
        self.require_room()
        ahead = sum(ticket.cost for _, _, ticket in self._waiting if ticket.outcome is None)
        if ahead and ahead + cost > self.room.cost:
            raise self._sent_away(ahead, cost)
        now = time.monotonic()
        ticket = QueuedRequest(next(self._numbers), message, cost, now + self.room.seconds, now)
        self.ledger.accepted += 1
        self._idle.clear()
        heapq.heappush(self._waiting, (now + cost / self.rate, ticket.number, ticket))
        self.dispatch()
        return ticket

    def _sent_away(self, ahead: float, cost: float) -> ApiError:
        """Everybody is given a time of their own, one after the other: a crowd that came together does not come back
        together."""
        now = time.monotonic()
        self.ledger.rejected += 1
        self._booked = min(max(self._booked, now + ahead / self.rate) + cost / self.rate, now + _LONGEST_STAY)
        return too_many_requests(self._booked - now)

    def dispatch(self) -> None:
        """Sends as many requests to the model process as may be written at the same time."""
        while self.line.ready and self._waiting and len(self.running) < self.room.width:
            _, _, ticket = heapq.heappop(self._waiting)
            if ticket.outcome is not None:
                continue
            now = time.monotonic()
            if now > ticket.until:
                self._end(ticket, "failed", {"event": "failed", "kind": "deadline"})
                continue
            ticket.started = now
            self.running[ticket.number] = ticket
            self.line.send({"do": "start", "id": ticket.number, "seconds": ticket.until - now} | ticket.message)

    def hear(self, event: JsonObject) -> None:
        """An event of a request, from the model process."""
        ticket = self.running.get(event["id"])
        if ticket is None:
            return
        if event["event"] == "frame":
            ticket.events.put_nowait(event)
            return
        del self.running[ticket.number]
        cancelled = event.get("kind") == "cancelled"
        self._end(ticket, "completed" if event["event"] == "done" else "cancelled" if cancelled else "failed", event)
        if event["event"] == "done" and ticket.started is not None:
            self._learn(ticket, time.monotonic() - ticket.started)
        self.dispatch()

    def cancel(self, ticket: QueuedRequest) -> None:
        """Nobody waits for it any more."""
        if ticket.outcome is not None:
            return
        if ticket.number in self.running:
            self.line.send({"do": "cancel", "id": ticket.number})
        else:
            self._end(ticket, "cancelled", {"event": "failed", "kind": "cancelled"})

    def lost(self) -> None:
        """The model process has ended: its requests fail, those that wait stay."""
        for ticket in list(self.running.values()):
            del self.running[ticket.number]
            self._end(ticket, "failed", {"event": "failed", "kind": "restarted"})

    def overdue(self) -> None:
        """Requests that have waited too long."""
        now = time.monotonic()
        for _, _, ticket in self._waiting:
            if ticket.outcome is None and now > ticket.until:
                self._end(ticket, "failed", {"event": "failed", "kind": "deadline"})

    async def drain(self, seconds: float) -> None:
        """Takes no more requests, and waits for those that are here; what is left after a while fails."""
        self.draining = True
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            for ticket in [*self.running.values(), *(ticket for _, _, ticket in self._waiting)]:
                self._end(ticket, "failed", {"event": "failed", "kind": "restarted"})

    def _end(self, ticket: QueuedRequest, outcome: Outcome, event: JsonObject) -> None:
        if ticket.outcome is not None:
            return
        ticket.outcome = outcome
        self.ledger.ends[outcome] += 1
        if outcome == "failed":
            self.ledger.reasons[event["kind"]] += 1
        ticket.events.put_nowait(event)
        if self.ledger.open == 0:
            self._idle.set()

    def _learn(self, ticket: QueuedRequest, seconds: float) -> None:
        """The rate of all that is written at the same time, smoothed."""
        rate = ticket.cost * (len(self.running) + 1) / max(seconds, 1e-3)
        self.rate = max(100.0, 0.9 * self.rate + 0.1 * rate)
