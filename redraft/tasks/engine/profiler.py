"""Where the time of writing goes: network, output layer, constraint, and the rest, which is the sampler's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from redraft.decoding.constraints.constrained import Constrained, ConstrainedPrediction
from redraft.models.diffusion_lm import DiffusionLM


@dataclass
class _ProfileEntry:
    """One kind of work."""

    calls: int = 0
    seconds: float = 0.0


@dataclass
class Profile:
    """Seconds and calls by kind of work; each moment counts for the innermost kind that is at work."""

    parts: dict[str, _ProfileEntry] = field(default_factory=dict)
    clock: Callable[[], float] = time.perf_counter
    _running: list[tuple[str, float]] = field(default_factory=list)  # who, and since when

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """What happens inside counts for this part."""
        self.parts.setdefault(name, _ProfileEntry()).calls += 1
        self._pause()
        self._running.append((name, self.clock()))
        try:
            yield
        finally:
            self._pause()
            self._running.pop()
            if self._running:
                self._running[-1] = (self._running[-1][0], self.clock())

    def _pause(self) -> None:
        if self._running:
            name, since = self._running[-1]
            self.parts[name].seconds += self.clock() - since

    def lines(self, seconds: float, steps: int) -> list[str]:
        """A line per kind of work, the sampler last: what is left of all seconds of writing."""
        known = sum(part.seconds for part in self.parts.values())
        rows = {**self.parts, "sampler": _ProfileEntry(steps, max(0.0, seconds - known))}
        return [
            f"{name:<13}{part.calls:>7,} calls{1000 * part.seconds:>11,.1f} ms{part.seconds / (seconds or 1):>7.1%}"
            for name, part in rows.items()
        ]


_WORK = {"forward": "network", "absorb": "network", "with_gaps": "network", "logits": "output layer"}
_RULES: tuple[tuple[Any, str], ...] = (
    (ConstrainedPrediction, "at"),
    (ConstrainedPrediction, "draw"),
    (Constrained, "moved"),
)


@contextmanager
def profile_model(model: DiffusionLM, clock: Callable[[], float] = time.perf_counter) -> Iterator[Profile]:
    """Times network, output layer and rules while it lasts, by any clock; a method that calls another is one call."""
    found = Profile({name: _ProfileEntry() for name in dict.fromkeys(_WORK.values())}, clock)
    network: Any = model.network
    plain = {(kind, method): getattr(kind, method) for kind, method in _RULES}
    for method, name in _WORK.items():
        setattr(network, method, _timed(found, name, getattr(network, method)))
    for (kind, method), function in plain.items():
        setattr(kind, method, _timed(found, "constraint", function))
    try:
        yield found
    finally:
        for method in _WORK:
            delattr(network, method)
        for (kind, method), function in plain.items():
            setattr(kind, method, function)


def _timed(found: Profile, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*args: Any, **more: Any) -> Any:
        if any(who == name for who, _ in found._running):  # already on the clock
            return function(*args, **more)
        with found.timed(name):
            return function(*args, **more)

    return run
