"""Onnx: causal decoding by onnxruntime, with the 8-bit weights of `onnx_graph`, on a CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from redraft.models.networks.attention import RopeScaling, RotaryEmbedding
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.executors.base import Executor, Network, _embedded
from redraft.models.networks.executors.dense import Dense
from redraft.models.networks.forward_pass import ForwardPass, PassOutput
from redraft.models.networks.kv_cache import _KeyValueBuffer

_MOST_TOKENS = 256  # of a row in one run; more would need much memory for attention
_MOST_BINDINGS = 64


@dataclass(frozen=True, eq=False)
class Onnx(Executor):
    """Runs the tokens right after the cached ones, row by row, in onnxruntime; `inner` runs all other passes.

    The other passes use the network's own weights. The bits of a token do not depend on what is read with it, so drafts
    and batches change no text. If a trial at opening shows that several tokens round differently on this CPU, they are
    read one by one.
    """

    layers: Any  # InferenceSession of all layers
    output: Any  # InferenceSession of the output layer
    inner: Executor = Dense()
    together: bool = True  # read several tokens of a row in one run
    each_run: Callable[[], None] | None = None  # called after each run of the layers
    _bindings: dict[tuple[Any, ...], _Binding] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, layers: Path, output: Path, network: Network) -> Onnx:
        """Open the graphs of a network, with the threads that torch has now."""
        opened = cls(_session(layers), _session(output))
        return opened if opened._is_batch_invariant(network) else replace(opened, together=False)

    def trunk(self, network: Network, forward_pass: ForwardPass) -> PassOutput:
        if not _fits(network, forward_pass):
            return self.inner.trunk(network, forward_pass)
        c, positions, past = network.config, forward_pass.positions, forward_pass.past
        h = _embedded(network, forward_pass).detach().float()
        if positions.first != past.columns:  # columns before the last one change, which older caches may still read
            past = replace(past, buffer=None)
        columns = positions.keys - past.columns + 1  # one for the query that is dropped
        buffer = _KeyValueBuffer.after(past, (c.layers, len(h), c.groups, columns, c.head_width), h)
        states, at = torch.zeros(h.shape), forward_pass.at
        for row, (first, end) in enumerate(_row_spans(forward_pass)):
            states[row, : end - first] = self._read(c, h[row, : end - first], buffer, row, first)
        buffer.filled = positions.keys
        return PassOutput(states if at is None else at.take(states), None, [], buffer)

    def logits(self, network: Network, h: Tensor) -> Tensor:
        flat = h.detach().reshape(-1, h.shape[-1]).float()
        parts = flat.split(len(flat) if self.together else 1) if len(flat) else ()
        logits = torch.empty(len(flat), self.output.get_outputs()[0].shape[-1])
        for part, out in zip(parts, logits.split(len(parts[0])) if parts else (), strict=True):
            binding = self.output.io_binding()
            _bind(binding.bind_input, "states", part.contiguous())
            _bind(binding.bind_output, "logits", out)
            self.output.run_with_iobinding(binding)
        return logits.view(*h.shape[:-1], -1)

    def unpacked(self, each_run: Callable[[], None]) -> Onnx:
        return replace(self, each_run=each_run)

    def _read(self, config: TransformerConfig, h: Tensor, buffer: _KeyValueBuffer, row: int, first: int) -> Tensor:
        """(n, D) embedded tokens of a row, from position `first` on → (n, D) states before the last norm."""
        parts = h.split(_MOST_TOKENS if self.together else 1) if len(h) else (h,)
        states = []
        for part in parts:
            states.append(self._run(config, part, buffer, row, first))
            first += len(part)
        return states[0] if len(states) == 1 else torch.cat(states)

    def _run(self, config: TransformerConfig, h: Tensor, buffer: _KeyValueBuffer, row: int, first: int) -> Tensor:
        """Read all tokens in one run of the layers; this row of the buffer gets the new keys and values."""
        if not len(h):
            return h
        total = first + len(h) + 1
        bound = self._binding(config, buffer, row, 1 << max(6, total.bit_length()))
        bound.last.fill_(total - 1)
        bound.total.fill_(total)
        states, h = torch.empty(h.shape), h.contiguous()
        _bind(bound.io.bind_input, "h", h[None])
        _bind(bound.io.bind_output, "states", states[None])
        self.layers.run_with_iobinding(bound.io)
        if self.each_run is not None:
            self.each_run()
        return states

    def _binding(self, config: TransformerConfig, buffer: _KeyValueBuffer, row: int, positions: int) -> _Binding:
        """The inputs and outputs that stay where they are from pass to pass: binding them takes as long as a layer."""
        keys, values = buffer.keys[:, row : row + 1], buffer.values[:, row : row + 1]
        key = (keys.data_ptr(), values.data_ptr(), keys.shape, keys.stride(), positions)
        if key not in self._bindings:
            if len(self._bindings) == _MOST_BINDINGS:
                self._bindings.clear()
            self._bindings[key] = _Binding.of(self.layers, keys, values, _rotary_tables(config, positions))
        return self._bindings[key]

    @torch.no_grad()
    def _is_batch_invariant(self, network: Network) -> bool:
        """Whether tokens get the same bits read one by one and together, whatever number of others is cached."""
        c, new = network.config, 4
        h = (torch.arange(new * c.width).float() * 12.9898).sin().view(new, c.width)
        for held in (0, 62, 254):
            shape = (c.layers, 1, c.groups, held + new + 1, c.head_width)
            numbers = (torch.arange(2 * math.prod(shape)).float() * 78.233).sin().view(2, *shape)
            one, other = (_KeyValueBuffer(keys, values, held) for keys, values in (numbers.clone(), numbers.clone()))
            states = self._read(c, h, one, 0, held)
            alone = torch.cat([self._read(c, h[i : i + 1], other, 0, held + i) for i in range(new)])
            logits = torch.cat([self.logits(network, state) for state in states.split(1)])
            if not torch.equal(states, alone) or not torch.equal(self.logits(network, states), logits):
                return False
        return True


@dataclass(frozen=True)
class _Binding:
    """Bound inputs and outputs of a session; the numbers that change are written into `last` and `total`."""

    io: Any
    last: Tensor  # (1,) int32: the last position
    total: Tensor  # int32: number of keys
    tables: tuple[Tensor, ...]  # tensors bound to the session, kept alive here

    @classmethod
    def of(cls, session: Any, keys: Tensor, values: Tensor, tables: tuple[Tensor, ...]) -> _Binding:
        """Keys and values (layers, 1, Hkv, capacity, d) are read and written in place."""
        last, total = torch.zeros(1, dtype=torch.int32), torch.zeros((), dtype=torch.int32)
        bound = cls(session.io_binding(), last, total, tables)
        for name, tensor in zip(("last", "total", "cos", "sin"), (last, total, *tables), strict=False):
            _bind(bound.io.bind_input, name, tensor)
        for name, whole in (("keys", keys), ("values", values)):
            for i, layer in enumerate(whole):
                _bind(bound.io.bind_input, f"past_{name}_{i}", layer)
                _bind(bound.io.bind_output, f"{name}_{i}", layer)
        return bound


def _fits(network: Network, forward_pass: ForwardPass) -> bool:
    """Whether the network's own attention is asked for, outside of training."""
    attention, one = forward_pass.attention, forward_pass.tokens.shape[1] == 1
    own = one if attention is None else attention.pattern == network.config.pattern
    return own and not network.blocks.training


def _row_spans(forward_pass: ForwardPass) -> list[tuple[int, int]]:
    """For each row, the first and the end position of its new tokens, without padding."""
    (rows, length), positions, pad = forward_pass.tokens.shape, forward_pass.positions, forward_pass.context.pad
    starts = [positions.first] * rows if positions.first is not None else positions.values[:, 0].tolist()
    counts = [length] * rows if pad is None else (~pad).sum(1).tolist()
    spans = [(first, first + count) for first, count in zip(starts, counts, strict=True)]
    missing = forward_pass.missing
    read = [(row, end) for row, (first, end) in enumerate(spans) if end > first]
    if missing is not None and any(bool(missing[row, :end].any()) for row, end in read):
        raise ValueError("with weights=onnx a row must have no gap or padding before a token; pad rows at their ends")
    return spans


def _session(file: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def _bind(bind: Any, name: str, tensor: Tensor) -> None:
    """Bind a contiguous tensor to an input or output."""
    kind = np.int32 if tensor.dtype == torch.int32 else np.float32
    bind(name, "cpu", 0, kind, tuple(tensor.shape), tensor.data_ptr())


def _rotary_tables(c: TransformerConfig, positions: int) -> tuple[Tensor, ...]:
    """Cosines and sines, each (positions, d/2); nothing without rotary positions."""
    return () if c.rotary is None else _cos_sin(positions, c.head_width, c.rotary, c.rope_scaling)


@lru_cache(8)
def _cos_sin(positions: int, head_width: int, base: float, scaling: RopeScaling | None) -> tuple[Tensor, Tensor]:
    table, half = RotaryEmbedding.of(torch.arange(positions), head_width, base, scaling), head_width // 2
    return table.cos[:, :half].contiguous(), table.sin[:, half:].contiguous()
