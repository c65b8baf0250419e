"""Compiled: whole rows under torch.compile, in few shapes, so that on a GPU CUDA graphs can replay them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core.canvas import Context
from redraft.models.networks.attention import AttentionMask
from redraft.models.networks.executors.base import Executor, Network
from redraft.models.networks.executors.dense import Dense
from redraft.models.networks.executors.row import Row
from redraft.models.networks.forward_pass import ForwardPass, PassOutput, _QueryPositions
from redraft.models.networks.kv_cache import TokenPositions
from redraft.models.networks.patterns import Full

_COLUMNS = 64  # rows are padded to a multiple of this
_SHAPES = 256  # of passes, at most; torch would stop compiling after 8


@dataclass(frozen=True)
class Compiled(Executor):
    """Runs whole rows of tokens by compiled code; `inner` runs all other passes, such as those with a cache.

    Each shape is compiled once, so shapes come in buckets: columns are padded to a multiple of 64; the number of rows,
    that of queries and the most queries in a row to a power of two.

    graphs: replay CUDA graphs, whose inputs and outputs torch keeps at fixed addresses. This has never run on a GPU.
    backend: the compiler, by its name in torch or as a function
    """

    inner: Executor = Row(Dense())
    graphs: bool = False
    backend: str | Callable[..., Any] = "inductor"

    def trunk(self, network: Network, forward_pass: ForwardPass) -> PassOutput:
        if not _fits(forward_pass):
            return self.inner.trunk(network, forward_pass)
        if self.graphs:
            torch.compiler.cudagraph_mark_step_begin()
        padded = _in_bucket(forward_pass, network.config.positions)
        with torch._dynamo.config.patch(recompile_limit=_SHAPES):
            output = self._compiled(network, padded)
        return _without_padding(output, forward_pass, copied=self.graphs)

    def logits(self, network: Network, h: Tensor) -> Tensor:
        return self.inner.logits(network, h)

    @cached_property
    def _compiled(self) -> Callable[[Network, ForwardPass], PassOutput]:
        mode = "reduce-overhead" if self.graphs else None
        return torch.compile(Dense().trunk, backend=self.backend, mode=mode, dynamic=False)


def _fits(forward_pass: ForwardPass) -> bool:
    """Whether this pass reads whole rows of tokens from position 0, without a cache, a label or a source."""
    tokens, positions, condition = forward_pass.tokens, forward_pass.positions, forward_pass.context.condition
    return (
        not forward_pass.extends_cache
        and not forward_pass.past.columns
        and tokens.dim() == 2
        and tokens.numel() > 0
        and positions.first == 0
        and positions.last == tokens.shape[1] - 1
        and condition.label is None
        and condition.source is None
        and (forward_pass.at is None or len(forward_pass.at.index) > 0)
    )


def _in_bucket(forward_pass: ForwardPass, most: int | None) -> ForwardPass:
    """The pass with padded rows, columns and queries; a network with `most` learned positions has no more columns."""
    (rows, length), pad, attention = forward_pass.tokens.shape, forward_pass.context.pad, forward_pass.attention
    columns = -(-length // _COLUMNS) * _COLUMNS
    columns = columns if most is None else max(length, min(columns, most))
    if columns > length and pad is None:
        pad = torch.zeros_like(forward_pass.tokens, dtype=torch.bool)
    extra = (0, columns - length, 0, _power_of_two(rows) - rows)
    pad = None if pad is None else F.pad(F.pad(pad, extra[:2], value=True), (0, 0, *extra[2:]))
    tokens, level = F.pad(forward_pass.tokens, extra), forward_pass.level
    if level is not None:
        level = F.pad(level, extra if level.shape[1] > 1 else (0, 0, *extra[2:]))
    values = torch.arange(columns, device=tokens.device)
    if pad is not None or attention is not None:
        attention = AttentionMask(Full() if attention is None else attention.pattern, values, columns, pad)
    positions, at = TokenPositions(len(tokens), values, columns, 0, columns - 1), forward_pass.at
    at = None if at is None else _queries_in_bucket(at.index, length, *tokens.shape)
    return replace(
        forward_pass, tokens=tokens, level=level, positions=positions, attention=attention, context=Context(pad), at=at
    )


def _queries_in_bucket(index: Tensor, length: int, rows: int, columns: int) -> _QueryPositions:
    """The queries at `index` of rows of `length` columns, in longer rows, followed by copies of the last query."""
    index = index // length * columns + index % length
    queries, extra = _QueryPositions.of(index, rows, columns), _power_of_two(len(index)) - len(index)
    index = _repeat_last(index, extra)
    if rows == 1:
        return replace(queries, index=index, shape=(1, len(index)))
    most, width = queries.shape[1], _power_of_two(queries.shape[1])
    slot = torch.arange(len(queries.index), device=index.device) if queries.slot is None else queries.slot
    slot = _repeat_last(slot // most * width + slot % most, extra)  # a copy is written where the last query is
    return replace(queries, index=index, shape=(rows, width), slot=slot)


def _repeat_last(a: Tensor, count: int) -> Tensor:
    return torch.cat([a, a[-1:].expand(count)])


def _power_of_two(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << (n - 1).bit_length()


def _without_padding(output: PassOutput, forward_pass: ForwardPass, copied: bool) -> PassOutput:
    """The states that were wanted; copied, since the next replay of a CUDA graph overwrites its outputs."""
    h, time, (rows, length) = output.h, output.time, forward_pass.tokens.shape
    if forward_pass.at is None:
        h = h[:rows, :length]
        time = None if time is None else replace(time, index=time.index[:rows, :length])
    else:
        count = len(forward_pass.at.index)
        h, time = h[:count], None if time is None else replace(time, index=time.index[:count])
    if copied:
        h = h.clone()
        time = None if time is None else replace(time, embedded=time.embedded.clone(), index=time.index.clone())
    return PassOutput(h, time, [])
