"""Where decoding spends its time: network, output layer, constraints, and the rest, which is the sampler."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from redraft.decoding.constraints import constrained
from redraft.decoding.constraints.constrained import ConstrainedPrediction
from redraft.models.diffusion_lm import DiffusionLM


@dataclass
class _ProfileEntry:
    """Calls and seconds of one kind of work."""

    calls: int = 0
    seconds: float = 0.0


@dataclass
class Profile:
    """Calls and seconds by kind of work; nested work counts only for the innermost kind."""

    parts: dict[str, _ProfileEntry] = field(default_factory=dict)
    clock: Callable[[], float] = time.perf_counter
    _running: list[tuple[str, float]] = field(default_factory=list)  # kinds of work in progress, with start times

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Adds the time spent inside the `with` block to this kind of work."""
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
        """A line per kind of work; the last one is the sampler, with the rest of the total `seconds`."""
        measured = sum(part.seconds for part in self.parts.values())
        rows = {**self.parts, "sampler": _ProfileEntry(steps, max(0.0, seconds - measured))}
        return [
            f"{name:<13}{part.calls:>7,} calls{1000 * part.seconds:>11,.1f} ms{part.seconds / (seconds or 1):>7.1%}"
            for name, part in rows.items()
        ]


_WORK = {"forward": "network", "absorb": "network", "with_gaps": "network", "logits": "output layer"}
_RULES: tuple[tuple[Any, str], ...] = (
    (ConstrainedPrediction, "at"),
    (ConstrainedPrediction, "draw"),
    (constrained, "_guide_vectors"),
)


@contextmanager
def profile_model(model: DiffusionLM, clock: Callable[[], float] = time.perf_counter) -> Iterator[Profile]:
    """Times network, output layer and constraints inside the `with` block; calls nested in the same kind count once."""
    profile = Profile({name: _ProfileEntry() for name in dict.fromkeys(_WORK.values())}, clock)
    network: Any = model.network
    originals = {(owner, method): getattr(owner, method) for owner, method in _RULES}
    for method, name in _WORK.items():
        setattr(network, method, _timed(profile, name, getattr(network, method)))
    for (owner, method), function in originals.items():
        setattr(owner, method, _timed(profile, "constraint", function))
    try:
        yield profile
    finally:
        for method in _WORK:
            delattr(network, method)
        for (owner, method), function in originals.items():
            setattr(owner, method, function)


def _timed(profile: Profile, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        if any(kind == name for kind, _ in profile._running):  # already being timed
            return function(*args, **options)
        with profile.timed(name):
            return function(*args, **options)

    return run
