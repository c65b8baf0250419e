"""Samplers and what they say about themselves, time warps, and functions that samplers share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.randomness import Rng
from redraft.core.tunable import Setting, Tunable, words_of


class TimeWarp(Protocol):
    """A time grid for samplers: maps the fraction of steps left to a time."""

    def __call__(self, left: float) -> float:
        """Return the time when the fraction `left` of the steps is left; falls from 1 to 0 as `left` does."""
        ...


@dataclass(frozen=True)
class EvenWarp:
    """Equal steps of time."""

    def __call__(self, left: float) -> float:
        return left


@dataclass(frozen=True)
class HoldWarp:
    """Time falls evenly to `at`, stays there for a while, then falls to 0.

    It stays while the fraction of steps left goes from `hold_from` to `hold_until`.

    Meant for remasking: while time stands still, tokens are only remasked and rewritten. ReMDM's "loop" strategy has
    at = 0.1, where α = 0.9 under the linear schedule. Time falls equally fast before and after the pause with
    at = hold_until/(1 − hold_from + hold_until).
    """

    hold_from: float = 0.55
    hold_until: float = 0.05
    at: float = 0.1

    def __post_init__(self) -> None:
        if not (0 < self.hold_until <= self.hold_from < 1 and 0 < self.at < 1):
            raise ValueError(
                f"hold_from={self.hold_from}, hold_until={self.hold_until}, at={self.at}; "
                "use 0 < hold_until <= hold_from < 1 and 0 < at < 1"
            )

    def __call__(self, left: float) -> float:
        if left > self.hold_from:
            return self.at + (1 - self.at) * (left - self.hold_from) / (1 - self.hold_from)
        return self.at if left >= self.hold_until else self.at * left / self.hold_until


def require_steps(steps: int) -> None:
    """Raise unless `steps` is between one and a million."""
    if steps < 1:
        raise ValueError(f"steps={steps}; a sampler needs at least one step")
    if steps > 10**6:  # far finer than in any paper, and hours for one text
        raise ValueError(f"steps={steps}; a sampler takes at most a million steps")


def require_unconstrained(canvas: Canvas, sampler: object, reason: str) -> None:
    """Raise if the canvas has rules (`constrain`), for samplers that cannot obey them."""
    if canvas.context.constraints.rules is not None:
        raise ValueError(f"{type(sampler).__name__} cannot obey rules: {reason}; use Ancestral or Unmask (--sampler)")


def _time_grid(canvas: Canvas, steps: int, warp: TimeWarp = EvenWarp()) -> list[Tensor]:
    """Return steps + 1 times (B, 1), from `start_time` down to 0."""
    return [time_column(canvas, start_time(canvas) * warp(1 - i / steps)) for i in range(steps + 1)]


def start_time(canvas: Canvas) -> float:
    """Return the time at which sampling begins: 1, or less if the canvas holds a draft."""
    return 1.0 if canvas.start_time is None else canvas.start_time


@dataclass
class DraftStats:
    """Counts of drafted, accepted and written tokens, updated by a sampler with a drafter."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    written: int = 0

    def add(self, drafted: int, accepted: int, written: int) -> None:
        self.rounds, self.drafted = self.rounds + 1, self.drafted + drafted
        self.accepted, self.written = self.accepted + accepted, self.written + written

    @property
    def acceptance(self) -> float:
        """The fraction of drafted tokens that were accepted."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def tokens_per_round(self) -> float:
        return self.written / self.rounds if self.rounds else 0.0


_FINEST = 256  # steps, at which even a time grid seldom writes two of three tokens together
CacheKind = Literal["none", "exact", "approximate"]
RuleExactness = Literal["matches", "steps", "model"]


class Sampler(Tunable, ABC):
    """A generator of canvases from noise to text, whose last canvas is the result. Its fields are its settings.

    A subclass says two things about itself, which `redraft check` proves: `writes_once` and `draws_exactly`. All other
    answers have defaults.
    """

    @abstractmethod
    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        """Yield the first canvas, of noise, and one more after each step."""

    @property
    @abstractmethod
    def writes_once(self) -> bool:
        """Whether a token, once written, never changes, under noise that leaves visible tokens as they are."""

    @property
    @abstractmethod
    def draws_exactly(self) -> bool:
        """Whether steps draw from the prediction as it is, at positions chosen without looking at the drawn tokens."""

    @property
    def rule_exactness(self) -> RuleExactness:
        """How texts obey a rule: "matches", or "steps" or "model" if that is sampled (see `TextResults.exactness`)."""
        return "steps" if self.draws_exactly else "matches"

    @property
    def obeys_rules(self) -> bool:
        """Whether it can write under rules (`constrain`)."""
        return True

    @property
    def starts_from_draft(self) -> bool:
        """Whether it edits the text on the canvas instead of starting from noise."""
        return False

    @property
    def is_ancestral(self) -> bool:
        """Whether the innermost sampler is `Ancestral`."""
        return False

    @property
    def writes_every_step(self) -> bool:
        """Whether each step writes at least one token, so that more steps than tokens change nothing."""
        return False

    @property
    def stops_at_end_token(self) -> bool:
        """Whether a row ends at its first end token."""
        return False

    @property
    def guided(self) -> bool:
        """Whether there is guidance in it, which changes the predictions that tokens are drawn from."""
        return False

    @property
    def block_size(self) -> int | None:
        """Number of tokens per block, if it decodes in blocks of its own; None if the network decides."""
        return None

    @property
    def draft_stats(self) -> DraftStats | None:
        """Counts of drafted and accepted tokens; None without a drafter."""
        return None

    def cache_kind(self, block: int | None) -> CacheKind:
        """Return the kind of key–value cache it uses with a network of this block size (`Denoiser.block`)."""
        return "none"

    def longest_read(self, length: int) -> int:
        """Return the length of the longest row that the network reads, for a canvas of `length` columns."""
        return length

    def in_blocks(self, size: int) -> Sampler | None:
        """Return a copy that decodes in blocks of `size` tokens; None if it does not decode in blocks."""
        return None

    def with_cache(self, cache: Any) -> Sampler | None:
        """Return a copy with this `Blocks.cache`; None if it takes no cache."""
        return None

    def with_end_tokens_last(self, tokens: tuple[int, ...]) -> Sampler | None:
        """Return a copy that writes these tokens after all others; None if it cannot."""
        return None

    def with_total_steps(self, steps: int, length: int, at_once: int) -> Sampler | None:
        """Return a copy with `steps` steps per row of `length` tokens, divided among its blocks; None without steps.

        at_once: number of tokens that are written before the next block begins
        """
        if not self.has_setting("steps"):
            return None
        return self.with_setting("steps", max(1, round(steps * min(1.0, at_once / length))))

    def slowest(self) -> Sampler:
        """Return a copy that writes as few tokens per network call as it can; `draws_exactly` is a claim about it."""
        return self.with_setting("steps", _FINEST) if self.has_setting("steps") else self

    def with_core(self, core: Sampler) -> Sampler:
        """Return a copy with another innermost sampler."""
        return core

    def inside_guidance(self, change: Callable[[Sampler], Sampler]) -> Sampler:
        """Return a copy with a change of the sampler inside all guidance."""
        return change(self)


class SamplerWrapper(Sampler):
    """Base for samplers around another, in the field `sampler`: it answers unless a subclass knows better.

    The settings of a wrapper are those of the sampler inside, even if the wrapper has fields of the same names.
    """

    sampler: Sampler
    settings_part = "sampler"

    @property
    def writes_once(self) -> bool:
        return self.sampler.writes_once

    @property
    def draws_exactly(self) -> bool:
        return self.sampler.draws_exactly

    @property
    def rule_exactness(self) -> RuleExactness:
        return "model" if self.sampler.rule_exactness == "model" else super().rule_exactness

    @property
    def obeys_rules(self) -> bool:
        return self.sampler.obeys_rules

    @property
    def starts_from_draft(self) -> bool:
        return self.sampler.starts_from_draft

    @property
    def is_ancestral(self) -> bool:
        return self.sampler.is_ancestral

    @property
    def writes_every_step(self) -> bool:
        return self.sampler.writes_every_step

    @property
    def stops_at_end_token(self) -> bool:
        return self.sampler.stops_at_end_token

    @property
    def guided(self) -> bool:
        return self.sampler.guided

    @property
    def block_size(self) -> int | None:
        return self.sampler.block_size

    @property
    def draft_stats(self) -> DraftStats | None:
        return self.sampler.draft_stats

    def cache_kind(self, block: int | None) -> CacheKind:
        return self.sampler.cache_kind(block)

    def longest_read(self, length: int) -> int:
        return self.sampler.longest_read(length)

    def in_blocks(self, size: int) -> Sampler | None:
        return self._around(self.sampler.in_blocks(size))

    def with_cache(self, cache: Any) -> Sampler | None:
        return self._around(self.sampler.with_cache(cache))

    def with_end_tokens_last(self, tokens: tuple[int, ...]) -> Sampler | None:
        return self._around(self.sampler.with_end_tokens_last(tokens))

    def with_total_steps(self, steps: int, length: int, at_once: int) -> Sampler | None:
        return self._around(self.sampler.with_total_steps(steps, length, at_once))

    def describe(self) -> str:
        return f"{self.sampler.describe()}, {self._addition}"

    @property
    def _addition(self) -> str:
        """What it adds to the sampler inside, in words."""
        return words_of(self)

    def slowest(self) -> Sampler:
        return self.around(self.sampler.slowest())

    def with_core(self, core: Sampler) -> Sampler:
        return self.around(self.sampler.with_core(core))

    def inside_guidance(self, change: Callable[[Sampler], Sampler]) -> Sampler:
        return self.around(self.sampler.inside_guidance(change)) if self.guided else change(self)

    def around(self, sampler: Sampler) -> Self:
        """Return a copy around another sampler."""
        return replace(self, sampler=sampler)  # type: ignore[type-var]

    def _around(self, sampler: Sampler | None) -> Self | None:
        return None if sampler is None else self.around(sampler)

    def _owns(self, name: Setting) -> bool:
        return False


def final_canvas(canvases: Iterator[Canvas]) -> Canvas:
    """Run a sampler to its end and return the last canvas."""
    for canvas in canvases:  # noqa: B007
        pass
    return canvas


def time_column(canvas: Canvas, t: float) -> Tensor:
    """(B, 1) time t for every row, in the widest float."""
    return torch.full((canvas.z.shape[0], 1), t, dtype=ops.widest_float(canvas.z.device), device=canvas.z.device)


def initial_canvas(denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Canvas:
    """Return the canvas filled with noise, or unchanged if it holds a draft.

    Raises if the network writes block by block and there are tokens to write in several blocks.
    """
    if denoise.block is not None and _spans_several_blocks(canvas, denoise.block):
        raise ValueError(f"this network writes one block of {denoise.block} after another; use Blocks(sampler)")
    return process.prior(canvas, rng=rng) if canvas.start_time is None else canvas


def _spans_several_blocks(canvas: Canvas, block: int) -> bool:
    """Whether any row has tokens to write in more than one block."""
    if canvas.context.positions is not None and canvas.z.shape[1] <= block and len(canvas.context.positions) == 1:
        positions = canvas.context.positions[0].tolist()  # usually a window within one block, which is quick to see
        if positions and positions[0] // block == positions[-1] // block:
            return False
    index, free = canvas.positions // block, ~canvas.fixed
    first, last = index.masked_fill(~free, 2**62).amin(-1), index.masked_fill(~free, -1).amax(-1)
    return bool((first < last).any())
