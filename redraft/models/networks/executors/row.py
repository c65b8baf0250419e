"""Row: one row of a causal network, in preallocated keys and values and with few small operations.

Results equal those of the general pass up to rounding. A token costs little more than reading all weights once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor

from redraft.models.networks.attention import RotaryEmbedding, attend
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.executors.base import Executor, Network, _embedded
from redraft.models.networks.forward_pass import ForwardPass, PassOutput
from redraft.models.networks.kv_cache import COLUMN_STEP, KeyValueCache, _KeyValueBuffer
from redraft.models.networks.layers import Block, _Attention


def _buffer_after(past: KeyValueCache, config: TransformerConfig, h: Tensor) -> _KeyValueBuffer:
    shape = (config.layers, 1, config.groups, h.shape[1], config.head_width)
    return _KeyValueBuffer.after(past, shape, h)


@dataclass(frozen=True)
class Row(Executor):
    """Runs the next tokens of a single row of a plain causal network on a CPU; `inner` runs all other passes."""

    inner: Executor

    def trunk(self, network: Network, forward_pass: ForwardPass) -> PassOutput:
        if not _fits(network, forward_pass):
            return self.inner.trunk(network, forward_pass)
        h = _embedded(network, forward_pass)
        buffer = _buffer_after(forward_pass.past, network.config, h)
        parts = h.split(64, 1) if network.batch_invariant else (h,)
        return PassOutput(torch.cat([_run(network, part, buffer) for part in parts], 1), None, [], buffer)

    def logits(self, network: Network, h: Tensor) -> Tensor:
        return self.inner.logits(network, h)


@torch.no_grad()
def peek(network: Network, h: Tensor, past: KeyValueCache) -> Tensor:
    """(1, n, D) embedded inputs right after the tokens of a cache → (1, n, D) states; the cache is unchanged."""
    buffer = _buffer_after(past, network.config, h)
    filled = buffer.filled
    states = _run(network, h, buffer)
    buffer.filled = filled
    return cast(Tensor, network.norm(states))


def _fits(network: Network, forward_pass: ForwardPass) -> bool:
    """Whether these are the next tokens of a single row of a plain causal network, in fp32 on a CPU."""
    c, tokens, past = network.config, forward_pass.tokens, forward_pass.past
    return (
        forward_pass.extends_cache
        and c.pattern.causal
        and not c.qk_norm
        and network.io.cross is None
        and len(tokens) == 1
        and forward_pass.missing is None
        and tokens.is_cpu
        and not network.blocks.training
        and not torch.is_autocast_enabled("cpu")
        and forward_pass.positions.first == past.columns
        and (network.batch_invariant or tokens.shape[1] < 65)
    )


def _run(network: Network, h: Tensor, buffer: _KeyValueBuffer) -> Tensor:
    """(1, n, D) embedded tokens right after those in the buffer → (1, n, D) states before the last norm.

    In a batch-invariant network a token gets the same bits whether it is read alone or together with others.
    """
    first, end, even = buffer.filled, buffer.filled + h.shape[1], network.batch_invariant
    masks = _invariant_masks(first, end, h.device) if even else (_mask(first, end, h.device),)
    rotary = _rotary(network.config, torch.arange(first, end, device=h.device))
    for i, block in enumerate(cast("Iterable[Block]", network.blocks)):
        h = _Layer(buffer.keys[i, 0], buffer.values[i, 0], first, rotary, masks, even).run(block, h)
    buffer.filled = end
    return h


class _RowMask(NamedTuple):
    """The attention mask of some of the new tokens."""

    rows: slice  # range among the new tokens
    keys: int  # number of leading keys that these tokens read
    mask: Tensor | None  # (rows, keys), 0 or −∞; None if no pair is masked


def _mask(first: int, end: int, device: torch.device) -> _RowMask:
    """One causal mask for all new tokens."""
    if end - first == 1:
        return _RowMask(slice(0, 1), end, None)
    return _RowMask(slice(0, end - first), end, _causal(first, end, end, device))


def _causal(first: int, end: int, keys: int, device: torch.device) -> Tensor:
    """(end − first, keys): 0 for a token itself and the tokens before it, −∞ for later ones."""
    return torch.full((end - first, keys), -torch.inf, device=device).triu(first + 1)


def _invariant_masks(first: int, end: int, device: torch.device) -> tuple[_RowMask, ...]:
    """Masks in which the number of keys that a token reads depends only on its position, not on the other tokens."""
    mask = _causal(first, end, -(-end // COLUMN_STEP) * COLUMN_STEP, device)
    masks, begin = [], first
    while begin < end:
        keys = (begin // COLUMN_STEP + 1) * COLUMN_STEP
        rows = slice(begin - first, min(end, keys) - first)
        masks.append(_RowMask(rows, keys, mask[rows, :keys]))
        begin = keys
    return tuple(masks)


@dataclass(frozen=True)
class _Layer:
    """Runs one block on new tokens of a row, and writes their keys and values into the buffer."""

    keys: Tensor  # (Hkv, capacity, d)
    values: Tensor  # (Hkv, capacity, d)
    first: int  # column of the first new token
    rotary: RotaryEmbedding | None  # cosines and sines (n, 1, d); None without rotary positions
    masks: tuple[_RowMask, ...]
    batch_invariant: bool

    def run(self, block: Block, h: Tensor) -> Tensor:
        """(1, n, D) → (1, n, D)"""
        h = h + self._attend(block.attention, block.norm1(h[0]))
        return h + block.mlp(block.norm2(h))

    def _attend(self, attention: _Attention, h: Tensor) -> Tensor:
        """(n, D) → (n, D). Queries that share a key–value head are grouped, so that no keys are repeated."""
        c, n, end = attention.config, len(h), self.first + len(h)
        d, groups, heads = c.head_width, c.groups, c.heads // c.groups
        both = attention.qkv(h).view(n, c.heads + 2 * groups, d)
        qk = both[:, : c.heads + groups]
        if self.rotary is not None:
            qk = torch.addcmul(qk * self.rotary.cos, qk.roll(d // 2, -1), self.rotary.sin)
        self.keys[:, self.first : end] = qk[:, c.heads :].transpose(0, 1)
        self.values[:, self.first : end] = both[:, c.heads + groups :].transpose(0, 1)
        q = qk[:, : c.heads].reshape(n, groups, heads, d)
        mixed = self._attend_per_token(q) if self.batch_invariant else self._attend_together(q)
        return attention.out(mixed.reshape(n, c.heads * d))

    def _attend_together(self, q: Tensor) -> Tensor:
        """(n, Hkv, heads per group, d) queries → attention outputs of the same shape, from one call."""
        n, groups, heads, d = q.shape
        _, keys, mask = self.masks[0]
        k, v = self.keys[None, :, :keys], self.values[None, :, :keys]
        mask = None if mask is None else mask.repeat(heads, 1)
        mixed = attend(q.permute(1, 2, 0, 3).reshape(1, groups, heads * n, d), k, v, mask)
        return mixed.view(groups, heads, n, d).permute(2, 0, 1, 3)

    def _attend_per_token(self, q: Tensor) -> Tensor:
        """(n, Hkv, heads per group, d) queries → attention outputs of the same shape.

        Each token is its own batch element, so that its bits do not depend on the other tokens.
        """
        parts = []
        for rows, keys, mask in self.masks:
            assert mask is not None
            k, v = (a[None, :, :keys].expand(len(mask), -1, -1, -1) for a in (self.keys, self.values))
            parts.append(attend(q[rows].contiguous(), k, v, mask[:, None, None]))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def _rotary(c: TransformerConfig, position: Tensor) -> RotaryEmbedding | None:
    """(n,) positions → their rotary embedding, with cosines and sines (n, 1, d); None without rotary positions."""
    if c.rotary is None:
        return None
    rotary = RotaryEmbedding.of(position, c.head_width, c.rotary, c.rope_scaling)
    return RotaryEmbedding(rotary.cos[:, None], rotary.sin[:, None])
