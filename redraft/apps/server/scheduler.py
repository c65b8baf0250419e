"""Continuous batching: concurrent requests run unmodified samplers, and their network passes are merged.

A request runs its ordinary sampler in a *greenlet*, a coroutine with its own stack that is switched explicitly within
one thread. Where the sampler needs the network, the greenlet pauses with a pending pass. When all requests are paused,
the scheduler runs the pending passes as one ragged batch (`run_ragged`) and resumes them. Samplers,
caches, guidance and rules are unaware of this, and requests join and leave between two passes.

Gradient mode and autocast are per thread: the caller of the scheduler sets them once, for all requests.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import greenlet
import torch
from torch import Tensor

from redraft.models.networks.executors.base import Executor, Network
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
class _NetworkCall(ABC):
    """The network call a request waits for."""

    network: Network
    each: Executor | None  # runs each call by itself; None if they can be packed into one
    cost: ClassVar[int] = 0  # number of tokens that the request pays for
    at_once: ClassVar[bool] = False  # whether it runs before the next pass, which its request can then join

    def count(self, counts: Sequence[Callable[[int], None]]) -> None:  # noqa: B027 - only a pass has rows
        """Call each of these functions with the number of rows of the pass."""

    @abstractmethod
    def run(self, scheduler: BatchScheduler, calls: Sequence[Any]) -> Sequence[Any]:
        """Run calls of this kind on one network together; return their outputs in the same order."""

    def failure(self, output: Any) -> RequestEnded | None:
        """Return the error for an output that the request cannot use."""
        return None


@dataclass
class _PassCall(_NetworkCall):
    """A pass through the layers."""

    forward_pass: ForwardPass

    @property
    def cost(self) -> int:  # type: ignore[override]
        rows, length = self.forward_pass.tokens.shape
        return rows * length

    def count(self, counts: Sequence[Callable[[int], None]]) -> None:
        for count in counts:
            count(len(self.forward_pass.tokens))

    def run(self, scheduler: BatchScheduler, calls: Sequence[_PassCall]) -> list[PassOutput]:
        return scheduler._pass(self.network, self.each, [call.forward_pass for call in calls])


@dataclass
class _ProjectionCall(_NetworkCall):
    """The output projection of hidden states, which is free."""

    states: Tensor
    at_once = True

    def run(self, scheduler: BatchScheduler, calls: Sequence[_ProjectionCall]) -> list[Tensor]:
        if self.each is not None:
            return [self.each.logits(self.network, call.states) for call in calls]
        return project_ragged(self.network, [call.states for call in calls], scheduler.min_rows)

    def failure(self, output: Tensor) -> RequestEnded | None:
        return None if bool(output.sum(-1).isfinite().all()) else NonFiniteOutput()


@dataclass(eq=False)
class ScheduledRequest:
    """A running request; it has ended when its greenlet is dead."""

    work: Callable[[], None]
    deadline: float | None = None  # on the time.monotonic() clock; None for no deadline
    pending: _NetworkCall | None = None
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
            self._end(request, Cancelled())

    def start(self, work: Callable[[], None], deadline: float | None = None) -> ScheduledRequest:
        """Starts a request and runs it until its first network call."""
        request = ScheduledRequest(work, deadline)
        request.spent = min((other.spent for other in self.requests), default=0.0)
        request.stack = greenlet.greenlet(lambda _: work(), parent=self._main)
        self.requests.append(request)
        self._resume(request)
        largest = max((self._cost(other) for other in self.requests), default=0.0)
        if 2 * self._cost(request) < largest:
            request.spent -= largest  # a short request goes before the next long pass
        return request

    def run(self, works: Iterable[Callable[[], None]]) -> None:
        """Runs several requests together until all have ended, without gradients: they share a thread's grad mode."""
        self._main = greenlet.getcurrent()
        with torch.no_grad():
            for work in works:
                self.start(work)
            while self.requests:
                self.run_round()

    def run_round(self) -> None:
        """Runs one merged pass for the requests whose turn it is.

        Pending output projections run first; these requests can then join the next pass.
        """
        self._dismiss()
        for requests in _by_network(
            [request for request in self.requests if request.pending and request.pending.at_once]
        ):
            self._answer(requests)
        for requests in _by_network(self._turn()):
            self._answer(requests)

    def _turn(self) -> list[ScheduledRequest]:
        """Requests in the next pass. Long rows wait while short ones catch up; short rows are charged half, so they
        get twice the processing time (`python -m bench.serving` measures the effect on a short request).

        Requests less than one short pass ahead of the last one join too, so that passes are full. So do requests that
        have waited too long, so that short ones cannot starve them.
        """
        waiting = [request for request in self.requests if request.pending is not None]
        if not waiting or any(request.pending.at_once for request in waiting if request.pending):
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
                self._end(request, request.ended_by())
            elif request.deadline is not None and now > request.deadline:
                self._end(request, DeadlineExceeded())

    def _pass(self, network: Network, each: Executor | None, passes: Sequence[ForwardPass]) -> list[PassOutput]:
        if each is not None:
            self.passes, self.merged = self.passes + len(passes), self.merged + len(passes)
            return [each.trunk(network, forward_pass) for forward_pass in passes]
        self.passes, self.merged = self.passes + 1, self.merged + len(passes)
        return run_ragged(network, passes, self.min_rows, self.heartbeat)

    def _answer(self, requests: Sequence[ScheduledRequest]) -> None:
        """Runs the pending calls of these requests on one network and resumes each until its next call."""
        calls = [request.pending for request in requests if request.pending is not None]
        try:
            outputs = calls[0].run(self, calls)
        except Exception as error:  # one request caused it: run them one by one, so that the others do not fail
            if len(requests) == 1:
                return self._end(requests[0], error)
            for request in requests:
                self._answer([request])
            return None
        for request, call, output in zip(requests, calls, outputs, strict=True):
            failure = call.failure(output)
            self._resume(request, output) if failure is None else self._end(request, failure)
            if self.heartbeat is not None:
                self.heartbeat()
        return None

    def _resume(self, request: ScheduledRequest, output: PassOutput | Tensor | None = None) -> None:
        """Resumes a request until its next network call or its end."""
        self._continue(request, lambda: request.stack.switch(output))

    def _end(self, request: ScheduledRequest, error: Exception) -> None:
        """Raises an error inside a request."""
        self._continue(request, lambda: request.stack.throw(error))

    def _continue(self, request: ScheduledRequest, switch: Callable[[], Any]) -> None:
        request.pending, self._current = None, request
        try:
            switch()
        except RequestEnded:
            pass  # the request did not handle it
        finally:
            self._current = None
            if request.stack.dead:
                self.requests.remove(request)

    def run_pass(self, network: Network, forward_pass: ForwardPass, each: Executor | None) -> PassOutput:
        return cast(PassOutput, self._wait_for(_PassCall(network, each, forward_pass)))

    def project(self, network: Network, states: Tensor, each: Executor | None) -> Tensor:
        return cast(Tensor, self._wait_for(_ProjectionCall(network, each, states)))

    def _wait_for(self, call: _NetworkCall) -> Any:
        """Pauses the current request until its call has run; outside of a request, runs it at once."""
        request = self._current
        call.count(self._outside if request is None else request.counts)
        if request is None:
            return call.run(self, [call])[0]
        request.pending = call
        return self._main.switch()

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
