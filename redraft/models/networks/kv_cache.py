"""Where the columns of a pass stand in their rows, and the keys and values of tokens that were read before."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

KeyValue = tuple[Tensor, Tensor]  # of one layer, each (B, Hkv, L, d)


@dataclass(frozen=True)
class CachedStates:
    """The states of whole rows. As long as nothing has changed they hold, and no network needs to be called."""

    tokens: Tensor  # (B, K)
    level: Tensor | None  # (B, 1) or (B, K); None: the network does not see it
    states: Tensor  # (B, K, D)
    first: int = 0  # place of column 0; −1 for the start token of a causal network

    def again(self, tokens: Tensor, level: Tensor | None, place: Tensor) -> Tensor | None:
        """(B, L, D) the states at these places, if tokens and levels there are the same; else None."""
        column = place - self.first
        at = column.clamp(0, self.tokens.shape[1] - 1).expand(len(tokens), -1)
        same = ((self.tokens.gather(1, at) == tokens) & (column >= 0)) | (column >= self.tokens.shape[1])
        if self.level is not None and level is not None:
            same = same & (self.level.expand_as(self.tokens).gather(1, at) == level)
        return self.states.take_along_dim(at[..., None], 1) if bool(same.all()) else None

    def rows(self, index: Tensor) -> CachedStates:
        level = None if self.level is None else self.level[index]
        return CachedStates(self.tokens[index], level, self.states[index], self.first)

    def before(self, place: Tensor, tokens: Tensor) -> Tensor | None:
        """(B, L, D) of a causal network: the states of the tokens right before these places (1, L), in one piece.

        tokens: (B, L) what stands at the places, of which all but the last were read; None: others were.
        """
        lo = int(place[0, 0]) - 1 - self.first
        hi = lo + place.shape[1]
        if len(place) > 1 or lo < 0 or hi > self.states.shape[1]:
            return None
        return self.states[:, lo:hi] if torch.equal(self.tokens[:, lo + 1 : hi], tokens[:, :-1]) else None

    def cropped(self, places: int) -> CachedStates:
        """Those of the first places alone."""
        kept = max(0, places - self.first)
        return replace(self, tokens=self.tokens[:, :kept], states=self.states[:, :kept])


@dataclass
class KeyValueBuffer:
    """Keys and values of one row, with space for more; caches are views of its beginning.

    A cache that holds all that is on the shelf grows in place, since nobody looks at what comes after it. Any other
    cache is copied to a shelf of its own when it grows. Only what was cropped may be overwritten; a cache that still
    holds it is then refused.
    """

    keys: Tensor  # (layers, Hkv, space, d)
    values: Tensor
    filled: int = 0
    cuts: int = 0  # how often something was taken away
    lowest: int = 2**62  # columns that were never taken away

    @classmethod
    def of(cls, past: KeyValueCache, shape: tuple[int, ...], like: Tensor) -> KeyValueBuffer:
        """A shelf of this size with what a cache holds."""
        shelf = cls(like.new_zeros(shape), like.new_zeros(shape), past.columns)
        for i, (k, v) in enumerate(past.layers):
            shelf.keys[i, :, : past.columns], shelf.values[i, :, : past.columns] = k[0], v[0]
        return shelf

    def fits(self, past: KeyValueCache, new: int) -> bool:
        return self.filled == past.columns and past.cut == self.cuts and self.filled + new <= self.keys.shape[2]

    def layers(self) -> tuple[KeyValue, ...]:
        """Views of all that is there."""
        end = self.filled
        return tuple((k[None, :, :end], v[None, :, :end]) for k, v in zip(self.keys, self.values, strict=True))

    def cropped(self, cache: KeyValueCache, kept: int) -> int:
        """Takes away what a cache holds beyond `kept` columns, if nothing else lies there; the number of cuts."""
        if not self.fits(cache, 0):
            return cache.cut
        self.filled, self.cuts, self.lowest = kept, self.cuts + 1, min(self.lowest, kept)
        return self.cuts

    def still_holds(self, cache: KeyValueCache) -> bool:
        return cache.cut == self.cuts or cache.columns <= self.lowest


@dataclass(frozen=True)
class KeyValueCache:
    """Keys and values of tokens that were read before, for each layer, by place: column j belongs to place j.

    A plain value: each pass joins old and new keys, and what it has joined is the next cache. Nothing is written in
    place, so caches may branch. Rows may hold different places. It is exact if the keys and values are those that a
    pass over the whole row would compute: where finished tokens never see later ones.
    """

    layers: tuple[KeyValue, ...] = ()  # each (B, Hkv, K, d); none while nothing is held
    missing: Tensor | None = None  # (B, K) bool: columns that hold nothing (padding, shorter rows); None: all are held
    ahead: Tensor | None = None  # (B, 1, D) the state of the last token of each row, which may predict the next one
    before: int = 0  # columns before place 0: the start token of a causal network
    exact: bool = True
    said: CachedStates | None = None  # what the network says where nothing has changed since; None: not kept
    shelf: KeyValueBuffer | None = None  # where keys and values lie, with space for more (`lean`); None: by themselves
    cut: int = 0  # how often the shelf had been cut when this was read

    @property
    def columns(self) -> int:
        """K: the places from 0 to the last one held, and the start token."""
        return self.layers[0][0].shape[2] if self.layers else 0

    @property
    def covers(self) -> Tensor:
        """(B, places) bool: which places it holds."""
        if not self.layers:
            return torch.zeros(0, 0, dtype=torch.bool)
        if self.missing is None:
            k = self.layers[0][0]
            return torch.ones(len(k), self.columns - self.before, dtype=torch.bool, device=k.device)
        return ~self.missing[:, self.before :]

    def state_before(self, place: Tensor | None) -> Tensor | None:
        """(B, 1, D) the state of the token right before a window at these places; None: none is held."""
        if self.exact:
            return self.ahead
        if self.said is None or place is None:
            return None
        at = (place[:, :1] - 1 - self.said.first).expand(len(self.said.states), -1)
        if self.said.first > 0 and bool((at < 0).any()):
            return self.ahead  # the window begins where the held block does
        return self.said.states.take_along_dim(at.clamp(min=0)[..., None], 1)

    def cropped(self, places: int) -> KeyValueCache:
        """The same of the first places alone, for a causal network: what was read later is forgotten."""
        if not self.exact:
            raise ValueError("only an exact cache forgets tokens: under full attention the others have seen them")
        kept = places + self.before
        if kept >= self.columns:
            return self
        said = None if self.said is None else self.said.cropped(places)
        ahead = said.states[:, -1:] if said is not None and said.states.shape[1] else None
        layers = tuple((k[:, :, :kept], v[:, :, :kept]) for k, v in self.layers)
        missing = None if self.missing is None else self.missing[:, :kept]
        cut = 0 if self.shelf is None else self.shelf.cropped(self, kept)
        return KeyValueCache(layers, missing, ahead, self.before, said=said, shelf=self.shelf, cut=cut)

    def layer(self, i: int) -> KeyValue | None:
        return self.layers[i] if self.layers else None

    def rows(self, index: Tensor) -> KeyValueCache:
        """The same for some rows of the batch."""
        missing, ahead = (None if a is None else a[index] for a in (self.missing, self.ahead))
        layers = tuple((k[index], v[index]) for k, v in self.layers)
        said = None if self.said is None else self.said.rows(index)
        return KeyValueCache(layers, missing, ahead, self.before, self.exact, said)


@dataclass(frozen=True)
class TokenPositions:
    """Where the columns of a pass stand among its keys, those of a cache included; keys are ordered by place.

    Where all rows stand alike, in one piece that leaves no gap behind the cache, old and new keys are joined by
    slices; else each row has its own places.
    """

    rows: int  # B
    place: Tensor  # (L,) if all rows stand alike, else (B, L); no place twice in a row
    keys: int  # from place 0 to the last one of any row
    first: int | None  # place of column 0, if all rows stand alike and in one piece

    @classmethod
    def of(cls, place: Tensor | None, tokens: Tensor, past: KeyValueCache) -> TokenPositions:
        """place: (1, L) if all rows stand alike, (B, L), or None: 0, 1, 2 …; tokens (B, L) or (B, L, D)."""
        (B, L), held = tokens.shape[:2], past.columns
        if place is None or L == 0:
            return cls(B, torch.arange(L, device=tokens.device), max(L, held), 0)
        if len(place) == 1:
            first, *_, last = place[0].tolist() if L > 1 else [int(place)] * 2
            if last - first == L - 1 and first <= held:
                return cls(B, place[0], max(last + 1, held), first)
        return cls(B, place.expand(B, -1), max(int(place.max()) + 1, held), None)

    def joined(self, old: KeyValue | None, new: KeyValue) -> KeyValue:
        """Keys and values of all columns: new ones at their places, old ones elsewhere."""
        if self.first == 0 and self.keys == new[0].shape[2]:
            return new
        k, v = (self._join(None if old is None else old[i], new[i]) for i in (0, 1))
        return k, v

    def _join(self, old: Tensor | None, new: Tensor) -> Tensor:
        """(B, Hkv, K, d), (B, Hkv, L, d) → (B, Hkv, keys, d)"""
        if self.first is not None and old is not None:
            end = self.first + new.shape[2]
            return torch.cat([old[:, :, : self.first], new, old[:, :, end:]], 2)
        b, h, _, d = new.shape
        whole = new.new_zeros(b, h, self.keys, d)
        if old is not None:
            whole[:, :, : old.shape[2]] = old
        return whole.scatter(2, self.place[:, None, :, None].expand(b, h, -1, d), new)

    def missing(self, old: KeyValueCache, pad: Tensor | None) -> Tensor | None:
        """(B, keys) bool: the columns that hold nothing once tokens with this padding (B, L) are joined; None: none."""
        if self.first is not None and old.missing is None and pad is None:
            return None
        whole = torch.ones(self.rows, self.keys, dtype=torch.bool, device=self.place.device)
        whole[:, : old.columns] = False if old.missing is None else old.missing
        place = self.place.expand(self.rows, -1)
        return whole.scatter(1, place, torch.zeros_like(place, dtype=torch.bool) if pad is None else pad)
