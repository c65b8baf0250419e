"""The queue: who is sent away, and when each of them may come back."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from redraft.apps import (
    QueueLimits,
)
from redraft.apps.server.errors import (
    _ApiError,
)
from redraft.apps.server.request_queue import (
    _RequestQueue,
)


@dataclass
class Line:
    """A model process that never answers."""

    ready: bool = True
    sent: list[dict[str, Any]] = field(default_factory=list)

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)


def full(cost: float = 1e9, **room: Any) -> _RequestQueue:
    desk = _RequestQueue(Line(), QueueLimits(max_running=1, max_waiting=2, max_cost=cost, **room))
    for _ in range(3):
        desk.submit({}, 20_000.0)
    return desk


def test_those_who_are_sent_away_come_back_one_after_the_other() -> None:
    desk, waits = full(), []
    for _ in range(5):
        with pytest.raises(_ApiError) as caught:
            desk.require_capacity()
        waits.append(int(caught.value.headers["Retry-After-Ms"]))
        assert int(caught.value.headers["Retry-After"]) == -(-waits[-1] // 1000)
    assert waits[0] > 2000  # two wait, of one second each
    assert all(900 < later - earlier < 1100 for earlier, later in pairwise(waits))
    assert desk.ledger.as_json() | {"accepted": 3, "rejected": 5} == desk.ledger.as_json()


def test_nobody_is_sent_away_for_long() -> None:
    desk = full()
    for _ in range(100):
        with pytest.raises(_ApiError) as caught:
            desk.require_capacity()
    assert int(caught.value.headers["Retry-After"]) <= 30


def test_cost_fills_a_queue_too() -> None:
    desk = _RequestQueue(Line(), QueueLimits(max_running=1, max_waiting=9, max_cost=50_000.0))
    for _ in range(3):
        desk.submit({}, 20_000.0)
    desk.require_capacity()  # a cheap one would fit
    desk.submit({}, 10_000.0)
    with pytest.raises(_ApiError) as caught:
        desk.submit({}, 20_000.0)
    assert caught.value.status == 429


def test_nothing_is_taken_while_it_loads_or_ends() -> None:
    desk = _RequestQueue(Line(ready=False), QueueLimits())
    with pytest.raises(_ApiError) as caught:
        desk.require_capacity()
    assert (caught.value.status, caught.value.code) == (503, "loading")
    desk.draining = True
    with pytest.raises(_ApiError) as caught:
        desk.submit({}, 1.0)
    assert caught.value.code == "draining"
