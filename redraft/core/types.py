"""The values that travel through the house: batches, canvases, contexts, predictions, losses.

Letters, everywhere: x clean, z noisy, t the time of z (0 clean, 1 noise), s < t an earlier time; B batch, L length,
V states including the mask, D width. Times have shape (B, 1) or (B, L), never (B,): a time per token makes prompts
(t = 0), infilling and block diffusion ordinary. Where a codec makes vectors, x and z are (B, N, D), of N ≤ L places.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.ops import Rng

ABOVE_0, BELOW_1, FINITE = sys.float_info.min, math.nextafter(1.0, 0.0), sys.float_info.max  # ends of ranges
WIDEST = 2**24  # of a layer or a row: far beyond any network, and products of two are still int64
_ENDS = {ABOVE_0: "above 0", BELOW_1: "below 1", FINITE: "finite", math.inf: ""}


def require_range(value: object, least: float, most: float, *names: str) -> None:
    """Raises if one of the named fields is nan or outside [least, most]; None passes."""
    for name in names:
        if (number := getattr(value, name)) is not None and not least <= number <= most:
            ends = (_ENDS.get(least, f"at least {least}"), _ENDS.get(most, f"at most {most}"))
            raise ValueError(f"{name}={number}; it must be {' and '.join(filter(None, ends))}")


@dataclass(frozen=True)
class Vocab:
    """The states of a token process: V ids, of which some have a special meaning."""

    size: int  # V: all states, the mask included
    mask: int | None = None
    bos: int | None = None
    eos: int | None = None
    pad: int | None = None

    def __post_init__(self) -> None:
        for name in ("mask", "bos", "eos", "pad"):
            if (token := getattr(self, name)) is not None and not 0 <= token < self.size:
                raise ValueError(f"{name}={token} is not one of the {self.size} ids 0..{self.size - 1}")

    @property
    def masked(self) -> int:
        """The id of the mask; an error for a vocabulary that has none."""
        if self.mask is None:
            raise ValueError("this vocabulary has no mask token; mask noise needs one: Vocab(size, mask=id)")
        return self.mask

    @property
    def filler(self) -> int:
        """The id written where there is no token: pad, else eos, else 0."""
        return next((token for token in (self.pad, self.eos) if token is not None), 0)

    @property
    def start(self) -> int:
        """The id that stands before the first token where tokens are read one after another: the mask, else filler."""
        return self.filler if self.mask is None else self.mask

    @property
    def ends(self) -> tuple[int, ...]:
        """The ids that never occur inside a text: start, end and padding."""
        return tuple(sorted({token for token in (self.bos, self.eos, self.pad) if token is not None}))


@dataclass(frozen=True)
class Batch:
    """Clean sequences to learn from, and where they stand among all samples."""

    tokens: Tensor  # (B, L) int64
    learn: Tensor  # (B, L) bool: False on prompts and padding
    pad: Tensor | None = None  # (B, L) bool: True where there is no token; None: no padding at all
    sample: Tensor | None = None  # (B,) int64: number of the sample, the key of its randomness
    first: int = 0  # place of row 0 within the global batch (strata of times)
    total: int | None = None  # rows of the global batch; None: B
    step: int = 0  # of the training, counted from 0
    source: Tensor | None = None  # (B, C) int64: what an encoder reads beside the row
    source_pad: Tensor | None = None  # (B, C) bool: no token there
    label: Tensor | None = None  # (B,) int64: the class of each row
    unknown: Tensor | None = None  # (B, L) bool: nobody knows the token there, so it is noise at all times

    @classmethod
    def of(cls, tokens: Tensor, pad: Tensor | None = None) -> Batch:
        """A batch in which every token is learnt, padding excluded."""
        return cls(tokens, torch.ones_like(tokens, dtype=torch.bool) if pad is None else ~pad, pad)

    def to(self, device: torch.device) -> Batch:
        names = ("tokens", "learn", "pad", "sample", "source", "source_pad", "label", "unknown")
        return replace(self, **{n: v.to(device) for n in names if (v := getattr(self, n)) is not None})


class Encoded(NamedTuple):
    """What is noised: the tokens of a batch, or the vectors that a codec makes of them; all fields aligned."""

    x: Tensor  # (B, L) ids, or (B, N, D)
    learn: Tensor  # (B, L) or (B, N) bool
    pad: Tensor | None

    @property
    def given(self) -> Tensor:
        """bool: clean by definition"""
        return ~self.learn if self.pad is None else ~self.learn & ~self.pad


class Cache(Protocol):
    """What a network remembers of tokens it has read. A plain value: `absorb` gives a new one, old ones stay valid."""

    @property
    def covers(self) -> Tensor:
        """(B, places) bool: which places of each row it holds."""

    @property
    def exact(self) -> bool:
        """Whether reading it gives what a pass over the whole row would give; False: an approximation."""

    def rows(self, index: Tensor) -> Cache: ...


class Marks(Protocol):
    """Rules that the text must obey, laid on a canvas; a denoiser that `Constrained` makes obeys them."""

    def rows(self, index: Tensor) -> Marks: ...
    def window(self, z: Tensor, column: Tensor) -> Marks: ...  # of columns (1, n) or (B, n), z being finished before
    def reading(self, logits: Callable[[Tensor], Tensor]) -> Marks: ...  # on vectors, whose tokens `logits` tells
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
    other: Tensor | None = None  # (B, places) ids of another prompt, −1: as it stands (`OtherPrompt`); None: no other
    marks: Marks | None = None  # rules about the text; None: it is free
    pattern: object = None  # whom tokens see in this pass, a `Pattern` instead of the network's own; None: its own
    ending: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None  # z, fixed, written → what is after a stop string

    def rows(self, index: Tensor) -> Context:
        """The same for some rows of the batch."""
        names = ("pad", "clean", "hint", "cond", "cond_pad", "label", "inside", "other")
        picked = {n: v[index] for n in names if (v := getattr(self, n)) is not None}
        place = self.place if self.place is None or len(self.place) == 1 else self.place[index]
        cache = None if self.cache is None else self.cache.rows(index)
        marks = None if self.marks is None else self.marks.rows(index)
        return replace(self, **picked, place=place, cache=cache, marks=marks)


class Gaps(ABC):
    """A prediction of how many tokens are missing from z, gap by gap: before each token, and after the last."""

    @property
    @abstractmethod
    def log_mean(self) -> Tensor:
        """(B, L + 1) fp32: log of how many are expected to be missing; in logs, so a closed gap never means log 0."""

    @property
    def mean(self) -> Tensor:
        """(B, L + 1) fp32: how many are expected to be missing."""
        return self.log_mean.exp()

    @abstractmethod
    def nll(self, count: Tensor) -> Tensor:
        """(B, L + 1) −log probability of these numbers of missing tokens."""

    @abstractmethod
    def draw(self, share: Tensor, *, rng: Rng) -> Tensor:
        """(B, L + 1) int64: how many arrive if each missing token does with probability `share` (B, 1)."""


class Drawn(ABC):
    """A prediction at N positions, and the tokens it draws there, in the order of `where.nonzero()`."""

    log_x: Tensor  # (N, V) fp32: what `Prediction.at` gives there, whatever the temperature of the draw

    @abstractmethod
    def tokens(self, kept: Tensor | None = None) -> Tensor:
        """(N,) the tokens; with `kept`, (N,) bool or an index, those of some positions, as if all had been kept."""

    def demand(self) -> Tensor:
        """(N,) nats: how much likelier a rule has made each drawn token than the network says; here there is none."""
        return torch.zeros_like(self.log_x[:, 0])


@dataclass(frozen=True)
class Independent(Drawn):
    """Each position drawn by itself from its own random number: only what is kept costs a draw."""

    log_x: Tensor
    u: Tensor  # (N,)
    temperature: float

    def tokens(self, kept: Tensor | None = None) -> Tensor:
        if kept is None or "_all" in self.__dict__:  # a pick may have asked for all of them already
            return self._all if kept is None else self._all[kept]
        return ops.draw(self.log_x[kept], self.u[kept], self.temperature)

    @cached_property
    def _all(self) -> Tensor:
        return ops.draw(self.log_x, self.u, self.temperature)


class Prediction(ABC):
    """What the network predicts about x. Lazy: trunk and output layer run only where it is queried."""

    @property
    def normalised(self) -> bool:
        """Whether x̂ sums to one everywhere; only a score head (SEDD) leaves the sum free."""
        return True

    @property
    def joint(self) -> bool:
        """Whether tokens depend on each other, so that only what `draw` gives may be written."""
        return False

    @property
    @abstractmethod
    def x(self) -> Tensor:
        """(B, L, V) log-weights of the clean token, fp32."""

    @abstractmethod
    def at(self, where: Tensor) -> Tensor:
        """(B, L) bool → (N, V) fp32 log-weights there only, in the order of `where.nonzero()`."""

    def draw(self, where: Tensor, *, rng: Rng, temperature: float = 1.0) -> Drawn:
        """Tokens at the marked positions from x̂^{1/temperature}, the likeliest ones at 0: the only way to get tokens.

        Here each position is drawn by itself. A prediction that knows how tokens depend on each other (a pattern that
        the text must match) draws them jointly, or takes the likeliest text as a whole; `at` are then its marginals.
        """
        u = rng.uniform(where.shape[1]) if temperature else torch.empty(where.shape)  # the likeliest needs no draw
        return Independent(self.at(where), u.to(where.device).take(ops.marked(where)), temperature)

    @abstractmethod
    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        """(B, L) fp32: −log x̂[target] at `where`, zero elsewhere; plus Σx̂ − 1 where x̂ is not normalised.

        The sum makes it the price of a wrong Poisson intensity, pkl(1[y = target], x̂_y) summed over y.
        """

    @property
    def gaps(self) -> Gaps:
        """How many tokens are missing from z; insertion models only."""
        raise ValueError(f"{type(self).__name__} does not predict gaps; insertion needs a network with gaps=…")


@dataclass(frozen=True)
class Known(Prediction):
    """A prediction given as a table: for oracles, tests and small vocabularies."""

    log_weights: Tensor  # (B, L, V)
    normalised: bool = True
    missing: Gaps | None = None

    @property
    def x(self) -> Tensor:
        return self.log_weights

    def at(self, where: Tensor) -> Tensor:
        return self.log_weights[where]

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        loss = -self.log_weights.gather(-1, target[..., None]).squeeze(-1)
        loss = loss if self.normalised else loss + self.log_weights.logsumexp(-1).expm1()
        return torch.where(where, loss, torch.zeros_like(loss))

    @property
    def gaps(self) -> Gaps:
        return super().gaps if self.missing is None else self.missing


@dataclass(frozen=True)
class Mean(Prediction):
    """A prediction of vectors: x̂ = E[x | z] and, from networks that name tokens, the tokens themselves."""

    mean: Tensor  # (B, N, D)
    log_weights: Tensor | None = None  # (B, N, V) of the tokens, from networks that name them (SSD-LM)
    spread: Tensor | None = None  # (B, N, D) in [0, 1]: from the least to the largest variance of a step, if learnt
    table: Tensor | None = None  # (V, D) the vectors of the tokens that are named; None: the corners of a simplex

    @property
    def x(self) -> Tensor:
        return self.mean

    def at(self, where: Tensor) -> Tensor:
        return self.mean[where]

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        """½‖x − x̂‖²; if the network names tokens, the cross-entropy of the token whose vector is the target."""
        if self.log_weights is None:
            return torch.where(where, (target - self.mean).square().sum(-1) / 2, 0.0)
        loss = -self.log_weights.gather(-1, self._named(target)[..., None]).squeeze(-1)
        return torch.where(where, loss, 0.0)

    @torch.no_grad()
    def _named(self, x: Tensor) -> Tensor:
        """(B, N, D) → (B, N) the nearest token: argmax x·e − ‖e‖²/2"""
        if self.table is None:
            return x.argmax(-1)
        return (x @ self.table.T - self.table.square().sum(-1) / 2).argmax(-1)


class Denoiser(Protocol):
    """Sees a noisy sequence and predicts the clean one. `DiffusionLM` is one; guidance wraps one."""

    @property
    def block(self) -> int | None:
        """How many tokens are written at a time, left to right; None: all of them."""

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction: ...
    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        """Tokens z enter the cache at their places: finished ones, or noisy ones of time t (approximate caches)."""


@dataclass(frozen=True)
class Around:
    """A denoiser that wraps another: guidance and the like define only what they change."""

    denoise: Denoiser

    @property
    def block(self) -> int | None:
        return self.denoise.block

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return self.denoise.absorb(z, context, t)


class Noised(NamedTuple):
    """A draw z ~ q_t(z | x), all fields aligned with z; gap i stands before token i, the last one at the end."""

    z: Tensor  # (B, L) ids, or (B, N, D) vectors
    t: Tensor  # (B, 1) or (B, L)
    target: Tensor  # as z
    pad: Tensor | None = None
    gaps: Tensor | None = None  # (B, L + 1) insertion: how many tokens are missing
    open: Tensor | None = None  # (B, L + 1) bool: gaps in which tokens may be missing, not those inside a prompt
    arrived: Tensor | None = None  # (B, 1) insertion: how many tokens are there that were not given


class Times(NamedTuple):
    """Which times a batch is noised to."""

    t: Tensor  # (B, 1) or (B, L)
    s: Tensor | None = None  # the earlier time, for T-step bounds
    weight: float = 1.0  # what one draw stands for: T for one of T steps


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


@dataclass(frozen=True)
class Loss:
    """Nats of a batch: `mean` is what to differentiate, the rest is for the log."""

    mean: Tensor  # nats per learnt token
    nats: Tensor  # (B,) nats per row, all parts
    count: Tensor  # (B,) learnt tokens per row
    parts: dict[str, Tensor]  # nats per learnt token of each term

    @classmethod
    def of(cls, count: Tensor, total: Tensor | None = None, **parts: Tensor) -> Loss:
        """Parts are (B,) nats per row; `total` is the number to divide by, the batch's own count if not given."""
        nats = torch.stack(list(parts.values())).sum(0)
        per = (count.sum() if total is None else total).clamp(min=1)
        return cls(nats.sum() / per, nats.detach(), count, {n: p.detach().sum() / per for n, p in parts.items()})
