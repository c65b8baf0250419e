"""The sequence being written: the canvas, its context, and protocols for its caches and rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from redraft.core.condition import Condition
from redraft.core.ops import _map_tensors


class Cache(Protocol):
    """What a network has cached for tokens it has read. `absorb` returns a new cache, and old ones stay valid."""

    @property
    def covers(self) -> Tensor:
        """(B, positions) bool: the positions of each row that it holds."""

    @property
    def exact(self) -> bool:
        """Whether it gives the same result as a pass over the whole row; False if it only approximates that."""

    def rows(self, index: Tensor) -> Cache:
        """The cache of the rows at `index`."""


class PlacedRules(Protocol):
    """Constraints on the text, placed on a canvas. A denoiser wrapped by `Constrained` enforces them."""

    def rows(self, index: Tensor) -> PlacedRules:
        """The rules of the rows at `index`."""

    def window(self, z: Tensor, column: Tensor) -> PlacedRules:
        """The rules on these columns, (1, n) or (B, n); z must be finished before them."""

    def until(self, last: Tensor) -> PlacedRules:
        """The rules on the columns up to `last`, (B, 1) or (1, 1); later columns must be able to complete the text."""

    def reading(self, logits: Callable[[Tensor], Tensor]) -> PlacedRules:
        """The rules on a canvas of vectors, from which `logits` predicts the tokens."""

    def likeliest(self, z: Tensor) -> Tensor:
        """(B, L) the most likely ids that obey the rules, for finished vectors z."""


@dataclass(frozen=True)
class Constraints:
    """What the text must satisfy, where it must not end, and what ends it."""

    rules: PlacedRules | None = None  # rules on the text; None if it is unconstrained
    no_end_token: Tensor | None = None  # (B, L) bool: True where given text follows, so no end token may be written
    stop_strings: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None  # z, fixed, written → columns after one

    def rows(self, index: Tensor) -> Constraints:
        """The constraints of the rows at `index`."""
        rules = None if self.rules is None else self.rules.rows(index)
        return _map_tensors(self, lambda tensor: tensor[index], rules=rules)


@dataclass(frozen=True)
class Context:
    """Everything a network may see besides z and t."""

    pad: Tensor | None = None  # (B, L) bool: True on padding; None if there is no padding
    positions: Tensor | None = None  # (B, L), or (1, L) if shared: position of each column of z; None for 0, 1, 2 …
    cache: Cache | None = None  # tokens that were read before, at positions other than those of z
    clean: Tensor | None = None  # (B, L) ids of x, which causal and block networks read in training
    previous: Tensor | None = None  # (B, N, D) previous x̂, for self-conditioning; None in the first step
    condition: Condition = Condition()
    constraints: Constraints = Constraints()
    pattern: object = None  # `AttentionPattern` for this pass; None for the network's own

    def rows(self, index: Tensor) -> Context:
        """The context of the rows at `index`."""
        positions = self.positions
        if positions is not None and len(positions) > 1:
            positions = positions[index]
        return _map_tensors(
            self,
            lambda tensor: tensor[index],
            positions=positions,
            cache=None if self.cache is None else self.cache.rows(index),
            condition=self.condition.rows(index),
            constraints=self.constraints.rows(index),
        )

    def with_condition(self, **changes: Any) -> Context:
        """The context with these fields of its condition changed."""
        return replace(self, condition=replace(self.condition, **changes))

    def with_constraints(self, **changes: Any) -> Context:
        """The context with these fields of its constraints changed."""
        return replace(self, constraints=replace(self.constraints, **changes))


@dataclass(frozen=True)
class Canvas:
    """The sequence being written: tokens or vectors, which of them are given, and what the network may see."""

    z: Tensor  # (B, L) ids, or (B, N, D) vectors
    fixed: Tensor  # (B, L) bool: never overwritten; padding counts as fixed
    context: Context = Context()
    future: Tensor | None = None  # (B, L) bool: fixed for now, but still noise (future blocks)
    confidence: Tensor | None = None  # (B, L) probability of each token when written, else 0; None if not tracked
    open: Tensor | None = None  # (B, L + 1) bool: gaps open to insertion; the room for it is padding that is not fixed
    ids: Tensor | None = None  # (B, L) ids of given tokens if z is vectors, −1 elsewhere; None if none is given
    start_time: float | None = None  # z is a draft, and sampling starts at this time; None to start from noise

    def __post_init__(self) -> None:
        z, fixed, no_end_token = tuple(self.z.shape), tuple(self.fixed.shape), self.context.constraints.no_end_token
        no_end, gaps = (None if a is None else tuple(a.shape) for a in (no_end_token, self.open))
        if z[:2] != fixed or self.fixed.dtype != torch.bool:
            raise ValueError(f"a canvas needs fixed (bool) for each position of z; got {z}, {fixed} {self.fixed.dtype}")
        if no_end not in (None, fixed):
            raise ValueError(f"no_end_token has shape {no_end}; it must have that of fixed, {fixed}")
        if gaps not in (None, (z[0], z[1] + 1)):
            raise ValueError(f"open has shape {gaps}; {z[1]} tokens have {z[1] + 1} gaps, so it must be (B, L + 1)")

    def write(self, z: Tensor, previous: Tensor | None = None) -> Canvas:
        """A new canvas with z written wherever nothing is fixed; `previous` is the newest x̂, for self-conditioning."""
        fixed = self.fixed if z.dim() == 2 else self.fixed[..., None]
        context = self.context if previous is None else replace(self.context, previous=previous)
        return replace(self, z=torch.where(fixed, self.z, z), context=context)

    def with_tokens(self, z: Tensor, confidence: Tensor | None) -> Canvas:
        """The canvas with other tokens in the same shape; faster than `replace`, which checks all shapes again."""
        canvas = object.__new__(Canvas)
        canvas.__dict__.update(self.__dict__, z=z, confidence=confidence)
        return canvas

    def with_constraints(self, **changes: Any) -> Canvas:
        """The canvas with these fields of its constraints changed."""
        return replace(self, context=self.context.with_constraints(**changes))

    def time(self, t: Tensor) -> Tensor:
        """(B, 1) time of the row → (B, L) time of each token: 0 for given tokens, 1 for tokens of future blocks.

        Insertion keeps one time per row, (B, 1): a gap has no token that could have a time of its own.
        """
        if self.open is not None:
            return t
        t = t.masked_fill(self.fixed, 0)
        return t if self.future is None else t.masked_fill(self.future, 1)

    def rows(self, index: Tensor) -> Canvas:
        """The canvas of the rows at `index`."""
        return _map_tensors(self, lambda tensor: tensor[index], context=self.context.rows(index))

    @property
    def positions(self) -> Tensor:
        """Position of each column: (B, L), or (1, L) if all rows share them."""
        if self.context.positions is not None:
            return self.context.positions
        return torch.arange(self.z.shape[1], device=self.z.device)[None]

    def window(self, lo: int, hi: int, context: Context) -> Canvas:
        """Columns lo..hi at their positions, to be read together with what `context.cache` holds."""
        column, constraints = torch.arange(lo, hi, device=self.z.device)[None], self.context.constraints
        pad, no_end = (None if a is None else a[:, lo:hi] for a in (self.context.pad, constraints.no_end_token))
        rules = None if constraints.rules is None else constraints.rules.window(self.z, column)
        context = replace(context, pad=pad, positions=self.positions[:, lo:hi])
        context = context.with_constraints(no_end_token=no_end, rules=rules)
        return Canvas(self.z[:, lo:hi], self.fixed[:, lo:hi], context)

    def paste(self, window: Canvas, lo: int) -> Canvas:
        """The inverse of `window`: writes its tokens back to the columns from `lo` on."""
        z, columns, newest = self.z.clone(), slice(lo, lo + window.z.shape[1]), window.confidence
        z[:, columns] = window.z
        if newest is None:
            return self.write(z)
        confidence = newest.new_zeros(self.fixed.shape) if self.confidence is None else self.confidence.clone()
        confidence[:, columns] = newest
        return replace(self.write(z), confidence=confidence)
