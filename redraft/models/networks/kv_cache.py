"""The key–value cache of a transformer, and the positions of new tokens among the cached ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from redraft.core.canvas import Context

KeyValue = tuple[Tensor, Tensor]  # keys and values of one layer, each (B, Hkv, L, d)
COLUMN_STEP = 64  # the capacity of a buffer is a multiple of this


@dataclass(frozen=True)
class _CachedStates:
    """Hidden states of whole rows, reusable while the tokens and noise levels are unchanged."""

    tokens: Tensor  # (B, K) ids
    level: Tensor | None  # (B, 1) or (B, K) noise levels; None if the network does not see the time
    states: Tensor  # (B, K, D) hidden states of these tokens
    first: int = 0  # position of column 0; −1 for the start token of a causal network

    def reuse(self, tokens: Tensor, level: Tensor | None, position: Tensor) -> Tensor | None:
        """(B, L, D) the states at these positions; None if a token or noise level there has changed."""
        column = position - self.first
        index = column.clamp(0, self.tokens.shape[1] - 1).expand(len(tokens), -1)
        same = ((self.tokens.gather(1, index) == tokens) & (column >= 0)) | (column >= self.tokens.shape[1])
        if self.level is not None and level is not None:
            same = same & (self.level.expand_as(self.tokens).gather(1, index) == level)
        return self.states.take_along_dim(index[..., None], 1) if bool(same.all()) else None

    def rows(self, index: Tensor) -> _CachedStates:
        level = None if self.level is None else self.level[index]
        return _CachedStates(self.tokens[index], level, self.states[index], self.first)

    def before(self, position: Tensor, tokens: Tensor) -> Tensor | None:
        """(B, L, D) the states of the tokens right before each of these consecutive positions (1, L).

        For causal networks. `tokens` (B, L) are the ids at the positions; the result is None if the network has read
        other tokens there. The last token need not have been read.
        """
        lo = int(position[0, 0]) - 1 - self.first
        hi = lo + position.shape[1]
        if len(position) > 1 or lo < 0 or hi > self.states.shape[1]:
            return None
        return self.states[:, lo:hi] if torch.equal(self.tokens[:, lo + 1 : hi], tokens[:, :-1]) else None

    def crop(self, positions: int) -> _CachedStates:
        """The states of only the first `positions` positions."""
        end = max(0, positions - self.first)
        return replace(self, tokens=self.tokens[:, :end], states=self.states[:, :end])


@dataclass
class _KeyValueBuffer:
    """Preallocated keys and values; caches are views of its first columns.

    A cache that covers all filled columns grows in place, since no other cache uses the columns after it. Any other
    cache is copied to a new buffer when it grows. Only cropped columns may be overwritten; a cache that still covers
    them is then rejected.
    """

    keys: Tensor  # (layers, B, Hkv, capacity, d)
    values: Tensor  # (layers, B, Hkv, capacity, d)
    filled: int = 0  # number of columns in use
    crops: int = 0  # number of times that columns were cropped
    uncropped: int = 2**62  # number of leading columns that were never cropped

    @classmethod
    def after(cls, past: KeyValueCache, shape: tuple[int, int, int, int, int], like: Tensor) -> _KeyValueBuffer:
        """A buffer that holds a cache and has room for new columns: the cache's own if possible, else a larger copy.

        shape: layers, B, Hkv, number of new columns, d.
        """
        layers, rows, groups, new, width = shape
        if past.buffer is not None and past.buffer.can_grow(past, new):
            return past.buffer
        capacity = -(-2 * (past.columns + new) // COLUMN_STEP) * COLUMN_STEP
        whole = (layers, rows, groups, capacity, width)
        buffer = cls(like.new_zeros(whole), like.new_zeros(whole), past.columns)
        for i, (k, v) in enumerate(past.layers):
            buffer.keys[i, :, :, : past.columns], buffer.values[i, :, :, : past.columns] = k, v
        return buffer

    def can_grow(self, past: KeyValueCache, new: int) -> bool:
        """Whether `new` columns can be written right after this cache without overwriting columns of another cache."""
        return self.filled == past.columns and past.crops == self.crops and self.filled + new <= self.keys.shape[3]

    def layers(self) -> _FirstColumns:
        """Keys and values of each layer, as views of the filled columns."""
        return _FirstColumns(self, self.filled)

    def crop(self, cache: KeyValueCache, columns: int) -> int:
        """Free the cache's columns after the first `columns`, if no other cache uses them; return the crop count."""
        if not self.can_grow(cache, 0):
            return cache.crops
        self.filled, self.crops, self.uncropped = columns, self.crops + 1, min(self.uncropped, columns)
        return self.crops

    def still_holds(self, cache: KeyValueCache) -> bool:
        """Whether the columns of this cache have not been freed for others."""
        return cache.crops == self.crops or cache.columns <= self.uncropped


@dataclass(frozen=True, eq=False)
class _FirstColumns(Sequence[KeyValue]):
    """Keys and values of each layer, as views of the first columns of a buffer; a layer's are made when it is asked."""

    buffer: _KeyValueBuffer
    end: int

    def __len__(self) -> int:
        return len(self.buffer.keys)

    def __getitem__(self, i: Any) -> Any:
        return self.buffer.keys[i][:, :, : self.end], self.buffer.values[i][:, :, : self.end]


@dataclass(frozen=True)
class KeyValueCache:
    """Keys and values of tokens read before, for each layer. Column j holds position j (after any start token).

    An immutable value: a pass joins old and new keys, and the result is the next cache. Older caches stay valid, so
    caches may branch; a `_KeyValueBuffer` is written in place, but only where no valid cache looks. Rows may hold
    different positions. The cache is exact if its keys and values are those that a pass over the whole row would
    compute, which needs an attention pattern in which finished tokens never attend to later ones.
    """

    layers: Sequence[KeyValue] = ()  # one per layer, each (B, Hkv, K, d); empty while the cache is empty
    missing: Tensor | None = None  # (B, K) bool: empty columns (padding, shorter rows); None if no column is empty
    last_state: Tensor | None = None  # (B, 1, D) state of each row's last token, which may predict the next one
    start_columns: int = 0  # columns before position 0: 1 for a causal network with a start token
    exact: bool = True  # keys and values equal those of a pass over the whole row
    outputs: _CachedStates | None = None  # states of the tokens read, reusable while nothing changes; None if not kept
    buffer: _KeyValueBuffer | None = None  # storage that the layers are views of; None if they own their memory
    crops: int = 0  # crop count of the buffer when this cache was made

    @classmethod
    def of(cls, context: Context) -> KeyValueCache:
        """The cache of a context; an empty one if it has none."""
        cache = context.cache if isinstance(context.cache, cls) else cls()
        if cache.buffer is not None and not cache.buffer.still_holds(cache):
            raise ValueError("some tokens of this cache were cropped and overwritten; use the cropped cache")
        return cache

    def states_before(self, context: Context) -> Tensor | None:
        """(B, L, D) states of a causal network that predict the tokens `context.clean`.

        None if they are not those that the cache has read in its last pass.
        """
        if self.outputs is None or context.positions is None or context.clean is None:
            return None
        return self.outputs.before(context.positions, context.clean)

    @property
    def columns(self) -> int:
        """K: number of columns, including the start token."""
        return self.layers[0][0].shape[2] if self.layers else 0

    @property
    def covers(self) -> Tensor:
        """(B, positions) bool: the positions that each row holds."""
        if not self.layers:
            return torch.zeros(0, 0, dtype=torch.bool)
        if self.missing is None:
            k = self.layers[0][0]
            return torch.ones(len(k), self.columns - self.start_columns, dtype=torch.bool, device=k.device)
        return ~self.missing[:, self.start_columns :]

    def state_before(self, position: Tensor | None) -> Tensor | None:
        """(B, 1, D) the state of the token right before a window at these positions; None if it is not cached."""
        if self.exact:
            return self.last_state
        if self.outputs is None or position is None:
            return None
        column = (position[:, :1] - 1 - self.outputs.first).expand(len(self.outputs.states), -1)
        if self.outputs.first > 0 and bool((column < 0).any()):
            return self.last_state  # the window begins where the cached block does
        return self.outputs.states.take_along_dim(column.clamp(min=0)[..., None], 1)

    def crop(self, positions: int) -> KeyValueCache:
        """The cache of only the first `positions` positions, for causal networks."""
        if not self.exact:
            raise ValueError(
                "this cache is approximate and cannot be cropped, because its tokens have attended to later ones; "
                "crop only exact caches, such as those of causal networks"
            )
        end = positions + self.start_columns
        if end >= self.columns:
            return self
        outputs = None if self.outputs is None else self.outputs.crop(positions)
        last_state = outputs.states[:, -1:] if outputs is not None and outputs.states.shape[1] else None
        missing = None if self.missing is None else self.missing[:, :end]
        if self.buffer is None:
            layers: Sequence[KeyValue] = tuple((k[:, :, :end], v[:, :, :end]) for k, v in self.layers)
            crops = 0
        else:
            layers, crops = _FirstColumns(self.buffer, end), self.buffer.crop(self, end)
        return KeyValueCache(
            layers, missing, last_state, self.start_columns, outputs=outputs, buffer=self.buffer, crops=crops
        )

    def layer(self, i: int) -> KeyValue | None:
        """Keys and values of layer i; None if the cache is empty."""
        return self.layers[i] if self.layers else None

    def rows(self, index: Tensor) -> KeyValueCache:
        """The cache of the rows at `index`."""
        missing, last_state = (None if a is None else a[index] for a in (self.missing, self.last_state))
        layers = tuple((k[index], v[index]) for k, v in self.layers)
        outputs = None if self.outputs is None else self.outputs.rows(index)
        return KeyValueCache(layers, missing, last_state, self.start_columns, self.exact, outputs)


@dataclass(frozen=True)
class TokenPositions:
    """Positions of the new tokens of a pass among all keys, cached ones included; keys are ordered by position.

    If all rows share consecutive positions that leave no gap after the cache, old and new keys are joined by slicing.
    Otherwise each row has its own positions, and they are joined by scattering.
    """

    rows: int  # B, the number of rows
    values: Tensor  # (L,) if all rows share their positions, else (B, L); no position occurs twice in a row
    keys: int  # number of key columns: 1 + the last position of any row, new or cached
    first: int | None  # position of the first new token if the rows share consecutive positions; else None
    last: int | None = None  # the largest position of a new token, if it is known without reading `values`

    @classmethod
    def of(cls, position: Tensor | None, tokens: Tensor, past: KeyValueCache) -> TokenPositions:
        """Positions (B, L), (1, L) if all rows share them, or None for 0, 1, 2 …; tokens (B, L) or (B, L, D)."""
        (B, L), cached = tokens.shape[:2], past.columns
        if position is None or L == 0:
            return cls(B, torch.arange(L, device=tokens.device), max(L, cached), 0, L - 1)
        if len(position) == 1:
            first, *_, last = position[0].tolist() if L > 1 else [int(position)] * 2
            if last - first == L - 1 and first <= cached:
                return cls(B, position[0], max(last + 1, cached), first, last)
        last = int(position.max())
        return cls(B, position.expand(B, -1), max(last + 1, cached), None, last)

    def embeddable(self, pad: Tensor | None, count: int | None) -> Tensor:
        """The positions, with 0 for padding; raise if one is beyond the `count` learned positions."""
        if count is None:
            return self.values
        position, last = self.values, self.last
        if position.dim() == 2 and pad is not None:
            position, last = position.masked_fill(pad, 0), None
        if last is None:
            last = int(position.max()) if position.numel() else -1
        if last >= count:
            raise ValueError(f"{last + 1} tokens are too many: this network has {count} positions; use fewer tokens")
        return position

    def join(self, old: KeyValue | None, new: KeyValue) -> KeyValue:
        """Keys and values of all columns: new ones at their positions, cached ones elsewhere."""
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
        return whole.scatter(2, self.values[:, None, :, None].expand(b, h, -1, d), new)

    def missing(self, old: KeyValueCache, pad: Tensor | None) -> Tensor | None:
        """(B, keys) bool: columns still empty after the new tokens, padded as in `pad`, are joined; None if none is."""
        if self.first is not None and old.missing is None and pad is None:
            return None
        whole = torch.ones(self.rows, self.keys, dtype=torch.bool, device=self.values.device)
        whole[:, : old.columns] = False if old.missing is None else old.missing
        position = self.values.expand(self.rows, -1)
        return whole.scatter(1, position, torch.zeros_like(position, dtype=torch.bool) if pad is None else pad)
