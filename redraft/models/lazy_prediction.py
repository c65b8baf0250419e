"""The prediction of a network, computed when it is queried."""

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
from redraft.models.networks.transformer import Transformer, cached_states


def _of_states(raw: Tensor, states: int) -> Tensor:
    """(N, outputs) → (N, states): some networks have rows that stand for nothing, some have none for the mask."""
    return F.pad(raw[:, :states], (0, max(0, states - raw.shape[1])), value=-torch.inf)


class _Model(Protocol):
    """What a prediction needs of its `DiffusionLM`."""

    config: DiffusionLMConfig
    network: Transformer

    @property
    def process(self) -> Process: ...

    @property
    def block(self) -> int | None: ...


class LazyPrediction(Prediction):
    """The network's prediction, computed anew by each query for the positions it names: query once, for all of them."""

    def __init__(self, model: _Model, z: Tensor, t: Tensor, context: Context) -> None:
        self._model, self._z, self._t, self._context = model, z, t, context
        # a later query runs in the grad mode and autocast of this moment
        self._grad = torch.is_grad_enabled()
        kind = z.device.type
        self._autocast = (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))

    @property
    def normalised(self) -> bool:
        return self._model.config.token_head.normalised

    @property
    def gaps(self) -> GapPrediction:
        if self._model.config.network.gaps is None:
            return super().gaps
        with self._birth():
            said, network, process = self._everything[1], self._model.config.network, self._model.process
            if network.gap_share and isinstance(process, Insertion):
                said = said + process.log_missing(self._t).to(said.dtype)
            return CategoricalGaps(said.log_softmax(-1)) if network.gap_counts else PoissonGaps(said)

    @property
    def x(self) -> Tensor:
        everywhere = torch.ones_like(self._z, dtype=torch.bool)
        return self.at(everywhere).view(*self._z.shape, self._model.config.vocab.size)

    def at(self, where: Tensor) -> Tensor:
        with self._birth():
            weights = self._weights(where)
            return weights.log_softmax(-1) if self.normalised else weights

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        with self._birth():
            index = ops.flat_positions(where)
            price = ops.nll if self.normalised else ops.intensity_nll
            loss = price(self._weights(where), target.flatten()[index])
            return loss.new_zeros(where.numel()).index_copy(0, index, loss).view(where.shape)

    def _weights(self, where: Tensor) -> Tensor:
        """(N, V) unnormalised fp32 log-weights."""
        config, index = self._model.config, ops.flat_positions(where)
        raw = self._model.network.logits(self._states(where, index))
        raw = raw if raw.shape[-1] == config.vocab.size else _of_states(raw, config.vocab.size)
        z, t = self._z.take(index), self._t.expand_as(self._z).take(index)
        return self._unended(config.token_head.estimate(raw, z, t, config.process), where)

    def _unended(self, weights: Tensor, where: Tensor) -> Tensor:
        """Excludes start, end and padding tokens where given text follows, which they would cut off."""
        inside, ends = self._context.inside, self._model.config.vocab.ends
        if inside is None or not ends:
            return weights
        barred = torch.zeros(weights.shape[-1], dtype=torch.bool, device=weights.device)
        barred[list(ends)] = True
        return weights.masked_fill(inside[where][:, None] & barred, -torch.inf)

    def _states(self, where: Tensor, place: Tensor) -> Tensor:
        """(N, D) states at the marked positions, `place` (N,); rows without any are left out of the batch."""
        config, z, t, context = self._model.config, self._z, self._t, self._context
        if config.network.gaps is not None:
            return self._everything[0][where]
        if self._model.block == 1 and (held := cached_states(context)) is not None:
            return held[where]
        if len(z) > 1 or not len(place):
            rows = where.any(-1)
            if self._grad and not len(place):  # DDP needs a graph that reaches every weight, even from an empty query
                rows[0] = True
            if not ops.to_numpy(rows).all():
                index = ops.flat_positions(rows)
                z, t, context, place = z[index], t[index], context.rows(index), ops.flat_positions(where[index])
        if not len(z):
            return torch.zeros(0, config.network.width, device=z.device)
        column = place % z.shape[1]
        source = config.token_head.source(column)
        if source is column:
            return self._model.network(z, config.noise_level(t), context, place)
        if (ops.to_numpy(source) < 0).any():
            return self._from_before(z, t, context, place // z.shape[1], source)
        return self._model.network(z, config.noise_level(t), context, place - column + source)

    def _from_before(self, z: Tensor, t: Tensor, context: Context, row: Tensor, source: Tensor) -> Tensor:
        """(N, D) states at the sources of which some stand before the window: the last one that the cache holds."""
        config, place = self._model.config, row * z.shape[1] + source.clamp(min=0)
        cache = context.cache if isinstance(context.cache, KeyValueCache) else KeyValueCache()
        ahead = cache.state_before(context.place)
        if ahead is None and config.continues:
            raise ValueError("nothing predicts the first token of a row: give it, by a prompt or a start token")
        if ahead is None:
            return self._model.network(z, config.noise_level(t), context, place)
        states, later = ahead[row, 0], (source >= 0).nonzero().squeeze(-1)
        if len(later):
            found = self._model.network(z, config.noise_level(t), context, place[later])
            states = states.to(found.dtype).index_copy(0, later, found)
        return states

    @cached_property
    def _everything(self) -> tuple[Tensor, Tensor]:
        """(B, L, D) all states and (B, L + 1, …) all gaps, from one pass: insertion needs both, and every gap.

        The first padding token of a row marks its end and carries the gap there. Columns no row reaches are cut.
        """
        (B, L), pad, vocab = self._z.shape, self._context.pad, self._model.config.vocab
        most = L if pad is None else int((~pad).sum(-1).max())
        ids = F.pad(self._z[:, :most], (0, 1), value=vocab.filler)
        context = replace(self._context, pad=None if pad is None else F.pad(pad[:, :most], (1, 0), value=False))
        states, gaps = self._model.network.with_gaps(ids, self._model.config.noise_level(self._t), context)
        states, gaps = (torch.cat([a, a.new_zeros(B, L - most, *a.shape[2:])], 1) for a in (states, gaps))
        return states[:, :L], gaps

    def _birth(self) -> AbstractContextManager[object]:
        kind, dtype, enabled = self._autocast
        if self._grad == torch.is_grad_enabled() and not enabled and not torch.is_autocast_enabled(kind):
            return _UNCHANGED
        return _mode(self._grad, kind, dtype, enabled)


_UNCHANGED = nullcontext()


@contextmanager
def _mode(grad: bool, kind: str, dtype: torch.dtype, autocast: bool) -> Iterator[None]:
    with torch.set_grad_enabled(grad), torch.autocast(kind, dtype, enabled=autocast):
        yield
