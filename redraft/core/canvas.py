"""A text being written: its canvas, its context, caches and rules on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor


class Cache(Protocol):
    """What a network remembers of tokens it has read. A plain value: `absorb` gives a new one, old ones stay valid."""

    @property
    def covers(self) -> Tensor:
        """(B, places) bool: which places of each row it holds."""

    @property
    def exact(self) -> bool:
        """Whether reading it gives what a pass over the whole row would give; False: an approximation."""

    def rows(self, index: Tensor) -> Cache: ...


class PlacedRules(Protocol):
    """Rules that the text must obey, laid on a canvas; a denoiser that `Constrained` makes obeys them."""

    def rows(self, index: Tensor) -> PlacedRules: ...
    def window(
        self, z: Tensor, column: Tensor
    ) -> PlacedRules: ...  # of columns (1, n) or (B, n), z being finished before
    def reading(self, logits: Callable[[Tensor], Tensor]) -> PlacedRules: ...  # on vectors, whose tokens `logits` tells
    def likeliest(self, z: Tensor) -> Tensor: ...  # (B, L) the likeliest ids that obey, for finished vectors


@dataclass(frozen=True)
class Context:
    """All that a network may see besides z and t."""

    pad: Tensor | None = None  # (B, L) bool: no token here
    clean: Tensor | None = None  # (B, L) ids: x itself, for later blocks and causal networks (training)
    cache: Cache | None = None  # tokens that were read before, at other places than those of z
    hint: Tensor | None = None  # (B, N, D) the network's previous x̂ (self-conditioning); None: none yet
    cond: Tensor | None = None  # (B, C, width) what cross attention reads: the states of an encoded source
    cond_pad: Tensor | None = None  # (B, C) bool: no state there
    label: Tensor | None = None  # (B,) the class of each row; None: no classes
    inside: Tensor | None = None  # (B, L) bool: given text follows, so the text cannot end here; None: nowhere
    place: Tensor | None = None  # (B, L) where each column of z stands in its row, (1, L) if alike; None: 0, 1, 2 …
    other: Tensor | None = (
        None  # (B, places) ids of another prompt, −1: as it stands (`NegativePrompt`); None: no other
    )
    marks: PlacedRules | None = None  # rules about the text; None: it is free
    pattern: object = (
        None  # whom tokens see in this pass, a `AttentionPattern` instead of the network's own; None: its own
    )
    ending: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None  # z, fixed, written → what is after a stop string

    def rows(self, index: Tensor) -> Context:
        """The same for some rows of the batch."""
        names = ("pad", "clean", "hint", "cond", "cond_pad", "label", "inside", "other")
        picked = {n: v[index] for n in names if (v := getattr(self, n)) is not None}
        place = self.place if self.place is None or len(self.place) == 1 else self.place[index]
        cache = None if self.cache is None else self.cache.rows(index)
        marks = None if self.marks is None else self.marks.rows(index)
        return replace(self, **picked, place=place, cache=cache, marks=marks)


@dataclass(frozen=True)
class Canvas:
    """The sequence being written: tokens or vectors, which of them are given, and what the network may see."""

    z: Tensor  # (B, L) ids, or (B, N, D) vectors
    fixed: Tensor  # (B, L) bool: never overwritten; padding counts as fixed
    context: Context = Context()
    waiting: Tensor | None = None  # (B, L) bool: fixed for now, but noise still (blocks to come)
    confidence: Tensor | None = None  # (B, L) probability of each token when it was written, else 0; None: not tracked
    open: Tensor | None = None  # (B, L + 1) bool: gaps into which tokens may be inserted; padding not fixed is the room
    ids: Tensor | None = None  # (B, L) of given tokens on a canvas of vectors, −1 elsewhere; None: nothing is known
    since: float | None = None  # z is a draft at this time, where sampling begins; None: it begins with noise

    def __post_init__(self) -> None:
        z, fixed = tuple(self.z.shape), tuple(self.fixed.shape)
        inside, gaps = (None if a is None else tuple(a.shape) for a in (self.context.inside, self.open))
        if z[:2] != fixed or self.fixed.dtype != torch.bool:
            raise ValueError(f"a canvas needs fixed (bool) for each place of z; got z {z}, {fixed} {self.fixed.dtype}")
        if inside not in (None, fixed):
            raise ValueError(f"context.inside must be {fixed} as fixed, not {inside}")
        if gaps not in (None, (z[0], z[1] + 1)):
            raise ValueError(f"{z[1]} tokens have one more gap than that: open must be (B, L + 1), not {gaps}")

    def write(self, z: Tensor, hint: Tensor | None = None) -> Canvas:
        """A new canvas with z written wherever nothing is fixed; `hint` is the network's newest x̂."""
        fixed = self.fixed if z.dim() == 2 else self.fixed[..., None]
        context = self.context if hint is None else replace(self.context, hint=hint)
        return replace(self, z=torch.where(fixed, self.z, z), context=context)

    def time(self, t: Tensor) -> Tensor:
        """(B, 1) time of the row → the time of each token: given tokens sit at zero, waiting ones at one.

        Insertion has one time per row: a gap has no token that could have its own.
        """
        if self.open is not None:
            return t
        t = t.masked_fill(self.fixed, 0)
        return t if self.waiting is None else t.masked_fill(self.waiting, 1)

    def rows(self, index: Tensor) -> Canvas:
        """The same for some rows of the batch."""
        names = ("waiting", "confidence", "ids", "open")
        optional = {n: v[index] for n in names if (v := getattr(self, n)) is not None}
        return replace(self, z=self.z[index], fixed=self.fixed[index], context=self.context.rows(index), **optional)

    @property
    def place(self) -> Tensor:
        """(B, L), or (1, L) if all rows stand alike: where each column stands in its row."""
        if self.context.place is not None:
            return self.context.place
        return torch.arange(self.z.shape[1], device=self.z.device)[None]

    def window(self, lo: int, hi: int, context: Context) -> Canvas:
        """Columns lo..hi at their places, to be read beside what `context.cache` holds."""
        pad, inside = (None if a is None else a[:, lo:hi] for a in (self.context.pad, self.context.inside))
        column, marks = torch.arange(lo, hi, device=self.z.device)[None], self.context.marks
        marks = None if marks is None else marks.window(self.z, column)
        context = replace(context, pad=pad, inside=inside, place=self.place[:, lo:hi], marks=marks)
        return Canvas(self.z[:, lo:hi], self.fixed[:, lo:hi], context)

    def paste(self, window: Canvas, lo: int) -> Canvas:
        """The inverse of `window`: its tokens come back to columns lo.. ."""
        z, columns, known = self.z.clone(), slice(lo, lo + window.z.shape[1]), window.confidence
        z[:, columns] = window.z
        if known is None:
            return self.write(z)
        confidence = known.new_zeros(self.fixed.shape) if self.confidence is None else self.confidence.clone()
        confidence[:, columns] = known
        return replace(self.write(z), confidence=confidence)
