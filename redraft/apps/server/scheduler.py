"""Continuous batching: concurrent requests run unmodified samplers, and their network passes are merged.

A request runs its ordinary sampler in a *greenlet*, a coroutine with its own stack that is switched explicitly within
one thread. Where the sampler needs the network, the greenlet pauses with a pending pass. When all requests are paused,
the scheduler runs the pending passes as one ragged batch (`run_ragged`) and resumes them. Samplers,
caches, guidance and rules are unaware of this, and requests join and leave between two passes.

Gradient mode and autocast are per thread: the caller of the scheduler sets them once, for all requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import greenlet
from torch import Tensor

from redraft.models.networks.executors.base import Network
from redraft.models.networks.executors.packed import project_ragged, run_ragged
from redraft.models.networks.forward_pass import ForwardPass, PassOutput

_MAX_WAIT = 0.5  # a request that has waited this many seconds joins the next pass
_SHORT_PRICE = 0.5  # price per token of a pass, if the largest pending pass costs more than twice as much


class RequestEnded(Exception):
    """Raised inside a request at its next network call: it was cancelled, is too late, or cannot continue."""


class Cancelled(RequestEnded):
    """The client cancelled the request or disconnected."""


class DeadlineExceeded(RequestEnded):
    """The deadline has passed."""


class NonFiniteOutput(RequestEnded):
    """The network returned NaN or infinity for this request."""


@dataclass
class _PendingPass:
    """The network call a request waits for: a pass through the layers, or the output projection of hidden states."""

    network: Network
    call: ForwardPass | Tensor  # a tensor holds hidden states to project

    @property
    def cost(self) -> int:
        """Number of tokens in the pass; the output projection costs nothing."""
        return self.call.tokens.shape[0] * self.call.tokens.shape[1] if isinstance(self.call, ForwardPass) else 0


@dataclass(eq=False)
class ScheduledRequest:
    """A running request; it has ended when its greenlet is dead."""

    work: Callable[[], None]
    deadline: float | None = None  # on the time.monotonic() clock; None for no deadline
    pending: _PendingPass | None = None
    spent: float = 0.0  # tokens charged so far by the fairness rule
    passes: int = 0
    last_pass: float = field(default_factory=time.monotonic)  # time of its last pass
    ended_by: type[RequestEnded] | None = None
    # called with the number of rows of each of its passes
    counts: list[Callable[[int], None]] = field(default_factory=list, repr=False)
    stack: greenlet.greenlet = field(init=False, repr=False)

    def cancel(self) -> None:
        """Ends the request at its next network call."""
        self.ended_by = Cancelled


class BatchScheduler:
    """Runs requests concurrently, for models bound to it by `model.on(Packed(scheduler))`.

    `run_round` runs pending passes and resumes each request until its next network call.

    overhead: fixed cost of a pass, in tokens, for the fairness rule.
    min_rows: matrix products have at least this many rows.
    heartbeat: called often while passes run.
    """

    def __init__(
        self,
        *,
        min_rows: int = 1,
        overhead: float = 64.0,
        heartbeat: Callable[[], None] | None = None,
    ) -> None:
        self.min_rows, self.overhead, self.heartbeat = min_rows, overhead, heartbeat
        self.requests: list[ScheduledRequest] = []
        self.passes = 0  # merged passes
        self.merged = 0  # request passes that went into them
        self._current: ScheduledRequest | None = None
        self._outside: list[Callable[[int], None]] = []  # row counters for passes outside of any request
        self._main = greenlet.getcurrent()

    def close(self) -> None:
        """Cancels the remaining requests."""
        for request in list(self.requests):
            self._resume(request, Cancelled())

    def start(self, work: Callable[[], None], deadline: float | None = None) -> ScheduledRequest:
        """Starts a request and runs it until its first network call."""
        request = ScheduledRequest(work, deadline)
        request.spent = min((other.spent for other in self.requests), default=0.0)
        request.stack = greenlet.greenlet(lambda _: work(), parent=self._main)
        self.requests.append(request)
        self._resume(request, None)
        largest = max((self._cost(other) for other in self.requests), default=0.0)
        if 2 * self._cost(request) < largest:
            request.spent -= largest  # a short request goes before the next long pass
        return request

    def run(self, works: Iterable[Callable[[], None]]) -> None:
        """Runs several requests together until all have ended."""
        self._main = greenlet.getcurrent()
        for work in works:
            self.start(work)
        while self.requests:
            self.run_round()

    def run_round(self) -> None:
        """Runs one merged pass for the requests whose turn it is.

        Output projections always run first, so that the requests are in step again.
        """
        self._dismiss()
        for requests in _by_network([r for r in self.requests if r.pending and isinstance(r.pending.call, Tensor)]):
            self._answer(requests, self._project)
        for requests in _by_network(self._turn()):
            self._answer(requests, self._pass)

    def _turn(self) -> list[ScheduledRequest]:
        """Requests in the next pass. Long rows wait while short ones catch up; short rows are charged half, so they
        get twice the processing time (`python -m bench.serving` measures the effect on a short request).

        Requests less than one short pass ahead of the last one join too, so that passes are full. So do requests that
        have waited too long, so that short ones cannot starve them.
        """
        waiting = [request for request in self.requests if request.pending is not None]
        if not waiting or any(isinstance(request.pending.call, Tensor) for request in waiting if request.pending):
            return []
        largest = max(self._cost(request) for request in waiting)
        price = {
            id(request): self._cost(request) * (_SHORT_PRICE if 2 * self._cost(request) < largest else 1.0)
            for request in waiting
        }
        behind, slack, now = min(request.spent for request in waiting), min(price.values()), time.monotonic()
        turn = [
            request for request in waiting if request.spent <= behind + slack or now - request.last_pass > _MAX_WAIT
        ]
        for request in turn:
            request.spent += price[id(request)]
            request.passes, request.last_pass = request.passes + 1, now
        return turn

    def _cost(self, request: ScheduledRequest) -> float:
        return self.overhead + (request.pending.cost if request.pending else 0)

    def _dismiss(self) -> None:
        """Ends requests that were cancelled or have missed their deadline."""
        now = time.monotonic()
        for request in list(self.requests):
            if request.ended_by is not None:
                self._resume(request, request.ended_by())
            elif request.deadline is not None and now > request.deadline:
                self._resume(request, DeadlineExceeded())

    def _pass(self, network: Network, calls: Sequence[Any]) -> list[PassOutput]:
        self.passes, self.merged = self.passes + 1, self.merged + len(calls)
        return run_ragged(network, calls, self.min_rows, self.heartbeat)

    def _project(self, network: Network, calls: Sequence[Any]) -> list[Tensor]:
        return project_ragged(network, calls, self.min_rows)

    def _answer(
        self, requests: Sequence[ScheduledRequest], run: Callable[[Network, Sequence[Any]], Sequence[Any]]
    ) -> None:
        """Runs the pending calls of these requests on one network and resumes each until its next call."""
        calls = [request.pending for request in requests if request.pending is not None]
        try:
            outputs = run(calls[0].network, [call.call for call in calls])
        except Exception as error:  # one request caused it: run them one by one, so that the others do not fail
            if len(requests) == 1:
                return self._resume(requests[0], error)
            for request in requests:
                self._answer([request], run)
            return None
        for request, output in zip(requests, outputs, strict=True):
            self._resume(request, output)
            if self.heartbeat is not None:
                self.heartbeat()
        return None

    def _resume(self, request: ScheduledRequest, output: PassOutput | Tensor | Exception | None) -> None:
        """Resumes a request until its next network call or its end."""
        request.pending, self._current = None, request
        try:
            if isinstance(output, Tensor) and not bool(output.sum(-1).isfinite().all()):
                output = NonFiniteOutput()
            request.stack.throw(output) if isinstance(output, Exception) else request.stack.switch(output)
        except RequestEnded:
            pass  # the request did not handle it
        finally:
            self._current = None
            if request.stack.dead:
                self.requests.remove(request)

    def ask(self, network: Network, call: ForwardPass | Tensor) -> Any:
        """Pauses the current request until its call has run; outside of a request, runs it at once."""
        request = self._current
        if request is None:
            self._count(self._outside, call)
            return (self._pass if isinstance(call, ForwardPass) else self._project)(network, [call])[0]
        request.pending = _PendingPass(network, call)
        self._count(request.counts, call)
        return self._main.switch()

    def _count(self, counts: Sequence[Callable[[int], None]], call: ForwardPass | Tensor) -> None:
        for count in counts:
            if isinstance(call, ForwardPass):
                count(len(call.tokens))

    @contextmanager
    def counting(self, count: Callable[[int], None]) -> Iterator[None]:
        """Calls `count` with the number of rows of each pass of the current request while the context is open."""
        counts = self._outside if self._current is None else self._current.counts
        counts.append(count)
        try:
            yield
        finally:
            counts.remove(count)


def _by_network(requests: Sequence[ScheduledRequest]) -> list[list[ScheduledRequest]]:
    groups: dict[int, list[ScheduledRequest]] = {}
    for request in requests:
        assert request.pending is not None
        groups.setdefault(id(request.pending.network), []).append(request)
    return list(groups.values())
