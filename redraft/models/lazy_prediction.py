"""A network's prediction, computed when it is queried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core import ops
from redraft.core.canvas import Context
from redraft.core.prediction import GapPrediction, Prediction
from redraft.core.processes.base import Process
from redraft.core.processes.insertion import CategoricalGaps, Insertion, PoissonGaps
from redraft.models.config import DiffusionLMConfig
from redraft.models.networks.kv_cache import KeyValueCache
from redraft.models.networks.transformer import Transformer


def _fit_vocab(raw: Tensor, size: int) -> Tensor:
    """(N, outputs) → (N, size): drops unused outputs, and adds −∞ for a mask without an output."""
    return F.pad(raw[:, :size], (0, max(0, size - raw.shape[1])), value=-torch.inf)


class _Model(Protocol):
    """The part of `DiffusionLM` that a prediction uses."""

    config: DiffusionLMConfig
    network: Transformer

    @property
    def process(self) -> Process: ...

    @property
    def block(self) -> int | None: ...


class LazyPrediction(Prediction):
    """The network's prediction, computed by each query for the queried positions.

    Each query is a forward pass, so query all positions that you need at once.
    """

    def __init__(self, model: _Model, z: Tensor, t: Tensor, context: Context) -> None:
        self._model, self._z, self._t, self._context = model, z, t, context
        # later queries run with the grad mode and autocast settings of this moment
        self._grad = torch.is_grad_enabled()
        kind = z.device.type
        self._autocast = (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))

    @property
    def normalized(self) -> bool:
        return self._model.config.token_head.normalized

    @property
    def gaps(self) -> GapPrediction:
        if self._model.config.network.gaps is None:
            return super().gaps
        with self._initial_modes():
            raw, network, process = self._states_and_gaps[1], self._model.config.network, self._model.process
            if network.gap_fraction:
                insertion = process.narrowed(Insertion, "gap_fraction", "leave it out")
                raw = raw + insertion.log_missing(self._t).to(raw.dtype)
            return CategoricalGaps(raw.log_softmax(-1)) if network.gap_counts else PoissonGaps(raw)

    @property
    def x(self) -> Tensor:
        everywhere = torch.ones_like(self._z, dtype=torch.bool)
        return self.at(everywhere).view(*self._z.shape, self._model.config.vocab.size)

    def at(self, where: Tensor) -> Tensor:
        with self._initial_modes():
            weights = self._weights(where)
            return weights.log_softmax(-1) if self.normalized else weights

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        with self._initial_modes():
            index = ops.flat_positions(where)
            nll = ops.nll if self.normalized else ops.intensity_nll
            loss = nll(self._weights(where), target.flatten()[index])
            return loss.new_zeros(where.numel()).index_copy(0, index, loss).view(where.shape)

    def _weights(self, where: Tensor) -> Tensor:
        """(N, V) unnormalized fp32 log-weights."""
        config, index = self._model.config, ops.flat_positions(where)
        raw = self._model.network.logits(self._states(where, index))
        raw = raw if raw.shape[-1] == config.vocab.size else _fit_vocab(raw, config.vocab.size)
        z, t = self._z.take(index), self._t.expand_as(self._z).take(index)
        return self._exclude_ends(config.token_head.estimate(raw, z, t, config.process), where)

    def _exclude_ends(self, weights: Tensor, where: Tensor) -> Tensor:
        """Exclude start, end and padding tokens before given text, which they would cut off."""
        no_end = self._context.constraints.no_end_token
        if no_end is None or not (ends := self._model.config.vocab.ends):
            return weights
        excluded = torch.zeros(weights.shape[-1], dtype=torch.bool, device=weights.device)
        excluded[list(ends)] = True
        return weights.masked_fill(no_end[where][:, None] & excluded, -torch.inf)

    def _states(self, where: Tensor, at: Tensor) -> Tensor:
        """(N, D) states that predict the queried tokens.

        Rows without a query are left out of the forward pass.

        where: (B, L) bool, True at queries; at: (N,) the same as indices row · L + column.
        """
        config, z, t, context = self._model.config, self._z, self._t, self._context
        if config.network.gaps is not None:
            return self._states_and_gaps[0][where]
        if self._model.block == 1 and (cached := KeyValueCache.of(context).states_before(context)) is not None:
            return cached[where]
        if len(z) > 1 or not len(at):
            rows = where.any(-1)
            if self._grad and not len(at):  # DDP needs a graph that reaches every weight, even from an empty query
                rows[0] = True
            if not ops.to_numpy(rows).all():
                index = ops.flat_positions(rows)
                z, t, context, at = z[index], t[index], context.rows(index), ops.flat_positions(where[index])
        if not len(z):
            return torch.zeros(0, config.network.width, device=z.device)
        if not config.reads_previous_state:
            return self._model.network(z, config.noise_level(t), context, at)
        column = at % z.shape[1]
        source = config.token_head.source(column)
        if (ops.to_numpy(source) < 0).any():
            return self._states_from_cache(z, t, context, at // z.shape[1], source)
        return self._model.network(z, config.noise_level(t), context, at - column + source)

    def _states_from_cache(self, z: Tensor, t: Tensor, context: Context, row: Tensor, source: Tensor) -> Tensor:
        """(N, D) states at the columns `source`, of which −1 is the last token of the cache."""
        config, at = self._model.config, row * z.shape[1] + source.clamp(min=0)
        cache = KeyValueCache.of(context)
        before = cache.state_before(context.positions)
        if before is None and config.is_plain_causal:
            raise ValueError("nothing predicts the first token of a row; give it, by a prompt or a start token")
        if before is None:
            return self._model.network(z, config.noise_level(t), context, at)
        states, later = before[row, 0], (source >= 0).nonzero().squeeze(-1)
        if len(later):
            computed = self._model.network(z, config.noise_level(t), context, at[later])
            states = states.to(computed.dtype).index_copy(0, later, computed)
        return states

    @cached_property
    def _states_and_gaps(self) -> tuple[Tensor, Tensor]:
        """(B, L, D) states and (B, L + 1, …) gap outputs of all positions, from one pass; insertion needs all of both.

        The first padding token of a row marks its end and carries the gap there. Columns that are padding in all rows
        are left out of the pass.
        """
        (B, L), pad, vocab = self._z.shape, self._context.pad, self._model.config.vocab
        most = L if pad is None else int((~pad).sum(-1).max())
        ids = F.pad(self._z[:, :most], (0, 1), value=vocab.filler)
        context = replace(self._context, pad=None if pad is None else F.pad(pad[:, :most], (1, 0), value=False))
        states, gaps = self._model.network.with_gaps(ids, self._model.config.noise_level(self._t), context)
        states, gaps = (torch.cat([a, a.new_zeros(B, L - most, *a.shape[2:])], 1) for a in (states, gaps))
        return states[:, :L], gaps

    def _initial_modes(self) -> AbstractContextManager[object]:
        """The grad mode and autocast settings of the time when the prediction was made."""
        kind, dtype, enabled = self._autocast
        if self._grad == torch.is_grad_enabled() and not enabled and not torch.is_autocast_enabled(kind):
            return _UNCHANGED
        return _mode(self._grad, kind, dtype, enabled)


_UNCHANGED = nullcontext()


@contextmanager
def _mode(grad: bool, kind: str, dtype: torch.dtype, autocast: bool) -> Iterator[None]:
    with torch.set_grad_enabled(grad), torch.autocast(kind, dtype, enabled=autocast):
        yield
